//! Command window: accepted range and order of CmdSN, and the credit given to the initiator.

use crate::pdu::CmdSn;

/// ExpCmdSN and MaxCmdSN, as each PDU of a target carries them.
pub(crate) type CmdSns = (CmdSn, CmdSn);

/// Command window of a session: orders requests by CmdSN, and grants no more credit than there are places.
///
/// Source: RFC 7143 §4.2.2.1.
#[derive(Debug)]
pub(crate) struct CommandWindow<T> {
    expected: CmdSn,
    maximum: CmdSn,
    /// Requests that arrived early, indexed by the low bits of their CmdSN. Empty until the first gap.
    held: Vec<Option<T>>,
    held_count: u32,
    places: u32,
}

/// Position of a CmdSN relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Equal to ExpCmdSN.
    Next,
    /// In the window, with an earlier one missing.
    Ahead,
    /// Outside the window, or a duplicate: silently ignored.
    Outside,
}

impl<T> CommandWindow<T> {
    /// Creates a window that expects `first` and is open for `places` requests.
    pub(crate) fn new(first: CmdSn, places: u32) -> Self {
        // Serial number comparison is only meaningful over less than half of the number range (RFC 1982).
        assert!((1..1 << 31).contains(&places), "a window is narrower than half the circle of numbers");
        let maximum = first.plus(places).minus(1);
        Self { expected: first, maximum, held: Vec::new(), held_count: 0, places }
    }

    /// Returns ExpCmdSN, the next request to be taken.
    pub(crate) fn expected(&self) -> CmdSn {
        self.expected
    }

    /// Returns MaxCmdSN, the last request that may be sent.
    pub(crate) fn maximum(&self) -> CmdSn {
        self.maximum
    }

    /// Classifies `cmd_sn`.
    #[inline]
    pub(crate) fn judge(&self, cmd_sn: CmdSn) -> Arrival {
        // Serial number arithmetic (RFC 1982): distances wrap, so one unsigned comparison covers both sides of the
        // window.
        let distance = cmd_sn.since(self.expected);
        let open = self.maximum.next().since(self.expected);
        if distance >= open {
            Arrival::Outside
        } else if distance == 0 {
            Arrival::Next
        } else if self.held_count > 0 && self.held.get(self.place(cmd_sn)).is_some_and(Option::is_some) {
            // A duplicate: a request with this number has arrived early and is held.
            Arrival::Outside
        } else {
            Arrival::Ahead
        }
    }

    /// True when a request with `cmd_sn` is acceptable now.
    pub(crate) fn is_open_for(&self, cmd_sn: CmdSn) -> bool {
        self.judge(cmd_sn) != Arrival::Outside
    }

    /// True when no ordered request is acceptable.
    pub(crate) fn is_closed(&self) -> bool {
        self.maximum.next() == self.expected
    }

    /// True while a request is held behind a gap.
    pub(crate) fn holds_any(&self) -> bool {
        self.held_count > 0
    }

    /// Advances past the expected request.
    pub(crate) fn advance(&mut self) {
        assert!(!self.is_closed(), "ExpCmdSN goes no further than MaxCmdSN + 1");
        self.expected = self.expected.next();
    }

    /// Holds `request`, which [`CommandWindow::judge`] classified as ahead, until its turn comes.
    pub(crate) fn hold(&mut self, cmd_sn: CmdSn, request: T) {
        assert!(cmd_sn.since(self.expected) < self.places, "what is held lies in the window");
        // Allocated at the first gap: a session with one connection rarely has one.
        if self.held.is_empty() {
            // A power of two, so that the place follows from the low bits of the CmdSN.
            self.held.resize_with(self.places.next_power_of_two() as usize, || None);
        }
        let place = self.place(cmd_sn);
        let old = self.held.get_mut(place).and_then(|held| held.replace(request));
        assert!(old.is_none(), "the window is not wider than the places");
        self.held_count += 1;
    }

    /// Takes the held request that is next in order, and advances past it.
    pub(crate) fn take_held(&mut self) -> Option<T> {
        if self.held_count == 0 {
            return None;
        }
        // Only the next request in order may be taken; an empty place means that the gap is still open.
        let place = self.place(self.expected);
        let request = self.held.get_mut(place)?.take()?;
        self.held_count -= 1;
        self.advance();
        Some(request)
    }

    /// Raises MaxCmdSN to match the number of `free` places. It never decreases.
    #[inline]
    pub(crate) fn open(&mut self, free: u32) {
        // Held requests count as free places, because their CmdSN is not yet below ExpCmdSN.
        let width = (free + self.held_count).min(self.places);
        // RFC 7143 §4.2.2.1: a MaxCmdSN below an earlier one is ignored by the initiator, so the window only grows.
        if width > self.maximum.next().since(self.expected) {
            self.maximum = self.expected.plus(width).minus(1);
        }
        assert!(
            self.maximum.next().since(self.expected) <= self.places,
            "the window opens no more places than there are"
        );
    }

    fn place(&self, cmd_sn: CmdSn) -> usize {
        // The length is zero or a power of two; while it is zero, no caller uses the result.
        cmd_sn.0 as usize & self.held.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_takes_what_is_next_and_ignores_what_is_outside() {
        let mut window = CommandWindow::<u8>::new(CmdSn(u32::MAX), 4);
        assert_eq!(window.judge(CmdSn(u32::MAX - 1)), Arrival::Outside);
        assert_eq!(window.judge(CmdSn(u32::MAX)), Arrival::Next);
        assert_eq!(window.judge(CmdSn(2)), Arrival::Ahead);
        assert_eq!(window.judge(CmdSn(3)), Arrival::Outside);
        window.advance();
        assert_eq!(window.judge(CmdSn(u32::MAX)), Arrival::Outside, "a CmdSN below the window came already");
        assert_eq!(window.judge(CmdSn(3)), Arrival::Outside, "MaxCmdSN waits for a free place");
        window.open(4);
        assert_eq!(window.maximum(), CmdSn(3));
    }

    #[test]
    fn window_holds_what_is_ahead_until_the_hole_closes() {
        let mut window = CommandWindow::new(CmdSn(10), 4);
        window.hold(CmdSn(11), 'b');
        window.hold(CmdSn(13), 'd');
        assert_eq!(window.judge(CmdSn(11)), Arrival::Outside, "it came already");
        assert_eq!(window.take_held(), None);
        window.open(2);
        assert_eq!(window.maximum(), CmdSn(13), "held requests have their places");
        window.advance();
        assert_eq!(window.take_held(), Some('b'));
        assert_eq!(window.take_held(), None);
        window.advance();
        assert_eq!(window.take_held(), Some('d'));
        assert_eq!(window.expected(), CmdSn(14));
    }

    #[test]
    fn window_opens_again_while_requests_are_held() {
        let mut window = CommandWindow::new(CmdSn(10), 4);
        window.advance();
        window.hold(CmdSn(12), 'c');
        window.open(2);
        assert_eq!(window.maximum(), CmdSn(13));
        window.open(3);
        assert_eq!(window.maximum(), CmdSn(14), "10 has left its place, and 12 has one of its own");
        window.open(4);
        assert_eq!(window.maximum(), CmdSn(14), "the window is never wider than the places");
    }

    #[test]
    fn window_closes_when_no_place_is_free_and_never_goes_back() {
        let mut window = CommandWindow::<u8>::new(CmdSn(1), 2);
        window.advance();
        window.open(1);
        window.advance();
        window.open(0);
        assert_eq!(window.maximum(), CmdSn(2));
        assert_eq!(window.judge(CmdSn(3)), Arrival::Outside);
        window.open(1);
        assert_eq!(window.maximum(), CmdSn(3));
        window.open(0);
        assert_eq!(window.maximum(), CmdSn(3), "what was promised stays promised");
    }
}

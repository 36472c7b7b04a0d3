//! Recorder of one connection for one packet capture.

use super::CaptureBuffer;
use iscsi::{PduProgress, Redactor};
use model::{Wire, WireEnds};
use shard::Time;
use std::io::IoSlice;

/// Copies the traffic of one connection into the buffer of a capture. The recorded part of each direction starts at a
/// PDU boundary, also after a gap, so that a reader can find the next PDUs.
pub struct Recorder {
    buffer: CaptureBuffer,
    ends: WireEnds,
    hears: DirectionState,
    says: DirectionState,
    now: Time,
}

struct DirectionState {
    from_initiator: bool,
    place: StreamState,
    /// Bytes skipped since the last recorded ones.
    bytes_lost: u64,
    /// Removes secrets, during the login.
    redactor: Option<Redactor>,
}

#[derive(Clone, Copy)]
enum StreamState {
    /// All bytes are recorded.
    Records,
    /// Bytes left of a PDU whose start was not recorded.
    Skips(usize),
    /// Bytes were lost, and the next PDU boundary is not known yet.
    Seeks,
    /// Bytes of the login were lost. The rest of the direction is not recorded, because secrets in it can no longer be
    /// located.
    GaveUp,
}

impl Recorder {
    /// Starts to record a connection that was just accepted.
    pub fn from_the_start(tape: CaptureBuffer, ends: WireEnds, now: Time) -> Self {
        // Best effort: a full buffer loses only the record of the opening, no traffic.
        tape.put(now, ends, Wire::Opened);
        let way = |from_initiator| DirectionState {
            from_initiator,
            place: StreamState::Records,
            bytes_lost: 0,
            redactor: Some(Redactor::new()),
        };
        Self { buffer: tape, ends, hears: way(true), says: way(false), now }
    }

    /// Starts to record a connection in full feature phase, from the next PDU of each direction on. `heard` is the
    /// received part of the PDU in progress; `unsent_bytes` is the length of the queued output.
    pub fn from_next_pdu(
        tape: CaptureBuffer,
        ends: WireEnds,
        heard: PduProgress<'_>,
        unsent_bytes: usize,
        now: Time,
    ) -> Self {
        let way = |from_initiator| DirectionState {
            from_initiator,
            place: StreamState::Seeks,
            bytes_lost: 0,
            redactor: None,
        };
        let mut recorder = Self { buffer: tape, ends, hears: way(true), says: way(false), now };
        recorder.resync_receive(heard, now);
        recorder.resync_send(unsent_bytes);
        recorder
    }

    /// True when the recorder writes to `tape`.
    pub fn tells(&self, tape: &CaptureBuffer) -> bool {
        self.buffer.is(tape)
    }

    /// True when the capture has ended.
    pub fn is_over(&self) -> bool {
        self.buffer.is_over()
    }

    /// Resynchronizes the receive direction before a receive. `heard` is the received part of the PDU in progress.
    pub fn resync_receive(&mut self, heard: PduProgress<'_>, now: Time) {
        // Only a direction that lost its position has to find one.
        if !matches!(self.hears.place, StreamState::Seeks) {
            return;
        }
        match heard {
            // The start of this PDU is gone, so its rest is skipped.
            PduProgress::Remaining(left) => self.hears.place = StreamState::Skips(left),
            PduProgress::Buffered(begun) => {
                self.hears.place = StreamState::Records;
                // The start of the PDU is still in the receive buffer, so it is recorded after the fact.
                self.hears.bytes_lost = self.hears.bytes_lost.saturating_sub(begun.len() as u64);
                if !begun.is_empty() {
                    self.record_received(begun, now);
                }
            }
        }
    }

    /// Resynchronizes the send direction before a send. The queued output of `unsent_bytes` ends with a PDU.
    pub fn resync_send(&mut self, unsent_bytes: usize) {
        if matches!(self.says.place, StreamState::Seeks) {
            self.says.place = StreamState::Skips(unsent_bytes);
        }
    }

    /// Records bytes received from the initiator.
    pub fn record_received(&mut self, bytes: &[u8], now: Time) {
        self.now = now;
        self.hears.take(&self.buffer, self.ends, &[IoSlice::new(bytes)], bytes.len(), now);
    }

    /// Sets the end time of the connection.
    pub fn end_at(&mut self, now: Time) {
        self.now = now;
    }

    /// Records the first `len` bytes of `slices`, which were sent.
    pub fn record_sent(&mut self, slices: &[IoSlice<'_>], len: usize, now: Time) {
        self.now = now;
        self.says.take(&self.buffer, self.ends, slices, len, now);
    }
}

impl DirectionState {
    fn take(&mut self, tape: &CaptureBuffer, ends: WireEnds, slices: &[IoSlice<'_>], len: usize, now: Time) {
        // The captured part starts at a PDU boundary within these bytes.
        let skipped = match self.place {
            StreamState::Records => 0,
            StreamState::Skips(left) => left.min(len),
            StreamState::Seeks | StreamState::GaveUp => len,
        };
        match &mut self.place {
            StreamState::Skips(left) if *left > skipped => *left -= skipped,
            StreamState::Skips(_) => self.place = StreamState::Records,
            StreamState::Seeks | StreamState::GaveUp => tape.lose(),
            StreamState::Records => {}
        }
        self.bytes_lost += skipped as u64;
        if skipped == len {
            return;
        }
        let mut bytes = copy(slices, skipped, len);
        // Credentials must never reach a capture file, so the login is redacted before the copy leaves the connection.
        if let Some(redactor) = &mut self.redactor {
            redactor.redact(&mut bytes);
        }
        // After the login nothing is secret, so the redactor is dropped.
        self.redactor.take_if(|redactor| redactor.is_done());
        let bytes_lost = std::mem::take(&mut self.bytes_lost);
        let what = Wire::Moved { from_initiator: self.from_initiator, bytes_lost, bytes };
        if !tape.put(now, ends, what) {
            self.bytes_lost = bytes_lost + (len - skipped) as u64;
            // A gap during the login makes the position of secrets unknown.
            self.place = if self.redactor.is_some() { StreamState::GaveUp } else { StreamState::Seeks };
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.buffer.put(self.now, self.ends, Wire::Closed);
    }
}

/// Copies the bytes from `from` to `to` of the concatenated `slices`.
fn copy(slices: &[IoSlice<'_>], from: usize, to: usize) -> Vec<u8> {
    let mut copied = Vec::with_capacity(to - from);
    let mut at = 0;
    for slice in slices {
        // The part of the range that lies in this slice.
        let part = from.clamp(at, at + slice.len()) - at..to.clamp(at, at + slice.len()) - at;
        copied.extend_from_slice(&slice[part]);
        at += slice.len();
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nexus::SessionId;
    use crate::recording::Scope;
    use futures_util::FutureExt;
    use std::time::Duration;

    const PDU: [u8; 48] = [0; 48];

    fn tape(bytes_max: usize) -> CaptureBuffer {
        let since = (Time(5), Duration::from_secs(7));
        CaptureBuffer::at(Scope::Session(SessionId(1)), bytes_max, Duration::from_secs(60), since)
    }

    fn ends() -> WireEnds {
        let address = |text: &str| text.parse().expect("an address");
        WireEnds { initiator: address("10.0.0.7:40000"), portal: address("10.0.0.1:3260") }
    }

    /// Returns the records of the receive direction since the previous call: bytes lost before, and bytes.
    fn heard(tape: &CaptureBuffer) -> Vec<(u64, usize)> {
        let pieces = tape.next().now_or_never().map(|told| told.pieces).unwrap_or_default().into_iter();
        let moved = |what| match what {
            Wire::Moved { from_initiator: true, bytes_lost, bytes } => Some((bytes_lost, bytes.len())),
            _ => None,
        };
        pieces.filter_map(|piece| moved(piece.what)).collect()
    }

    #[test]
    fn recording_under_way_begins_with_the_next_pdu_of_each_direction() {
        let tape = tape(9999);
        let mut recorder = Recorder::from_next_pdu(tape.clone(), ends(), PduProgress::Remaining(10), 20, Time(5));
        recorder.record_received(&PDU[..4], Time(5));
        recorder.record_received(&PDU[..16], Time(1_000_000_005));
        recorder.record_sent(&[IoSlice::new(&PDU[..15]), IoSlice::new(&PDU)], 30, Time(5));
        let told = tape.next().now_or_never().expect("something").pieces;
        let sizes = told.iter().map(|piece| match &piece.what {
            Wire::Moved { bytes, .. } => bytes.len(),
            _ => 0,
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [10, 10]);
        assert_eq!(told[0].at_ns, 8_000_000_000, "the date, from the clock that only goes forward");
        let begun = Recorder::from_next_pdu(tape.clone(), ends(), PduProgress::Buffered(&PDU[..5]), 0, Time(5));
        assert_eq!(heard(&tape), [(0, 5)], "what has come of the next PDU is its beginning");
        drop(begun);
    }

    #[test]
    fn end_of_a_connection_is_recorded_when_it_is_and_not_when_it_spoke_last() {
        let tape = tape(9999);
        let mut recorder = Recorder::from_the_start(tape.clone(), ends(), Time(5));
        recorder.record_received(&PDU, Time(5));
        recorder.end_at(Time(4_900_000_005));
        drop(recorder);
        let told = tape.next().now_or_never().expect("something").pieces;
        let closed = told.iter().find(|piece| matches!(piece.what, Wire::Closed)).expect("its end");
        assert_eq!(closed.at_ns, 7_000_000_000 + 4_900_000_000);
    }

    #[test]
    fn what_is_lost_is_counted_and_the_next_pdu_is_found() {
        let tape = tape(400);
        let mut recorder = Recorder::from_next_pdu(tape.clone(), ends(), PduProgress::Buffered(&[]), 0, Time(5));
        for _ in 0..4 {
            recorder.record_received(&PDU, Time(5));
        }
        let told = tape.next().now_or_never().expect("something");
        assert_eq!((told.pieces.len(), told.lost), (2, 2));
        recorder.resync_receive(PduProgress::Remaining(8), Time(5));
        recorder.record_received(&PDU[..8], Time(5));
        recorder.record_received(&PDU, Time(5));
        assert_eq!(heard(&tape), [(2 * 48 + 8, 48)]);
    }

    /// After a gap in a login, the position of secrets is unknown.
    #[test]
    fn login_of_which_something_is_lost_is_not_recorded_any_more() {
        let tape = tape(410);
        let mut recorder = Recorder::from_the_start(tape.clone(), ends(), Time(5));
        let login: Vec<u8> = [0x43, 0x40, 0, 0, 0, 0, 0, 100].into_iter().chain([0; 140]).collect();
        recorder.record_received(&login, Time(5));
        assert_eq!(heard(&tape), [(0, 148)]);
        recorder.record_received(&login.repeat(3), Time(5));
        recorder.resync_receive(PduProgress::Buffered(&[]), Time(5));
        recorder.record_received(b"CHAP_R=0x1234", Time(5));
        assert_eq!(heard(&tape), []);
        recorder.record_sent(&[IoSlice::new(&login)], login.len(), Time(5));
        assert_eq!(tape.next().now_or_never().expect("something").pieces.len(), 1, "the other direction goes on");
    }
}

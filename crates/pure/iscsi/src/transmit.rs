//! Transmit path: headers and small payloads are copied into one contiguous run, large payloads are sent by reference.
//! One vectored send takes all of it.

use crate::pdu::SegmentLengths;
use crate::receive::Digests;
use block::{Rope, View};
use simd::crc32c::{crc32c, crc32c_append};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::ops::Range;

/// Maximum payload size that is copied behind its header, which costs less than a reference.
pub(crate) const INLINE_BYTES_MAX: usize = 2 << 10;
/// Minimum size of a fragment of a large payload that is sent by reference.
const REFERENCE_BYTES_MIN: usize = 1 << 10;
/// Limit on copied bytes up to which responses are queued; further ones wait in their tasks.
const ROOM_FLAT_BYTES: usize = 256 << 10;
/// Limit on queued bytes of all kinds up to which responses are queued: more than a socket accepts at once.
const ROOM_BYTES: usize = 4 << 20;
/// Limit on copied bytes from which nothing more is received. Only responses that no task bounds (NOP-In echoes,
/// Rejects) can reach it.
const FLOODED_FLAT_BYTES: usize = ROOM_FLAT_BYTES + (128 << 10);
/// Capacity of the contiguous run that an idle connection keeps, in bytes.
const IDLE_BYTES: usize = 512;

/// Slices of one vectored send.
pub type SendSlices<'a> = SmallVec<[IoSlice<'a>; 128]>;

/// Truncates `pieces` to about `bytes_max`: the last slice kept may exceed it.
pub fn shorten(pieces: &mut SendSlices<'_>, bytes_max: usize) {
    let mut left = bytes_max;
    let end = pieces.iter().position(|piece| {
        // Judged before this slice is subtracted, so the slice that reaches the limit is kept.
        let is_enough = left == 0;
        left = left.saturating_sub(piece.len());
        is_enough
    });
    pieces.truncate(end.unwrap_or(pieces.len()));
}

/// Queue of output that the socket has not accepted yet.
#[derive(Debug, Default)]
pub(crate) struct Transmit {
    /// Headers and small payloads in sending order; the bytes before `start` have been sent.
    flat: Vec<u8>,
    start: usize,
    /// References in sending order, each with the copied bytes that precede it; those before `first` have been sent.
    pieces: Vec<Piece>,
    first: usize,
    /// Copied bytes behind the last reference.
    tail_bytes: usize,
    queued_bytes: usize,
    transmitted_bytes: u64,
    /// Digests of the PDUs queued from now on.
    pub(crate) digests: Digests,
}

/// Copied bytes, possibly none, followed by bytes sent by reference.
#[derive(Debug, Default)]
struct Piece {
    flat_bytes: usize,
    view: View,
}

impl Transmit {
    /// Number of queued bytes that have not been sent.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// True while further responses may be queued.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.flat.len() - self.start < ROOM_FLAT_BYTES && self.queued_bytes < ROOM_BYTES
    }

    /// True when so many responses are queued that no further requests are received.
    pub(crate) fn is_flooded(&self) -> bool {
        self.flat.len() - self.start >= FLOODED_FLAT_BYTES
    }

    /// Number of bytes sent since the start.
    pub(crate) fn transmitted_bytes(&self) -> u64 {
        self.transmitted_bytes
    }

    /// Queues a PDU with `header` and a copy of `data`.
    pub(crate) fn push(&mut self, header: &[u8; 48], data: &[u8]) {
        self.push_header(header, &[], data.len());
        self.push_flat(data);
        self.push_trailer(data.len(), || crc32c(data));
    }

    /// Queues bytes that are complete PDUs, taken over from the queue of another connection.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        // The bytes are complete PDUs of a login, which have no digests, so nothing is added.
        self.push_flat(bytes);
    }

    /// Removes and returns all queued bytes, because another connection will send them.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        let mut slices = SendSlices::new();
        let mut bytes = Vec::with_capacity(self.queued_bytes);
        self.gather(&mut slices);
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        drop(slices);
        assert_eq!(bytes.len(), self.queued_bytes, "nothing is left behind");
        self.handle_transmitted(bytes.len());
        bytes
    }

    /// Queues a PDU with `header`, `additional` header segments and the bytes of `data` in `range`; large fragments are
    /// sent by reference.
    pub(crate) fn push_rope(&mut self, header: &[u8; 48], additional: &[u8], data: &Rope, range: Range<usize>) {
        let len = range.len();
        self.push_header(header, additional, len);
        let mut crc = 0;
        let mut at = 0;
        for part in data.parts() {
            // The bounds of `range`, limited to this fragment and relative to its first byte.
            let from = range.start.clamp(at, at + part.len()) - at;
            let to = range.end.clamp(at, at + part.len()) - at;
            at += part.len();
            if from == to {
                continue;
            }
            if self.digests.data {
                crc = part.slice(from..to).crc32c_append(crc);
            }
            // A small payload is copied whole. A large one is referenced fragment by fragment, except for short
            // fragments.
            if len <= INLINE_BYTES_MAX || to - from < REFERENCE_BYTES_MIN {
                self.push_flat(&part[from..to]);
            } else {
                self.push_view(part.slice(from..to));
            }
        }
        assert!(range.end <= at, "what a header announces is there");
        self.push_trailer(len, || crc);
    }

    /// Queues a PDU with `header` and all of `data`; large fragments are sent by reference.
    pub(crate) fn push_whole(&mut self, header: &[u8; 48], data: Rope) {
        let len = data.len();
        self.push_header(header, &[], len);
        // A payload in one piece is the common case, and needs no iteration.
        let crc = match data.into_single() {
            Ok(view) => self.push_part(len, view, 0),
            Err(data) => data.into_parts().fold(0, |crc, part| self.push_part(len, part, crc)),
        };
        self.push_trailer(len, || crc);
    }

    /// Appends slices of the queued output in order, until all are included or `into` would spill to the heap.
    pub(crate) fn gather<'a>(&'a self, into: &mut SendSlices<'a>) {
        let mut rest = &self.flat[self.start..];
        for Piece { flat_bytes, view } in &self.pieces[self.first..] {
            // Two slices per piece: the copied bytes before it, and the piece itself.
            if into.len() + 2 > into.inline_size() {
                return;
            }
            let (head, tail) = rest.split_at(*flat_bytes);
            if !head.is_empty() {
                into.push(IoSlice::new(head));
            }
            into.push(IoSlice::new(view));
            rest = tail;
        }
        if !rest.is_empty() && into.len() < into.inline_size() {
            into.push(IoSlice::new(rest));
        }
    }

    /// Removes the first `len` bytes from the queue: they have been sent.
    ///
    /// *Panics*: when fewer are queued.
    pub(crate) fn handle_transmitted(&mut self, mut len: usize) {
        assert!(len <= self.queued_bytes, "{len} bytes left where {} were queued", self.queued_bytes);
        self.queued_bytes -= len;
        self.transmitted_bytes += len as u64;
        if self.queued_bytes == 0 {
            // Common case: the socket accepted everything.
            self.pieces.clear();
            self.flat.clear();
            (self.first, self.start, self.tail_bytes) = (0, 0, 0);
            return;
        }
        while len > 0
            && let Some(front) = self.pieces.get_mut(self.first)
        {
            // Copied bytes of a piece precede its reference.
            let flat_bytes = len.min(front.flat_bytes);
            front.flat_bytes -= flat_bytes;
            self.start += flat_bytes;
            len -= flat_bytes;
            let view_bytes = len.min(front.view.len());
            len -= view_bytes;
            if front.flat_bytes == 0 && view_bytes == front.view.len() {
                // The buffer of a sent payload is released here, not when the queue is compacted.
                *front = Piece::default();
                self.first += 1;
            } else if view_bytes > 0 {
                // Partly sent: the rest of the reference stays at the front of the queue.
                front.view = front.view.slice(view_bytes..);
            }
        }
        // The remaining bytes are copied bytes behind the last reference.
        self.tail_bytes -= len;
        self.start += len;
        self.reclaim();
    }

    /// Frees memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        if self.queued_bytes == 0 {
            // Capacity above this was needed by a burst; thousands of idle sessions must not keep it.
            self.flat.shrink_to(IDLE_BYTES);
            self.pieces.shrink_to(16);
        }
    }

    /// Allocated size of the contiguous run in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.flat.capacity()
    }

    /// Discards all unsent output.
    pub(crate) fn clear(&mut self) {
        // The byte counter survives: the output timer compares its values.
        *self = Self { transmitted_bytes: self.transmitted_bytes, digests: self.digests, ..Self::default() };
    }

    /// Compacts the queue.
    fn reclaim(&mut self) {
        // As below, so that each reference is moved once on average.
        if self.first > self.pieces.len() / 2 {
            self.pieces.drain(..self.first);
            self.first = 0;
        }
        if self.start > self.flat.len() / 2 {
            // The rest is smaller than the bytes sent since the last compaction, so each byte is moved once on average.
            self.flat.copy_within(self.start.., 0);
            self.flat.truncate(self.flat.len() - self.start);
            self.start = 0;
        }
    }

    #[inline]
    fn push_header(&mut self, header: &[u8; 48], additional: &[u8], data_bytes: usize) {
        let follows = SegmentLengths { ahs_bytes: additional.len(), data_bytes };
        // A header that does not match its segments would desynchronize the stream at the peer.
        assert_eq!(SegmentLengths::parse(header), follows, "a header announces what follows it");
        self.push_flat(header);
        self.push_flat(additional);
        if self.digests.header {
            self.push_digest(crc32c_append(crc32c(header), additional));
        }
    }

    fn push_digest(&mut self, crc: u32) {
        // A CRC32C is sent with its least significant byte first.
        self.push_flat(&crc.to_le_bytes());
    }

    /// Queues the padding to a multiple of four bytes, and the digest over payload and padding.
    #[inline]
    fn push_trailer(&mut self, data_bytes: usize, crc: impl FnOnce() -> u32) {
        const ZEROS: [u8; 4] = [0; 4];
        let padding = &ZEROS[..data_bytes.next_multiple_of(4) - data_bytes];
        self.push_flat(padding);
        // An empty data segment has no digest (RFC 7143 §11.2.3).
        if self.digests.data && data_bytes > 0 {
            self.push_digest(crc32c_append(crc(), padding));
        }
    }

    #[inline]
    fn push_flat(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.flat.extend_from_slice(bytes);
        self.tail_bytes += bytes.len();
        self.queued_bytes += bytes.len();
    }

    /// Queues the next fragment of a payload of `payload_bytes`; returns the CRC continued over it where data digests
    /// are in use.
    #[inline]
    fn push_part(&mut self, payload_bytes: usize, part: View, crc: u32) -> u32 {
        let crc = if self.digests.data { part.crc32c_append(crc) } else { crc };
        if payload_bytes <= INLINE_BYTES_MAX || part.len() < REFERENCE_BYTES_MIN {
            self.push_flat(&part);
        } else {
            self.push_view(part);
        }
        crc
    }

    #[inline]
    fn push_view(&mut self, view: View) {
        self.queued_bytes += view.len();
        // The copied bytes so far precede this reference on the wire.
        self.pieces.push(Piece { flat_bytes: std::mem::take(&mut self.tail_bytes), view });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Buf;
    use proptest::prelude::*;

    /// Header with this first byte that announces `data_bytes`.
    fn header(byte: u8, data_bytes: usize) -> [u8; 48] {
        let mut header = [byte; 48];
        header[4..8].copy_from_slice(&u32::try_from(data_bytes).expect("it is short").to_be_bytes());
        header
    }

    fn drain(transmit: &mut Transmit, mut step: impl FnMut() -> usize) -> Vec<u8> {
        let mut out = Vec::new();
        while transmit.queued_bytes() > 0 {
            let mut slices = SendSlices::new();
            transmit.gather(&mut slices);
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = step().clamp(1, all.len());
            out.extend_from_slice(&all[..taken]);
            drop(slices);
            transmit.handle_transmitted(taken);
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn transmit_sends_the_same_bytes_whatever_the_socket_takes(
            lens in prop::collection::vec(0usize..20_000, 1..20), steps in prop::collection::vec(1usize..30_000, 1..20),
            header_digest: bool, data_digest: bool,
        ) {
            let mut transmit = Transmit { digests: Digests { header: header_digest, data: data_digest }, ..Default::default() };
            let mut expected = Vec::new();
            for (n, &len) in lens.iter().enumerate() {
                let header = header(n as u8, len);
                let data: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
                let mut rope = Rope::from(Buf::copy_of(&data[..len / 3]));
                rope.push(Buf::copy_of(&data[len / 3..]).freeze());
                if n % 2 == 0 {
                    transmit.push_rope(&header, &[], &rope, 0..len);
                } else {
                    transmit.push_whole(&header, rope);
                }
                expected.extend_from_slice(&header);
                if header_digest { expected.extend_from_slice(&crc32c(&header).to_le_bytes()); }
                let from = expected.len();
                expected.extend_from_slice(&data);
                expected.resize(from + len.next_multiple_of(4), 0);
                if data_digest && len > 0 {
                    let crc = crc32c(&expected[from..]);
                    expected.extend_from_slice(&crc.to_le_bytes());
                }
            }
            let mut steps = steps.iter().cycle();
            let sent = drain(&mut transmit, || *steps.next().expect("endless"));
            prop_assert!(sent == expected);
            prop_assert_eq!(transmit.transmitted_bytes(), expected.len() as u64);
        }
    }

    #[test]
    fn transmit_that_never_runs_dry_does_not_grow() {
        let mut transmit = Transmit::default();
        transmit.push(&header(0, 500), &[0; 500]);
        for _ in 0..1000 {
            transmit.push(&header(0, 952), &[0; 952]);
            transmit.handle_transmitted(1000);
        }
        assert!(transmit.buffer_bytes() < 8192, "{}", transmit.buffer_bytes());
    }

    #[test]
    fn transmit_references_large_payloads_and_copies_small_ones() {
        let mut transmit = Transmit::default();
        let large = Rope::from(Buf::zeroed(64 << 10));
        transmit.push(&header(1, 100), &[2; 100]);
        transmit.push_rope(&header(3, 2048), &[], &large, 0..2048);
        transmit.push_rope(&header(3, 63488), &[], &large, 2048..65536);
        transmit.push(&header(1, 0), &[]);
        let mut slices = SendSlices::new();
        transmit.gather(&mut slices);
        let lens: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
        assert_eq!(lens, [148 + 48 + 2048 + 48, 63488, 48]);
        let part = large.parts().next().expect("one part");
        assert_eq!(slices[1].as_ptr(), part[2048..].as_ptr(), "the payload was not copied");
    }
}

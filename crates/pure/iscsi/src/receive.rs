//! Receive path: splits the byte stream into PDUs and verifies digests. Small PDUs are parsed in place in the buffer; a
//! large payload is received directly into its destination memory.

use crate::Violation;
use block::Buf;
use simd::crc32c::{crc32c, crc32c_append};

/// Length of the basic header segment in bytes.
pub(crate) const HEADER_BYTES: usize = 48;
/// Minimum number of missing payload bytes for receiving into destination memory instead of the buffer.
const PLACED_BYTES_MIN: usize = 8 << 10;
/// Payload size after which the next receive requests little more than a header, so that the next large payload can be
/// placed as well.
const BULK_BYTES_MIN: usize = 64 << 10;
/// Offered buffer space once it was full, and after a bulk payload.
const OFFER_BYTES_MIN: usize = 4 << 10;
/// Offered buffer space of a new or idle connection: enough for a login, a ping or a few commands.
const OFFER_BYTES_IDLE: usize = 512;

/// Digests (CRC32C) that PDUs carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// Splitter of a byte stream into PDUs.
#[derive(Debug)]
pub(crate) struct Receive {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that the next receive may add to the buffer. Adapts to the traffic: see [`Receive::adapt`].
    offer_bytes: usize,
    limits: Limits,
    stage: Stage,
    /// Header of the payload that is being placed or skipped.
    header: [u8; HEADER_BYTES],
    /// True while the digest of the last header was wrong. If the next one is wrong, too, the length in the first was
    /// wrong as well.
    lost: bool,
}

/// Limits on the received stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) digests: Digests,
    /// MaxRecvDataSegmentLength that this side declared.
    pub(crate) data_segment_bytes_max: u32,
    /// Maximum size of the buffer in bytes.
    pub(crate) buffer_bytes_max: usize,
    /// False before full feature phase: every PDU is received into the buffer.
    pub(crate) places: bool,
    /// True above error recovery level 0: a wrong digest costs a PDU and not the connection.
    pub(crate) recovers: bool,
}

#[derive(Debug)]
enum Stage {
    Header,
    /// A header was returned, and its payload awaits [`Receive::place`] or [`Receive::skip`].
    Asked {
        data_bytes: usize,
    },
    Placing(Placing),
    Skipping {
        left: usize,
        crc: u32,
        data_bytes: usize,
    },
    Trailer {
        buf: Option<Buf>,
        crc: u32,
        data_bytes: usize,
    },
    /// Discards the rest of a PDU of whose header only the length is trusted.
    Dropping {
        left: usize,
    },
}

#[derive(Debug)]
struct Placing {
    buf: Buf,
    at: usize,
    end: usize,
    crc: u32,
    data_bytes: usize,
}

/// Progress of the PDU that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduProgress<'a> {
    /// All of its bytes received so far, possibly none.
    Buffered(&'a [u8]),
    /// Number of its bytes that are missing.
    Remaining(usize),
}

/// Basic header segment with its additional header segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) basic: &'a [u8; HEADER_BYTES],
    pub(crate) additional: &'a [u8],
}

/// Next element of the received stream.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// More bytes are needed.
    Wait,
    /// Complete PDU.
    Pdu { head: Head<'a>, data: &'a [u8] },
    /// Header whose payload of `data_bytes` is incomplete; the caller must place or skip the payload.
    Head { head: Head<'a>, data_bytes: usize },
    /// The payload of the last [`Step::Head`] is complete in its destination, or was skipped.
    Payload(Option<Buf>),
    /// Complete PDU with a valid header and a wrong data digest.
    Damaged { header: [u8; HEADER_BYTES] },
    /// The payload of the last [`Step::Head`] has a wrong data digest.
    DamagedPayload { header: [u8; HEADER_BYTES], buf: Option<Buf> },
    /// A PDU of unknown content was dropped.
    Lost,
}

/// Unrecoverable error of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) violation: Violation,
    /// Header of the PDU, where it is trustworthy.
    pub(crate) header: Option<[u8; HEADER_BYTES]>,
}

impl Limits {
    /// Limits before full feature phase: the default MaxRecvDataSegmentLength of 8,192 bytes, no digests, and a small
    /// buffer.
    pub(crate) fn login() -> Self {
        let digests = Digests { header: false, data: false };
        Self { digests, data_segment_bytes_max: 8192, buffer_bytes_max: 12 << 10, places: false, recovers: false }
    }

    /// Length of padding and digest behind a payload in bytes.
    #[inline]
    fn trailer_bytes(&self, data_bytes: usize) -> usize {
        // Each segment is padded to a multiple of four bytes (RFC 7143 §11.1).
        let padding = data_bytes.next_multiple_of(4) - data_bytes;
        if self.digests.data && data_bytes > 0 { padding + 4 } else { padding }
    }

    /// Verifies padding and digest, given the CRC of the payload.
    #[inline]
    fn check_digest(&self, crc: impl FnOnce() -> u32, data_bytes: usize, trailer: &[u8]) -> Result<(), Violation> {
        if self.digests.data && data_bytes > 0 { check_trailer(crc(), trailer) } else { Ok(()) }
    }
}

impl Receive {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offer_bytes: OFFER_BYTES_IDLE,
            limits,
            stage: Stage::Header,
            header: [0; 48],
            lost: false,
        }
    }

    /// Sets the limits from the next PDU on. Must be called between two PDUs.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        assert!(matches!(self.stage, Stage::Header), "limits change between two PDUs");
        self.limits = limits;
    }

    /// Returns the memory for the next received bytes; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        // A payload that is being placed bypasses the buffer.
        if !matches!(self.stage, Stage::Placing(_)) {
            self.make_room();
        }
        match &mut self.stage {
            Stage::Placing(placing) => &mut placing.buf[placing.at..placing.end],
            _ => &mut self.buffer[self.end..],
        }
    }

    /// Accepts `len` bytes that were received into [`Receive::space`].
    pub(crate) fn handle_filled(&mut self, len: usize) {
        match &mut self.stage {
            Stage::Placing(placing) => {
                assert!(len <= placing.end - placing.at, "no more is received than there is space");
                placing.advance(len, self.limits.digests.data);
            }
            _ => {
                assert!(len <= self.buffer.len() - self.end, "no more is received than there is space");
                self.end += len;
                let full = self.end == self.buffer.len();
                self.adapt(full);
            }
        }
    }

    /// Returns the next step that the received bytes allow.
    pub(crate) fn poll(&mut self) -> Result<Step<'_>, Fault> {
        match &mut self.stage {
            Stage::Header => return self.poll_header(),
            Stage::Asked { .. } => unreachable!("the caller says where a payload goes before it asks on"),
            Stage::Placing(placing) if placing.at < placing.end => return Ok(Step::Wait),
            Stage::Placing(_) => {
                // Matched again by value, because the buffer moves on to the next stage.
                if let Stage::Placing(Placing { buf, crc, data_bytes, .. }) =
                    std::mem::replace(&mut self.stage, Stage::Header)
                {
                    self.stage = Stage::Trailer { buf: Some(buf), crc, data_bytes };
                }
            }
            Stage::Skipping { left, crc, data_bytes } => {
                // The payload is discarded, but its CRC is computed: a damaged payload must be reported.
                let here = (*left).min(self.end - self.start);
                if self.limits.digests.data {
                    *crc = crc32c_append(*crc, &self.buffer[self.start..self.start + here]);
                }
                self.start += here;
                *left -= here;
                if *left > 0 {
                    return Ok(Step::Wait);
                }
                self.stage = Stage::Trailer { buf: None, crc: *crc, data_bytes: *data_bytes };
            }
            Stage::Trailer { .. } => {}
            Stage::Dropping { left } => {
                let here = (*left).min(self.end - self.start);
                self.start += here;
                *left -= here;
                if *left > 0 {
                    return Ok(Step::Wait);
                }
                self.stage = Stage::Header;
                return Ok(Step::Lost);
            }
        }
        self.poll_trailer()
    }

    /// Directs the announced payload into `buf` from `offset` on.
    pub(crate) fn place(&mut self, mut buf: Buf, offset: usize) {
        let Stage::Asked { data_bytes } = self.stage else { panic!("a payload is placed once, after its header") };
        assert!(offset + data_bytes <= buf.len(), "a payload fits into its place");
        // The part that arrived together with the header is copied once; the rest is received in place.
        let here = data_bytes.min(self.end - self.start);
        buf[offset..offset + here].copy_from_slice(&self.buffer[self.start..self.start + here]);
        self.start += here;
        // Padding and digest remain in the receive buffer, where `poll_trailer` expects them.
        let mut placing = Placing { buf, at: offset, end: offset + data_bytes, crc: 0, data_bytes };
        placing.advance(here, self.limits.digests.data);
        self.stage = Stage::Placing(placing);
        // Large payloads usually come in a row: with a small offer, the next header arrives alone and its payload can
        // be placed.
        if data_bytes >= BULK_BYTES_MIN {
            self.offer_bytes = OFFER_BYTES_MIN;
        }
    }

    /// Discards the announced payload as it arrives.
    pub(crate) fn skip(&mut self) {
        let Stage::Asked { data_bytes } = self.stage else { panic!("a payload is skipped once, after its header") };
        self.stage = Stage::Skipping { left: data_bytes, crc: 0, data_bytes };
    }

    /// Returns the destination of a payload that is being received, when the connection ends.
    pub(crate) fn take_place(&mut self) -> Option<Buf> {
        match std::mem::replace(&mut self.stage, Stage::Header) {
            Stage::Placing(placing) => Some(placing.buf),
            Stage::Trailer { buf, .. } => buf,
            _ => None,
        }
    }

    /// Frees memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        // A buffer with a partial PDU or a destination in use is kept.
        if self.start == self.end && !matches!(self.stage, Stage::Placing(_)) {
            (self.start, self.end) = (0, 0);
            self.offer_bytes = OFFER_BYTES_IDLE;
            self.buffer = Vec::new();
        }
    }

    /// Returns the progress of the PDU that is being received.
    pub(crate) fn pdu_progress(&self) -> PduProgress<'_> {
        let trailer = |data_bytes| self.limits.trailer_bytes(data_bytes);
        let here = &self.buffer[self.start..self.end];
        let left = match &self.stage {
            Stage::Header => return PduProgress::Buffered(here),
            Stage::Asked { data_bytes } => data_bytes + trailer(*data_bytes),
            Stage::Placing(placing) => placing.end - placing.at + trailer(placing.data_bytes),
            Stage::Skipping { left, data_bytes, .. } => left + trailer(*data_bytes),
            Stage::Trailer { data_bytes, .. } => trailer(*data_bytes),
            Stage::Dropping { left } => *left,
        };
        // Part of the trailer may already be in the buffer.
        PduProgress::Remaining(left - here.len().min(left))
    }

    /// True when all received bytes have been consumed.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.stage, Stage::Header) && self.start == self.end
    }

    /// Allocated size of the buffer in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Discards all received bytes.
    pub(crate) fn clear(&mut self) {
        self.stage = Stage::Header;
        (self.start, self.end) = (0, 0);
        self.shrink();
    }

    /// Grows the offer when a receive has filled it: more bytes are waiting than it takes.
    fn adapt(&mut self, full: bool) {
        if full {
            // Geometric growth reaches the maximum after a few full receives.
            self.offer_bytes = (self.offer_bytes * 4).min(self.limits.buffer_bytes_max);
        }
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            // At most one incomplete PDU remains, so the copy is short: all others were consumed.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Room for at least one header is always offered, even when the buffer is at its maximum.
        let wanted = (self.end + self.offer_bytes).min(self.limits.buffer_bytes_max.max(self.end + HEADER_BYTES));
        if self.buffer.capacity() < wanted {
            // No underflow: the length is at most the capacity, which is below `wanted`.
            self.buffer.reserve_exact(wanted - self.buffer.len());
        }
        // No received byte is cut off: both terms of `wanted` lie beyond `end`.
        self.buffer.resize(wanted, 0);
    }

    fn poll_header(&mut self) -> Result<Step<'_>, Fault> {
        let Self { buffer, start, end, limits, stage, header, lost, .. } = self;
        let bytes = &buffer[*start..*end];
        let Some((basic, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(Step::Wait) };
        // TotalAHSLength counts words of four bytes (RFC 7143 §11.2.1.5).
        let additional_bytes = usize::from(basic[4]) * 4;
        // DataSegmentLength is a 24-bit field (RFC 7143 §11.2.1.6).
        let data_bytes = u32::from_be_bytes([0, basic[5], basic[6], basic[7]]);
        let digest_bytes = if limits.digests.header { 4 } else { 0 };
        let Some((additional, rest)) = rest.split_at_checked(additional_bytes) else { return Ok(Step::Wait) };
        let Some((digest, rest)) = rest.split_at_checked(digest_bytes) else { return Ok(Step::Wait) };
        // The trailer counts as part of the payload, so that a PDU is complete with its digest.
        let trailer_bytes = limits.trailer_bytes(data_bytes as usize);
        let head_bytes = bytes.len() - rest.len();
        // RFC 7143 §7.8: a wrong header digest may be recovered by dropping the PDU. Its length fields are trusted
        // once; if the next header is wrong as well, the stream has lost PDU boundaries.
        if limits.digests.header && crc32c_append(crc32c(basic), additional).to_le_bytes() != *digest {
            let believable = limits.recovers && !*lost && data_bytes <= limits.data_segment_bytes_max;
            if !believable {
                return Err(Fault { violation: Violation::HeaderDigestWrong, header: None });
            }
            *lost = true;
            // The header itself cannot be trusted for anything but its length, so it is not reported.
            // Nothing of the PDU has been consumed yet, so its header is dropped along with the rest.
            *stage = Stage::Dropping { left: head_bytes + data_bytes as usize + trailer_bytes };
            return Ok(Step::Lost);
        }
        *lost = false;
        // Checked before the payload is awaited, so that no peer can make us buffer more than we declared.
        if data_bytes > limits.data_segment_bytes_max {
            return Err(Fault { violation: Violation::DataSegmentTooLong, header: Some(*basic) });
        }
        let head = Head { basic, additional };
        let data_bytes = data_bytes as usize;
        let payload_bytes = data_bytes + trailer_bytes;
        let Some((payload, _)) = rest.split_at_checked(payload_bytes) else {
            let missing = payload_bytes - rest.len();
            let fits = head_bytes + payload_bytes <= limits.buffer_bytes_max;
            // A PDU that is nearly complete, or small, is cheaper to receive through the buffer.
            if !limits.places || (missing < PLACED_BYTES_MIN && fits) {
                return Ok(Step::Wait);
            }
            // The header is consumed now; the payload follows in another stage.
            *start += head_bytes;
            *stage = Stage::Asked { data_bytes };
            *header = *basic;
            return Ok(Step::Head { head, data_bytes });
        };
        *start += head_bytes + payload_bytes;
        let (data, trailer) = payload.split_at(data_bytes);
        match limits.check_digest(|| crc32c(data), data_bytes, trailer) {
            Ok(()) => Ok(Step::Pdu { head, data }),
            // The header had its own digest, so it identifies the damaged PDU for the Reject (RFC 7143 §7.8).
            Err(_) if limits.recovers => Ok(Step::Damaged { header: *basic }),
            Err(violation) => Err(Fault { violation, header: Some(*basic) }),
        }
    }

    fn poll_trailer(&mut self) -> Result<Step<'_>, Fault> {
        let Stage::Trailer { buf, crc, data_bytes } = &mut self.stage else { return Ok(Step::Wait) };
        let (crc, data_bytes) = (*crc, *data_bytes);
        // Taken for the result, and put back while the trailer is incomplete.
        let buf = buf.take();
        let trailer_bytes = self.limits.trailer_bytes(data_bytes);
        let Some(trailer) = self.buffer[self.start..self.end].get(..trailer_bytes) else {
            // The trailer is at most seven bytes, so it is received into the buffer.
            self.stage = Stage::Trailer { buf, crc, data_bytes };
            return Ok(Step::Wait);
        };
        let checked = self.limits.check_digest(|| crc, data_bytes, trailer);
        // Consumed even if the digest is wrong, so that the stream stays at a PDU boundary.
        self.start += trailer_bytes;
        self.stage = Stage::Header;
        match checked {
            Ok(()) => Ok(Step::Payload(buf)),
            Err(_) if self.limits.recovers => Ok(Step::DamagedPayload { header: self.header, buf }),
            Err(violation) => Err(Fault { violation, header: Some(self.header) }),
        }
    }
}

impl Placing {
    fn advance(&mut self, len: usize, digest: bool) {
        // Computed as data arrives, while it is still in the CPU cache.
        if digest {
            self.crc = crc32c_append(self.crc, &self.buf[self.at..self.at + len]);
        }
        self.at += len;
        assert!(self.at <= self.end, "a payload is no longer than its header says");
    }
}

/// Verifies padding and digest behind a payload with this CRC.
fn check_trailer(crc: u32, trailer: &[u8]) -> Result<(), Violation> {
    // The digest covers the padding as well (RFC 7143 §13.1).
    // Called only where a data digest is in use, so the trailer has at least four bytes.
    let (padding, digest) = trailer.split_at(trailer.len() - 4);
    if crc32c_append(crc, padding).to_le_bytes() == *digest { Ok(()) } else { Err(Violation::DataDigestWrong) }
}

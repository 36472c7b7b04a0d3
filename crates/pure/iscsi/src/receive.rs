//! The bytes on their way in, cut into PDUs. Small PDUs are read where they lie in the buffer; a large
//! payload is received straight into the memory that is meant for it.

use crate::Violation;
use block::Buf;
use simd::crc32c::{crc32c, crc32c_append};

/// The basic header segment.
pub(crate) const HEADER_BYTES: usize = 48;
/// A payload that lacks so much is received into its own memory, not through the buffer.
const PLACED_BYTES_MIN: usize = 8 << 10;
/// After a payload of this size the next receive asks for little more than a header, so that the next
/// large payload can be placed too.
const BULK_BYTES_MIN: usize = 64 << 10;
/// What the buffer offers once it was full, and after bulk.
const OFFER_BYTES_MIN: usize = 4 << 10;
/// What a new or idle connection offers: room for a login, a ping or a few commands.
const OFFER_BYTES_IDLE: usize = 512;

/// Which parts of a PDU carry a CRC32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// Cuts a byte stream into PDUs.
#[derive(Debug)]
pub(crate) struct Receive {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How far the next receive may fill the buffer. Follows the traffic: see [`Receive::adapt`].
    offer_bytes: usize,
    limits: Limits,
    stage: Stage,
    /// The header of the payload that is being placed or skipped.
    header: [u8; HEADER_BYTES],
    /// True while the last header's digest was wrong: if the next one's is, too, its length was wrong as well.
    lost: bool,
}

/// What the stream may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) digests: Digests,
    /// Our MaxRecvDataSegmentLength.
    pub(crate) data_segment_bytes_max: u32,
    /// The largest size of the buffer.
    pub(crate) buffer_bytes_max: usize,
    /// False before full feature phase: every PDU is read within the buffer.
    pub(crate) places: bool,
    /// True above error recovery level 0: a wrong digest costs a PDU and not the connection.
    pub(crate) recovers: bool,
}

#[derive(Debug)]
enum Stage {
    Header,
    /// A header was given out and its payload waits for [`Receive::place`] or [`Receive::skip`].
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
    /// The rest of a PDU whose header cannot be believed, but for its length.
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

/// How far the PDU has come that is on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay<'a> {
    /// These are all of its bytes that have come, perhaps none.
    Begun(&'a [u8]),
    /// So many of its bytes have not come.
    Left(usize),
}

/// A header with its additional header segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) basic: &'a [u8; HEADER_BYTES],
    pub(crate) additional: &'a [u8],
}

/// What the stream has brought.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// Not enough for another step.
    Wait,
    /// A whole PDU.
    Pdu { head: Head<'a>, data: &'a [u8] },
    /// A header whose payload of `data_bytes` has not come; the caller says where it goes.
    Head { head: Head<'a>, data_bytes: usize },
    /// The payload of the last [`Step::Head`] is in its place, or skipped.
    Payload(Option<Buf>),
    /// A whole PDU whose data digest is wrong; its header is right.
    Damaged { header: [u8; HEADER_BYTES] },
    /// The same of the payload of the last [`Step::Head`].
    DamagedPayload { header: [u8; HEADER_BYTES], buf: Option<Buf> },
    /// A PDU was lost of which nothing is known.
    Lost,
}

/// The stream cannot be followed any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) violation: Violation,
    /// The header of the PDU, where it can be believed.
    pub(crate) header: Option<[u8; HEADER_BYTES]>,
}

impl Limits {
    /// Before full feature phase: the default MaxRecvDataSegmentLength, no digests, and a small buffer.
    pub(crate) fn login() -> Self {
        let digests = Digests { header: false, data: false };
        Self { digests, data_segment_bytes_max: 8192, buffer_bytes_max: 12 << 10, places: false, recovers: false }
    }

    /// Padding and digest behind a payload.
    #[inline]
    fn trailer_bytes(&self, data_bytes: usize) -> usize {
        let padding = data_bytes.next_multiple_of(4) - data_bytes;
        if self.digests.data && data_bytes > 0 { padding + 4 } else { padding }
    }

    /// Judges padding and digest, given what the payload itself sums up to.
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

    /// From the next PDU on, other limits hold.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        assert!(matches!(self.stage, Stage::Header), "limits change between two PDUs");
        self.limits = limits;
    }

    /// Where the next received bytes belong; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if !matches!(self.stage, Stage::Placing(_)) {
            self.make_room();
        }
        match &mut self.stage {
            Stage::Placing(placing) => &mut placing.buf[placing.at..placing.end],
            _ => &mut self.buffer[self.end..],
        }
    }

    /// `len` bytes were received into [`Receive::space`].
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

    /// The next step that the received bytes allow.
    pub(crate) fn poll(&mut self) -> Result<Step<'_>, Fault> {
        match &mut self.stage {
            Stage::Header => return self.poll_header(),
            Stage::Asked { .. } => unreachable!("the caller says where a payload goes before it asks on"),
            Stage::Placing(placing) if placing.at < placing.end => return Ok(Step::Wait),
            Stage::Placing(_) => {
                if let Stage::Placing(Placing { buf, crc, data_bytes, .. }) =
                    std::mem::replace(&mut self.stage, Stage::Header)
                {
                    self.stage = Stage::Trailer { buf: Some(buf), crc, data_bytes };
                }
            }
            Stage::Skipping { left, crc, data_bytes } => {
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

    /// The payload asked for goes into `buf` from `offset` on.
    pub(crate) fn place(&mut self, mut buf: Buf, offset: usize) {
        let Stage::Asked { data_bytes } = self.stage else { panic!("a payload is placed once, after its header") };
        assert!(offset + data_bytes <= buf.len(), "a payload fits into its place");
        let here = data_bytes.min(self.end - self.start);
        buf[offset..offset + here].copy_from_slice(&self.buffer[self.start..self.start + here]);
        self.start += here;
        let mut placing = Placing { buf, at: offset, end: offset + data_bytes, crc: 0, data_bytes };
        placing.advance(here, self.limits.digests.data);
        self.stage = Stage::Placing(placing);
        if data_bytes >= BULK_BYTES_MIN {
            self.offer_bytes = OFFER_BYTES_MIN;
        }
    }

    /// The payload asked for is thrown away as it comes.
    pub(crate) fn skip(&mut self) {
        let Stage::Asked { data_bytes } = self.stage else { panic!("a payload is skipped once, after its header") };
        self.stage = Stage::Skipping { left: data_bytes, crc: 0, data_bytes };
    }

    /// The place of a payload that is on its way, which will not come.
    pub(crate) fn take_place(&mut self) -> Option<Buf> {
        match std::mem::replace(&mut self.stage, Stage::Header) {
            Stage::Placing(placing) => Some(placing.buf),
            Stage::Trailer { buf, .. } => buf,
            _ => None,
        }
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end && !matches!(self.stage, Stage::Placing(_)) {
            (self.start, self.end) = (0, 0);
            self.offer_bytes = OFFER_BYTES_IDLE;
            self.buffer = Vec::new();
        }
    }

    /// How far the PDU has come that is on its way.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        let trailer = |data_bytes| self.limits.trailer_bytes(data_bytes);
        let here = &self.buffer[self.start..self.end];
        let left = match &self.stage {
            Stage::Header => return UnderWay::Begun(here),
            Stage::Asked { data_bytes } => data_bytes + trailer(*data_bytes),
            Stage::Placing(placing) => placing.end - placing.at + trailer(placing.data_bytes),
            Stage::Skipping { left, data_bytes, .. } => left + trailer(*data_bytes),
            Stage::Trailer { data_bytes, .. } => trailer(*data_bytes),
            Stage::Dropping { left } => *left,
        };
        UnderWay::Left(left - here.len().min(left))
    }

    /// True when nothing has come behind the last step.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.stage, Stage::Header) && self.start == self.end
    }

    /// Memory of the buffer.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Forgets everything that has come.
    pub(crate) fn clear(&mut self) {
        self.stage = Stage::Header;
        (self.start, self.end) = (0, 0);
        self.shrink();
    }

    /// A receive that fills the offer shows that more is coming than it takes.
    fn adapt(&mut self, full: bool) {
        if full {
            self.offer_bytes = (self.offer_bytes * 4).min(self.limits.buffer_bytes_max);
        }
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            // At most one PDU that is not whole remains: all others were taken.
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let wanted = (self.end + self.offer_bytes).min(self.limits.buffer_bytes_max.max(self.end + HEADER_BYTES));
        if self.buffer.capacity() < wanted {
            self.buffer.reserve_exact(wanted - self.buffer.len());
        }
        self.buffer.resize(wanted, 0);
    }

    fn poll_header(&mut self) -> Result<Step<'_>, Fault> {
        let Self { buffer, start, end, limits, stage, header, lost, .. } = self;
        let bytes = &buffer[*start..*end];
        let Some((basic, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(Step::Wait) };
        let additional_bytes = usize::from(basic[4]) * 4;
        let data_bytes = u32::from_be_bytes([0, basic[5], basic[6], basic[7]]);
        let digest_bytes = if limits.digests.header { 4 } else { 0 };
        let Some((additional, rest)) = rest.split_at_checked(additional_bytes) else { return Ok(Step::Wait) };
        let Some((digest, rest)) = rest.split_at_checked(digest_bytes) else { return Ok(Step::Wait) };
        let trailer_bytes = limits.trailer_bytes(data_bytes as usize);
        let head_bytes = bytes.len() - rest.len();
        if limits.digests.header && crc32c_append(crc32c(basic), additional).to_le_bytes() != *digest {
            let believable = limits.recovers && !*lost && data_bytes <= limits.data_segment_bytes_max;
            if !believable {
                return Err(Fault { violation: Violation::HeaderDigestWrong, header: None });
            }
            *lost = true;
            *stage = Stage::Dropping { left: head_bytes + data_bytes as usize + trailer_bytes };
            return Ok(Step::Lost);
        }
        *lost = false;
        if data_bytes > limits.data_segment_bytes_max {
            return Err(Fault { violation: Violation::DataSegmentTooLong, header: Some(*basic) });
        }
        let head = Head { basic, additional };
        let data_bytes = data_bytes as usize;
        let payload_bytes = data_bytes + trailer_bytes;
        let Some((payload, _)) = rest.split_at_checked(payload_bytes) else {
            let missing = payload_bytes - rest.len();
            let fits = head_bytes + payload_bytes <= limits.buffer_bytes_max;
            if !limits.places || (missing < PLACED_BYTES_MIN && fits) {
                return Ok(Step::Wait);
            }
            *start += head_bytes;
            *stage = Stage::Asked { data_bytes };
            *header = *basic;
            return Ok(Step::Head { head, data_bytes });
        };
        *start += head_bytes + payload_bytes;
        let (data, trailer) = payload.split_at(data_bytes);
        match limits.check_digest(|| crc32c(data), data_bytes, trailer) {
            Ok(()) => Ok(Step::Pdu { head, data }),
            Err(_) if limits.recovers => Ok(Step::Damaged { header: *basic }),
            Err(violation) => Err(Fault { violation, header: Some(*basic) }),
        }
    }

    fn poll_trailer(&mut self) -> Result<Step<'_>, Fault> {
        let Stage::Trailer { buf, crc, data_bytes } = &mut self.stage else { return Ok(Step::Wait) };
        let (crc, data_bytes) = (*crc, *data_bytes);
        let buf = buf.take();
        let trailer_bytes = self.limits.trailer_bytes(data_bytes);
        let Some(trailer) = self.buffer[self.start..self.end].get(..trailer_bytes) else {
            self.stage = Stage::Trailer { buf, crc, data_bytes };
            return Ok(Step::Wait);
        };
        let checked = self.limits.check_digest(|| crc, data_bytes, trailer);
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
        if digest {
            self.crc = crc32c_append(self.crc, &self.buf[self.at..self.at + len]);
        }
        self.at += len;
        assert!(self.at <= self.end, "a payload is no longer than its header says");
    }
}

/// Judges padding and digest behind a payload with this CRC.
fn check_trailer(crc: u32, trailer: &[u8]) -> Result<(), Violation> {
    let (padding, digest) = trailer.split_at(trailer.len() - 4);
    if crc32c_append(crc, padding).to_le_bytes() == *digest { Ok(()) } else { Err(Violation::DataDigestWrong) }
}

//! MODE SELECT: parses and checks the whole parameter list before any of it takes effect.
#![warn(clippy::arithmetic_side_effects)]

use super::pages::{ModeParameters, Page, pages};
use super::{Header, LONG_DESCRIPTOR_BYTES, ModePages, SHORT_DESCRIPTOR_BYTES, Setting, block_descriptor};
use crate::failure::Failure;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use block::Geometry;

/// SPF in the first byte of a page.
const SUBPAGE_FORMAT: u8 = 0x40;

const TOO_SHORT: Sense = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Parsed parameter list with the resulting parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedModeSelect {
    pub before: ModeParameters,
    pub after: ModeParameters,
    /// SP: the new values must be persisted before they take effect.
    pub saves: bool,
}

impl ModePages {
    /// Parses MODE SELECT; `None` for an empty list, which changes nothing.
    pub(crate) fn select(&self, job: &Job, setting: Setting) -> Result<Option<ParsedModeSelect>, Failure> {
        if !job.request.cdb.bit(1, 4) {
            // PF zero selects a vendor-specific format, and there is none.
            return Err(Sense::cdb_bit(1, 4).into());
        }
        let saves = job.request.cdb.bit(1, 0);
        if saves && !setting.can_save {
            return Err(Sense::cdb_bit(1, 0).into());
        }
        let list = job.whole_data()?;
        // SPC-4: a parameter list length of zero is not an error.
        if list.is_empty() {
            return Ok(None);
        }
        let before = self.get();
        let list = List { bytes: &list, header: Header::of(job.request.cdb), geometry: job.geometry };
        let after = list.parameters(before, setting.tells_space)?;
        Ok(Some(ParsedModeSelect { before, after, saves }))
    }
}

/// Unvalidated parameter list.
struct List<'a> {
    bytes: &'a [u8],
    header: Header,
    geometry: Geometry,
}

impl List<'_> {
    /// Returns `parameters` with the changes of the list.
    fn parameters(&self, mut parameters: ModeParameters, tells_space: bool) -> Result<ModeParameters, Sense> {
        // Applied to a copy page by page, so that an error in a later page leaves the unit unchanged.
        let mut at = self.pages_at()?;
        let mut rest = self.bytes.get(at..).ok_or(TOO_SHORT)?;
        while !rest.is_empty() {
            let page = page_of(rest, at, tells_space)?;
            let (new, next) = rest.split_at_checked(page.len()).ok_or(TOO_SHORT)?;
            parameters = page.apply(new, parameters).map_err(|(byte, bit)| pointer(at, byte, Some(bit)))?;
            at = at.saturating_add(page.len());
            rest = next;
        }
        Ok(parameters)
    }

    /// Returns the offset of the first page, after checking header and block descriptors.
    fn pages_at(&self) -> Result<usize, Sense> {
        // MODE DATA LENGTH is reserved in MODE SELECT, which changes no bit of the device-specific parameter either.
        // Both are ignored, because hosts send back the header that MODE SENSE returned.
        let (medium, medium_at, descriptor_bytes, long) = match (self.header, self.bytes) {
            (Header::Short, &[_, medium, _, length, ..]) => (medium, 1, usize::from(length), false),
            (Header::Long, &[_, _, medium, _, flags, _, high, low, ..]) => {
                (medium, 2, usize::from(u16::from_be_bytes([high, low])), flags & 1 == 1)
            }
            _ => return Err(TOO_SHORT),
        };
        // MEDIUM TYPE of a direct access block device is zero (SBC-4).
        if medium != 0 {
            return Err(Sense::parameter(medium_at, None));
        }
        check_descriptor(self.bytes, self.header, descriptor_bytes, long, self.geometry)?;
        Ok(self.header.bytes().saturating_add(descriptor_bytes))
    }
}

/// Finds the page whose header is at `at` of the list.
fn page_of(rest: &[u8], at: usize, tells_space: bool) -> Result<&'static Page, Sense> {
    let (&first, behind) = rest.split_first().ok_or(TOO_SHORT)?;
    // PS is reserved in MODE SELECT and may be set in data that MODE SENSE returned, so it is ignored.
    let code = first & 0x3F;
    let find = |subpage| pages(tells_space).find(|page| page.name() == (code, subpage)).ok_or(pointer(at, 0, Some(5)));
    // PAGE LENGTH counts the bytes behind the header of the page, which has two or four.
    let (page, length, length_at) = if first & SUBPAGE_FORMAT == 0 {
        let page = find(0)?;
        (page, usize::from(*behind.first().ok_or(TOO_SHORT)?).saturating_add(2), 1)
    } else {
        let &[subpage, high, low, ..] = behind else { return Err(TOO_SHORT) };
        // A page with subpage 0 has the page_0 format.
        let page = if subpage == 0 { Err(pointer(at, 1, None)) } else { find(subpage) }?;
        (page, usize::from(u16::from_be_bytes([high, low])).saturating_add(4), 2)
    };
    if length == page.len() { Ok(page) } else { Err(pointer(at, length_at, None)) }
}

/// Checks a block descriptor: it must repeat the current values, and may leave the number of blocks open (all zeros or
/// all ones). It cannot change anything.
fn check_descriptor(
    list: &[u8],
    header: Header,
    descriptor_bytes: usize,
    long: bool,
    geometry: Geometry,
) -> Result<(), Sense> {
    let length_at = if header == Header::Short { 3 } else { 6 };
    let own_bytes = if long { LONG_DESCRIPTOR_BYTES } else { SHORT_DESCRIPTOR_BYTES };
    if descriptor_bytes == 0 {
        return Ok(());
    }
    // One descriptor at most: all blocks of the unit have one length.
    if descriptor_bytes != own_bytes {
        return Err(Sense::parameter(length_at, None));
    }
    let start = header.bytes();
    let given = list.get(start..start.saturating_add(own_bytes)).ok_or(TOO_SHORT)?;
    let own = block_descriptor(geometry, long);
    let count_bytes = if long { 8 } else { 4 };
    let (given_count, given_rest) = given.split_at(count_bytes);
    let (own_count, own_rest) = own.split_at(count_bytes);
    let open = given_count.iter().all(|&byte| byte == 0) || given_count.iter().all(|&byte| byte == 0xFF);
    if !open && given_count != own_count {
        return Err(pointer(start, 0, None));
    }
    match given_rest.iter().zip(own_rest).position(|(given, own)| given != own) {
        None => Ok(()),
        Some(byte) => Err(pointer(start, count_bytes.saturating_add(byte), None)),
    }
}

fn pointer(start: usize, byte: usize, bit: Option<u8>) -> Sense {
    Sense::parameter(u16::try_from(start.saturating_add(byte)).unwrap_or(u16::MAX), bit)
}

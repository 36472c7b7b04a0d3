//! Mode parameters, and MODE SENSE (SPC-4 and SBC-4, mode parameters).

mod pages;
mod saved;
mod select;

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use block::{Geometry, Rope};
pub(crate) use pages::ModeParameters;
use pages::{ALL_PAGES, ALL_SUBPAGES, Page};
pub(crate) use select::ParsedModeSelect;
use std::cell::Cell;

/// WP and DPOFUA in the device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const DPO_FUA: u8 = 0x10;

/// PAGE CONTROL of MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageControl {
    Current,
    Changeable,
    Default,
    Saved,
}

/// Mode parameter header of the 6-byte and of the 10-byte commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Short,
    Long,
}

impl Header {
    pub(crate) fn of(cdb: Cdb) -> Self {
        // The operation codes of the 6-byte commands are below 20h.
        if cdb.operation_code() < 0x20 { Self::Short } else { Self::Long }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Short => 4,
            Self::Long => 8,
        }
    }
}

/// Mode parameters of a unit: current values, and saved values, which a reset or a restart restores.
#[derive(Debug, Default)]
pub(crate) struct ModePages {
    current: Cell<ModeParameters>,
    saved: Cell<ModeParameters>,
}

/// Properties of the unit that MODE SENSE and MODE SELECT depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// True when the device reports its space: the page of thresholds exists.
    pub tells_space: bool,
    /// True when SP of MODE SELECT is supported: the unit has a state store.
    pub can_save: bool,
}

impl ModePages {
    #[inline]
    pub(crate) fn get(&self) -> ModeParameters {
        self.current.get()
    }

    pub(crate) fn set(&self, parameters: ModeParameters) {
        self.current.set(parameters);
    }

    pub(crate) fn saved(&self) -> ModeParameters {
        self.saved.get()
    }

    pub(crate) fn set_saved(&self, parameters: ModeParameters) {
        assert!(!parameters.write_cache, "WCE is the owner's and is not saved");
        self.saved.set(parameters);
    }

    /// Makes `parameters`, which were read from the state store, current and saved.
    pub(crate) fn restore(&self, parameters: ModeParameters) {
        assert!(!parameters.write_cache, "WCE is the owner's and is not saved");
        self.current.set(parameters);
        self.saved.set(parameters);
    }

    /// Makes the saved parameters current. WCE stays, because the owner of the unit sets it.
    pub(crate) fn reset(&self) {
        self.current.set(ModeParameters { write_cache: self.current.get().write_cache, ..self.saved.get() });
    }

    /// Sets WCE; true when it changed.
    pub(crate) fn set_write_cache(&self, enabled: bool) -> bool {
        let before = self.current.get();
        self.current.set(ModeParameters { write_cache: enabled, ..before });
        before.write_cache != enabled
    }

    /// Executes MODE SENSE; `is_read_only` sets WP.
    pub(crate) fn sense(&self, job: &Job, setting: Setting, is_read_only: bool) -> Result<Rope, Failure> {
        let (cdb, allocation, geometry) = (job.request.cdb, job.request.need.data_in, job.geometry);
        let header = Header::of(cdb);
        let control = match cdb.u8_at(2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            // Page control 11b: saved values exist only if they can be stored.
            _ if setting.can_save => PageControl::Saved,
            _ => return Err(Sense::illegal(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED).into()),
        };
        let pages = pages_of(cdb, setting.tells_space)?;
        // DBD: the initiator does not want the block descriptor.
        let descriptor = if cdb.bit(1, 3) {
            Vec::new()
        } else {
            // LLBAA permits the long block descriptor, in the 10-byte command only.
            let long = header == Header::Long && cdb.bit(1, 4);
            block_descriptor(geometry, long)
        };
        let current = self.current.get();
        let parameters = match control {
            // WCE is not saved, so the saved page reports its current value.
            PageControl::Saved => ModeParameters { write_cache: current.write_cache, ..self.saved.get() },
            _ => current,
        };
        let mut body = Reply::new();
        body.bytes(&descriptor);
        for page in pages {
            body.bytes(&page.reported(control, parameters, setting.can_save));
        }
        // WP reports the present state, regardless of the requested page control.
        let is_protected = is_read_only || current.software_write_protect;
        let reply = with_header(is_protected, header, &descriptor, &body);
        Ok(reply.cut(allocation))
    }
}

fn with_header(is_protected: bool, header: Header, descriptor: &[u8], body: &Reply) -> Reply {
    let specific = DPO_FUA | if is_protected { WRITE_PROTECTED } else { 0 };
    assert!(
        header == Header::Long || descriptor.len() <= SHORT_DESCRIPTOR_BYTES,
        "a long descriptor has a long header"
    );
    let mut reply = Reply::new();
    match header {
        Header::Short => {
            // MODE DATA LENGTH counts the bytes behind itself.
            let length = u8::try_from(body.len() + 3).expect("all pages together are short");
            reply.u8(length).u8(0).u8(specific).u8(descriptor.len() as u8);
        }
        Header::Long => {
            let length = u16::try_from(body.len() + 6).expect("all pages together are short");
            let long_lba = u8::from(descriptor.len() == LONG_DESCRIPTOR_BYTES);
            reply.u16(length).u8(0).u8(specific).u8(long_lba).u8(0).u16(descriptor.len() as u16);
        }
    }
    reply.bytes(body.as_bytes());
    reply
}

/// Returns the pages that MODE SENSE requests.
///
/// *Errors*: 24/00 for an unknown page or subpage.
fn pages_of(cdb: Cdb, tells_space: bool) -> Result<Vec<&'static Page>, Sense> {
    let (code, subpage) = (cdb.u8_at(2) & 0x3F, cdb.u8_at(3));
    let mut pages: Vec<_> = pages::pages(tells_space).filter(|page| code == ALL_PAGES || page.code == code).collect();
    if pages.is_empty() {
        return Err(Sense::cdb_bit(2, 5));
    }
    // Page and subpage are checked one after the other, so that the field pointer names the wrong one.
    pages.retain(|page| subpage == ALL_SUBPAGES || page.subpage == subpage);
    // "All pages" is valid with subpage 00h or FFh only.
    if pages.is_empty() || (code == ALL_PAGES && !matches!(subpage, 0 | ALL_SUBPAGES)) {
        return Err(Sense::cdb_byte(3));
    }
    Ok(pages)
}

pub(crate) const SHORT_DESCRIPTOR_BYTES: usize = 8;
pub(crate) const LONG_DESCRIPTOR_BYTES: usize = 16;

/// Returns the mode parameter block descriptor: number of blocks and block length.
pub(crate) fn block_descriptor(geometry: Geometry, long: bool) -> Vec<u8> {
    let mut descriptor = Reply::new();
    if long {
        descriptor.u64(geometry.blocks.0).u32(0).u32(geometry.block_bytes);
    } else {
        // LOGICAL BLOCK LENGTH has three bytes here, below a reserved one.
        // More blocks than 32 bits can count are reported as FFFFFFFFh.
        descriptor.u32(u32::try_from(geometry.blocks.0).unwrap_or(u32::MAX)).u32(geometry.block_bytes);
    }
    descriptor.as_bytes().to_vec()
}

#[cfg(test)]
mod tests;

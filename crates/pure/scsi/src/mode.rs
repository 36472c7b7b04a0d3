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
pub(crate) use select::Selected;
use std::cell::Cell;

/// WP and DPOFUA in the device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const DPO_FUA: u8 = 0x10;

/// Which values MODE SENSE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageControl {
    Current,
    Changeable,
    Default,
    Saved,
}

/// The two forms of the mode parameter header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Short,
    Long,
}

impl Header {
    pub(crate) fn of(cdb: Cdb) -> Self {
        if cdb.operation_code() < 0x20 { Self::Short } else { Self::Long }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Short => 4,
            Self::Long => 8,
        }
    }
}

/// The mode parameters of a unit: those in force, and those that a reset and a restart bring back.
#[derive(Debug, Default)]
pub(crate) struct ModePages {
    current: Cell<ModeParameters>,
    saved: Cell<ModeParameters>,
}

/// What MODE SENSE and MODE SELECT must know of the unit beside its mode parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The device tells its space, so there is a page of thresholds.
    pub tells_space: bool,
    /// SP of MODE SELECT is known: what hosts set has a place that survives power loss.
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

    /// `parameters` were kept: they are in force and saved.
    pub(crate) fn restore(&self, parameters: ModeParameters) {
        assert!(!parameters.write_cache, "WCE is the owner's and is not saved");
        self.current.set(parameters);
        self.saved.set(parameters);
    }

    /// The saved parameters are in force. WCE stays: the owner of the unit decides on it.
    pub(crate) fn reset(&self) {
        self.current.set(ModeParameters { write_cache: self.current.get().write_cache, ..self.saved.get() });
    }

    /// WCE is so; true when that is new.
    pub(crate) fn set_write_cache(&self, enabled: bool) -> bool {
        let before = self.current.get();
        self.current.set(ModeParameters { write_cache: enabled, ..before });
        before.write_cache != enabled
    }

    /// Answers MODE SENSE of a nexus that may not write if `is_read_only`.
    pub(crate) fn sense(&self, job: &Job, setting: Setting, is_read_only: bool) -> Result<Rope, Failure> {
        let (cdb, allocation, geometry) = (job.request.cdb, job.request.need.data_in, job.geometry);
        let header = Header::of(cdb);
        let control = match cdb.u8_at(2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ if setting.can_save => PageControl::Saved,
            _ => return Err(Sense::illegal(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED).into()),
        };
        let pages = pages_of(cdb, setting.tells_space)?;
        let descriptor = if cdb.bit(1, 3) {
            Vec::new()
        } else {
            let long = header == Header::Long && cdb.bit(1, 4);
            block_descriptor(geometry, long)
        };
        let current = self.current.get();
        let parameters = match control {
            PageControl::Saved => ModeParameters { write_cache: current.write_cache, ..self.saved.get() },
            _ => current,
        };
        let mut body = Reply::new();
        body.bytes(&descriptor);
        for page in pages {
            body.bytes(&page.reported(control, parameters, setting.can_save));
        }
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

/// The pages that MODE SENSE asks for.
fn pages_of(cdb: Cdb, tells_space: bool) -> Result<Vec<&'static Page>, Sense> {
    let (code, subpage) = (cdb.u8_at(2) & 0x3F, cdb.u8_at(3));
    let mut pages: Vec<_> = pages::pages(tells_space).filter(|page| code == ALL_PAGES || page.code == code).collect();
    if pages.is_empty() {
        return Err(Sense::cdb_bit(2, 5));
    }
    pages.retain(|page| subpage == ALL_SUBPAGES || page.subpage == subpage);
    // "All pages" goes with all subpages or with none.
    if pages.is_empty() || (code == ALL_PAGES && !matches!(subpage, 0 | ALL_SUBPAGES)) {
        return Err(Sense::cdb_byte(3));
    }
    Ok(pages)
}

pub(crate) const SHORT_DESCRIPTOR_BYTES: usize = 8;
pub(crate) const LONG_DESCRIPTOR_BYTES: usize = 16;

/// The mode parameter block descriptor: how many blocks, of how many bytes.
pub(crate) fn block_descriptor(geometry: Geometry, long: bool) -> Vec<u8> {
    let mut descriptor = Reply::new();
    if long {
        descriptor.u64(geometry.blocks.0).u32(0).u32(geometry.block_bytes);
    } else {
        // The length of a block has three bytes here, below a reserved one.
        descriptor.u32(u32::try_from(geometry.blocks.0).unwrap_or(u32::MAX)).u32(geometry.block_bytes);
    }
    descriptor.as_bytes().to_vec()
}

#[cfg(test)]
mod tests;

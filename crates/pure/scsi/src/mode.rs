//! Mode parameters, and MODE SENSE (SPC-4 and SBC-4, mode parameters).

mod pages;
mod saved;
mod select;

use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::request::Job;
use crate::sense::{AdditionalSense, Sense};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Geometry, Rope};
pub(crate) use pages::ModeParameters;
use pages::{ALL_PAGES, ALL_SUBPAGES, Page};

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
    pub fn of(cdb: Cdb) -> Self {
        if cdb.operation_code() < 0x20 { Self::Short } else { Self::Long }
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::Short => 4,
            Self::Long => 8,
        }
    }
}

impl<D: BlockDevice> LogicalUnit<D> {
    pub(crate) fn mode_sense(&self, job: &Job) -> Result<Rope, Failure> {
        let (cdb, allocation, geometry) = (job.request.cdb, job.request.need.data_in, job.geometry);
        let header = Header::of(cdb);
        let can_save = self.can_save_mode();
        let control = match cdb.u8_at(2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ if can_save => PageControl::Saved,
            _ => return Err(Sense::illegal(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED).into()),
        };
        let pages = pages_of(cdb, self.tells_space)?;
        let descriptor = if cdb.bit(1, 3) {
            Vec::new()
        } else {
            let long = header == Header::Long && cdb.bit(1, 4);
            block_descriptor(geometry, long)
        };
        let parameters = match control {
            PageControl::Saved => ModeParameters { write_cache: self.mode.get().write_cache, ..self.saved_mode.get() },
            _ => self.mode.get(),
        };
        let mut body = Reply::new();
        body.bytes(&descriptor);
        for page in pages {
            body.bytes(&page.reported(control, parameters, can_save));
        }
        let reply = self.with_header(job.nexus, header, &descriptor, &body);
        Ok(reply.cut(allocation))
    }

    fn with_header(&self, nexus: NexusId, header: Header, descriptor: &[u8], body: &Reply) -> Reply {
        let protected = self.is_read_only(nexus) || self.mode.get().software_write_protect;
        let specific = DPO_FUA | if protected { WRITE_PROTECTED } else { 0 };
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

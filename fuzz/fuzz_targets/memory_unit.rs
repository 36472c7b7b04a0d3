//! Logical unit over memory, which answers immediately.

use block::memory::Ram;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use scsi::{Identity, InitiatorPort, LogicalUnit, NexusId, Options, Provisioning, TargetPort};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub const BLOCK_BYTES: u32 = 512;

/// Memory that panics on an access outside of it: the unit must check the range first.
pub struct Strict(Ram);

impl Strict {
    fn check(&self, extent: Extent) {
        assert!(!extent.is_empty() && self.geometry().admit(extent).is_ok(), "the unit asks for {extent}");
    }
}

impl BlockDevice for Strict {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.check(extent);
        self.0.read(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.check(self.geometry().extent_of(start, data.len()).expect("a unit writes whole blocks that are there"));
        self.0.write(start, data).await
    }
    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        self.check(extent);
        self.0.try_read(extent)
    }
    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        self.check(self.geometry().extent_of(start, data.len()).expect("a unit writes whole blocks that are there"));
        self.0.try_write(start, data)
    }
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.0.flush(after).await
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.check(extent);
        self.0.discard(extent).await
    }
}

/// Creates a unit with the nexuses 0 and 1, each with a pending unit attention.
pub fn unit(kind: u8) -> LogicalUnit<Strict> {
    let text = String::from;
    let (vendor, product, revision, serial) = (text("v"), text("p"), text("r"), text("s"));
    let identity = Identity { vendor, product, revision, serial, naa: [0x60; 16], uuid: [0; 16] };
    let options = Options {
        read_only: kind & 1 == 1,
        provisioning: if kind & 2 == 0 { Provisioning::Thin } else { Provisioning::Full },
        transfer_bytes_max: 32 * BLOCK_BYTES,
        ..Options::default()
    };
    let unit = LogicalUnit::new(Strict(Ram::new(BLOCK_BYTES, Blocks(256))), identity, options);
    for nexus in [0, 1] {
        let target_name = text("iqn.2026-01.test:disk");
        let initiator = InitiatorPort { name: format!("iqn.2026-01.test:host{nexus}"), isid: [0; 6] };
        let port = TargetPort { target_name, portal_group_tag: 1, relative_port: 1 };
        unit.attach(NexusId(nexus), initiator, Rc::new(port));
    }
    unit
}

pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("memory does not wait"),
    }
}

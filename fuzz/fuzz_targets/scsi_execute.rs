//! A logical unit that is asked anything, with any data, by two nexuses.
#![no_main]

use block::memory::Ram;
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use libfuzzer_sys::fuzz_target;
use scsi::{
    Cdb, Command, Identity, InitiatorPort, LogicalUnit, Lun, ManagementOutcome, NexusId, Options, Outcome, Provisioning, SenseKey,
    Status, TargetPort, TaskAttribute, TaskManagement, TaskTag, absent, judge,
};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// One command in the input: two bytes of circumstances, a CDB, and then its data.
const HEAD_BYTES: usize = 2 + 16;
const BLOCK_BYTES: u32 = 512;

/// Memory that takes it ill to be asked for what it does not have: a unit judges before it asks.
struct Strict(Ram);

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
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.0.flush(after).await
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.check(extent);
        self.0.discard(extent).await
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let unit = unit(kind);
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let [circumstances, length, cdb @ ..] = head;
        let (data, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        execute(&unit, *circumstances, Cdb::new(cdb), data);
    }
    let reset = now(unit.manage(NexusId(0), TaskManagement::LogicalUnitReset));
    assert_eq!(reset, ManagementOutcome::Complete, "no task was left behind");
});

fn unit(kind: u8) -> LogicalUnit<Strict> {
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
    // One has heard its unit attention, so that its first command counts.
    execute(&unit, 0, Cdb::new(&[0; 6]), &[]);
    unit
}

/// Executes one command as a transport does, and holds the answer to what was said before.
fn execute(unit: &LogicalUnit<Strict>, circumstances: u8, cdb: Cdb, data: &[u8]) {
    // Some bring whole blocks, for few bytes of input make few blocks.
    let bytes = if circumstances & 0x80 == 0 { data.len() } else { data.len().min(32) * BLOCK_BYTES as usize };
    let mut data_out = Buf::zeroed(bytes);
    data_out.iter_mut().zip(data.iter().cycle()).for_each(|(to, from)| *to = *from);
    let _: Outcome = absent::execute(cdb, &[Lun::of(0)]);
    let judged = judge(cdb, &unit.shape());
    let command = Command {
        tag: TaskTag(0),
        attribute: [TaskAttribute::Simple, TaskAttribute::Ordered, TaskAttribute::HeadOfQueue, TaskAttribute::Aca]
            [usize::from(circumstances >> 1 & 3)],
        cdb,
        data_out: if judged.is_ok() { data_out.freeze() } else { View::default() },
        data_out_expected: bytes as u64,
    };
    let Outcome { status, sense, data_in } = now(unit.execute(NexusId(u64::from(circumstances & 1)), command));
    assert_eq!(status == Status::CheckCondition, sense.is_some());
    assert!(status == Status::Good || data_in.is_empty(), "what failed shows nothing");
    match judged {
        Ok(need) => assert!(data_in.len() as u64 <= need.data_in),
        Err(_) if status == Status::ReservationConflict => {}
        Err(refusal) => {
            let sense = sense.expect("what is judged to be refused is refused");
            let first = matches!(sense.key, SenseKey::UnitAttention | SenseKey::NotReady | SenseKey::DataProtect);
            assert!(first || sense.code == refusal.code || circumstances >> 1 & 3 == 3, "{sense:?} {refusal:?}");
        }
    }
    if let Some(sense) = sense {
        assert!((8..=40).contains(&sense.emit().len()));
    }
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("memory does not wait"),
    }
}

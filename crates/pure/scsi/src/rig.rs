//! Test rig: a logical unit over a small memory disk that can be delayed and made to fail.

mod owner;
mod thin;

use crate::{
    Cdb, Command, Identity, InitiatorPort, LogicalUnit, NexusId, Options, Outcome, Sense, Status, TargetPort,
    TaskAttribute, TaskTag, judge,
};
use block::{
    BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written,
};
use futures_util::FutureExt;
pub(crate) use owner::{MemoryStore, Owner};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
pub(crate) use thin::Thin;

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: u64 = 256;
pub(crate) const HOST: NexusId = NexusId(1);
pub(crate) const OTHER: NexusId = NexusId(2);

/// Operation that the device received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read(u64, u64),
    Write(u64, u64),
    /// Announces that the next write is atomic.
    WriteAtomic(u64, u64),
    Flush,
    Discard(u64, u64),
}

pub(crate) struct Bench {
    pub geometry: Cell<Geometry>,
    pub bytes: RefCell<Vec<u8>>,
    pub ops: RefCell<Vec<Op>>,
    /// Number of operations that may still proceed; the others wait.
    pub permits: Cell<usize>,
    pub failure: Cell<Option<IoErrorKind>>,
    /// True when operations that need not wait for a permit complete synchronously.
    pub at_once: Cell<bool>,
    /// Blocks that are unreadable until they are written.
    pub bad: RefCell<BTreeSet<u64>>,
    /// Selects the block that an error names when several are bad: the last instead of the first.
    pub names_last_bad: Cell<bool>,
    /// Maximum length of an atomic write in bytes; 0 disables them.
    pub atomic_bytes: Cell<u32>,
    /// Mapped granules of a thin disk.
    pub thin: Option<Thin>,
}

impl Bench {
    pub(crate) fn new(block_bytes: u32, blocks: u64) -> Self {
        let geometry = Geometry {
            block_bytes,
            blocks: Blocks(blocks),
            physical_block_bytes: 4096,
            optimal_bytes: 65536,
            volatile_cache: true,
            discard_zeroes: true,
            prefers_unlogged: false,
        };
        Self {
            geometry: Cell::new(geometry),
            bytes: RefCell::new(vec![0; block_bytes as usize * blocks as usize]),
            ops: RefCell::default(),
            permits: Cell::new(usize::MAX),
            failure: Cell::new(None),
            at_once: Cell::new(false),
            bad: RefCell::default(),
            names_last_bad: Cell::new(false),
            atomic_bytes: Cell::new(8 * block_bytes),
            thin: None,
        }
    }

    async fn permit(&self) {
        poll_fn(|_| if self.permits.get() == 0 { Poll::Pending } else { Poll::Ready(()) }).await;
        self.permits.set(self.permits.get() - 1);
    }

    async fn begin(&self, op: Op, extent: Extent) -> Result<(), IoError> {
        self.permit().await;
        self.ops.borrow_mut().push(op);
        match self.failure.get() {
            Some(kind) => Err(IoError::new(kind, extent)),
            None => {
                self.geometry.get().admit(extent).expect("a unit asks only for blocks that are there");
                Ok(())
            }
        }
    }

    fn range(&self, extent: Extent) -> std::ops::Range<usize> {
        let bytes = self.geometry.get().block_bytes as u64;
        (extent.start.0 * bytes) as usize..(extent.end().0 * bytes) as usize
    }
}

impl BlockDevice for Bench {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        assert!(!extent.is_empty(), "a device is not asked for nothing");
        self.begin(Op::Read(extent.start.0, extent.len.0), extent).await?;
        let bad = self.bad.borrow();
        let mut here = bad.range(extent.start.0..extent.end().0);
        if let Some(&named) = if self.names_last_bad.get() { here.next_back() } else { here.next() } {
            return Err(IoError::new(IoErrorKind::Medium, Extent::new(named, 1)));
        }
        let bytes = self.bytes.borrow();
        // Two parts, so that no caller relies on contiguous data.
        let bytes = &bytes[self.range(extent)];
        let mut rope = Rope::new();
        rope.push(Buf::copy_of(&bytes[..bytes.len() / 3]).freeze());
        rope.push(Buf::copy_of(&bytes[bytes.len() / 3..]).freeze());
        Ok(rope)
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        assert!(!data.is_empty(), "a device is not given nothing");
        let extent = self.geometry().extent_of(start, data.len())?;
        self.begin(Op::Write(start.0, extent.len.0), extent).await?;
        if let Some(thin) = &self.thin {
            thin.map(extent)?;
        }
        self.bad.borrow_mut().retain(|&block| !extent.contains(Extent::new(block, 1)));
        let range = self.range(extent);
        self.bytes.borrow_mut()[range].copy_from_slice(&data);
        Ok(Written::attest())
    }
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        assert!(data.len() <= self.atomic_bytes.get() as usize, "a unit asks for no longer atomic write than there is");
        let extent = self.geometry().extent_of(start, data.len())?;
        self.ops.borrow_mut().push(Op::WriteAtomic(start.0, extent.len.0));
        self.write(start, data).await
    }
    fn atomic_bytes_max(&self) -> u32 {
        self.atomic_bytes.get()
    }
    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        if self.at_once.get() { self.read(extent).now_or_never() } else { None }
    }
    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        if self.at_once.get() { self.write(start, Buf::copy_of(data).freeze()).now_or_never() } else { None }
    }
    async fn flush(&self, _: Written) -> Result<Stable, IoError> {
        self.begin(Op::Flush, Extent::default()).await?;
        Ok(Stable::attest())
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        assert!(!extent.is_empty(), "a device is not asked to forget nothing");
        self.begin(Op::Discard(extent.start.0, extent.len.0), extent).await?;
        let range = self.range(extent);
        self.bytes.borrow_mut()[range].fill(0);
        if let Some(thin) = &self.thin {
            thin.unmap(extent, self.geometry().blocks);
        }
        Ok(Written::attest())
    }
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        assert!(!extent.is_empty(), "a device is not asked about nothing");
        self.permit().await;
        self.geometry().admit(extent).expect("a unit asks only about blocks that are there");
        Ok(self.thin.as_ref().map_or(Run { extent, mapped: true }, |thin| thin.run(extent)))
    }
    fn space(&self) -> Option<Space> {
        self.thin.as_ref().map(|thin| thin.space(self.geometry().block_bytes))
    }
}

pub(crate) fn identity() -> Identity {
    Identity {
        vendor: "BLOCKYRD".into(),
        product: "volume".into(),
        revision: "0.1".into(),
        serial: "5f1e0001".into(),
        naa: [0x65, 0x1e, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        uuid: [0xAB; 16],
    }
}

pub(crate) fn port(relative: u16) -> Rc<TargetPort> {
    let target_name = "iqn.2026-01.example:disk".into();
    Rc::new(TargetPort { target_name, portal_group_tag: relative, relative_port: relative })
}

pub(crate) fn initiator(number: u16) -> InitiatorPort {
    InitiatorPort { name: format!("iqn.2026-01.example:host{number}"), isid: [0x80, 0, 0, 0, 0, 1] }
}

/// Creates a unit of 256 blocks that HOST and OTHER are attached to, with their first unit attentions reported.
pub(crate) fn unit() -> LogicalUnit<Bench> {
    unit_with(Options::default())
}

pub(crate) fn unit_with(options: Options) -> LogicalUnit<Bench> {
    unit_over(Bench::new(BLOCK as u32, BLOCKS), options)
}

/// Creates a unit over a thin disk of 256 blocks with granules of `granule_blocks`, of which `granules` can be mapped.
pub(crate) fn thin_unit(granule_blocks: u64, granules: usize) -> LogicalUnit<Bench> {
    let mut bench = Bench::new(BLOCK as u32, BLOCKS);
    bench.thin = Some(Thin::new(granule_blocks, granules));
    unit_over(bench, Options::default())
}

/// Returns the thin disk below a unit.
pub(crate) fn thin_of(unit: &LogicalUnit<Bench>) -> &Thin {
    unit.device().thin.as_ref().expect("the disk is thin")
}

pub(crate) fn unit_over(bench: Bench, options: Options) -> LogicalUnit<Bench> {
    let unit = LogicalUnit::new(bench, identity(), options).with_sanitizer(Rc::new(Owner::with_key()));
    for (nexus, relative) in [(HOST, 1), (OTHER, 2)] {
        unit.attach(nexus, initiator(relative), port(relative));
        let told = run(&unit, nexus, &[0; 6], &[]);
        assert_eq!(sense(&told), (6, 0x29, 0));
    }
    unit
}

pub(crate) fn command(cdb: &[u8], data: &[u8]) -> Command {
    Command {
        tag: TaskTag(0),
        attribute: TaskAttribute::Simple,
        cdb: Cdb::new(cdb),
        data_out: if data.is_empty() { View::default() } else { Buf::copy_of(data).freeze() },
        data_out_expected: data.len() as u64,
        data_in_expected: 0,
    }
}

pub(crate) fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("nothing here has to wait")
}

/// Executes one command as a transport does: a command that is refused before its data is solicited brings no data.
pub(crate) fn run(unit: &LogicalUnit<Bench>, nexus: NexusId, cdb: &[u8], data: &[u8]) -> Outcome {
    let mut command = command(cdb, data);
    match judge(command.cdb, &unit.shape()) {
        Ok(need) => {
            let given = need.data_out.min(command.data_out_expected) as usize;
            command.data_out = command.data_out.slice(..given);
            let at_once = unit.execute_fast_path(nexus, command.borrowed());
            let outcome = at_once.unwrap_or_else(|| now(unit.execute(nexus, command)));
            assert!(outcome.data_in.len() as u64 <= need.data_in, "an answer is no longer than it was judged to be");
            outcome
        }
        Err(refusal) => {
            command.data_out = View::default();
            let outcome = now(unit.execute(nexus, command));
            if outcome.status == Status::ReservationConflict {
                return outcome;
            }
            let sense = outcome.sense.as_deref().expect("what was judged to be refused is refused");
            let attention = sense.key == crate::SenseKey::UnitAttention || sense.key == crate::SenseKey::NotReady;
            assert!(attention || (sense.key, sense.code) == (refusal.key, refusal.code));
            outcome
        }
    }
}

/// Returns the data-in of a command that ends with GOOD.
pub(crate) fn ask(unit: &LogicalUnit<Bench>, cdb: &[u8]) -> Vec<u8> {
    good(run(unit, HOST, cdb, &[]))
}

pub(crate) fn tell(unit: &LogicalUnit<Bench>, cdb: &[u8], data: &[u8]) {
    assert!(good(run(unit, HOST, cdb, data)).is_empty());
}

pub(crate) fn good(outcome: Outcome) -> Vec<u8> {
    assert_eq!(outcome.status, Status::Good, "{:?}", outcome.sense);
    outcome.data_in.into_view().to_vec()
}

/// Returns sense key, code and qualifier of a command that ends with CHECK CONDITION.
pub(crate) fn sense(outcome: &Outcome) -> (u8, u8, u8) {
    assert_eq!(outcome.status, Status::CheckCondition);
    let &Sense { key, code, .. } = outcome.sense.as_deref().expect("CHECK CONDITION comes with sense");
    (key as u8, code.0, code.1)
}

pub(crate) fn refused(unit: &LogicalUnit<Bench>, cdb: &[u8], data: &[u8]) -> (u8, u8, u8) {
    sense(&run(unit, HOST, cdb, data))
}

/// Returns the byte and bit of the field pointer of a refused command.
pub(crate) fn pointed(unit: &LogicalUnit<Bench>, cdb: &[u8], data: &[u8]) -> (u16, Option<u8>) {
    let outcome = run(unit, HOST, cdb, data);
    let field = outcome.sense.as_deref().and_then(|sense| sense.field).expect("the sense points at a field");
    assert_eq!(field.in_cdb, outcome.sense.as_deref().expect("there is sense").code.0 == 0x24);
    (field.byte, field.bit)
}

pub(crate) fn blocks(unit: &LogicalUnit<Bench>, from: u64, count: u64) -> Vec<u8> {
    let bytes = unit.device().geometry.get().block_bytes as u64;
    unit.device().bytes.borrow()[(from * bytes) as usize..((from + count) * bytes) as usize].to_vec()
}

pub(crate) fn ops(unit: &LogicalUnit<Bench>) -> Vec<Op> {
    std::mem::take(&mut *unit.device().ops.borrow_mut())
}

/// Builds a 16-byte CDB with the usual fields: flags, LBA, number of blocks.
pub(crate) fn cdb16(code: u8, flags: u8, lba: u64, count: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

pub(crate) fn cdb10(code: u8, flags: u8, lba: u32, count: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = code;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&count.to_be_bytes());
    cdb
}

pub(crate) fn cdb12(code: u8, flags: u8, lba: u32, count: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    cdb[0] = code;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[6..10].copy_from_slice(&count.to_be_bytes());
    cdb
}

//! Volumes of a scenario, and the complete check of their content.

use crate::host::command::{self, Verdict};
use crate::host::session::{Answer, Session};
use crate::host::traffic::{Host, Unit, WorkloadProfile};
use crate::oracle::{Oracle, WriteEffect};
use crate::pattern::Value;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use block::Buf;
use iscsi::pdu::Lun;
use model::{Backend, Name, Order, Provision, Size, VolumeId, VolumeName, VolumeSpec};
use shard::World;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Upper bound of blocks in one read of the check.
const LOOK_BLOCKS: u64 = 64;

/// Number of commands that may remain unanswered because another host reset the target.
const SILENCES_MAX: u32 = 2;

impl Unit {
    /// Creates a unit with the oracle `oracle`, whose commands use the ranges `hot`.
    pub(crate) fn new(number: u16, block_bytes: u32, oracle: Oracle, hot: Vec<Range<u64>>) -> Self {
        Self {
            // Single-level LUN: the number is in the first two bytes (SAM).
            lun: Lun(u64::from(number) << 48),
            block_bytes: block_bytes as usize,
            thin: false,
            scarce: false,
            oracle: Rc::new(RefCell::new(oracle)),
            hot: Rc::new(hot),
            clearings: Rc::default(),
        }
    }

    /// Returns the LUN as operators write it.
    pub(crate) fn number(&self) -> u16 {
        u16::try_from(self.lun.0 >> 48).expect("a shift by 48 leaves 16 bits")
    }
}

impl Stage {
    /// Creates a volume of `bytes`, in `pool` or in memory, and assigns a unit to it.
    pub(crate) async fn make_volume(
        &self,
        pool: Option<&Name>,
        number: u16,
        bytes: u64,
        blocks: u32,
    ) -> CheckResult<PresentedVolume> {
        let spec = self.volume_spec(pool, number, bytes, blocks);
        self.order(Order::CreateVolume(spec.clone())).await?;
        Ok(self.presented(&spec, number))
    }

    /// Returns the specification of the volume with this number.
    pub(crate) fn volume_spec(&self, pool: Option<&Name>, number: u16, bytes: u64, block_bytes: u32) -> VolumeSpec {
        let own: Name = format!("v{number}").parse().expect("this is a name");
        let (name, backend) = match pool {
            Some(pool) => {
                let chance = &self.chance;
                let provision = chance.pick(&[Provision::Thick, Provision::Thin, Provision::Segments]);
                let granule = chance.pick(&[None, Some(16 << 10), Some(64 << 10), Some(1 << 20)]).map(Size::new);
                // Volumes of segments take no granule.
                let granule = granule.filter(|_| provision != Provision::Segments);
                let zero_detection = provision == Provision::Thin && chance.percent(40);
                let backend = Backend::Pool { stripe_unit: None, provision, granule, zero_detection, encrypted: false };
                (VolumeName::in_pool(pool.clone(), own), backend)
            }
            None => (VolumeName::bare(own), Backend::Ram),
        };
        let id = VolumeId::from_random(self.chance.identity());
        VolumeSpec { name, id, size: Size::new(bytes), block_bytes, backend }
    }

    /// Returns the volume of `spec` as hosts will access it; all of its blocks are zeros.
    pub(crate) fn presented(&self, spec: &VolumeSpec, number: u16) -> PresentedVolume {
        let blocks = spec.size.bytes() / u64::from(spec.block_bytes);
        let oracle = Oracle::new(&spec.name.to_string(), spec.block_bytes as usize, blocks, &self.clock);
        let mut unit = Unit::new(number, spec.block_bytes, oracle, self.hot(blocks));
        // Volumes in memory support UNMAP, too.
        unit.thin = matches!(spec.backend, Backend::Ram | Backend::Pool { provision: Provision::Thin, .. });
        PresentedVolume { name: spec.name.clone(), id: spec.id, unit }
    }

    /// Returns a few ranges for commands: the beginning, the end, and some in between.
    pub(crate) fn hot(&self, blocks: u64) -> Vec<Range<u64>> {
        let len = self.chance.within(4..=96).min(blocks);
        // Both ends, where a wrong bound of the volume would show.
        let mut starts = vec![0, blocks - len];
        starts.extend((0..self.chance.below(3)).map(|_| self.chance.below(blocks - len + 1)));
        starts.into_iter().map(|start| start..start + len).collect()
    }

    /// Reads every block of `units` that was ever written, and a few others, and lets the oracles judge them.
    pub(crate) async fn check_all_blocks(&self, units: &[Unit]) -> CheckResult<()> {
        let habits = WorkloadProfile {
            depth: 1,
            blocks: 1,
            large_bytes: 0,
            manages: false,
            drops_connections: false,
            media_fail: false,
            answers_within: None,
        };
        // Number above those of the load: an equal initiator name and ISID would reinstate a session of a host (RFC
        // 7143 §6.3.5).
        let host = self.host(200, &Rc::new(Cell::new(0)), units, habits);
        loop {
            let Some(session) = host.log_in().await else { return Err("the run has failed".to_owned()) };
            let mut whole = true;
            for unit in units {
                // If the session is lost, the check starts again with a new one.
                whole = whole && self.look_at(&host, &session, unit).await?;
            }
            // A violation of the protocol fails the run, even if all data is right.
            if let Some(why) = session.wrong() {
                return Err(why);
            }
            if whole {
                session.logout().await;
                return Ok(());
            }
            self.world.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks one unit; false when the session was lost meanwhile.
    async fn look_at(&self, host: &Host, session: &Session, unit: &Unit) -> CheckResult<bool> {
        let blocks = unit.oracle.borrow().blocks();
        let capacity = ask(host, session, || command::read_capacity(unit.lun)).await?;
        let Some(capacity) = capacity else { return Ok(false) };
        if command::capacity_in(&capacity) != Some((blocks, unit.block_bytes as u32)) {
            let said = command::capacity_in(&capacity);
            return Err(format!("the volume has {blocks} blocks, but READ CAPACITY says {said:?}"));
        }
        let mut wanted: Vec<u64> = unit.oracle.borrow().touched();
        // A few more blocks, most of which were never written and must be zeros.
        wanted.extend((0..4).map(|_| self.chance.below(blocks)));
        wanted.sort_unstable();
        wanted.dedup();
        for range in runs(&wanted) {
            // Begun before the command is sent, since hosts may write meanwhile.
            let op = unit.oracle.borrow_mut().begin();
            let read = ask(host, session, || command::read(unit.lun, &range, unit.block_bytes)).await?;
            let Some(data) = read else { return Ok(false) };
            unit.oracle.borrow_mut().end_read(op, range, &data)?;
        }
        Ok(true)
    }
}

impl Stage {
    /// Unmaps all blocks of the unit, which then read as zeros. No host works meanwhile.
    pub(crate) async fn discard_all(&self, unit: &Unit) -> CheckResult<()> {
        let habits = WorkloadProfile {
            depth: 1,
            blocks: 1,
            large_bytes: 0,
            manages: false,
            drops_connections: false,
            media_fail: false,
            answers_within: None,
        };
        let units = std::slice::from_ref(unit);
        let host = self.host(200, &Rc::new(Cell::new(0)), units, habits);
        let all = 0..unit.oracle.borrow().blocks();
        let touched = runs(&unit.oracle.borrow().touched());
        loop {
            let Some(session) = host.log_in().await else { return Err("the run has failed".to_owned()) };
            // Blocks that were never written are zeros already.
            let op = unit.oracle.borrow_mut().begin_write(&touched, Value::ZERO);
            let answer = ask(&host, &session, || command::unmap(unit.lun, std::slice::from_ref(&all))).await?;
            // A lost session leaves it unknown which blocks were unmapped.
            let ending = if answer.is_some() { WriteEffect::Good } else { WriteEffect::Maybe };
            unit.oracle.borrow_mut().end_write(op, ending);
            if answer.is_some() {
                session.logout().await;
                return Ok(());
            }
        }
    }
}

/// Runs a command that can fail only through a reset by another host, and returns its data; `None` when the session was
/// lost.
async fn ask(
    host: &Host,
    session: &Session,
    command: impl Fn() -> iscsi::initiator::Command,
) -> CheckResult<Option<Buf>> {
    let mut silences = 0;
    loop {
        let mut done = match host.until_abort_timeout(session.command(command(), |_| ())).await {
            Some(Answer::Completed(done)) => done,
            Some(Answer::Lost | Answer::Aborted) => return Ok(None),
            None if silences < SILENCES_MAX => {
                silences += 1;
                continue;
            }
            answer => return Err(format!("a command was answered with {answer:?}")),
        };
        match command::verdict(&done) {
            Verdict::Good => return Ok(Some(done.data_in.take().unwrap_or_else(|| Buf::zeroed(0)))),
            // Effects of a reset by another host: the command is repeated.
            Verdict::NotNow | Verdict::Attention(..) | Verdict::Aborted => {}
            verdict => return Err(format!("a command that nothing hinders was answered with {verdict:?}")),
        }
    }
}

/// Groups adjacent blocks into ranges.
pub(crate) fn runs(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &block in blocks {
        // Touched blocks are often adjacent, and one read for all of them saves most commands.
        match runs.last_mut() {
            Some(last) if last.end == block && last.end - last.start < LOOK_BLOCKS => last.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

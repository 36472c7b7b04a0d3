//! Rate-limiting layer of a volume: enforces its IOPS and bandwidth limits.

use super::scheduler::Scheduler;
use crate::Runtime;
use crate::policy::Limits;
use crate::stalls::Stalls;
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use futures_util::future::{Either, select};
use shard::Signal;
use shard::Time;
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

/// Layer that enforces the limits of a volume. A volume that waits for its own limits occupies no slot of the
/// scheduler.
pub struct Limited<D, R: Runtime> {
    device: D,
    runtime: R,
    scheduler: Scheduler<R>,
    flow: usize,
    limits: Cell<Limits>,
    /// Leaky buckets in virtual time: when the admitted commands, and bytes, are used up at the maximum rate.
    commands_used: Cell<Time>,
    bytes_used: Cell<Time>,
    changes: Cell<u64>,
    changed: Signal,
    stalls: Stalls,
}

impl<D, R: Runtime> Drop for Limited<D, R> {
    fn drop(&mut self) {
        self.scheduler.leave(self.flow);
    }
}

impl<D: BlockDevice, R: Runtime> Limited<D, R> {
    /// Wraps the device with `limits`; its commands are scheduled by `scheduler`.
    pub fn new(device: D, runtime: R, scheduler: &Scheduler<R>, limits: Limits) -> Self {
        let flow = scheduler.join(&limits);
        Self {
            device,
            runtime,
            scheduler: scheduler.clone(),
            flow,
            limits: Cell::new(limits),
            commands_used: Cell::default(),
            bytes_used: Cell::default(),
            changes: Cell::new(0),
            changed: Signal::default(),
            stalls: Stalls::default(),
        }
    }

    /// Device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Changes the limits, also for commands that wait.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
        self.scheduler.set_limits(self.flow, &limits);
        let now = self.runtime.now();
        // What was used under the old limits does not count against the new ones.
        self.commands_used.set(now.min(self.commands_used.get()));
        self.bytes_used.set(now.min(self.bytes_used.get()));
        self.changes.set(self.changes.get() + 1);
        self.changed.raise();
    }

    /// True when a command on some of these blocks waits.
    pub fn is_stalled(&self, extent: Extent) -> bool {
        self.stalls.contains(extent)
    }

    /// True when a command may have to wait.
    fn may_stall(&self) -> bool {
        let limits = self.limits.get();
        limits.iops_max > 0 || limits.bytes_per_second_max > 0 || self.scheduler.is_enabled()
    }

    /// Runs `command` on `extent`, which moves `bytes`, once limits and scheduler admit it.
    async fn limited<T>(&self, extent: Extent, bytes: u64, command: impl Future<Output = T>) -> T {
        if !self.may_stall() {
            return command.await;
        }
        let admission = async {
            let limits = self.limits.get();
            if limits.iops_max > 0 || limits.bytes_per_second_max > 0 {
                // Limits first, then the scheduler: a command that waits for its limits holds no slot.
                self.wait(bytes).await;
            }
            self.scheduler.enter(self.flow, bytes).await
        };
        let _slot = self.stalls.track(extent, admission).await;
        command.await
    }

    /// Blocks of a write.
    fn extent_of(&self, start: Lba, data: &View) -> Extent {
        let blocks = data.len() as u64 / u64::from(self.device.geometry().block_bytes);
        // An invalid extent is refused by the device below.
        Extent::checked(start.0, blocks).unwrap_or_default()
    }

    /// Waits until the limits allow a command of `bytes`.
    async fn wait(&self, bytes: u64) {
        loop {
            // After a change of limits the amount is taken again, from the new buckets.
            let (now, limits, changes) = (self.runtime.now(), self.limits.get(), self.changes.get());
            let commands = take(&self.commands_used, now, 1, limits.iops_max, limits.burst);
            let until = commands.max(take(&self.bytes_used, now, bytes, limits.bytes_per_second_max, limits.burst));
            if until <= now {
                return;
            }
            let changed = pin!(self.changed.wait(|| (self.changes.get() != changes).then_some(())));
            if let Either::Right(_) = select(changed, self.runtime.sleep_until(until)).await {
                // The amount was taken when the wait began, so the time alone admits the command.
                return;
            }
        }
    }
}

/// Takes `amount` from a bucket of `rate` per second; returns when that is allowed, at most `burst` ahead of the
/// rate.
fn take(used: &Cell<Time>, now: Time, amount: u64, rate: u64, burst: Duration) -> Time {
    if rate == 0 {
        return now;
    }
    // An idle volume saves up nothing beyond the burst.
    let from = used.get().max(now);
    // In 128 bits, because bytes times a billion can exceed 64.
    let lasts = u128::from(amount) * 1_000_000_000 / u128::from(rate);
    used.set(from + Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX)));
    Time(from.0.saturating_sub(u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX)))
}

impl<D: BlockDevice, R: Runtime> BlockDevice for Limited<D, R> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let geometry = self.device.geometry();
        geometry.admit(extent)?;
        self.limited(extent, extent.len.bytes(geometry.block_bytes), self.device.read(extent)).await
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        // A synchronous call cannot wait for limits.
        if self.may_stall() { None } else { self.device.try_read(extent) }
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        // As for reads: the caller then takes the path that can wait.
        if self.may_stall() { None } else { self.device.try_write(start, data) }
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.limited(self.extent_of(start, &data), data.len() as u64, self.device.write(start, data)).await
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.limited(self.extent_of(start, &data), data.len() as u64, self.device.write_unlogged(start, data)).await
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.limited(self.extent_of(start, &data), data.len() as u64, self.device.write_atomic(start, data)).await
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.device.atomic_bytes_max()
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        // A discard moves no data, so it counts as a command only.
        self.limited(extent, 0, self.device.discard(extent)).await
    }
}

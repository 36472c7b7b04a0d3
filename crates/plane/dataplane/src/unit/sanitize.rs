//! SANITIZE of a volume: whether it may be, and the work behind the command.

use super::Unit;
use crate::seat::Seat;
use block::{Extent, IoError, IoErrorKind};
use model::{SanitizeReport, Subject, SubjectKind, VolumeId, event};
use scsi::{Replacing, Sanitizer};
use shard::World;
use std::rc::{Rc, Weak};

/// Has one unit of a shard sanitized.
pub struct Sanitation<W: World> {
    seat: Weak<Seat<W>>,
    id: VolumeId,
    encrypted: bool,
}

impl<W: World> Sanitation<W> {
    /// For the volume `id`, whose home is `seat`, and which may be encrypted.
    pub fn new(seat: &Rc<Seat<W>>, id: VolumeId, encrypted: bool) -> Self {
        Self { seat: Rc::downgrade(seat), id, encrypted }
    }

    /// Runs `look` with the unit, which may be gone.
    fn with_unit<T>(&self, look: impl FnOnce(Rc<Seat<W>>, Rc<Unit<W>>) -> T) -> Option<T> {
        let seat = self.seat.upgrade()?;
        let unit = seat.unit(self.id)?;
        Some(look(seat, unit))
    }
}

impl<W: World> Sanitizer for Sanitation<W> {
    fn admits(&self) -> bool {
        self.with_unit(|seat, unit| is_admitted(&seat, &unit)).unwrap_or(false)
    }

    fn has_key(&self) -> bool {
        self.encrypted
    }

    fn replace_key(&self) -> Replacing<'_> {
        Box::pin(async {
            let gone = IoError::new(IoErrorKind::Gone, Extent::default());
            let (seat, unit) = self.with_unit(|seat, unit| (seat, unit)).ok_or(gone)?;
            let pool = unit.name.pool().and_then(|name| seat.pools.borrow().get(name).cloned());
            pool.ok_or(gone)?.replace_key(&unit).await
        })
    }

    fn begin(&self) {
        self.with_unit(|seat, unit| seat.world.clone().spawn(carry_out(seat, unit)));
    }
}

/// True when nobody else has or needs what the unit holds; else the operator hears why it is not sanitized.
fn is_admitted<W: World>(seat: &Rc<Seat<W>>, unit: &Rc<Unit<W>>) -> bool {
    let pool = unit.name.pool().and_then(|name| seat.pools.borrow().get(name).cloned());
    if unit.spared.get() == 0 && pool.is_none_or(|pool| !pool.shares_content_of(unit.id)) {
        return true;
    }
    let sentence = format!(
        "a host asked for volume {} to be sanitized and was refused: its snapshots, or the one that it is a clone of, would \
         keep what it holds; delete them first",
        unit.name
    );
    seat.raise(event::SANITIZE_REFUSED, Subject::new(SubjectKind::Volume, &unit.name), sentence);
    false
}

/// The unit is sanitized, or that has failed, when it returns.
async fn carry_out<W: World>(seat: Rc<Seat<W>>, unit: Rc<Unit<W>>) {
    let subject = || Subject::new(SubjectKind::Volume, &unit.name);
    seat.raise(event::SANITIZE_BEGAN, subject(), format!("volume {} is being sanitized: it does not serve", unit.name));
    // What waits in memory or in a log would be written later, over what is written now.
    if let Err(error) = unit.write_through().await {
        tracing::warn!(volume = %unit.name, %error, "what a volume has acknowledged cannot be written");
    }
    unit.logical_unit.carry_out_sanitize().await;
    if unit.logical_unit.is_being_sanitized() || seat.unit(unit.id).is_none() {
        // It goes on when the volume serves again, if ever.
        return;
    }
    if let Some(volume) = unit.store.policed() {
        volume.replace(async {}).await;
    }
    if let Err(error) = unit.set_policy(unit.policy()).await {
        tracing::warn!(volume = %unit.name, %error, "a volume is written through, against its policy");
    }
    if unit.logical_unit.has_failed_to_be_sanitized() {
        let sentence =
            format!("volume {} could not be sanitized, and does not serve until a host asks again", unit.name);
        seat.raise(event::SANITIZE_FAILED, subject(), sentence);
    } else {
        seat.raise(event::SANITIZE_ENDED, subject(), format!("volume {} is sanitized, and serves again", unit.name));
    }
}

/// While it lives, the volume is not sanitized: somebody needs what it holds.
pub struct Spared<W: World>(Rc<Unit<W>>);

impl<W: World> Spared<W> {
    /// *Errors*: none for a volume that is being sanitized.
    pub fn of(unit: Rc<Unit<W>>) -> Option<Self> {
        if unit.logical_unit.is_being_sanitized() {
            return None;
        }
        unit.spared.set(unit.spared.get() + 1);
        Some(Self(unit))
    }
}

impl<W: World> Drop for Spared<W> {
    fn drop(&mut self) {
        self.0.spared.set(self.0.spared.get() - 1);
    }
}

impl<W: World> Unit<W> {
    /// How a SANITIZE fares, if one is under way or has failed.
    pub(super) fn sanitize_report(&self) -> Option<SanitizeReport> {
        let percent = self.logical_unit.sanitize_progress().map(|done| u8::try_from(u32::from(done) * 100 / 65_536));
        match percent {
            Some(percent) => Some(SanitizeReport::Running { percent: percent.unwrap_or(99) }),
            None if self.logical_unit.has_failed_to_be_sanitized() => Some(SanitizeReport::Failed),
            None => None,
        }
    }

    /// Nothing is written by order of a SANITIZE any more, before the volume serves anew.
    pub async fn stop_sanitizing(&self) {
        self.logical_unit.stop_sanitizing().await;
    }

    /// What a SANITIZE has begun before a restart goes on.
    pub fn go_on_sanitizing(self: &Rc<Self>, seat: &Rc<Seat<W>>) {
        if self.logical_unit.is_being_sanitized() {
            seat.world.spawn(carry_out(seat.clone(), self.clone()));
        }
    }
}

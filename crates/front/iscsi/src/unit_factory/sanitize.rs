//! SANITIZE of a volume: admission, and the background operation.

use crate::iscsi_shard::IscsiShard;
use crate::scsi_unit::ScsiUnit;
use block::{Extent, IoError, IoErrorKind};
use engine::unit::Unit;
use model::{Backend, Subject, SubjectKind, VolumeId, event};
use scsi::{ReplaceKeyFuture, Sanitizer};
use shard::World;
use std::rc::{Rc, Weak};

/// Sanitize service of one unit of a shard.
pub(super) struct UnitSanitizer<W: World> {
    shard: Weak<IscsiShard<W>>,
    id: VolumeId,
    encrypted: bool,
}

impl<W: World> UnitSanitizer<W> {
    /// Creates the service for `unit`, whose home is `shard`.
    pub(super) fn new(shard: &Rc<IscsiShard<W>>, unit: &Unit<W>) -> Self {
        let encrypted = matches!(unit.backend, Backend::Pool { encrypted: true, .. });
        Self { shard: Rc::downgrade(shard), id: unit.id, encrypted }
    }

    /// Calls `look` with the unit. `None` when it no longer exists.
    fn with_unit<T>(&self, look: impl FnOnce(Rc<IscsiShard<W>>, Rc<ScsiUnit<W>>) -> T) -> Option<T> {
        let shard = self.shard.upgrade()?;
        let unit = shard.unit(self.id)?;
        Some(look(shard, unit))
    }
}

impl<W: World> Sanitizer for UnitSanitizer<W> {
    fn admits(&self) -> bool {
        self.with_unit(|shard, unit| is_admitted(&shard, &unit)).unwrap_or(false)
    }

    fn has_key(&self) -> bool {
        self.encrypted
    }

    fn replace_key(&self) -> ReplaceKeyFuture<'_> {
        Box::pin(async {
            // `Gone` is no failure to sanitize: the stored order resumes when the volume is open again.
            let gone = IoError::new(IoErrorKind::Gone, Extent::default());
            let (shard, unit) = self.with_unit(|shard, unit| (shard, unit)).ok_or(gone)?;
            shard.engine.replace_key(&unit.unit).await
        })
    }

    fn begin(&self) {
        // A unit that was closed meanwhile resumes the operation when it is opened.
        self.with_unit(|shard, unit| shard.world.clone().spawn(carry_out(shard, unit)));
    }
}

/// True when no snapshot or clone shares the content of the unit. Otherwise raises an event with the reason for the
/// refusal.
fn is_admitted<W: World>(shard: &Rc<IscsiShard<W>>, unit: &ScsiUnit<W>) -> bool {
    if !shard.engine.is_content_needed(&unit.unit) {
        return true;
    }
    let sentence = format!(
        "sanitize of volume {} refused: its snapshots, or the snapshot that it is a clone of, would keep its \
         data; delete them first",
        unit.unit.name
    );
    shard.engine.raise(event::SANITIZE_REFUSED, Subject::new(SubjectKind::Volume, &unit.unit.name), sentence);
    false
}

/// Sanitizes the unit. Returns when the operation is complete, has failed or was interrupted.
async fn carry_out<W: World>(shard: Rc<IscsiShard<W>>, unit: Rc<ScsiUnit<W>>) {
    let subject = || Subject::new(SubjectKind::Volume, &unit.unit.name);
    shard.engine.raise(
        event::SANITIZE_BEGAN,
        subject(),
        format!("volume {} is being sanitized and is offline", unit.unit.name),
    );
    // Dirty data in a cache or log would be destaged later, over the sanitized blocks.
    if let Err(error) = unit.unit.write_through().await {
        tracing::warn!(volume = %unit.unit.name, %error, "what a volume has acknowledged cannot be written");
    }
    // Runs until complete, failed or stopped; the commands of hosts get NOT READY with the progress.
    unit.logical_unit.carry_out_sanitize().await;
    if unit.logical_unit.is_being_sanitized() || shard.unit(unit.unit.id).is_none() {
        // Interrupted, or the unit was closed: the operation resumes when the volume is opened again.
        return;
    }
    // Cached content is from before the sanitize operation and must not be served.
    if let Some(volume) = unit.unit.store().policed() {
        volume.replace(async {}).await;
    }
    // Write-through was enforced for the duration of the operation; the configured cache policy is in effect again.
    if let Err(error) = unit.unit.set_policy(unit.unit.policy()).await {
        tracing::warn!(volume = %unit.unit.name, %error, "a volume is written through, against its policy");
    }
    if unit.logical_unit.has_failed_to_be_sanitized() {
        let sentence =
            format!("sanitize of volume {} failed; the volume is offline until SANITIZE succeeds", unit.unit.name);
        shard.engine.raise(event::SANITIZE_FAILED, subject(), sentence);
    } else {
        shard.engine.raise(
            event::SANITIZE_ENDED,
            subject(),
            format!("volume {} sanitized and online again", unit.unit.name),
        );
    }
}

/// Resumes a SANITIZE that was interrupted by a restart.
pub(super) fn go_on<W: World>(shard: &Rc<IscsiShard<W>>, unit: &Rc<ScsiUnit<W>>) {
    if unit.logical_unit.is_being_sanitized() {
        shard.world.spawn(carry_out(shard.clone(), unit.clone()));
    }
}

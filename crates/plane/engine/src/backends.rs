//! The back ends of volumes: what makes, resizes and removes the unit of each kind. Whatever differs between kinds is asked here,
//! on the shard that is the volume's home; the conductor does not know them apart.

use crate::shard_context::ShardContext;
use crate::{pool, unit};
use model::{Backend, Refusal, Size, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, code};
use shard::World;
use std::rc::Rc;

/// A kind of back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    /// A pool, which knows its volumes by itself.
    Pool,
    /// Memory, nothing, or a file or device: control remembers the volume.
    Alone,
}

impl BackEnd {
    /// The kind of a volume to be made.
    ///
    /// *Errors*: `NAME_INVALID` for a volume of a pool whose name names none.
    pub(crate) fn of_spec(spec: &VolumeSpec) -> Result<Self, Refusal> {
        match (&spec.backend, spec.name.pool()) {
            (Backend::Pool { .. }, Some(_)) => Ok(Self::Pool),
            (Backend::Pool { .. }, None) => {
                let message = format!("the volume {} names no pool", spec.name);
                Err(Refusal::new(code::NAME_INVALID, message, "write POOL/VOLUME, or choose another backend"))
            }
            (Backend::Ram | Backend::Null | Backend::File { .. }, _) => Ok(Self::Alone),
        }
    }

    /// The kind of a volume that is open.
    pub(crate) fn of_name(name: &VolumeName) -> Self {
        if name.pool().is_some() { Self::Pool } else { Self::Alone }
    }

    /// Makes the volume, or opens it again; it serves.
    pub(crate) async fn create<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        spec: VolumeSpec,
    ) -> Result<VolumeReport, Refusal> {
        match self {
            Self::Pool => pool::create_volume(shard, spec).await,
            Self::Alone => unit::open_alone(shard, spec).await,
        }
    }

    /// Grows the volume to `size`, and tells its initiators.
    pub(crate) async fn resize<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        (id, name): (VolumeId, VolumeName),
        size: Size,
    ) -> Result<VolumeReport, Refusal> {
        match self {
            Self::Pool => pool::resize_volume(shard, name, size).await,
            Self::Alone => unit::resize_alone(&shard, id, size).await,
        }
    }

    /// Admits a policy for the volume.
    ///
    /// *Errors*: `POLICY_IMPOSSIBLE` where nothing is cached or limited.
    pub(crate) fn admit_policy(self, name: &VolumeName) -> Result<(), Refusal> {
        match self {
            Self::Pool => Ok(()),
            Self::Alone => {
                let message = format!("volume {name} has no pool, and only volumes of pools are cached");
                Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "make a volume in a pool"))
            }
        }
    }

    /// Sets the policy of a volume for which one was [admitted](Self::admit_policy).
    pub(crate) async fn set_policy<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        name: VolumeName,
        policy: VolumePolicy,
    ) -> Result<VolumeReport, Refusal> {
        self.admit_policy(&name)?;
        pool::set_policy(shard, name, policy).await
    }

    /// Removes the volume: it does not serve any more, and what a pool held of it is freed.
    pub(crate) async fn remove<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        (id, name): (VolumeId, VolumeName),
    ) -> Result<(), Refusal> {
        match self {
            Self::Pool => pool::delete_volume(shard, name).await,
            Self::Alone => unit::close_alone(&shard, id).await,
        }
    }
}

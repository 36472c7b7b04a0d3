//! Back ends of volumes: creation, resize and removal of the unit of each kind.
//!
//! Called by the conductor on the volume's home shard. All differences between the kinds are decided here, so the
//! conductor does not distinguish them.

use crate::shard_context::ShardContext;
use crate::{pool, unit};
use model::{Backend, Refusal, Size, VolumeId, VolumeName, VolumePolicy, VolumeReport, VolumeSpec, code};
use shard::World;
use std::rc::Rc;

/// Kind of a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    /// A pool, whose catalog lists its volumes.
    Pool,
    /// Memory, the null device, or a file or block device: the control plane keeps the volume in its state.
    Alone,
}

impl BackEnd {
    /// Kind of a volume to be created.
    ///
    /// *Errors*: `NAME_INVALID` for a volume of a pool whose name has no pool.
    pub(crate) fn of_spec(spec: &VolumeSpec) -> Result<Self, Refusal> {
        match (&spec.backend, spec.name.pool()) {
            (Backend::Pool { .. }, Some(_)) => Ok(Self::Pool),
            (Backend::Pool { .. }, None) => {
                let message = format!("volume name {} contains no pool", spec.name);
                Err(Refusal::new(code::NAME_INVALID, message, "write POOL/VOLUME, or choose another back end"))
            }
            (Backend::Ram | Backend::Null | Backend::File { .. }, _) => Ok(Self::Alone),
        }
    }

    /// Kind of an open volume, judged by its name.
    pub(crate) fn of_name(name: &VolumeName) -> Self {
        if name.pool().is_some() { Self::Pool } else { Self::Alone }
    }

    /// Creates the volume, or opens it again, and serves it.
    pub(crate) async fn create<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        spec: VolumeSpec,
    ) -> Result<VolumeReport, Refusal> {
        match self {
            Self::Pool => pool::create_volume(shard, spec).await,
            Self::Alone => unit::open_standalone(shard, spec).await,
        }
    }

    /// Grows the volume to `size` and notifies its initiators.
    pub(crate) async fn resize<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        (id, name): (VolumeId, VolumeName),
        size: Size,
    ) -> Result<VolumeReport, Refusal> {
        match self {
            Self::Pool => pool::resize_volume(shard, name, size).await,
            Self::Alone => unit::resize_standalone(&shard, id, size).await,
        }
    }

    /// Admits a policy for the volume.
    ///
    /// *Errors*: `POLICY_IMPOSSIBLE` for a volume without a pool, which has no cache and no limits.
    pub(crate) fn admit_policy(self, name: &VolumeName) -> Result<(), Refusal> {
        match self {
            Self::Pool => Ok(()),
            Self::Alone => {
                let message = format!("volume {name} is not in a pool, and only volumes in pools are cached");
                Err(Refusal::new(code::POLICY_IMPOSSIBLE, message, "create a volume in a pool"))
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

    /// Removes the volume: it is withdrawn from hosts, and a pool frees its space.
    pub(crate) async fn remove<W: World>(
        self,
        shard: Rc<ShardContext<W>>,
        (id, name): (VolumeId, VolumeName),
    ) -> Result<(), Refusal> {
        match self {
            Self::Pool => pool::delete_volume(shard, name).await,
            Self::Alone => unit::close_standalone(&shard, id).await,
        }
    }
}

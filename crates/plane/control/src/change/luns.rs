//! Former LUNs: forgotten on request of an operator.

use crate::access::Access;
use crate::change::host_groups::{HostGroups, unknown_group};
use crate::change::hosts::{Hosts, unknown_host};
use crate::state::lun_history::FormerMapping;
use crate::view::FormerLun;
use model::{EVERYONE, Iqn, Name, Refusal};

impl Hosts {
    /// Forgets the former LUNs of the host, or of `everyone`, and returns them: other volumes may get them from
    /// now on.
    ///
    /// *Errors*: there is none of this name.
    pub async fn forget_luns(&self, name: &Name) -> Result<Vec<FormerLun>, Refusal> {
        let is_one = self.core.state().hosts.contains_key(name) || name.as_str() == EVERYONE;
        self.access.forget_luns(name, is_one, unknown_host).await
    }
}

impl HostGroups {
    /// Forgets the former LUNs of a group, as [`Hosts::forget_luns`] does. Its hosts keep their own.
    ///
    /// *Errors*: there is none of this name.
    pub async fn forget_luns(&self, name: &Name) -> Result<Vec<FormerLun>, Refusal> {
        let is_one = self.core.state().groups.contains_key(name);
        self.access.forget_luns(name, is_one, unknown_group).await
    }
}

impl Access {
    async fn forget_luns(
        &self,
        name: &Name,
        is_one: bool,
        unknown: fn(&Name) -> Refusal,
    ) -> Result<Vec<FormerLun>, Refusal> {
        let turn = self.core.lock_changes().await;
        if !is_one {
            return Err(unknown(name));
        }
        let forgotten = self.core.state().luns.of(name).map(FormerLun::of).collect();
        self.core.commit(&turn, |state| state.luns.forget(name))?;
        Ok(forgotten)
    }
}

impl FormerLun {
    pub(crate) fn of((target, former): (&Iqn, &FormerMapping)) -> Self {
        let FormerMapping { lun, volume, volume_id } = former.clone();
        Self { target: target.clone(), lun, volume, volume_id }
    }
}

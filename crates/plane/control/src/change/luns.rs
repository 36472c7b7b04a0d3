//! LUN numbers that hosts had: forgotten when an operator says so.

use crate::access::Access;
use crate::change::host_groups::{HostGroups, unknown_group};
use crate::change::hosts::{Hosts, unknown_host};
use crate::state::lun_memory::Former;
use crate::view::FormerLun;
use model::{EVERYONE, Iqn, Name, Refusal};

impl Hosts {
    /// The numbers that the host, or `everyone`, had are not remembered any more: other volumes may get them. These were they.
    ///
    /// *Errors*: there is none of this name.
    pub async fn forget_luns(&self, name: &Name) -> Result<Vec<FormerLun>, Refusal> {
        let is_one = self.core.state().hosts.contains_key(name) || name.as_str() == EVERYONE;
        self.access.forget_luns(name, is_one, unknown_host).await
    }
}

impl HostGroups {
    /// As [`Hosts::forget_luns`], of a group. Its hosts keep what they had besides.
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
        let turn = self.core.turn().await;
        if !is_one {
            return Err(unknown(name));
        }
        let forgotten = self.core.state().luns.of(name).map(FormerLun::of).collect();
        self.core.commit(&turn, |state| state.luns.forget(name))?;
        Ok(forgotten)
    }
}

impl FormerLun {
    pub(crate) fn of((target, former): (&Iqn, &Former)) -> Self {
        let Former { lun, volume, volume_id } = former.clone();
        Self { target: target.clone(), lun, volume, volume_id }
    }
}

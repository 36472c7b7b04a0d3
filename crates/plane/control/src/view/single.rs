//! One thing of a list, by its name.

use super::{HostGroupReport, HostReport, TargetReport, count};
use crate::Control;
use crate::unknown::{unknown_group, unknown_host, unknown_portal_group, unknown_target};
use model::{Name, PortalGroupReport, PortalGroupTag, Refusal};

impl Control {
    /// One host. *Errors*: there is none of this name.
    pub fn host_report(&self, name: &Name) -> Result<HostReport, Refusal> {
        let state = self.core.state();
        let record = state.hosts.get(name).ok_or_else(|| unknown_host(name))?;
        Ok(HostReport::of(name, record, &state, state.seen_by(name).count()))
    }

    /// One group of hosts. *Errors*: there is none of this name.
    pub fn host_group_report(&self, name: &Name) -> Result<HostGroupReport, Refusal> {
        let state = self.core.state();
        if !state.groups.contains_key(name) {
            return Err(unknown_group(name));
        }
        let presentations = state.presentations.iter().filter(|record| record.host == *name).count();
        Ok(HostGroupReport::of(name, &state, presentations))
    }

    /// One target. *Errors*: there is none of this name.
    pub fn target_report(&self, name: &Name) -> Result<TargetReport, Refusal> {
        let state = self.core.state();
        let record = state.targets.get(name).ok_or_else(|| unknown_target(name))?;
        let presentations = state.presentations.iter().filter(|shown| shown.target == *name).count();
        Ok(TargetReport { name: name.clone(), iqn: record.iqn.clone(), presentations: count(presentations) })
    }

    /// One portal group. *Errors*: no portal is of it.
    pub async fn portal_group_report(&self, PortalGroupTag(tag): PortalGroupTag) -> Result<PortalGroupReport, Refusal> {
        let groups = self.portal_groups().await?;
        groups.into_iter().find(|group| group.tag == tag).ok_or_else(|| unknown_portal_group(tag))
    }
}

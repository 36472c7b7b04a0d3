//! Portal groups, which are target port groups: ALUA state and preference.

use crate::access::{Access, Confirmation};
use crate::change::portals::Portals;
use crate::core::Core;
use crate::request::PortalGroupSettings;
pub(crate) use crate::unknown::unknown_portal_group;
use model::{PortalGroupPolicy, PortalGroupReport, PortalGroupTag, PortalReport, Refusal, code};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Portal groups, and the ALUA state of volumes through each.
pub struct PortalGroups {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) portals: Arc<Portals>,
}

impl PortalGroups {
    /// Lists the groups that have portals, with their settings.
    pub async fn list(&self) -> Result<Vec<PortalGroupReport>, Refusal> {
        let mut groups: BTreeMap<u16, Vec<PortalReport>> = BTreeMap::new();
        for portal in self.portals.list().await? {
            groups.entry(portal.policy.tag).or_default().push(portal);
        }
        let state = self.core.state();
        let report = |(tag, portals): (u16, Vec<PortalReport>)| PortalGroupReport {
            tag,
            policy: state.portal_groups.get(&tag).copied().unwrap_or_default(),
            sessions: portals.iter().map(|portal| portal.sessions).sum(),
            portals: portals.into_iter().map(|portal| portal.address).collect(),
        };
        Ok(groups.into_iter().map(report).collect())
    }

    /// Changes the settings of the group, now and after every start; hosts are notified where their access
    /// state changes.
    ///
    /// *Errors*: no portal is in the group, a setting is invalid, no group would serve reads and writes any
    /// more; or sessions could no longer read or write, and `force` is not set.
    pub async fn set(
        &self,
        PortalGroupTag(tag): PortalGroupTag,
        request: PortalGroupSettings,
    ) -> Result<PortalGroupReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let groups = self.list().await?;
        let group = groups.iter().find(|group| group.tag == tag).ok_or_else(|| unknown_portal_group(tag))?;
        let mut policy = group.policy;
        request.settings.iter().try_for_each(|(key, value)| policy.set(key, value))?;
        // At least one group must keep serving, or no host could use any volume.
        let serves = |other: &PortalGroupReport| other.tag != tag && other.policy.access.serves_blocks();
        if group.policy.access.serves_blocks() && !policy.access.serves_blocks() && !groups.iter().any(serves) {
            let message = format!("portal group {tag} is the only one that gives access to volumes");
            let hint = "make another group accessible first, with blockyard portal group TAG access=optimized";
            return Err(Refusal::new(code::PORTAL_LAST, message, hint));
        }
        self.access
            .commit(&turn, Confirmation::forced(request.force), |state| {
                state.portal_groups.insert(tag, policy);
                // Default settings need no record.
                state.portal_groups.retain(|_, policy| *policy != PortalGroupPolicy::default());
            })
            .await?;
        Ok(PortalGroupReport { policy, ..group.clone() })
    }

    /// Returns one portal group. *Errors*: no portal is in it.
    pub async fn report(&self, PortalGroupTag(tag): PortalGroupTag) -> Result<PortalGroupReport, Refusal> {
        let groups = self.list().await?;
        groups.into_iter().find(|group| group.tag == tag).ok_or_else(|| unknown_portal_group(tag))
    }
}

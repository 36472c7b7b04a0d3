//! Export of the present configuration as a document.

use super::document::FORM;
use super::{
    AuthEntry, ChapEntry, DiscoveryEntry, DiskEntry, Document, ExternalSections, FormerLunEntry, GroupEntry, HostEntry,
    PoolEntry, PortalEntry, PortalGroupEntry, PresentEntry, SpareEntry, TargetEntry, VolumeEntry,
};
use crate::config::Configuration;
use crate::request::{NewBackend, NewGroup};
use crate::state::{AuthRecord, ChapRecord, CredentialsRecord, HostRecord, PresentationRecord, SpareRecord, State};
use model::{
    Backend, GroupReport, MemberSize, Name, PoolPolicy, PoolReport, PortalAddress, PortalGroupPolicy, PortalPolicy,
    Provision, Refusal, VolumePolicy, VolumeReport,
};
use std::collections::BTreeMap;

impl Configuration {
    /// Exports the array without secrets. Applying the result changes nothing.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn export(&self, annex: &dyn ExternalSections) -> Result<Document, Refusal> {
        let state = self.core.state();
        let mut document = of_state(&state);
        // Pools and volumes are recorded by the pools' own disks; the state lacks them.
        let pools = self.pools.list().await?;
        document.pool = pools.iter().map(|pool| (pool.name.clone(), pool_entry(pool, &state))).collect();
        document.volume = self.volumes.list().await?.iter().map(|v| (v.name.clone(), volume_entry(v))).collect();
        let portal = |address| (PortalAddress(address), portal_entry(&state.portal_policy(address)));
        // All portals, including those of the configuration file, which the state does not list.
        document.portal = self.access.portals().iter().map(|known| portal(known.address)).collect();
        // Users and receivers are added by the front ends, as far as the caller may see them.
        annex.export(&mut document);
        Ok(document)
    }
}

/// Exports the content of the state: everything but pools, volumes, and portals with default settings.
pub(crate) fn of_state(state: &State) -> Document {
    // `force` is left out, because a document never lets a spare overwrite data.
    let spare = |record: &SpareRecord| SpareEntry { pool: record.pool.clone() };
    let disk = state.disks.iter().map(|(name, disk)| {
        let remote = disk.remote.as_ref();
        let entry = DiskEntry {
            path: disk.path.clone(),
            chap: remote.and_then(|remote| chap(&remote.chap)),
            mutual_chap: remote.and_then(|remote| chap(&remote.mutual_chap)),
            digests: remote.is_some_and(|remote| remote.digests),
            spare: disk.spare.as_ref().map(spare),
        };
        (name.clone(), entry)
    });
    let portal_group = |(&tag, policy): (&u16, &PortalGroupPolicy)| PortalGroupEntry {
        tag,
        access: policy.access,
        preferred: policy.preferred,
    };
    let group = |hosts: &std::collections::BTreeSet<_>| GroupEntry { hosts: hosts.iter().cloned().collect() };
    Document {
        schema: FORM,
        disk: disk.collect(),
        target: state.targets.iter().map(|(n, t)| (n.clone(), TargetEntry { iqn: Some(t.iqn.clone()) })).collect(),
        host: state.hosts.iter().map(|(name, host)| (name.clone(), host_entry(host))).collect(),
        group: state.groups.iter().map(|(name, hosts)| (name.clone(), group(hosts))).collect(),
        present: state.presentations.iter().map(present_entry).collect(),
        former_lun: state.luns.of.keys().flat_map(|who| former_entries(state, who)).collect(),
        portal: state.portals.iter().map(|(at, record)| (PortalAddress(*at), portal_entry(&record.policy))).collect(),
        // Written even as the default, because an absent entry leaves the present setting as it is.
        balance: Some(state.balance),
        isns: state.isns,
        auth: Some(auth_entry(&state.auth)),
        portal_group: state.portal_groups.iter().map(portal_group).collect(),
        ..Document::default()
    }
}

fn auth_entry(auth: &AuthRecord) -> AuthEntry {
    let discovery =
        |proof: &CredentialsRecord| DiscoveryEntry { chap: chap(&proof.chap), mutual_chap: chap(&proof.mutual_chap) };
    AuthEntry { min_algorithm: auth.weakest, discovery: auth.discovery.as_ref().map(discovery) }
}

fn chap(record: &Option<ChapRecord>) -> Option<ChapEntry> {
    let entry = |record: &ChapRecord| ChapEntry {
        // The secret is left out; a document without one leaves the present secret.
        user: Some(record.user.clone()),
        demand: record.demand,
        ..ChapEntry::default()
    };
    record.as_ref().map(entry)
}

fn host_entry(host: &HostRecord) -> HostEntry {
    HostEntry {
        any: host.any,
        initiators: host.initiators.clone(),
        networks: host.networks.clone(),
        chap: chap(&host.proof.chap),
        mutual_chap: chap(&host.proof.mutual_chap),
    }
}

fn present_entry(record: &PresentationRecord) -> PresentEntry {
    PresentEntry {
        volume: record.volume.clone(),
        host: record.host.clone(),
        target: Some(record.target.clone()),
        // Hosts know the volume by its LUN, so a document keeps the number.
        lun: Some(record.lun),
        groups: record.groups.clone(),
        read_only: record.read_only,
    }
}

fn former_entries<'a>(state: &'a State, who: &'a Name) -> impl Iterator<Item = FormerLunEntry> + 'a {
    state.luns.of(who).map(|(target, former)| FormerLunEntry {
        host: who.clone(),
        target: target.clone(),
        lun: former.lun,
        volume: former.volume.clone(),
        volume_id: former.volume_id,
    })
}

fn portal_entry(policy: &PortalPolicy) -> PortalEntry {
    PortalEntry { settings: different(&policy.settings(), &PortalPolicy::default().settings()) }
}

fn pool_entry(pool: &PoolReport, state: &State) -> PoolEntry {
    let group = |group: &GroupReport| NewGroup {
        level: group.level,
        chunk: Some(group.chunk),
        no_integrity: !group.integrity,
        // The size in use rather than `rounded`, so that the document matches this pool exactly.
        member_size: Some(MemberSize::Bytes(group.member_size)),
        // A lost member may have no name, and `admit_pool` accepts as many absent names as there are lost members.
        disks: group.members.iter().filter_map(|member| member.disk.clone()).collect(),
    };
    let policy = state.pools.get(&pool.name).map(|record| record.policy.clone()).unwrap_or_default();
    PoolEntry {
        groups: pool.groups.iter().map(group).collect(),
        settings: different(&policy.settings(), &PoolPolicy::default().settings()),
        read_only: pool.imported_read_only.then_some(true),
    }
}

fn volume_entry(volume: &VolumeReport) -> VolumeEntry {
    let settings = volume.policy.unwrap_or_default().settings();
    let entry = VolumeEntry {
        size: Some(volume.size),
        // Defaults are left out, so that a document shows what was chosen.
        block_bytes: Some(volume.block_bytes).filter(|&bytes| bytes != 512),
        settings: different(&settings, &VolumePolicy::default().settings()),
        ..VolumeEntry::default()
    };
    match volume.backend.clone() {
        Backend::Pool { stripe_unit, provision, granule, zero_detection, encrypted } => VolumeEntry {
            stripe_unit,
            // Thick is the default, and segments follow from the stripe unit.
            provision: Some(provision).filter(|&provision| provision == Provision::Thin),
            granule,
            zero_detection,
            encrypted,
            ..entry
        },
        Backend::File { path } => VolumeEntry { backend: Some(NewBackend::File { path }), ..entry },
        Backend::Ram => VolumeEntry { backend: Some(NewBackend::Ram {}), ..entry },
        Backend::Null => VolumeEntry { backend: Some(NewBackend::Null {}), ..entry },
    }
}

/// Returns the settings that differ from their defaults.
fn different<const N: usize>(
    settings: &[(&'static str, String); N],
    usual: &[(&'static str, String); N],
) -> BTreeMap<String, String> {
    // Both lists have the settings in one order, so pairs belong to the same setting.
    let set = settings.iter().zip(usual).filter(|(is, was)| is != was);
    set.map(|((key, value), _)| ((*key).to_owned(), value.clone())).collect()
}

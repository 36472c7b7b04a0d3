//! Assignment of logins to hosts, by the same rules as the data path.

use crate::state::{HostRecord, State};
use model::{Iqn, Name, SessionReport};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Index of the hosts of a state by initiator.
pub(crate) struct HostIndex<'a> {
    named: BTreeMap<&'a Iqn, (&'a Name, &'a HostRecord)>,
    any: Option<(&'a Name, &'a HostRecord)>,
    everyone: Option<&'a Name>,
}

impl<'a> HostIndex<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        let hosts = || state.hosts.iter();
        let named = hosts().flat_map(|(name, host)| host.initiators.iter().map(move |iqn| (iqn, (name, host))));
        let any = hosts().find(|(_, host)| host.any);
        let open = state.presentations.iter().map(|record| &record.host).find(|who| state.is_everyone(who));
        // A host for any initiator takes precedence over `everyone`.
        Self { named: named.collect(), any, everyone: open.filter(|_| any.is_none()) }
    }

    /// Returns the host of the session, or `everyone`; `None` when its login would be denied.
    pub(crate) fn host_of(&self, session: &SessionReport) -> Option<&'a Name> {
        // IPv4 clients of a dual-stack portal appear with mapped IPv6 addresses.
        let from = session.address.ip().to_canonical();
        let named = session.initiator.parse().ok().and_then(|iqn: Iqn| self.named.get(&iqn).copied());
        // The host that names the initiator decides alone, also where its networks exclude the address.
        match named.or(self.any) {
            Some((name, host)) => host.admits_from(from).then_some(name),
            None => self.everyone,
        }
    }

    /// Returns the host that names the initiator.
    pub(crate) fn named(&self, iqn: &Iqn) -> Option<&'a Name> {
        self.named.get(iqn).map(|(name, _)| *name)
    }

    /// Returns the host of the initiator from any address, or `everyone`.
    pub(crate) fn owner_of(&self, iqn: &Iqn) -> Option<&'a Name> {
        self.named(iqn).or_else(|| self.any.map(|(name, _)| name)).or(self.everyone)
    }

    /// Returns the initiators that hosts name.
    pub(crate) fn named_initiators(&self) -> impl Iterator<Item = &'a Iqn> {
        self.named.keys().copied()
    }

    /// Returns the initiators that hosts name, each with its host.
    pub(crate) fn all_named(&self) -> impl Iterator<Item = (&'a Iqn, &'a Name)> {
        self.named.iter().map(|(iqn, (name, _))| (*iqn, *name))
    }
}

impl HostRecord {
    fn admits_from(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address))
    }
}

//! Entity tags, computed over the settings of an object and not over its counters or states.

use control::{AuthReport, HostGroupReport, HostReport, TargetReport};
use model::{
    Balance, DiskReport, ForwardReport, GroupReport, IsnsReport, PoolReport, PortalGroupReport, PortalReport,
    ReceiverReport, SnapshotReport, UserReport, VolumeReport,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// An object on which changes can be made conditional.
pub(crate) trait Tagged {
    /// Settings and identity of the object, as a JSON object. Equal as long as no change is made.
    fn what_is_set(&self) -> Value;
}

/// Settings of the object in an answer; an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSettings(pub Value);

/// Changed values of a call, see [`changed`]; an extension of the response.
#[derive(Clone, Debug)]
pub(crate) struct Changed(pub Value);

/// Changed values by their dotted paths, each `{"was":…,"is":…}`; an absent side is left out.
pub(crate) fn changed(was: &Value, is: &Value) -> Value {
    fn compare(path: &str, was: Option<&Value>, is: Option<&Value>, found: &mut Map<String, Value>) {
        match (was, is) {
            (Some(Value::Object(was)), Some(Value::Object(is))) => {
                // Keys of both sides, each of them once.
                for key in was.keys().chain(is.keys().filter(|key| !was.contains_key(*key))) {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    compare(&below, was.get(key), is.get(key), found);
                }
            }
            (was, is) if was == is => {}
            (was, is) => {
                let both = [("was", was), ("is", is)];
                let told = both.into_iter().filter_map(|(when, value)| Some((when.to_owned(), value?.clone())));
                found.insert(path.to_owned(), Value::Object(told.collect()));
            }
        }
    }
    let mut found = Map::new();
    compare("", Some(was), Some(is), &mut found);
    Value::Object(found)
}

/// Entity tag of the settings, with its quotes.
pub(crate) fn tag_of(ObjectSettings(set): &ObjectSettings) -> String {
    let digest = Sha256::digest(set.to_string());
    // Half of the digest suffices to detect changes.
    let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

macro_rules! tagged {
    ($($thing:ty, $it:ident: $set:tt;)*) => {$(
        impl Tagged for $thing {
            fn what_is_set(&self) -> Value {
                let $it = self;
                json!($set)
            }
        }
    )*};
}

tagged! {
    DiskReport, disk: { "name": disk.name, "path": disk.path, "spare": disk.spare };
    PoolReport, pool: { "name": pool.name, "id": pool.id, "policy": pool.policy, "groups": pool.all_groups().map(members).collect::<Vec<_>>() };
    VolumeReport, volume: { "name": volume.name, "id": volume.id, "size": volume.size, "block_bytes": volume.block_bytes, "backend": volume.backend, "policy": volume.policy };
    SnapshotReport, snapshot: { "name": snapshot.name, "id": snapshot.id, "lock": snapshot.lock };
    HostReport, host: { "name": host.name, "any": host.any, "initiators": host.initiators, "networks": host.networks, "authentication": host.authentication };
    HostGroupReport, group: { "name": group.name, "hosts": group.hosts };
    TargetReport, target: { "name": target.name, "iqn": target.iqn };
    PortalReport, portal: { "address": portal.address, "policy": portal.policy };
    PortalGroupReport, group: { "tag": group.tag, "policy": group.policy };
    AuthReport, auth: { "auth": auth };
    Balance, balance: { "balance": balance };
    IsnsReport, isns: { "server": isns.server };
    ForwardReport, it: { "to": it.to, "trust": it.trust };
    ReceiverReport, it: { "name": it.name, "delivery": it.delivery, "trust": it.trust, "min_severity": it.min_severity, "gather": it.gather, "remind": it.remind, "has_secret": it.has_secret };
    UserReport, user: { "name": user.name, "role": user.role, "second_factor": user.second_factor, "password_set": user.password_set };
}

fn members(group: &GroupReport) -> Value {
    // Identities alone, because the state of a member is no setting.
    let ids: Vec<_> = group.members.iter().map(|member| member.id).collect();
    json!({ "number": group.number, "level": group.level, "chunk": group.chunk, "members": ids })
}

//! Lists of the API: their natural order, sort keys, and the texts that a search covers.

use crate::row::{Atom, Key, Listed, key};
use control::{HostGroupReport, HostReport, PresentationReport, TargetReport};
use model::{
    AlertReport, BlockDeviceReport, DiskReport, Event, LatencyReport, LoginReport, OperationReport, PoolReport,
    PortalGroupReport, PortalReport, ReceiverReport, RefusedLogin, ScrubReport, SessionReport, SilenceReport,
    SnapshotReport, Timestamp, TokenReport, UserReport, VolumeReport,
};
use std::borrow::Cow;

type Words<'a> = Vec<Cow<'a, str>>;

macro_rules! listed {
    ($(
        $item:ty, $it:ident: order $order:expr;
        $(sort $name:literal $by:expr;)*
        words [$($word:expr),* $(,)?];
    )*) => {$(
        impl Listed for $item {
            const SORTS: &'static [&'static str] = &[$($name),*];

            fn order(&self) -> Key {
                let $it = self;
                $order
            }

            fn sort(&self, sort: &str) -> Atom {
                let $it = self;
                match sort {
                    $($name => $by.into(),)*
                    _ => Atom::Number(0),
                }
            }

            fn words(&self) -> Words<'_> {
                let $it = self;
                vec![$(Cow::from($word)),*]
            }
        }
    )*};
}

listed! {
    DiskReport, disk: order vec![known(&disk.name).into(), disk.path.as_str().into()];
    sort "name" known(&disk.name);
    sort "state" disk.state.as_str();
    sort "size" disk.size.bytes();
    sort "errors" disk.counters.errors;
    words [known(&disk.name), disk.path.as_str(), disk.state.as_str(), known(&disk.identity.serial), known(&disk.identity.model), known(&disk.identity.place())];

    BlockDeviceReport, device: order vec![(device.state as u64).into(), device.device.as_str().into()];
    sort "device" device.device.as_str();
    sort "state" device.state.as_str();
    sort "size" device.size.bytes();
    words [device.path.as_str(), device.device.as_str(), device.state.as_str(), known(&device.identity.serial), known(&device.identity.model), known(&device.identity.place())];

    PoolReport, pool: order key(&pool.name);
    sort "name" pool.name.as_str();
    sort "state" pool.state.as_str();
    sort "size" pool.size.bytes();
    sort "used" pool.used.bytes();
    words [pool.name.as_str(), pool.state.as_str()];

    VolumeReport, volume: order key(&volume.name);
    sort "name" volume.name.to_string();
    sort "state" volume.state.as_str();
    sort "size" volume.size.bytes();
    sort "mapped" volume.space.as_ref().map_or(0, |space| space.mapped.bytes());
    sort "reads" volume.counters.reads;
    sort "writes" volume.counters.writes;
    sort "errors" volume.counters.errors;
    words [volume.name.to_string(), volume.state.as_str(), volume.backend.as_str(), volume.id.to_string()];

    SnapshotReport, snapshot: order vec![snapshot.name.volume.to_string().into(), snapshot.created.unix().into(), snapshot.name.snapshot.as_str().into()];
    sort "name" snapshot.name.to_string();
    sort "created" snapshot.created.unix();
    sort "reclaimable" snapshot.reclaimable.bytes();
    words [snapshot.name.to_string()];

    HostReport, host: order key(&host.name);
    sort "name" host.name.as_str();
    sort "presentations" u64::from(host.presentations);
    words [host.name.as_str(), each(&host.initiators), each(&host.networks)];

    HostGroupReport, group: order key(&group.name);
    sort "name" group.name.as_str();
    sort "presentations" u64::from(group.presentations);
    words [group.name.as_str(), each(&group.hosts)];

    RefusedLogin, login: order vec![(u64::MAX - login.last.unix()).into(), known(&login.initiator).into(), login.address.to_string().into(), known(&login.target).into()];
    sort "last" login.last.unix();
    sort "count" login.count;
    sort "initiator" known(&login.initiator);
    words [known(&login.initiator), login.address.to_string(), known(&login.target), login.reason()];

    TargetReport, target: order key(&target.name);
    sort "name" target.name.as_str();
    sort "presentations" u64::from(target.presentations);
    words [target.name.as_str(), target.iqn.as_str()];

    PresentationReport, shown: order vec![shown.host.as_str().into(), shown.target.as_str().into(), u64::from(shown.lun).into()];
    sort "host" shown.host.as_str();
    sort "volume" shown.volume.to_string();
    sort "lun" u64::from(shown.lun);
    sort "target" shown.target.as_str();
    words [shown.host.as_str(), shown.volume.to_string(), shown.target.as_str(), shown.iqn.as_str()];

    SessionReport, session: order vec![u64::from(session.id).into()];
    sort "id" u64::from(session.id);
    sort "host" known(&session.host);
    sort "initiator" session.initiator.as_str();
    sort "portal" session.portal.to_string();
    sort "commands" session.commands;
    sort "read_bytes" session.read_bytes;
    sort "written_bytes" session.written_bytes;
    sort "connected_seconds" session.connected_seconds;
    words [known(&session.host), session.initiator.as_str(), session.address.to_string(), session.portal.to_string(), known(&session.target)];

    PortalReport, portal: order key(portal.address);
    sort "address" portal.address.to_string();
    sort "group" u64::from(portal.policy.tag);
    sort "sessions" u64::from(portal.sessions);
    words [portal.address.to_string()];

    PortalGroupReport, group: order vec![u64::from(group.tag).into()];
    sort "tag" u64::from(group.tag);
    sort "sessions" u64::from(group.sessions);
    words [group.tag.to_string(), each(&group.portals)];

    Event, event: order vec![event.number.into()];
    sort "number" event.number;
    sort "time" event.time.unix();
    sort "severity" event.severity as u64;
    sort "subject" event.subject.to_string();
    words [event.message.as_str(), event.subject.to_string(), event.code.to_string(), event.severity.as_str()];

    ScrubReport, scrub: order vec![scrub.started.unix().into()];
    sort "started" scrub.started.unix();
    sort "mismatches" scrub.mismatches;
    words [scrub.state.as_str()];

    OperationReport, operation: order key(&operation.id);
    sort "id" operation.id.to_string();
    sort "kind" operation.kind.as_str();
    sort "percent" u64::from(operation.percent.unwrap_or(0));
    sort "started" operation.started.map_or(0, Timestamp::unix);
    sort "seconds_left" operation.progress.and_then(|progress| progress.seconds_left).unwrap_or(u64::MAX);
    words [operation.id.to_string(), operation.description.as_str()];

    LatencyReport, latency: order key(&latency.operation);
    sort "operation" latency.operation.as_str();
    sort "commands" latency.commands;
    sort "p50_us" latency.p50_us;
    sort "p99_us" latency.p99_us;
    sort "longest_us" latency.longest_us;
    words [latency.operation.as_str()];
}

/// Text of a value, empty if it is absent.
fn known(text: &Option<impl ToString>) -> String {
    text.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn each(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

listed! {
    UserReport, user: order key(&user.name);
    sort "name" user.name.as_str();
    sort "role" user.role.to_string();
    words [user.name.as_str(), user.role.to_string()];

    LoginReport, login: order vec![login.user.as_str().into(), login.started.unix().into(), login.id.as_str().into()];
    sort "user" login.user.as_str();
    sort "started" login.started.unix();
    sort "last_seen" login.last_seen.unix();
    words [login.user.as_str(), login.address.to_string(), login.agent.as_str()];

    TokenReport, token: order key(&token.name);
    sort "name" token.name.as_str();
    sort "role" token.role.to_string();
    sort "until" token.until.unix();
    words [token.name.as_str(), token.role.to_string(), token.created_by.as_ref().map(ToString::to_string).unwrap_or_default()];
}

listed! {
    AlertReport, alert: order vec![(2 - alert.facts.severity as u64).into(), alert.facts.number.into()];
    sort "number" alert.facts.number;
    sort "severity" alert.facts.severity as u64;
    sort "since" alert.facts.since.unix();
    sort "subject" alert.facts.subject.to_string();
    words [alert.facts.message.as_str(), alert.facts.subject.to_string(), alert.facts.code.to_string(), alert.facts.severity.as_str(), each(&alert.facts.details)];

    ReceiverReport, receiver: order key(&receiver.name);
    sort "name" receiver.name.as_str();
    words [receiver.name.as_str(), known(&receiver.error)];

    SilenceReport, silence: order key(&silence.matcher);
    sort "matcher" silence.matcher.as_str();
    sort "until" silence.until.unix();
    words [silence.matcher.as_str()];
}

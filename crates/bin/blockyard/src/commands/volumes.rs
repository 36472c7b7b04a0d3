//! Commands `blockyard volume …`.

mod copy;
mod reservations;
mod trace;

use super::disks::absolute;
use super::{CommandContext, or_dash};
use crate::args::{ListOptions, VolumeCommand, VolumeSettingOptions};
use crate::client::forced;
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::progress::{WaitTimeout, sentence};
use control::request::{NewBackend, NewClone, NewVolume, Resize, RollBack, VolumeChange};
use model::volume_policy::VOLUME_SETTINGS;
use model::{
    Backend, Provision, SanitizeReport, Size, SnapshotName, VolumeName, VolumePolicy, VolumeReport, VolumeState,
    WritePolicy, code,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) fn run(desk: &CommandContext, command: VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::List(options) => list(desk, &options),
        VolumeCommand::Create {
            name,
            size,
            block_size,
            thin,
            granule,
            zero_detection,
            encrypted,
            stripe_unit,
            file,
            ram,
            null,
        } => {
            let (backend, provision) = (backend_of(file, ram, null)?, thin.then_some(Provision::Thin));
            let chosen = NewVolume { stripe_unit, provision, granule, zero_detection, ..NewVolume::new(name, size) };
            let request = NewVolume { block_bytes: block_size, encrypted, backend, ..chosen };
            let answer = desk.client.post("/volumes", &request, "volume")?;
            let volume: VolumeReport = answer.decode()?;
            desk.out.done(&answer, &format!("volume {} created: {}", volume.name, had(volume.size, size)))
        }
        VolumeCommand::Show { name } => show(desk, &name),
        VolumeCommand::Set { name, settings } => set(desk, &name, settings),
        VolumeCommand::Clone { snapshot, name, thick, zero_detection } => {
            let request = NewClone { snapshot, name, thick, zero_detection };
            let answer = desk.client.post("/clones", &request, "volume")?;
            let volume: VolumeReport = answer.decode()?;
            desk.out.done(&answer, &format!("volume {} created, a clone of {}", volume.name, request.snapshot))
        }
        VolumeCommand::Copy { source, pool, name, wait, patience } => {
            copy::begin(desk, source, pool, name, wait.then(|| WaitTimeout::new(patience)))
        }
        VolumeCommand::CancelCopy { name } => copy::cancel(desk, &name),
        VolumeCommand::Rollback { name, snapshot, force, yes } => {
            roll_back(desk, RollBack { snapshot: name.with(snapshot)?, force, confirmed: yes })
        }
        VolumeCommand::Reservations { name, clear: false, .. } => reservations::show(desk, &name),
        VolumeCommand::Reservations { name, clear: true, yes } => reservations::clear(desk, &name, yes),
        VolumeCommand::Resize { name, size } => {
            let answer = desk.client.patch(&format!("/volumes/{name}"), &Resize { size }, "volume")?;
            let volume: VolumeReport = answer.decode()?;
            let rescan = "hosts were notified; on Linux run: iscsiadm -m session --rescan";
            desk.out.done(&answer, &format!("volume {name} resized to {}; {rescan}", had(volume.size, Some(size))))
        }
        VolumeCommand::Latency { name, list } => super::latency::of_volume(desk, &name, &list),
        VolumeCommand::Trace { name, start, commands, out, stop } => match (start, out) {
            (true, _) => trace::start(desk, &name, commands),
            (false, Some(out)) => trace::take(desk, &name, &out, stop),
            (false, None) if stop => trace::stop(desk, &name),
            (false, None) => trace::show(desk, &name),
        },
        VolumeCommand::Delete { name, force, yes } => {
            let path = format!("/volumes/{name}");
            let seen = confirm::destruction(&desk.client, (&path, "volume"), &name, yes)?;
            desk.client.delete_if_unchanged(&path, forced(force), seen.as_ref())?;
            desk.out.said(&format!("volume {name} deleted"))
        }
    }
}

/// Rolls a volume back. The daemon checks that the snapshot exists before it asks for confirmation.
fn roll_back(desk: &CommandContext, mut request: RollBack) -> Result<(), Failure> {
    let answer = match desk.client.post("/rollbacks", &request, "volume") {
        Err(Failure::Refused(refusal)) if refusal.code == code::UNCONFIRMED => {
            confirm::repetition(&request.snapshot.volume, refusal)?;
            request.confirmed = true;
            desk.client.post("/rollbacks", &request, "volume")?
        }
        answered => answered?,
    };
    let SnapshotName { volume, snapshot } = request.snapshot;
    desk.out.done(&answer, &format!("volume {volume} rolled back to {snapshot}"))
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/volumes", "volumes", options, &[])?;
    let volumes: Vec<VolumeReport> = answer.decode()?;
    let row = |volume: &VolumeReport| {
        let counters = &volume.counters;
        vec![
            volume.name.to_string(),
            state(volume),
            volume.size.iec(),
            or_dash(volume.space.as_ref().map(|space| space.mapped.iec())),
            or_dash(volume.space.as_ref().map(|space| space.reclaimed.iec())),
            or_dash(volume.space.as_ref().map(|space| space.snapshots)),
            volume.block_bytes.to_string(),
            volume.backend.as_str().to_owned(),
            (counters.reads + counters.writes).to_string(),
            Size::new(counters.read_bytes).iec(),
            Size::new(counters.written_bytes).iec(),
            counters.errors.to_string(),
        ]
    };
    let header = &[
        "VOLUME",
        "STATE",
        "SIZE",
        "MAPPED",
        "FREED",
        "SNAPSHOTS",
        "BLOCK",
        "BACKEND",
        "COMMANDS",
        "READ",
        "WRITTEN",
        "ERRORS",
    ];
    desk.out.rows(&answer, &Rows { header, rows: volumes.iter().map(row).collect() })
}

/// Returns the state as one word, with the progress of a copy or the reason if the volume is missing.
fn state(volume: &VolumeReport) -> String {
    let percent = volume.copy.as_ref().map(|copy| format!(" {} %", copy.progress.percent()));
    let why = volume.reason.as_ref().filter(|_| volume.state == VolumeState::Missing);
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    format!("{}{}{why}", volume.state.as_str(), percent.unwrap_or_default())
}

fn set(desk: &CommandContext, name: &VolumeName, settings: VolumeSettingOptions) -> Result<(), Failure> {
    let VolumeSettingOptions {
        write_policy,
        cache_share,
        read_ahead,
        iops,
        bandwidth,
        burst,
        guarantee_iops,
        priority,
        removable,
    } = settings;
    // In the order of [`VOLUME_SETTINGS`].
    let values = [write_policy, cache_share, read_ahead, iops, bandwidth, burst, guarantee_iops, priority, removable];
    let names = VOLUME_SETTINGS.map(|(name, _)| name.to_owned());
    let settings: BTreeMap<String, String> =
        names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect();
    let path = format!("/volumes/{name}");
    let answer = if settings.is_empty() {
        // Not an empty PATCH: a viewer may read the settings, but not change them.
        desk.client.get(&path, "volume")?
    } else {
        desk.client.patch(&path, &VolumeChange { size: None, settings }, "volume")?
    };
    let volume: VolumeReport = answer.decode()?;
    let policy = volume.policy.unwrap_or_default();
    let rows = policy.settings().into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect();
    desk.out.rows(&answer, &Rows { header: &["SETTING", "VALUE"], rows })?;
    // A policy that can lose acknowledged writes must not be set unnoticed.
    if policy.write == WritePolicy::BackVolatile {
        eprintln!("blockyard: a power failure loses writes to {name} that hosts have not flushed");
    }
    Ok(())
}

fn show(desk: &CommandContext, name: &VolumeName) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/volumes/{name}"), "volume")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let volume: VolumeReport = answer.decode()?;
    let why = volume.reason.iter().map(|why| ("reason", why.clone()));
    let lines = why.chain(of_volume(&volume)).map(|(what, text)| format!("  {what:<9} {text}\n"));
    put(&format!("volume {name}: {}, {}\n{}", volume.state.as_str(), volume.size, lines.collect::<String>()))
}

/// Formats a size, and the number of bytes if it was rounded up.
fn had(size: Size, asked: Option<Size>) -> String {
    let rounded = asked.filter(|&asked| asked < size).map(|_| format!(", rounded up to {} bytes", size.bytes()));
    format!("{size}{}", rounded.unwrap_or_default())
}

/// Returns the back end of a volume without a pool; none for a volume in a pool.
fn backend_of(file: Option<PathBuf>, ram: bool, null: bool) -> Result<Option<NewBackend>, Failure> {
    Ok(match (file, ram, null) {
        (Some(path), _, _) => Some(NewBackend::File { path: absolute(&path)? }),
        (None, true, _) => Some(NewBackend::Ram {}),
        (None, false, true) => Some(NewBackend::Null {}),
        (None, false, false) => None,
    })
}

/// Describes a volume, one line per fact. An incomplete copy reports its progress in place of space and cache; cache
/// settings appear only where they differ from the defaults.
fn of_volume(volume: &VolumeReport) -> Vec<(&'static str, String)> {
    let mut told = vec![("blocks", format!("{} bytes", volume.block_bytes))];
    match &volume.backend {
        Backend::Pool { provision, granule, zero_detection, encrypted, .. } => {
            let granule = granule.map_or(String::new(), |granule| format!(", granules of {}", granule.iec()));
            let zeros = if *zero_detection { ", zero detection" } else { "" };
            let cipher = if *encrypted { ", encrypted (AES-256-XTS)" } else { "" };
            told.push(("space", format!("{}{granule}{zeros}{cipher}", provision.as_str())));
        }
        Backend::File { path } => told.push(("file", path.clone())),
        other => told.push(("space", other.as_str().to_owned())),
    }
    if let Some(copy) = &volume.copy {
        let progress = sentence(&copy.source.to_string(), &copy.progress);
        // Space and cache of a copy mean nothing before it is complete.
        told.push(("copy of", progress));
        return told;
    }
    if let Some(space) = &volume.space {
        let shared = format!("{}, of which {} shared", space.mapped.iec(), space.shared.iec());
        told.push(("mapped", shared));
        if space.reserved > Size::ZERO {
            told.push(("reserve", format!("{} for future writes", space.reserved.iec())));
        }
        told.push(("freed", format!("{} since its pool was opened", space.reclaimed.iec())));
        let held = space.held_by_snapshots.filter(|_| space.snapshots > 0);
        let held = held.map_or(String::new(), |held| format!(", which keep {} not in the volume", held.iec()));
        told.push(("snapshots", format!("{}{held}", space.snapshots)));
        told.extend(space.clone_of.as_ref().map(|origin| ("clone of", origin.to_string())));
        told.extend(space.cleaning.map(|cleaning| ("freeing", format!("{} % done", cleaning.percent()))));
    }
    if let (Some(policy), Some(cache)) = (&volume.policy, &volume.cache) {
        let defaults = VolumePolicy::default().settings();
        let changed = policy.settings().into_iter().zip(defaults).filter(|(set, default)| set != default);
        let changed: Vec<String> = changed.map(|((key, value), _)| format!("{key}={value}")).collect();
        if !changed.is_empty() {
            told.push(("settings", changed.join(" ")));
        }
        let rate = cache.hit_percent().map_or("no reads".to_owned(), |percent| format!("{percent} % read hits"));
        let dirty = match (cache.dirty, cache.stuck) {
            (Size::ZERO, _) => String::new(),
            (dirty, 0) => format!(", {} dirty", dirty.iec()),
            (dirty, stuck) => format!(", {} dirty, {stuck} writes failed", dirty.iec()),
        };
        told.push(("cache", format!("{rate}, {} in memory{dirty}", cache.used.iec())));
    }
    match volume.sanitize {
        Some(SanitizeReport::Running { percent }) => {
            told.push(("sanitize", format!("{percent} % done; the volume is offline")))
        }
        Some(SanitizeReport::Failed) => told.push(("sanitize", "failed; the volume is offline".to_owned())),
        None => {}
    }
    if let Some(reservation) = &volume.reservation {
        told.push(("reserved", reservations::sentence(reservation)));
    }
    let counters = &volume.counters;
    if counters.conflicts > 0 {
        told.push(("conflicts", format!("{} commands refused by reservations", counters.conflicts)));
    }
    let done = format!(
        "{} reads of {}, {} writes of {}, {} errors",
        counters.reads,
        Size::new(counters.read_bytes).iec(),
        counters.writes,
        Size::new(counters.written_bytes).iec(),
        counters.errors
    );
    told.push(("I/O", done));
    told
}

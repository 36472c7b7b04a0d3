//! Commands `blockyard snapshot …`.

use super::{CommandContext, or_dash};
use crate::args::{ListOptions, LockOptions, SnapshotCommand, Until};
use crate::confirm;
use crate::failure::Failure;
use crate::output::Rows;
use control::request::{LockSnapshot, LockWish, NewSnapshots};
use model::{Refusal, SnapshotLock, SnapshotReport, VolumeName, code};

pub(super) fn run(desk: &CommandContext, command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::List { volume, list: options } => list(desk, volume.as_ref(), &options),
        SnapshotCommand::Create { volumes, name, lock } => {
            let (volumes, name) = volumes.with(name)?;
            let request = NewSnapshots { volumes, name, lock: lock.lock() };
            let answer = desk.client.post("/snapshots", &request, "snapshots")?;
            let made: Vec<SnapshotReport> = answer.decode()?;
            let names: Vec<String> = made.iter().map(|snapshot| snapshot.name.to_string()).collect();
            let instant = if made.len() > 1 { ", consistent with each other" } else { "" };
            desk.out.done(&answer, &format!("snapshot {} created{instant}", names.join(", ")))
        }
        SnapshotCommand::Delete { name, yes } => {
            let path = format!("/snapshots/{name}");
            let seen = confirm::destruction(&desk.client, (&path, "snapshot"), &name, yes)?;
            desk.client.delete_if_unchanged(&path, "", seen.as_ref())?;
            desk.out.said(&format!("snapshot {name} deleted; its space is freed in the background"))
        }
        SnapshotCommand::Lock { name, lock } => {
            let lock = lock.lock();
            // `create` allows no lock, but a change to none would end the protection that a lock is for.
            if lock == LockWish::Unlocked {
                let hint = "give --lock-until TIME, or --locked to lock it permanently";
                let refusal = Refusal::new(code::VALUE_MISSING, "no lock time was given", hint);
                return Err(Failure::usage(&refusal));
            }
            let answer = desk.client.patch(&format!("/snapshots/{name}"), &LockSnapshot { lock }, "snapshot")?;
            let SnapshotReport { lock, .. } = answer.decode()?;
            desk.out.done(&answer, &format!("snapshot {name} is locked {}", until(lock)))
        }
    }
}

fn list(desk: &CommandContext, volume: Option<&VolumeName>, options: &ListOptions) -> Result<(), Failure> {
    // Filtered by the daemon, so that `--limit` counts snapshots of this volume only.
    let of = volume.map(|volume| ("volume", volume.to_string()));
    let answer = desk.client.list("/snapshots", "snapshots", options, of.as_slice())?;
    let snapshots: Vec<SnapshotReport> = answer.decode()?;
    let row = |snapshot: &SnapshotReport| {
        vec![
            snapshot.name.to_string(),
            snapshot.state.to_string(),
            snapshot.created.to_string(),
            snapshot.size.iec(),
            snapshot.mapped.iec(),
            snapshot.reclaimable.iec(),
            or_dash((snapshot.lock != SnapshotLock::Unlocked).then_some(snapshot.lock)),
            if snapshot.cloned { "yes" } else { "no" }.to_owned(),
        ]
    };
    let header = &["SNAPSHOT", "STATE", "CREATED", "SIZE", "MAPPED", "FREES", "LOCKED", "CLONED"];
    desk.out.rows(&answer, &Rows { header, rows: snapshots.iter().map(row).collect() })
}

fn until(lock: SnapshotLock) -> String {
    match lock {
        SnapshotLock::Until(time) => format!("until {time}"),
        SnapshotLock::Permanent => "permanently".to_owned(),
        other => other.to_string(),
    }
}

impl LockOptions {
    fn lock(self) -> LockWish {
        match self.lock_until {
            Some(Until::At(time)) => LockWish::Until(time),
            Some(Until::In(span)) => LockWish::For(span),
            None if self.locked => LockWish::Permanent,
            None => LockWish::Unlocked,
        }
    }
}

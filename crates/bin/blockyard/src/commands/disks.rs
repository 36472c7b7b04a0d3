//! Commands `blockyard disk …`.

use super::new_disks::with_disk;
use super::{CommandContext, known, or_dash};
use crate::args::{DiskCommand, Light, ListOptions, RemoteOptions, SpareCommand};
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::progress::{self, WaitTimeout};
use crate::secret;
use control::request::{Locate, NewChap, NewDisk, NewSpare, Replace, SecretText};
use model::{
    BlockDeviceReport, DiskHealth, DiskName, DiskPathReport, DiskPathState, DiskReport, DiskState, FormerMember, Label,
    Name, PoolReport, Refusal, RemoteAddress, RemoteReport, Size, code,
};
use std::path::{Path, PathBuf};

pub(super) fn run(desk: &CommandContext, command: DiskCommand) -> Result<(), Failure> {
    match command {
        DiskCommand::List(options) => list(desk, &options),
        DiskCommand::Find(options) => find(desk, &options),
        DiskCommand::Add { paths, name, create, force, remote } => {
            let usual = with_login(NewDisk { name, create, force, ..NewDisk::default() }, remote)?;
            add(desk, &paths, &usual)
        }
        DiskCommand::Remove { disk } => {
            desk.client.delete(&format!("/disks/{disk}"))?;
            desk.out.said(&format!("disk {disk} removed; its data is kept"))
        }
        DiskCommand::Fail { disk } => {
            let answer = desk.client.post(&format!("/disks/{disk}/fail"), &(), "pool")?;
            let pool: PoolReport = answer.decode()?;
            desk.out.done(
                &answer,
                &format!("disk {disk} removed from the pool; pool {} is {}", pool.name, pool.state.as_str()),
            )
        }
        DiskCommand::Show { disk } => show(desk, &disk),
        DiskCommand::Locate { disk, light, blink } => locate(desk, &disk, light, blink),
        DiskCommand::Spare(SpareCommand::Add { disk, pool, force }) => with_disk(desk, &disk, force, |disk| {
            let scope = pool.as_ref().map_or("all pools".to_owned(), |pool| format!("pool {pool}"));
            let answer = desk.client.post(&format!("/disks/{disk}/spare"), &NewSpare { pool, force }, "disk")?;
            desk.out.done(&answer, &format!("disk {disk} is now a hot spare for {scope}"))
        }),
        DiskCommand::Spare(SpareCommand::Remove { disk }) => {
            desk.client.delete(&format!("/disks/{disk}/spare"))?;
            desk.out.said(&format!("disk {disk} is no longer a hot spare"))
        }
        DiskCommand::Replace { disk, replacement, force, yes, wait, patience } => {
            // With a name of its own, a replacement that is unknown is added first and removed again if the array
            // refuses it.
            let pool = with_disk(desk, &replacement, force, |replacement| {
                replace(desk, &disk, Replace { replacement, force, confirmed: yes })
            })?;
            if !wait {
                return Ok(());
            }
            progress::judge(&progress::follow(&desk.client, &pool, !desk.out.is_quiet(), WaitTimeout::new(patience))?)
        }
    }
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/disks", "disks", options, &[])?;
    let disks: Vec<DiskReport> = answer.decode()?;
    let row = |disk: &DiskReport| {
        vec![
            or_dash(disk.name.as_ref()),
            state_of(disk).to_owned(),
            pool_of(disk),
            known(disk.size, |size| size.to_string()),
            disk.counters.errors.to_string(),
            or_dash(disk.identity.serial.as_ref()),
            or_dash(disk.identity.place()),
            reached(disk),
        ]
    };
    let header = &["DISK", "STATE", "POOL", "SIZE", "ERRORS", "SERIAL", "SLOT", "PATH"];
    desk.out.rows(&answer, &Rows { header, rows: disks.iter().map(row).collect() })
}

/// Formats the path of a disk; for a remote disk with the number of its paths that are up.
fn reached(disk: &DiskReport) -> String {
    // The paths of a free disk are idle on purpose, so their number would look like a failure.
    let Some(remote) = disk.remote.as_ref().filter(|_| disk.state != DiskState::Free) else { return disk.path.clone() };
    let up = remote.paths.iter().filter(|path| path.state == DiskPathState::Up).count();
    format!("{} ({up} of {} paths up)", disk.path, remote.paths.len())
}

/// Lists the paths of a remote disk, one per line.
fn paths_of(remote: &RemoteReport) -> String {
    let line = |path: &DiskPathReport| {
        let active = if path.active { ", active" } else { "" };
        let reason = path.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        let (portal, state) = (path.portal, path.state.as_str());
        format!(
            "  {:<7} {portal} {state}{active}, {} commands, {} path failures{reason}\n",
            "path", path.commands, path.losses
        )
    };
    let user = remote.chap_user.as_deref().unwrap_or("no");
    let mutual = remote.mutual_chap_user.as_ref().map_or(String::new(), |user| format!(", mutual {user}"));
    let digests = if remote.digests { "required" } else { "negotiated by the target" };
    let login = format!(
        "  {:<7} {} LUN {}, CHAP {user}{mutual}, digests {digests}\n",
        "target",
        remote.target.as_str(),
        remote.lun
    );
    remote.paths.iter().map(line).fold(login, |text, line| text + &line)
}

/// Lists the block devices that could be added.
fn find(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/block-devices", "block_devices", options, &[])?;
    let devices: Vec<BlockDeviceReport> = answer.decode()?;
    let header = &["PATH", "STATE", "SIZE", "TRANSPORT", "MODEL", "SERIAL", "SLOT", "REASON"];
    desk.out.rows(&answer, &Rows { header, rows: devices.iter().map(row_of).collect() })
}

/// Returns the row of a block device, in the order of the columns of `disk find`.
fn row_of(device: &BlockDeviceReport) -> Vec<String> {
    let attached = device.transport.map(|transport| transport.as_str());
    vec![
        // First, because `-o name` prints the first column, and `disk add` takes the path.
        device.path.clone(),
        device.state.as_str().to_owned(),
        device.size.to_string(),
        or_dash(attached),
        or_dash(device.identity.model.as_ref()),
        or_dash(device.identity.serial.as_ref()),
        or_dash(device.identity.place()),
        or_dash(device.reason.as_ref()),
    ]
}

/// Shows all facts about a disk.
fn show(desk: &CommandContext, name: &DiskName) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("/disks/{name}"), "disk")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let disk: DiskReport = answer.decode()?;
    let (identity, counters) = (&disk.identity, &disk.counters);
    let kind = identity.rotational.map(|rotational| if rotational { "HDD" } else { "SSD" });
    let done = format!(
        "{} reads, {} writes, {} flushes, {} errors",
        counters.reads, counters.writes, counters.flushes, counters.errors
    );
    let lines = [
        ("pool", Some(pool_of(&disk)).filter(|pool| pool != "-")),
        ("former", disk.former.as_ref().map(FormerMember::sentence)),
        ("size", (disk.size > Size::ZERO).then(|| disk.size.to_string())),
        ("blocks", Some(format!("{} logical, {} physical", disk.logical_block_bytes, disk.physical_block_bytes))),
        ("model", identity.model.clone()),
        ("serial", identity.serial.clone()),
        ("wwn", identity.wwn.clone()),
        ("part", identity.partition.map(|number| number.to_string())),
        ("type", kind.map(str::to_owned)),
        ("slot", identity.place()),
        ("light", identity.has_light.then(|| format!("blockyard disk locate {name} on"))),
        ("path", Some(disk.path.clone())),
        ("alias", identity.stable_path.clone()),
        ("I/O", Some(done)),
        ("health", disk.health.as_ref().map(health_of)),
    ];
    let lines = lines.into_iter().filter_map(|(what, text)| Some(format!("  {what:<7} {}\n", text?)));
    let paths = disk.remote.as_ref().map(paths_of).unwrap_or_default();
    put(&format!("disk {name}: {}\n{}{paths}", state_of(&disk), lines.collect::<String>()))
}

/// Summarizes the health of a disk in one line.
fn health_of(health: &DiskHealth) -> String {
    let complaints = health.complaints();
    let verdict = if complaints.is_empty() { "healthy".to_owned() } else { complaints.join(", ") };
    let facts = [
        health.temperature.map(|degrees| format!("{degrees} °C")),
        health.power_on_hours.map(|hours| format!("{hours} hours")),
        health.percent_used.map(|percent| format!("{percent} % of rated life used")),
        health.link_errors.filter(|&count| count > 0).map(|count| format!("{count} link errors")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let facts = if facts.is_empty() { String::new() } else { format!("; {}", facts.join(", ")) };
    format!("{verdict}{facts} ({})", health.time)
}

fn locate(desk: &CommandContext, disk: &DiskName, light: Option<Light>, blink: Option<u64>) -> Result<(), Failure> {
    let (how, text) = match (light, blink) {
        (Some(Light::On), _) => (Locate::On, format!("locate light of disk {disk} is on")),
        (Some(Light::Off), _) => (Locate::Off, format!("locate light of disk {disk} is off")),
        (None, seconds) => {
            let seconds = seconds.unwrap_or(30);
            let text = format!(
                "disk {disk} is read at intervals for {seconds} s; look for an activity light that blinks \
                     once a second"
            );
            (Locate::Blink { seconds }, text)
        }
    };
    let answer = desk.client.post(&format!("/disks/{disk}/locate"), &how, "disk")?;
    desk.out.done(&answer, &text)
}

/// Returns the state as one word; a hot spare is distinguished from a free disk.
fn state_of(disk: &DiskReport) -> &'static str {
    match (disk.state, &disk.spare) {
        (DiskState::Free, Some(_)) => "spare",
        (state, _) => state.as_str(),
    }
}

/// Returns the pool of the disk or of the spare; in parentheses, the pool of a label that is not in use.
fn pool_of(disk: &DiskReport) -> String {
    if let Some(spare) = &disk.spare {
        return or_dash(spare.pool.as_ref());
    }
    or_dash(disk.label.pool().map(|(_, pool)| match disk.state {
        DiskState::Free | DiskState::Former => format!("({pool})"),
        DiskState::InUse | DiskState::Rebuilding | DiskState::Failed | DiskState::Missing => pool.to_string(),
    }))
}

/// Adds the credentials of the options to the request.
fn with_login(request: NewDisk, options: RemoteOptions) -> Result<NewDisk, Failure> {
    let RemoteOptions { chap_secret_file, mutual_user, mutual_secret_file, digests } = options;
    let chap =
        |user, secret: Option<SecretText>| secret.map(|secret| NewChap { user, secret: Some(secret), demand: None });
    let own = chap_secret_file.map(|file| secret::read(Some(&file), "", false)).transpose()?.flatten();
    let target = mutual_secret_file.map(|file| secret::read(Some(&file), "", false)).transpose()?.flatten();
    // The CHAP name of this array is part of the address.
    Ok(NewDisk { chap: chap(None, own), mutual_chap: chap(mutual_user, target), digests, ..request })
}

/// Adds a disk for each path; `usual` is the request without the path.
fn add(desk: &CommandContext, paths: &[PathBuf], usual: &NewDisk) -> Result<(), Failure> {
    if usual.name.is_some() && paths.len() > 1 {
        let sentence = "--name works for one disk only; add the disks one by one, or omit it";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    for path in paths {
        // Adding stops at the first failure; the disks before it stay, and each has been reported.
        let request = NewDisk { path: absolute(path)?, ..usual.clone() };
        let answer = desk.client.post("/disks", &request, "disk")?;
        let disk: DiskReport = answer.decode()?;
        let holds = held_by(&disk.label);
        let paths = disk.remote.as_ref().map_or(String::new(), |remote| match remote.paths.len() {
            1 => ", one path: add a second portal to survive the loss of a path".to_owned(),
            count => format!(", {count} paths"),
        });
        let text = format!("disk {} added: {}{paths}{holds}", or_dash(disk.name), disk.size);
        desk.out.done(&answer, &text)?;
    }
    Ok(())
}

/// Describes the content of a disk that was just added, and the consequence.
fn held_by(label: &Label) -> String {
    match label {
        Label::None => String::new(),
        Label::Damaged => "; it has a damaged pool label, which pool create overwrites".to_owned(),
        Label::Foreign { description: what } => format!("; it holds {what}, which pool create overwrites"),
        Label::PoolMember { pool_name, owner, .. } => {
            let owner = owner.as_ref().filter(|owner| !owner.released);
            let owner = owner.map_or(String::new(), |owner| format!(" (last used by node {})", owner.node_name));
            format!("; it belongs to pool {pool_name}{owner}, see blockyard pool import --help")
        }
    }
}

/// Replaces the disk, and returns the name of its pool.
fn replace(desk: &CommandContext, disk: &DiskName, mut request: Replace) -> Result<Name, Failure> {
    let path = format!("/disks/{disk}/replace");
    // Read before the question: only the disk that was shown may be replaced.
    let seen =
        if request.confirmed { None } else { Some(desk.client.read_version(&format!("/disks/{disk}"), "disk")?) };
    let answer = match desk.client.post(&path, &request, "pool") {
        Err(Failure::Refused(refusal)) if refusal.code == code::UNCONFIRMED => {
            confirm::repetition(disk, refusal)?;
            request.confirmed = true;
            desk.client.post_if_unchanged(&path, &request, "pool", seen.as_ref())?
        }
        answered => answered?,
    };
    let pool: PoolReport = answer.decode()?;
    let text = format!(
        "disk {} replaces {disk}; pool {} is {}, see blockyard pool show {} --watch",
        request.replacement,
        pool.name,
        pool.state.as_str(),
        pool.name
    );
    desk.out.done(&answer, &text)?;
    Ok(pool.name)
}

/// Returns the absolute path, since the daemon has another working directory. Symbolic links are kept:
/// `/dev/disk/by-id` is the more stable name.
pub(super) fn absolute(path: &Path) -> Result<String, Failure> {
    // The address of a remote disk is not a path of this machine.
    if let Some(address) = path.to_str().filter(|text| RemoteAddress::is_remote(text)) {
        return Ok(address.to_owned());
    }
    let wrong = |why: &str| {
        let message = format!("the path \"{}\" cannot be used: {why}", path.display());
        Failure::usage(&Refusal::new(code::PATH_INVALID, message, "give the path of a block device or a regular file"))
    };
    let absolute = std::path::absolute(path).map_err(|error| wrong(&error.to_string()))?;
    let mut clean = PathBuf::new();
    // `..` is resolved lexically: the privileged helper refuses paths that contain it.
    for part in absolute.components() {
        if part == std::path::Component::ParentDir {
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    clean.into_os_string().into_string().map_err(|_| wrong("it is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BlockDeviceState, DiskIdentity};

    #[test]
    fn block_device_is_named_by_its_path() {
        let device = BlockDeviceReport {
            path: "/dev/disk/by-id/ata-A".to_owned(),
            device: "/dev/sda".to_owned(),
            size: Size::gib(4),
            identity: DiskIdentity::default(),
            transport: None,
            label: None,
            state: BlockDeviceState::Free,
            reason: None,
        };
        assert_eq!(row_of(&device)[..2], ["/dev/disk/by-id/ata-A", "free"]);
    }
}

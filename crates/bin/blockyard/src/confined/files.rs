//! Landlock rules: the files that the daemon can access.
//!
//! Disks, and files used as disks, are opened by the helper; a descriptor from there is not limited by Landlock.

use crate::config::Config;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// Newest version of Landlock in use, of Linux 6.12; an older kernel applies the rules that it knows.
const NEWEST: ABI = ABI::V6;

/// Readable folders: what the kernel and udev report about disks and processes, trusted certificates, time zones, and
/// the modules by which the C library resolves names.
const READ_BELOW: [&str; 12] = [
    "/sys",
    "/proc",
    "/run/udev",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share",
    "/usr/lib",
    "/lib",
    "/lib64",
];

/// Readable files of the system, mostly for name resolution.
const READ: [&str; 13] = [
    "/dev/null",
    "/dev/urandom",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/services",
];

/// Folders that hold more than certificates: in these only the configured file itself is readable.
const WIDE: [&str; 8] = ["/", "/etc", "/root", "/home", "/var", "/var/lib", "/usr", "/run"];

/// Restricts this thread, and all threads that it starts, to the files of the rules.
///
/// *Errors*: the kernel has no Landlock, or it is disabled.
pub(super) fn restrict(config: &Config) -> Result<Option<String>, String> {
    let status = rules(config).and_then(RulesetCreated::restrict_self).map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(None),
        RulesetStatus::PartiallyEnforced => Ok(Some("this kernel does not support all rules".to_owned())),
        RulesetStatus::NotEnforced => Err("needs Linux 5.13 or later with the landlock security module".to_owned()),
    }
}

fn rules(config: &Config) -> Result<RulesetCreated, RulesetError> {
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        // Keeps the daemon from signaling its helper.
        .scope(Scope::Signal)?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    // A path that does not exist cannot be opened for a rule, and needs none.
    let open = |(path, access): (PathBuf, BitFlags<AccessFs>)| {
        let (fd, meta) = (PathFd::new(&path).ok()?, fs::metadata(&path).ok()?);
        // Rights of folders on a file would make the rule invalid.
        let access = if meta.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        Some((fd, access))
    };
    allowed(config)
        .into_iter()
        .filter_map(open)
        .try_fold(created, |created, (fd, access)| created.add_rule(PathBeneath::new(fd, access)))
}

/// Returns each path with the access allowed there and below.
fn allowed(config: &Config) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let settings = &config.settings;
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    // Everything below the state folder but execution and device nodes.
    let everything = AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar);
    let mut allowed = vec![
        (settings.state_dir.clone(), everything),
        // Moved disks are searched for in all folders; the helper opens what is found.
        (PathBuf::from("/"), AccessFs::ReadDir.into()),
    ];
    // The daemon removes its socket when it ends, and has no other access to that folder.
    allowed.extend(settings.socket.parent().map(|folder| (folder.to_path_buf(), AccessFs::RemoveFile.into())));
    allowed.extend(READ_BELOW.map(|path| (PathBuf::from(path), read)));
    allowed.extend(READ.map(|path| (PathBuf::from(path), AccessFs::ReadFile.into())));
    // An ordinary user can read there only world-readable files, also after a file was replaced.
    if !geteuid().is_root() {
        allowed.push(("/etc".into(), read));
    }
    let named = config.opening.key.iter().cloned().chain(config.files());
    allowed.extend(named.flat_map(|path| places_of(&path)).map(|place| (place, read)));
    allowed
}

/// Returns the file and its folder, so that it stays readable after a replacement by rename: at its configured path,
/// and where symbolic links lead.
fn places_of(path: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folders = [path, &real].map(|file| file.parent().map(Path::to_path_buf));
    let folders = folders.into_iter().flatten().filter(|folder| !WIDE.iter().any(|wide| folder == Path::new(wide)));
    folders.chain([real.clone()]).collect()
}

//! Which files the daemon sees: rules of Landlock.
//!
//! Disks, and files that stand for disks, are opened by the helper: a descriptor that came from there is not limited.

use crate::config::Config;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// The newest version of Landlock that is used where the kernel has it: Linux 6.12.
const NEWEST: ABI = ABI::V6;

/// Folders that are read: what the kernel and udev say of disks and processes, certificates of authorities, time zones, and the
/// modules by which the C library resolves names.
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

/// Files of the system that are read, mostly to resolve names.
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

/// Folders that hold more than certificates: there only the named file is read.
const WIDE: [&str; 8] = ["/", "/etc", "/root", "/home", "/var", "/var/lib", "/usr", "/run"];

/// This thread, and all that it starts, see only the files of the rules.
///
/// *Errors*: the kernel has no Landlock, or it is off.
pub(super) fn restrict(config: &Config) -> Result<Option<String>, String> {
    let status = rules(config).and_then(RulesetCreated::restrict_self).map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(None),
        RulesetStatus::PartiallyEnforced => Ok(Some("this kernel lacks some of the rules".to_owned())),
        RulesetStatus::NotEnforced => {
            Err("needs Linux 5.13 or later, and landlock among its security modules".to_owned())
        }
    }
}

fn rules(config: &Config) -> Result<RulesetCreated, RulesetError> {
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::Signal)?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    // What is not there cannot be allowed, and is not missed.
    let open = |(path, access): (PathBuf, BitFlags<AccessFs>)| {
        let (fd, meta) = (PathFd::new(&path).ok()?, fs::metadata(&path).ok()?);
        let access = if meta.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        Some((fd, access))
    };
    allowed(config)
        .into_iter()
        .filter_map(open)
        .try_fold(created, |created, (fd, access)| created.add_rule(PathBeneath::new(fd, access)))
}

/// Each path, and what may be done there and below.
fn allowed(config: &Config) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let settings = &config.settings;
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let everything = AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar);
    let mut allowed = vec![
        (settings.state_dir.clone(), everything),
        // Disks that were moved are searched for in folders, and what is there is opened by the helper.
        (PathBuf::from("/"), AccessFs::ReadDir.into()),
    ];
    allowed.extend(settings.socket.parent().map(|folder| (folder.to_path_buf(), AccessFs::RemoveFile.into())));
    allowed.extend(READ_BELOW.map(|path| (PathBuf::from(path), read)));
    allowed.extend(READ.map(|path| (PathBuf::from(path), AccessFs::ReadFile.into())));
    // Another user may read there what everybody may, also after a file was replaced.
    if !geteuid().is_root() {
        allowed.push(("/etc".into(), read));
    }
    let named = config.opening.key.iter().cloned().chain(config.files());
    allowed.extend(named.flat_map(|path| places_of(&path)).map(|place| (place, read)));
    allowed
}

/// The file, and its folders, so that it is still read after it was replaced: where it is named, and where symbolic links lead.
fn places_of(path: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folders = [path, &real].map(|file| file.parent().map(Path::to_path_buf));
    let folders = folders.into_iter().flatten().filter(|folder| !WIDE.iter().any(|wide| folder == Path::new(wide)));
    folders.chain([real.clone()]).collect()
}

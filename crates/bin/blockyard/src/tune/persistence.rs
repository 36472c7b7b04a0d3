//! Files that make settings persistent on Debian: sysctl, udev, tmpfiles and a systemd unit.

use super::record::{Line, Record, removed, replaced};
use super::{Root, Setting, interfaces};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const SYSCTL: &str = "etc/sysctl.d/90-blockyard.conf";
const UDEV: &str = "etc/udev/rules.d/90-blockyard.rules";
const TMPFILES: &str = "etc/tmpfiles.d/90-blockyard-tune.conf";
const UNIT: &str = "etc/systemd/system/blockyard-tune.service";
/// Interrupt numbers change with a restart, so the unit determines them again.
const WANTED: &str = "etc/systemd/system/multi-user.target.wants/blockyard-tune.service";
const SERVICE: &str = "[Unit]
Description=Spread the interrupts of Blockyard's cards
After=blockyard.service
Requires=blockyard.service

[Service]
Type=oneshot
ExecStart=/usr/bin/blockyard tune apply --yes --only irq_affinity

[Install]
WantedBy=multi-user.target
";

/// Returns the line that makes a setting persistent; none if its device has no stable name.
pub(super) fn line(root: &Root, setting: &Setting) -> Option<Line> {
    let in_file = |file: &str, text: String| Some(Line { file: file.to_owned(), text });
    match setting {
        Setting::Ethtool { option, interface, name, value } => {
            // Udev replaces `$name` by the present name of the interface.
            let run = format!("RUN+=\"/usr/sbin/ethtool {option} $name {name} {value}\"");
            in_file(UDEV, format!("{}, {run}", interface_rule(root, interface)?))
        }
        Setting::File { path, value } => {
            let parts: Vec<&str> = path.split('/').collect();
            match parts[..] {
                ["proc", "sys", ref name @ ..] => in_file(SYSCTL, format!("{} = {value}", name.join("."))),
                ["sys", "block", disk, ref attribute @ ..] => {
                    let attribute = attribute.join("/");
                    in_file(UDEV, format!("{}, ATTR{{{attribute}}}=\"{value}\"", disk_rule(root, disk)?))
                }
                ["sys", "class", "net", name, ref attribute @ ..] => {
                    let attribute = attribute.join("/");
                    in_file(UDEV, format!("{}, ATTR{{{attribute}}}=\"{value}\"", interface_rule(root, name)?))
                }
                // The line `w` writes to an existing file at each boot (tmpfiles.d(5)).
                ["sys", "devices" | "module", ..] => in_file(TMPFILES, format!("w /{path} - - - - {value}")),
                // The unit sets all interrupts, so it needs no line of its own for each.
                ["proc", "irq", ..] => in_file(UNIT, String::new()),
                _ => None,
            }
        }
    }
}

/// Returns a udev match for a disk by its own identity, since names such as sda are not stable.
fn disk_rule(root: &Root, disk: &str) -> Option<String> {
    let below = format!("sys/block/{disk}");
    // NVMe, SCSI and virtio disks have their identity in different attributes.
    let own = [("wwid", "wwid"), ("device/wwid", "wwid"), ("serial", "serial")];
    let said = |(file, attribute): (&str, &'static str)| {
        let text = root.text(&format!("{below}/{file}")).filter(|text| !text.is_empty())?;
        Some((attribute, text))
    };
    let (attribute, text) = own.into_iter().find_map(said)?;
    // Characters with a meaning in udev patterns match any character instead.
    let text: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || " .-_:".contains(c) { c } else { '?' }).collect();
    Some(format!(
        "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", ATTRS{{{attribute}}}==\"{text}\""
    ))
}

/// Returns a udev match for an interface: a card by its MAC address, other interfaces by name. A bond or VLAN has the
/// same address as its card, hence the driver in the match.
fn interface_rule(root: &Root, name: &str) -> Option<String> {
    if !interfaces::is_card(root, name) {
        // A virtual interface exists only under the name of its configuration, so the name identifies it.
        return Some(format!("ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"{name}\""));
    }
    let address = root.text(&format!("sys/class/net/{name}/address")).filter(|address| !address.is_empty())?;
    Some(format!("ACTION==\"add\", SUBSYSTEM==\"net\", DRIVERS==\"?*\", ATTR{{address}}==\"{address}\""))
}

/// Returns the text of each file for this record; none for a file that is not needed.
pub(crate) fn files(record: &Record) -> BTreeMap<&'static str, Option<String>> {
    let mut all: BTreeMap<&'static str, Option<String>> =
        [SYSCTL, UDEV, TMPFILES, UNIT].map(|file| (file, None)).into();
    let mut last = BTreeMap::new();
    for entry in &record.0 {
        let Some(line) = &entry.kept else { continue };
        let Some((file, text)) = all.iter_mut().find(|(file, _)| **file == line.file) else { continue };
        if *file == UNIT {
            *text = Some(SERVICE.to_owned());
            continue;
        }
        let text = text
            .get_or_insert_with(|| "# Written by blockyard tune apply; blockyard tune revert removes it.\n".to_owned());
        // Each reason is written once above the lines that it applies to.
        if last.insert(*file, &entry.why) != Some(&entry.why) {
            *text += &format!("\n# {}\n", entry.why);
        }
        *text += &format!("{}\n", line.text);
    }
    all
}

/// Writes or removes the files of a record, and returns a sentence for each change.
///
/// *Errors*: the error of the system.
pub(super) fn write(root: &Root, record: &Record) -> io::Result<Vec<String>> {
    let mut changed = Vec::new();
    for (path, text) in files(record) {
        let is_new = match &text {
            Some(text) => replaced(root, path, text)?,
            None => removed(root, path)?,
        };
        // A unit is enabled by a link, which must not outlive its file.
        if path == UNIT {
            linked(&root.path(WANTED), text.is_some())?;
        }
        if is_new {
            let what = if text.is_some() { "written" } else { "removed" };
            changed.push(format!("{} is {what}", root.path(path).display()));
        }
    }
    Ok(changed)
}

/// Enables or disables the unit by its symbolic link.
fn linked(path: &Path, wanted: bool) -> io::Result<()> {
    let is_there = path.symlink_metadata().is_ok();
    match (wanted, is_there) {
        (true, false) => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::os::unix::fs::symlink("../blockyard-tune.service", path)
        }
        (false, true) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

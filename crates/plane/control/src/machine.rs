//! Block devices of the host system, as reported by the kernel and udev.
//!
//! *Source*: Linux, Documentation/ABI/stable/sysfs-block; proc(5), "mountinfo" and "swaps"; the udev database
//! below `/run/udev/data`.

use model::{DiskIdentity, Size, Transport};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Limit on reported devices; a machine with more has a fault.
const DEVICES_MAX: usize = 4096;
/// Prefixes of links in `/dev/disk/by-id`, the most readable first.
const LINKS: [&str; 6] = ["ata-", "nvme-", "scsi-", "virtio-", "usb-", "wwn-"];
/// Devices that are never disks: memory, floppies, optical drives, boot areas of flash.
const NO_DISKS: [&str; 5] = ["ram", "zram", "fd", "sr", "mtdblock"];
/// Unit of sizes in sysfs in bytes, whatever the block size of the device.
const SECTOR_BYTES: u64 = 512;

/// Root of `/sys`, `/proc`, `/dev` and `/run`: `/`, or another directory in tests.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    root: PathBuf,
}

/// One block device, as reported by the kernel and udev.
#[derive(Clone, Debug)]
pub(crate) struct SystemDevice {
    /// Kernel name, as a path below `/dev`.
    pub(crate) device: PathBuf,
    /// Persistent path (`/dev/disk/by-id`), if there is one.
    pub(crate) stable_path: Option<PathBuf>,
    pub(crate) size: Size,
    pub(crate) identity: DiskIdentity,
    pub(crate) transport: Option<Transport>,
    pub(crate) is_read_only: bool,
    /// Content that udev has detected: file system, RAID member or partition table.
    pub(crate) signature: Option<String>,
    /// Uses of the device or of its partitions (mount, swap, device mapper), as sentences.
    pub(crate) uses: Vec<String>,
    /// Partitions of the device.
    pub(crate) parts: Vec<PathBuf>,
    /// The disk that it is a partition of.
    pub(crate) whole: Option<PathBuf>,
    /// The subsystem that composed it of other devices (LVM, md, dm-crypt), as a phrase.
    pub(crate) made_of: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { root: "/".into() }
    }
}

impl Machine {
    /// Returns a machine whose system directories lie below `root`.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Lists all block devices that could be disks, each disk before its partitions.
    ///
    /// *Errors*: `/sys/block` cannot be read.
    pub(crate) fn devices(&self) -> io::Result<Vec<SystemDevice>> {
        let mut names = fs::read_dir(self.path("sys/block"))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !is_no_disk(name))
            .collect::<Vec<_>>();
        // `read_dir` has no order, and a disk is to keep its place in the list.
        names.sort();
        let used = DeviceUses::of(self);
        let links = self.links();
        let mut all = Vec::new();
        for name in names.into_iter().take(DEVICES_MAX) {
            let folder = self.path("sys/block").join(&name);
            // Path devices below a native multipath device: only the multipath device is to be used.
            if text(&folder.join("hidden")).is_some_and(|hidden| hidden == "1") {
                continue;
            }
            let mut whole = self.device(&name, &folder, &links);
            whole.uses = used.of_device(&folder, &whole.device);
            let parts: Vec<SystemDevice> = partitions(&folder)
                .into_iter()
                .map(|(part, number)| {
                    let folder = folder.join(&part);
                    let mut found = self.device(&part, &folder, &links);
                    found.uses = used.of_device(&folder, &found.device);
                    // A partition has the identity of its disk, with its number added.
                    found.identity = DiskIdentity { partition: Some(number), ..whole.identity.clone() };
                    (found.transport, found.whole) = (whole.transport, Some(whole.device.clone()));
                    found
                })
                .collect();
            // A disk with a partition in use is in use itself.
            let of_parts = parts.iter().flat_map(|part| {
                part.uses.iter().map(move |what| format!("its partition {}: {what}", part.device.display()))
            });
            whole.uses.extend(of_parts);
            whole.parts = parts.iter().map(|part| part.device.clone()).collect();
            all.push(whole);
            all.extend(parts);
        }
        // Size 0: a card reader without a card, a loop device without a file.
        all.retain(|device| device.size > Size::ZERO);
        Ok(all)
    }

    /// Returns true for a path in a directory where only the system creates device nodes.
    pub(super) fn names(&self, path: &Path) -> bool {
        let Some(parent) = path.parent() else { return false };
        let dev = self.path("dev");
        let is_by = parent.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("by-"));
        parent == dev || parent == dev.join("mapper") || (is_by && parent.parent() == Some(&dev.join("disk")))
    }

    fn device(&self, name: &str, folder: &Path, links: &BTreeMap<PathBuf, PathBuf>) -> SystemDevice {
        // sysfs replaces a slash in a kernel name by an exclamation mark.
        let device = self.path("dev").join(name.replace('!', "/"));
        let number = text(&folder.join("dev")).unwrap_or_default();
        // udev names its records by device number.
        let asked = UdevRecord::of(&self.path("run/udev/data").join(format!("b{number}")));
        // Depending on the driver the attribute lies in `device/` or in the folder itself.
        let own =
            |attribute: &str| text(&folder.join("device").join(attribute)).or_else(|| text(&folder.join(attribute)));
        let sectors: u64 = text(&folder.join("size")).and_then(|sectors| sectors.parse().ok()).unwrap_or(0);
        let dm = text(&folder.join("dm/uuid"));
        let is_multipath = dm.as_ref().is_some_and(|id| id.starts_with("mpath-"));
        let made_of = match (&dm, folder.join("md").exists()) {
            // A multipath map is the disk itself, not something made of disks.
            (Some(_), _) if is_multipath => None,
            (Some(id), _) if id.starts_with("LVM-") => Some("a logical volume of LVM".to_owned()),
            (Some(id), _) if id.starts_with("CRYPT-") => Some("an encrypted volume that is open".to_owned()),
            (Some(_), _) => Some("made by the device mapper".to_owned()),
            (None, true) => Some("an array of Linux md".to_owned()),
            (None, false) => None,
        };
        let real = fs::canonicalize(&device).unwrap_or_else(|_| device.clone());
        SystemDevice {
            stable_path: links.get(&real).cloned(),
            size: Size::new(sectors.saturating_mul(SECTOR_BYTES)),
            identity: DiskIdentity {
                serial: asked.value("ID_SERIAL_SHORT").or_else(|| own("serial")),
                // In the database underscores stand for the spaces of a model name.
                model: asked.value("ID_MODEL").map(|model| model.replace('_', " ")).or_else(|| own("model")),
                wwn: asked.value("ID_WWN_WITH_EXTENSION").or_else(|| own("wwid")),
                rotational: text(&folder.join("queue/rotational")).map(|value| value == "1"),
                ..DiskIdentity::default()
            },
            transport: if is_multipath { Some(Transport::Multipath) } else { transport(name, folder) },
            is_read_only: text(&folder.join("ro")).is_some_and(|value| value == "1"),
            signature: asked.signature(),
            uses: Vec::new(),
            parts: Vec::new(),
            whole: None,
            made_of,
            device,
        }
    }

    /// Returns the most readable persistent link of each device.
    fn links(&self) -> BTreeMap<PathBuf, PathBuf> {
        let entries = fs::read_dir(self.path("dev/disk/by-id")).into_iter().flatten().filter_map(Result::ok);
        let mut links: Vec<(usize, PathBuf)> = entries
            .map(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                (LINKS.iter().position(|kind| name.starts_with(kind)).unwrap_or(LINKS.len()), entry.path())
            })
            .collect();
        // By kind, then by name, so that the choice is the same each time.
        links.sort();
        let mut best = BTreeMap::new();
        for (_, link) in links {
            if let Ok(device) = fs::canonicalize(&link) {
                best.entry(device).or_insert(link);
            }
        }
        best
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// Devices in use by mounts and swap.
struct DeviceUses {
    /// Mounts: device number, source path, mount point.
    mounts: Vec<(String, PathBuf, String)>,
    swaps: Vec<PathBuf>,
}

impl DeviceUses {
    fn of(machine: &Machine) -> Self {
        let mounts = fs::read_to_string(machine.path("proc/self/mountinfo")).unwrap_or_default();
        let swaps = fs::read_to_string(machine.path("proc/swaps")).unwrap_or_default();
        Self {
            mounts: mounts.lines().filter_map(|line| mount(machine, line)).collect(),
            // The first line is a heading.
            swaps: swaps
                .lines()
                .skip(1)
                .filter_map(|line| Some(real(machine, line.split_whitespace().next()?)))
                .collect(),
        }
    }

    /// Returns the uses of the device itself: mounts, swap, holders.
    fn of_device(&self, folder: &Path, device: &Path) -> Vec<String> {
        let number = text(&folder.join("dev")).unwrap_or_default();
        let real = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        // Compared by number and by path: some file systems, such as Btrfs, report an anonymous device number.
        let mut places: Vec<&str> = self
            .mounts
            .iter()
            .filter(|(of, source, _)| *of == number || *source == real)
            .map(|(_, _, place)| place.as_str())
            .collect();
        places.sort_unstable();
        places.dedup();
        let mut uses = Vec::new();
        if let Some(first) = places.first() {
            // There is a first place, so the difference cannot wrap.
            let more = match places.len() - 1 {
                0 => String::new(),
                1 => " and one place more".to_owned(),
                more => format!(" and {more} places more"),
            };
            uses.push(format!("it is mounted at {first}{more}"));
        }
        if self.swaps.contains(&real) {
            uses.push("it is swap space".to_owned());
        }
        // Holders are devices on top of this one: device mapper, md, bcache.
        let holders = fs::read_dir(folder.join("holders")).into_iter().flatten().filter_map(Result::ok);
        let mut holders: Vec<String> = holders
            .map(|holder| {
                let name = holder.file_name().to_string_lossy().into_owned();
                // The name that an administrator gave, rather than `dm-3`.
                text(&holder.path().join("dm/name")).unwrap_or(name)
            })
            .collect();
        holders.sort();
        if !holders.is_empty() {
            uses.push(format!("{} is made of it", holders.join(", ")));
        }
        uses
    }
}

/// Parses one line of `mountinfo`: device number, source path, mount point.
fn mount(machine: &Machine, line: &str) -> Option<(String, PathBuf, String)> {
    // Fields: ID, parent, device number, root, mount point, options; after the separator: type, source, options
    // (proc(5)).
    let (own, told) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(2);
    // `nth` skips the root of the mount.
    let (number, place) = (own.next()?, own.nth(1)?);
    let source = told.split(' ').nth(1)?;
    Some((number.to_owned(), real(machine, &unescaped(source)), unescaped(place)))
}

/// Decodes the octal escapes for white space in these tables (proc(5)).
fn unescaped(text: &str) -> String {
    // The backslash last: decoded first, it could form an escape that was none.
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (number, is)| text.replace(number, is))
}

fn real(machine: &Machine, path: &str) -> PathBuf {
    // Paths in these tables are absolute, and have to be resolved below the root.
    let path = machine.root.join(path.trim_start_matches('/'));
    fs::canonicalize(&path).unwrap_or(path)
}

/// Properties of a device in the udev database.
struct UdevRecord(String);

impl UdevRecord {
    fn of(file: &Path) -> Self {
        Self(fs::read_to_string(file).unwrap_or_default())
    }

    fn value(&self, key: &str) -> Option<String> {
        let of = |line: &str| Some(line.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('=')?.trim().to_owned());
        self.0.lines().find_map(of).filter(|value| !value.is_empty())
    }

    /// Describes the detected content.
    fn signature(&self) -> Option<String> {
        if let Some(kind) = self.value("ID_FS_TYPE") {
            let usage = match self.value("ID_FS_USAGE").as_deref() {
                Some("filesystem") => "a file system",
                Some("raid") => "a member of a RAID or of LVM",
                Some("crypto") => "an encrypted volume",
                _ => "a label",
            };
            return Some(format!("{usage} ({kind})"));
        }
        self.value("ID_PART_TABLE_TYPE").map(|kind| format!("a partition table ({})", kind.to_uppercase()))
    }
}

fn is_no_disk(name: &str) -> bool {
    let is = |kind: &&str| name.strip_prefix(*kind).is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()));
    NO_DISKS.iter().any(is) || (name.starts_with("mmcblk") && name.contains("boot"))
}

/// Returns the partitions of the disk in sysfs, as names and numbers, in order.
fn partitions(folder: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut parts: Vec<(String, u32)> = entries
        .filter_map(|entry| {
            let number = text(&entry.path().join("partition"))?.parse().ok()?;
            Some((entry.file_name().into_string().ok()?, number))
        })
        .collect();
    parts.sort_by_key(|(_, number)| *number);
    parts
}

/// Derives the transport from the sysfs path: a device lies below its bus.
fn transport(name: &str, folder: &Path) -> Option<Transport> {
    let path = fs::canonicalize(folder).ok()?;
    let path = path.to_string_lossy();
    // In this order, because the path names every bus on the way to the device.
    let ways = [
        ("/usb", Transport::Usb),
        ("/session", Transport::Iscsi),
        ("/rport-", Transport::FibreChannel),
        ("/end_device-", Transport::Sas),
        ("/ata", Transport::Sata),
        ("/nvme", Transport::Nvme),
        ("/virtio", Transport::Virtio),
        ("/mmc", Transport::Mmc),
    ];
    let by_path = ways.iter().find(|(part, _)| path.contains(part)).map(|(_, transport)| *transport);
    if name.starts_with("loop") { Some(Transport::Loop) } else { by_path }
}

/// Reads a sysfs attribute; `None` when it is missing or empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

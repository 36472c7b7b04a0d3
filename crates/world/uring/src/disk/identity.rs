//! Identity and location of disks on Linux: vendor, serial number, enclosure and slot.
//!
//! All of it comes from sysfs and the udev database; what is missing there is unknown.

use rustix::fs::FileType;
use shard::DiskFacts;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Folders of the kernel and udev; others in tests.
struct Roots {
    sys: PathBuf,
    udev: PathBuf,
    dev: PathBuf,
}

/// Link names in `/dev/disk/by-id`, the most readable first.
const LINKS: [&str; 6] = ["ata-", "nvme-", "scsi-", "virtio-", "usb-", "wwn-"];

/// Returns identity and location of the disk at `path`; empty for a regular file.
///
/// *Errors*: nothing exists at `path`.
pub(crate) fn describe(path: &str) -> io::Result<DiskFacts> {
    Roots::real().describe(path)
}

/// Switches the locate LED of the slot of the disk at `path` on or off.
///
/// *Errors*: `Unsupported` when the enclosure has none that the kernel knows; those of the kernel.
pub fn locate(path: &str, on: bool) -> io::Result<()> {
    let roots = Roots::real();
    // The slot belongs to the whole disk, also when `path` is a partition.
    let slot = roots.whole_disk(path)?.and_then(|disk| slot_of(&disk));
    let light = slot.map(|slot| slot.join("locate")).filter(|light| light.exists());
    let light =
        light.ok_or_else(|| io::Error::new(ErrorKind::Unsupported, "its enclosure has no known locate light"))?;
    fs::write(light, if on { "1" } else { "0" })
}

impl Roots {
    fn real() -> Self {
        Self { sys: "/sys".into(), udev: "/run/udev/data".into(), dev: "/dev/disk/by-id".into() }
    }

    fn describe(&self, path: &str) -> io::Result<DiskFacts> {
        let stat = rustix::fs::stat(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Ok(DiskFacts::default());
        }
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        Ok(self.facts(major, minor, fs::canonicalize(path).ok().as_deref()))
    }

    /// Returns the sysfs folder of the whole disk, for a disk or a partition at `path`.
    fn whole_disk(&self, path: &str) -> io::Result<Option<PathBuf>> {
        let stat = rustix::fs::stat(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Ok(None);
        }
        Ok(self.folder(rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)).map(|(disk, _)| disk))
    }

    /// Returns the sysfs folder of the whole disk, and the partition number.
    fn folder(&self, major: u32, minor: u32) -> Option<(PathBuf, Option<u32>)> {
        // Resolved: `parent` below needs the real path.
        let here = fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
        // The folder of a partition is inside of that of its disk.
        match text(&here.join("partition")).and_then(|number| number.parse().ok()) {
            Some(number) => Some((here.parent()?.to_path_buf(), Some(number))),
            None => Some((here, None)),
        }
    }

    fn facts(&self, major: u32, minor: u32, device: Option<&Path>) -> DiskFacts {
        let Some((disk, partition)) = self.folder(major, minor) else { return DiskFacts::default() };
        // udev keys its database by the numbers of the whole disk, not those of a partition.
        let number = text(&disk.join("dev")).unwrap_or_else(|| format!("{major}:{minor}"));
        let udev = fs::read_to_string(self.udev.join(format!("b{number}"))).unwrap_or_default();
        let asked = |key: &str| {
            let line = udev.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('='));
            line.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let own = |attribute: &str| text(&disk.join("device").join(attribute));
        let serial = asked("ID_SERIAL_SHORT").or_else(|| own("serial")).or_else(|| text(&disk.join("serial")));
        let serial = serial.or_else(|| page_80(&disk));
        // udev replaces blanks by underscores.
        let model = asked("ID_MODEL").map(|model| model.replace('_', " ")).or_else(|| own("model"));
        let slot = slot_of(&disk);
        DiskFacts {
            serial,
            model,
            wwn: asked("ID_WWN_WITH_EXTENSION").or_else(|| own("wwid")).or_else(|| text(&disk.join("wwid"))),
            partition,
            stable_path: device.and_then(|device| self.link_to(device)),
            rotational: text(&disk.join("queue/rotational")).map(|value| value == "1"),
            enclosure: slot.as_deref().and_then(enclosure_of),
            slot: slot.as_deref().and_then(|slot| text(&slot.join("slot")).or_else(|| name_of(slot))),
            has_light: slot.is_some_and(|slot| slot.join("locate").exists()),
        }
    }

    /// Returns the path of the device that does not depend on discovery order.
    fn link_to(&self, device: &Path) -> Option<String> {
        let links = fs::read_dir(&self.dev).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        // A disk has several links; the most readable one is chosen below.
        let mut links: Vec<PathBuf> =
            links.filter(|link| fs::canonicalize(link).is_ok_and(|to| to == device)).collect();
        // Preferred kinds of links first, then by name.
        let rank = |link: &PathBuf| {
            let name = name_of(link).unwrap_or_default();
            (LINKS.iter().position(|kind| name.starts_with(kind)).unwrap_or(LINKS.len()), name)
        };
        links.sort_by_key(rank);
        links.into_iter().next()?.into_os_string().into_string().ok()
    }
}

/// Returns the sysfs folder of the slot that holds a disk.
fn slot_of(disk: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(disk.join("device")).ok()?.filter_map(Result::ok);
    let link = entries
        .map(|entry| entry.path())
        // The link name ends with the name of the slot, so its beginning is searched for.
        .find(|path| name_of(path).is_some_and(|name| name.starts_with("enclosure_device:")));
    fs::canonicalize(link?).ok()
}

/// Returns the identifier of an enclosure, or the kernel's name for it.
fn enclosure_of(slot: &Path) -> Option<String> {
    let enclosure = slot.parent()?;
    text(&enclosure.join("id")).or_else(|| name_of(enclosure))
}

/// Returns the serial number from the kernel's copy of the VPD page. *Source*: SPC-4 §7.8.18 Unit Serial Number VPD
/// page.
fn page_80(disk: &Path) -> Option<String> {
    // Read as bytes: the header contains the page code 80h, which is not UTF-8.
    let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
    // The page header has 4 bytes.
    let serial = std::str::from_utf8(page.get(4..)?).ok()?.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    (!serial.is_empty()).then(|| serial.to_owned())
}

/// Returns the content of a sysfs attribute, unless it is empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// Simulated machine: an ATA disk `sda` in slot 3 of an enclosure, its partition, and an NVMe disk that udev does
    /// not know.
    fn machine() -> (TempDir, Roots) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        let put = |path: &str, content: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("inside")).expect("folders");
            fs::write(path, content).expect("writes");
        };
        put("sys/devices/pci/sda/dev", "8:0\n");
        put("sys/devices/pci/sda/queue/rotational", "1\n");
        put("sys/devices/pci/sda/sda1/partition", "1\n");
        put("sys/devices/pci/sda/sda1/dev", "8:1\n");
        put("sys/devices/pci/scsi/model", "ST12000NM001G   \n");
        put("sys/devices/pci/scsi/vpd_pg80", "\0\u{7f}\0\u{9} ZL2ABCDE");
        put("sys/class/enclosure/6:0:0:0/id", "0x500304801f1b7e3f\n");
        put("sys/class/enclosure/6:0:0:0/Slot 03/slot", "3\n");
        put("sys/class/enclosure/6:0:0:0/Slot 03/locate", "0\n");
        put("sys/devices/pci/nvme/nvme0n1/dev", "259:0\n");
        put("sys/devices/pci/nvme/nvme0n1/wwid", "eui.0025385b71b0a2b1\n");
        put("sys/devices/pci/nvme/ctrl/serial", "S4EWNX0R  \n");
        put(
            "run/b8:0",
            "E:ID_SERIAL_SHORT=ZL2ABCDE\nE:ID_MODEL=ST12000NM001G-2MV103\nE:ID_WWN_WITH_EXTENSION=0x5000c500d5a1b2c3\n",
        );
        put("dev/sda", "");
        fs::create_dir_all(root.join("sys/dev/block")).expect("a folder");
        fs::create_dir_all(root.join("by-id")).expect("a folder");
        let link = |to: &str, from: &str| symlink(root.join(to), root.join(from)).expect("links");
        link("sys/devices/pci/sda", "sys/dev/block/8:0");
        link("sys/devices/pci/sda/sda1", "sys/dev/block/8:1");
        link("sys/devices/pci/nvme/nvme0n1", "sys/dev/block/259:0");
        link("sys/devices/pci/scsi", "sys/devices/pci/sda/device");
        link("sys/devices/pci/nvme/ctrl", "sys/devices/pci/nvme/nvme0n1/device");
        link("sys/class/enclosure/6:0:0:0/Slot 03", "sys/devices/pci/scsi/enclosure_device:Slot 03");
        link("dev/sda", "by-id/wwn-0x5000c500d5a1b2c3");
        link("dev/sda", "by-id/ata-ST12000NM001G-2MV103_ZL2ABCDE");
        let roots = Roots { sys: root.join("sys"), udev: root.join("run"), dev: root.join("by-id") };
        (dir, roots)
    }

    #[test]
    fn disk_is_described_by_what_udev_and_the_kernel_know() {
        let (dir, roots) = machine();
        let device = fs::canonicalize(dir.path().join("dev/sda")).expect("it is there");
        let facts = roots.facts(8, 0, Some(&device));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(facts.serial, some("ZL2ABCDE"));
        assert_eq!(facts.model, some("ST12000NM001G-2MV103"));
        assert_eq!(facts.wwn, some("0x5000c500d5a1b2c3"));
        assert_eq!((facts.enclosure, facts.slot), (some("0x500304801f1b7e3f"), some("3")));
        assert_eq!((facts.rotational, facts.partition, facts.has_light), (Some(true), None, true));
        let link = facts.stable_path.expect("a link");
        assert!(link.ends_with("by-id/ata-ST12000NM001G-2MV103_ZL2ABCDE"), "{link}");
    }

    #[test]
    fn disk_is_described_without_udev_and_without_an_enclosure() {
        let (dir, roots) = machine();
        fs::remove_file(dir.path().join("run/b8:0")).expect("removes");
        let disk = roots.facts(8, 1, None);
        assert_eq!(disk.serial.as_deref(), Some("ZL2ABCDE"), "as the disk told the kernel");
        assert_eq!((disk.model.as_deref(), disk.partition), (Some("ST12000NM001G"), Some(1)));
        let nvme = roots.facts(259, 0, None);
        assert_eq!((nvme.serial.as_deref(), nvme.wwn.as_deref()), (Some("S4EWNX0R"), Some("eui.0025385b71b0a2b1")));
        assert_eq!((nvme.slot, nvme.has_light), (None, false));
        assert_eq!(roots.facts(9, 9, None), DiskFacts::default());
    }

    #[test]
    fn file_is_no_disk_with_a_light() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("text");
        assert_eq!(describe(path).expect("it is there"), DiskFacts::default());
        assert_eq!(locate(path, true).expect_err("no light").kind(), ErrorKind::Unsupported);
        assert_eq!(describe("/nowhere").expect_err("nothing").kind(), ErrorKind::NotFound);
    }
}

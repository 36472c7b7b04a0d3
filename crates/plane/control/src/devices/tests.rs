//! Tests on simulated machines, laid out as files in a folder.

use crate::change::disks::Disks;
use crate::devices::Devices;
use crate::machine::Machine;
use crate::tests::{Array, new_disk, new_pool};
use model::{BlockDeviceReport, BlockDeviceState as State, Label, Level, Size, Transport, code};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folder that stands for the root of a machine.
struct Laid(PathBuf);

impl Laid {
    fn below(dir: &Path) -> Self {
        let root = dir.join("machine");
        for folder in ["dev/disk/by-id", "dev/mapper", "dev/shm", "sys/block", "proc/self", "run/udev/data"] {
            fs::create_dir_all(root.join(folder)).expect("folders");
        }
        Self(fs::canonicalize(root).expect("is there"))
    }

    fn put(&self, path: &str, content: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("inside")).expect("folders");
        fs::write(path, content).expect("writes");
        self
    }

    /// Adds a disk on the given bus, with a device node.
    fn disk(&self, name: &str, number: &str, bus: &str) -> &Self {
        let folder = format!("sys/devices/{bus}/block/{name}");
        let sectors = (Size::mib(128).bytes() / 512).to_string();
        self.put(&format!("{folder}/size"), &sectors).put(&format!("{folder}/dev"), number);
        self.put(&format!("{folder}/ro"), "0\n").put(&format!("{folder}/queue/rotational"), "1\n");
        symlink(self.0.join(&folder), self.0.join(format!("sys/block/{name}"))).expect("links");
        self.node(name)
    }

    fn part(&self, disk: &str, name: &str, number: &str) -> &Self {
        let folder = format!("sys/block/{disk}/{name}");
        let index = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        self.put(&format!("{folder}/partition"), index).put(&format!("{folder}/size"), "204800");
        self.put(&format!("{folder}/dev"), number).node(name)
    }

    fn node(&self, name: &str) -> &Self {
        let file = File::create(self.0.join("dev").join(name)).expect("makes");
        file.set_len(Size::mib(128).bytes()).expect("grows");
        self
    }

    fn link(&self, name: &str, to: &str) -> &Self {
        symlink(self.0.join("dev").join(to), self.0.join("dev").join(name)).expect("links");
        self
    }

    fn dev(&self, name: &str) -> String {
        self.0.join("dev").join(name).to_string_lossy().into_owned()
    }
}

async fn array_on_a_machine() -> (Array, Laid) {
    let mut array = Array::new().await;
    let laid = Laid::below(array.dir.path());
    let control = Arc::get_mut(&mut array.control).expect("nobody else has it");
    let (core, health) = (control.core.clone(), control.disks.health.clone());
    control.devices = Arc::new(Devices { core: core.clone(), machine: Machine::at(&laid.0) });
    control.disks = Arc::new(Disks { core, health, devices: control.devices.clone() });
    (array, laid)
}

async fn seen(array: &Array, laid: &Laid, name: &str) -> BlockDeviceReport {
    let all = array.control.devices.list().await.expect("lists");
    let device = all.iter().find(|device| device.device == laid.dev(name));
    device.unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
}

fn why(device: &BlockDeviceReport) -> (State, &str) {
    (device.state, device.reason.as_deref().unwrap_or(""))
}

#[tokio::test]
async fn blank_disk_is_free_and_told_by_what_is_printed_on_it() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sdb", "8:16", "pci0/ata3/host2");
    laid.link("disk/by-id/wwn-0x5000c500a1", "sdb").link("disk/by-id/ata-ST12000_ZL2ABCDE", "sdb");
    laid.put("run/udev/data/b8:16", "E:ID_SERIAL_SHORT=ZL2ABCDE\nE:ID_MODEL=ST12000\nE:ID_WWN_WITH_EXTENSION=0x5000\n");
    laid.disk("vdb", "254:16", "pci0/virtio3").put("sys/block/vdb/serial", "BLOCK7\n");
    let disk = seen(&array, &laid, "sdb").await;
    assert_eq!(why(&disk), (State::Free, ""));
    assert_eq!(disk.path, laid.dev("disk/by-id/ata-ST12000_ZL2ABCDE"), "the path that stays, best for people");
    assert_eq!((disk.size, disk.transport), (Size::mib(128), Some(Transport::Sata)));
    let told = (disk.identity.serial.as_deref(), disk.identity.model.as_deref(), disk.identity.rotational);
    assert_eq!(told, (Some("ZL2ABCDE"), Some("ST12000"), Some(true)));
    assert_eq!(disk.label, Some(Label::None));
    let disk = seen(&array, &laid, "vdb").await;
    assert_eq!((disk.path, disk.transport), (laid.dev("vdb"), Some(Transport::Virtio)));
    assert_eq!(disk.identity.serial.as_deref(), Some("BLOCK7"), "as the kernel knows it without udev");
}

#[tokio::test]
async fn disk_of_the_system_is_never_free_nor_are_its_parts() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sda", "8:0", "pci0/ata1/host0").part("sda", "sda1", "8:1").part("sda", "sda2", "8:2");
    laid.part("sda", "sda3", "8:3").disk("sdb", "8:16", "pci0/ata2/host1").disk("sdc", "8:32", "pci0/ata3/host2");
    laid.put(
        "proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/root rw\n23 22 0:33 / /a\\040b rw shared:1 - btrfs /dev/sdb rw\n",
    );
    laid.put("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
    laid.put("sys/block/sdc/holders/dm-0/dm/name", "vg-root\n");
    let whole = seen(&array, &laid, "sda").await;
    assert_eq!(whole.state, State::InUse);
    let reason = whole.reason.expect("a reason");
    assert!(reason.contains("mounted at /") && reason.contains("swap"), "{reason}");
    assert_eq!(why(&seen(&array, &laid, "sda1").await), (State::InUse, "it is mounted at /"));
    assert_eq!(why(&seen(&array, &laid, "sda2").await), (State::InUse, "it is swap space"));
    assert_eq!(seen(&array, &laid, "sda3").await.state, State::Unsuitable, "blank, and part of the system's disk");
    assert_eq!(why(&seen(&array, &laid, "sdb").await), (State::InUse, "it is mounted at /a b"));
    assert_eq!(why(&seen(&array, &laid, "sdc").await), (State::InUse, "vg-root is made of it"));
}

#[tokio::test]
async fn disk_that_holds_something_is_not_free() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sdb", "8:16", "ata1")
        .disk("sdc", "8:32", "ata2")
        .disk("sdd", "8:48", "ata3")
        .disk("sde", "8:64", "ata4");
    crate::tests::make_foreign(laid.dev("sdb"));
    laid.put("run/udev/data/b8:32", "E:ID_FS_TYPE=zfs_member\nE:ID_FS_USAGE=raid\n");
    laid.part("sdd", "sdd1", "8:49");
    // A disk of another array's pool.
    let other = Array::new().await;
    other.add_disks(&["x0", "x1"]).await;
    other.control.pools.create(new_pool("old", Level::Raid1, &["x0", "x1"])).await.expect("a pool");
    fs::copy(other.folder().join("x0.img"), laid.dev("sde")).expect("copies");

    assert_eq!(seen(&array, &laid, "sdb").await.state, State::HasData);
    let udev = seen(&array, &laid, "sdc").await;
    assert_eq!(why(&udev), (State::HasData, "it holds a member of a RAID or of LVM (zfs_member)"), "as udev knows");
    assert_eq!(why(&seen(&array, &laid, "sdd").await), (State::HasData, "it has a partition"));
    let member = seen(&array, &laid, "sde").await;
    assert_eq!(member.state, State::Member);
    assert!(member.reason.expect("a reason").contains("blockyard pool import old"));
    assert!(matches!(member.label, Some(Label::PoolMember { .. })));
}

#[tokio::test]
async fn devices_that_are_no_disks_are_not_offered() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sdb", "8:16", "ata1").put("sys/block/sdb/ro", "1\n");
    laid.disk("sdc", "8:32", "ata2").put("sys/block/sdc/size", "2048\n");
    laid.disk("dm-0", "253:0", "virtual").put("sys/block/dm-0/dm/uuid", "LVM-abc\n");
    laid.disk("dm-1", "253:1", "virtual").put("sys/block/dm-1/dm/uuid", "mpath-3600\n");
    laid.disk("md0", "9:0", "virtual").put("sys/block/md0/md/level", "raid1\n");
    laid.disk("sdx", "65:0", "ata3");
    fs::remove_file(laid.dev("sdx")).expect("its node is gone");
    laid.disk("sr0", "11:0", "ata4").disk("zram0", "252:0", "virtual").disk("nvme0c0n1", "259:0", "nvme");
    laid.put("sys/block/nvme0c0n1/hidden", "1\n").disk("loop0", "7:0", "virtual").put("sys/block/loop0/size", "0\n");
    let all = array.control.devices.list().await.expect("lists");
    for (name, state) in [
        ("sdb", State::Unsuitable),
        ("sdc", State::Unsuitable),
        ("dm-0", State::Unsuitable),
        ("dm-1", State::Free),
        ("md0", State::Unsuitable),
        ("sdx", State::Unknown),
    ] {
        let device = seen(&array, &laid, name).await;
        assert_eq!(device.state, state, "{device:?}");
        assert_eq!(device.reason.is_none(), state == State::Free, "{device:?}");
    }
    assert_eq!(all.len(), 6, "{all:?}");
    assert_eq!(seen(&array, &laid, "dm-1").await.transport, Some(Transport::Multipath));
}

#[tokio::test]
async fn disks_of_the_array_are_not_listed_and_the_disk_around_one_is_in_use() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sdb", "8:16", "ata1").disk("sdc", "8:32", "ata2").part("sdc", "sdc1", "8:33");
    for name in ["sdb", "sdc1"] {
        let mut known = new_disk(Path::new("/"), name, Size::mib(128));
        (known.path, known.create) = (laid.dev(name), None);
        array.control.disks.add(known).await.expect("a disk");
    }
    let all = array.control.devices.list().await.expect("lists");
    assert_eq!(all.len(), 1, "{all:?}");
    let whole = seen(&array, &laid, "sdc").await;
    assert_eq!(whole.state, State::InUse);
    assert!(whole.reason.expect("a reason").contains("disk sdc1 of this array"));
}

#[tokio::test]
async fn only_what_is_free_is_admitted_and_only_by_a_name_of_the_system() {
    let (array, laid) = array_on_a_machine().await;
    laid.disk("sdb", "8:16", "ata1").link("disk/by-id/ata-X", "sdb").link("shm/mine", "sdb").link("mapper/x", "sdb");
    laid.disk("sdc", "8:32", "ata2");
    crate::tests::make_foreign(laid.dev("sdc"));
    for good in ["sdb", "disk/by-id/ata-X", "mapper/x"] {
        array.control.devices.admit_offered(&laid.dev(good)).await.expect(good);
    }
    let loose = array.dir.path().join("loose.img");
    fs::write(&loose, "x").expect("writes");
    let loose = loose.to_string_lossy().into_owned();
    for bad in [laid.dev("sdc"), laid.dev("shm/mine"), laid.dev("none"), loose, "/etc/shadow".to_owned()] {
        let refusal = array.control.devices.admit_offered(&bad).await.expect_err(&bad);
        assert_eq!(refusal.code, code::FORBIDDEN, "{refusal}");
        assert!(refusal.message.contains(&bad), "{refusal}");
    }
    let back =
        array.control.devices.admit_offered(&format!("{}/../sdb", laid.dev("shm"))).await.expect_err("steps back");
    assert_eq!(back.code, code::PATH_INVALID);
}

#[tokio::test]
async fn machine_without_a_list_of_devices_is_refused_with_a_way_out() {
    let (array, laid) = array_on_a_machine().await;
    fs::remove_dir_all(laid.0.join("sys")).expect("removes");
    let refusal = array.control.devices.list().await.expect_err("there is no list");
    assert!(refusal.hint.contains("by hand"), "{refusal}");
}

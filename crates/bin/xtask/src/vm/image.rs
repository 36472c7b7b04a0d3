//! Image of the guest: Debian's kernel, a small initramfs and an ext4 root, cached in the target folder.

use super::mirror;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use lab::child::output_of;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
const PACKAGES: &str = "open-iscsi,multipath-tools,lsscsi,sg3-utils,fio,xfsprogs,e2fsprogs,iproute2,udev,kmod,\
     python3-pexpect,python3-pycurl";
/// Unpacked without its dependencies, only for `fence_scsi`: the agents for clouds need a hundred packages.
const UNPACKED: &str = "fence-agents";
/// Modules that the kernel needs to reach its root and the share.
const EARLY_MODULES: [&str; 8] =
    ["virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "9pnet_virtio", "9p", "ext4"];

/// Files that QEMU boots.
pub(crate) struct Image {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub root: PathBuf,
}

/// Builds the missing files. The first run takes a few minutes and needs the network.
pub(crate) fn build() -> Result<Image> {
    let folder = workspace::target_folder().join("vm");
    fs::create_dir_all(&folder)?;
    // The name of the root depends on the packages, so that a changed list builds a new one.
    let mut packages = DefaultHasher::new();
    packages.write(PACKAGES.as_bytes());
    packages.write(UNPACKED.as_bytes());
    let root = folder.join(format!("root-{:016x}.ext4", packages.finish()));
    let image = Image { kernel: folder.join("vmlinuz"), initramfs: folder.join("initramfs"), root };
    let kernel = folder.join("kernel");
    once(&image.kernel, |file| unpack_kernel(&kernel, file))?;
    // Always rebuilt: it is cheap, and its script may have changed.
    make_initramfs(&kernel, &image.initramfs)?;
    once(&image.root, |file| make_root(&kernel, file))?;
    Ok(image)
}

/// Creates `file` under a temporary name and renames it, so that it exists only when complete.
fn once(file: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if !file.is_file() {
        eprintln!("making {}, once", file.display());
        let unfinished = file.with_extension("unfinished");
        make(&unfinished)?;
        fs::rename(unfinished, file)?;
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<String> {
    output_of(command, LIMIT)
}

/// Unpacks the kernel's package into `folder`, and copies the kernel to `file`.
fn unpack_kernel(folder: &Path, file: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    // The package `linux-image-amd64` is empty, and depends on the current kernel.
    let depends = done(Command::new("apt-cache").args(["depends", "--important", "linux-image-amd64"]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .context("apt knows no kernel behind linux-image-amd64 (run apt-get update)")?;
    unpack(package, folder)?;
    fs::copy(folder.join("boot").join(format!("vmlinuz-{}", version(folder)?)), file)?;
    Ok(())
}

/// Unpacks the files of a package into `tree`, without its scripts and dependencies.
pub(crate) fn unpack(package: &str, tree: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    done(Command::new("apt-get").args(["download", package]).current_dir(scratch.path()))?;
    let deb = fs::read_dir(scratch.path())?.next().context("no package came")??.path();
    done(Command::new("dpkg-deb").arg("-x").arg(deb).arg(tree)).map(drop)
}

/// Returns the version of the unpacked kernel.
fn version(kernel: &Path) -> Result<String> {
    let entry = fs::read_dir(kernel.join("lib/modules"))?.next().context("the kernel has no modules")??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Packs busybox, the early modules in loading order, and `tests/initiator-vm/init`.
fn make_initramfs(kernel: &Path, file: &Path) -> Result<()> {
    let version = version(kernel)?;
    // `modprobe` needs the dependency lists, which a kernel makes only when it is installed.
    done(Command::new("depmod").arg("-b").arg(kernel).arg(&version))?;
    let scratch = tempfile::tempdir()?;
    let tree = scratch.path();
    for folder in ["bin", "modules", "dev", "proc", "sys", "root"] {
        fs::create_dir(tree.join(folder))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox")).context("busybox-static is not installed")?;
    std::os::unix::fs::symlink("busybox", tree.join("bin/sh"))?;
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for module in EARLY_MODULES {
        let shown =
            done(Command::new("modprobe").arg("-d").arg(kernel).args(["-S", &version, "--show-depends", module]))?;
        // In the order in which modprobe would load them, so the script needs no dependency lists.
        for path in shown.lines().filter_map(|line| line.strip_prefix("insmod ")).map(str::trim) {
            let name = Path::new(path).file_name().context("a module has a name")?.to_string_lossy().into_owned();
            if seen.insert(name.clone()) {
                fs::copy(path, tree.join("modules").join(&name))?;
                order.push(name);
            }
        }
    }
    ensure!(!order.is_empty(), "modprobe shows no modules");
    fs::write(tree.join("modules/order"), order.join("\n") + "\n")?;
    let init = tree.join("init");
    fs::copy(workspace::root().join("tests/initiator-vm/init"), &init)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let pack = format!("find . | busybox cpio -o -H newc > '{}'", file.display());
    done(Command::new("sh").args(["-c", &pack]).current_dir(tree))?;
    Ok(())
}

/// Creates an ext4 file system with a small Debian and the modules of the kernel.
fn make_root(kernel: &Path, file: &Path) -> Result<()> {
    let tree = file.with_extension("tree");
    // Left by an interrupted run.
    let _ = fs::remove_dir_all(&tree);
    let include = format!("--include={PACKAGES}");
    let mirror = mirror::find()?;
    done(Command::new("debootstrap").args(["--variant=minbase", &include, mirror::SUITE]).arg(&tree).arg(mirror))?;
    unpack(UNPACKED, &tree)?;
    done(Command::new("cp").arg("-a").arg(kernel.join("lib/modules")).arg(tree.join("usr/lib/")))?;
    let _ = fs::remove_file(file);
    fs::File::create(file)?.set_len(2 << 30)?;
    done(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&tree).arg(file))?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

//! Trial of the package in a clean Debian: installed, used, upgraded, removed and purged, under the systemd of that
//! Debian.

mod array;
mod machine;
mod sandbox;

use super::{Recipe, alerts, build, done, place_of};
use crate::vm::mirror;
use crate::workspace;
use anyhow::{Result, ensure};
use array::Array;
use machine::Machine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of the clean Debian beyond its minimum: dependencies of the package, and tools for the trial.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,adduser,iproute2,init-system-helpers";
/// Paths that may differ after a purge: records of the package system, and the key that is kept on purpose.
const MAY_DIFFER: [&str; 8] = [
    "/var/lib/dpkg/",
    "/var/lib/apt/",
    "/var/cache/",
    "/var/log/",
    "/var/backups",
    "/srv/blockyard",
    "/var/lib/systemd/",
    "/etc/systemd/system/blockyard.service.d",
];

/// Provides the clean Debian and promtool. The first run takes a minute and needs the network.
///
/// *Errors*: the caller is not root, or debootstrap fails.
pub(super) fn prepare() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a Debian of its own needs root: sudo cargo xtask package --try");
    let root = clean_root();
    if !root.is_dir() {
        eprintln!("making {}, once", root.display());
        let unfinished = root.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        let include = format!("--include={PACKAGES}");
        let mut command = Command::new("debootstrap");
        done(command.args(["--variant=minbase", &include, mirror::SUITE]).arg(&unfinished).arg(mirror::find()?))?;
        // Only a complete Debian gets the final name, so that an interrupted run starts over.
        fs::rename(unfinished, root)?;
    }
    alerts::prepare()
}

fn clean_root() -> PathBuf {
    workspace::target_folder().join("package/root")
}

/// Runs every step and prints its result; must run in a network namespace of its own.
pub(super) fn run(recipe: &Recipe, folder: &Path) -> Result<bool> {
    done(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let first = place_of(recipe, folder)?;
    // A `+` sorts after the plain version, so that apt sees an upgrade.
    let later = Recipe { version: format!("{}+later", recipe.version), program: recipe.program.clone(), ..*recipe };
    let second = build::pack(&later, folder)?;
    let machine = Machine::boot(&clean_root())?;
    let (first, second) = (machine.take(&first)?, machine.take(&second)?);
    // Taken before the installation, to find what a purge leaves.
    let before = machine.files()?;

    machine.install(&first)?;
    machine.await_active("blockyard")?;
    locked_up(&machine)?;
    say("it is installed and runs, as a user of its own, without capabilities, with a filter of system calls");

    sandbox::holds(&machine)?;
    say("what its sandbox forbids is refused, each by the rule that is meant to, and done where there is none");

    let array = Array::make(&machine)?;
    array.write(0xa5)?;
    array.read(0xa5)?;
    say("a pool of four files serves a volume, and qemu-io reads what it wrote");

    bitten(&machine)?;
    array.read(0xa5)?;
    say("a daemon that does not answer is started again by the watchdog, and the data is there");

    machine.sh("echo '# ours' >> /etc/blockyard.toml")?;
    // Another process ID proves a restart.
    let old = machine.main_pid()?;
    machine.install(&second)?;
    machine.await_active("blockyard")?;
    ensure!(machine.main_pid()? != old, "an upgrade did not start the new program");
    ensure!(machine.sh("cat /etc/blockyard.toml")?.contains("# ours"), "an upgrade lost what was configured");
    array.read(0xa5)?;
    array.write(0x3c)?;
    say("an upgrade restarts it, and keeps the data and the configuration");

    machine.sh("apt-get remove -y blockyard")?;
    ensure!(machine.sh("ss -Hltn 'sport = :3260'")?.trim().is_empty(), "it still listens after it was removed");
    ensure!(!machine.has("/usr/bin/blockyard") && machine.has("/var/lib/blockyard/state"), "removal keeps the state");
    machine.install(&first)?;
    machine.await_active("blockyard")?;
    array.read(0x3c)?;
    say("removed and installed again it serves what it served");

    // A running daemon may write to the disks between the sums.
    machine.sh("systemctl stop blockyard")?;
    let disks = array.sums()?;
    let said = machine.sh("apt-get purge -y blockyard")?;
    ensure!(
        said.contains("/var/lib/blockyard is gone") && said.contains("blockyard-node.key"),
        "a purge did not say what it took: {said}"
    );
    ensure!(array.sums()? == disks, "a purge changed a disk");
    let left = machine.files()?.difference(&before).filter(|path| !may_differ(path)).cloned().collect::<Vec<_>>();
    ensure!(left.is_empty(), "a purge left {left:?}");
    ensure!(!machine.sh("cat /etc/passwd /etc/group /etc/shadow")?.contains("blockyard"), "a purge left the user");
    say("purged it leaves nothing but the key, and its disks as they were");

    // The short watchdog of the test must not affect the next installation.
    machine.sh("rm -r /etc/systemd/system/blockyard.service.d")?;
    machine.install(&second)?;
    machine.await_active("blockyard")?;
    array.import()?;
    array.read(0x3c)?;
    say("installed once more it imports the pool from its disks, and qemu-io reads what it wrote");
    println!("package: all of it in {:.0} s", machine.age().as_secs_f64());
    Ok(true)
}

fn say(what: &str) {
    println!("  ok  {what}");
}

fn may_differ(path: &str) -> bool {
    MAY_DIFFER.iter().any(|place| path.starts_with(place))
}

/// Checks user, groups, capabilities and seccomp filter of the daemon against its unit.
fn locked_up(machine: &Machine) -> Result<()> {
    let status = machine.sh(&format!("cat /proc/{}/status", machine.main_pid()?))?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned()).unwrap_or_default()
    };
    let uid = machine.sh("id -u blockyard")?;
    ensure!(field("Uid:").split_whitespace().all(|each| each == uid.trim()), "it runs as {}", field("Uid:"));
    ensure!(field("CapBnd:") == "0000000000000000" && field("CapEff:") == "0000000000000000", "it has capabilities");
    ensure!(field("NoNewPrivs:") == "1", "it may gain privileges");
    ensure!(field("Seccomp:") == "2", "it may make every system call");
    let groups = machine.sh("id -G blockyard; getent group disk")?;
    let disk = groups.lines().last().and_then(|line| line.split(':').nth(2)).unwrap_or_default();
    ensure!(field("Groups:").split_whitespace().any(|group| group == disk), "it is not in the group disk");
    let user = machine.sh("systemctl show -p StatusText --value blockyard")?;
    ensure!(user.trim() == "serving", "systemd was told \"{}\"", user.trim());
    Ok(())
}

/// Checks that the watchdog restarts a stopped daemon, with a short watchdog interval.
fn bitten(machine: &Machine) -> Result<()> {
    machine.sh("mkdir -p /etc/systemd/system/blockyard.service.d && printf '[Service]\\nWatchdogSec=4\\nTimeoutAbortSec=2\\n' \
                > /etc/systemd/system/blockyard.service.d/short.conf && systemctl daemon-reload && systemctl restart blockyard")?;
    machine.await_active("blockyard")?;
    let old = machine.main_pid()?;
    machine.sh(&format!("kill -STOP {old}"))?;
    machine.await_that("the watchdog to bite", || Ok(machine.main_pid()? != old && machine.main_pid()? != "0"))?;
    machine.await_active("blockyard")?;
    let result = machine.sh("journalctl -u blockyard --no-pager -o cat")?;
    ensure!(result.contains("Watchdog timeout"), "it was not the watchdog: {result}");
    Ok(())
}

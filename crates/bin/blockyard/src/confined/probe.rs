//! Attacks of a compromised daemon. Only in debug builds: `serve --probe` runs them in place of the daemon, and prints
//! one line for each, `NAME denied` or `NAME SUCCEEDED`.

use super::Client;
use privilege::{Mode, Verb};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{AddressFamily, Protocol, SocketType, socket};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getppid, pidfd_getfd, pidfd_open, test_kill_process};
use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static ARMED: AtomicBool = AtomicBool::new(false);

/// Enables [`run`], if `--probe` was given.
pub(crate) fn arm(armed: bool) {
    ARMED.store(armed, Ordering::Relaxed);
}

/// Makes every attempt and exits; does nothing if the probe is not armed.
pub(crate) fn run(state: &Path, client: Option<&Arc<Client>>) {
    if !ARMED.load(Ordering::Relaxed) {
        return;
    }
    alone(state, getppid());
    // A thread that is started later must be confined as well.
    std::thread::scope(|scope| {
        scope.spawn(|| tell("thread shadow", File::open("/etc/shadow").is_ok()));
    });
    tell("own state", std::fs::write(state.join("probe"), "x").is_ok());
    if let Some(client) = client {
        through(state, client);
    }
    std::process::exit(0);
}

/// Attempts through the helper, each of which its policy must deny.
fn through(state: &Path, client: &Client) {
    let open = |path: &Path, write| client.ask(Verb::Open { path: path.into(), mode: Mode { write, direct: false } });
    tell("helper key", open(&state.join("node.key"), false).is_ok());
    tell("helper passwd", open(Path::new("/etc/passwd"), true).is_ok());
    tell("helper memory", open(Path::new("/proc/self/mem"), true).is_ok());
    tell("helper kernel memory", open(Path::new("/dev/mem"), true).is_ok());
    let create = client.ask(Verb::Create { path: "/etc/cron.d/probe".into(), bytes: 1 << 20 });
    tell("helper create", create.is_ok());
    tell("helper remove", client.ask(Verb::Remove { path: state.join("probe") }).is_ok());
    let port = client.ask(Verb::Bind { address: ([127, 0, 0, 1], 22).into(), takes_ipv4: false });
    tell("helper port", port.is_ok());
    tell("helper health", client.ask(Verb::Health { path: "/dev/null".into() }).is_ok());
}

fn alone(state: &Path, parent: Option<Pid>) {
    tell("shadow", File::open("/etc/shadow").is_ok());
    tell("cron", File::create("/etc/blockyard-probe").is_ok());
    // If the attempt succeeds, its file must not stay.
    let _ = std::fs::remove_file("/etc/blockyard-probe");
    tell("disk", File::open("/dev/vda").is_ok() || File::open("/dev/sda").is_ok());
    // IPPROTO_ICMP is 1.
    let icmp = Protocol::from_raw(NonZeroU32::MIN);
    tell("packet socket", socket(AddressFamily::PACKET, SocketType::RAW, None).is_ok());
    tell("raw socket", socket(AddressFamily::INET, SocketType::RAW, Some(icmp)).is_ok());
    tell("execve", Command::new("/bin/true").status().is_ok());
    let mounted = mount("none", state, "tmpfs", MountFlags::empty(), None).is_ok();
    tell("mount", mounted);
    if mounted {
        let _ = unmount(state, UnmountFlags::DETACH);
    }
    tell("ring", uring::makes_ring());
    if let Some(parent) = parent {
        let stolen =
            pidfd_open(parent, PidfdFlags::empty()).and_then(|pidfd| pidfd_getfd(pidfd, 0, PidfdGetfdFlags::empty()));
        tell("helper descriptor", stolen.is_ok());
        let memory =
            rustix::fs::open(format!("/proc/{}/mem", parent.as_raw_nonzero()), OFlags::RDWR, FileMode::empty());
        tell("helper ptrace", memory.is_ok());
        // Signal 0 tests the permission and ends nothing.
        tell("helper signal", test_kill_process(parent).is_ok());
    }
}

fn tell(attempt: &str, succeeded: bool) {
    println!("{attempt} {}", if succeeded { "SUCCEEDED" } else { "denied" });
}

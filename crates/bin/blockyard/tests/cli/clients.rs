//! Commands printed by `present` and `connect`, run unchanged by their clients, for every form of a LUN and through
//! forwarded addresses.

use crate::serve::{Daemon, ask, end, good, start, wait_until_served};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Both ends of peripheral device addressing, and flat space addressing.
const LUNS: [u16; 5] = [0, 255, 256, 300, 16383];
const INITIATOR: &str = "iqn.2026-11.io.blockyard:client";

/// Address translation in front of the array (NAT): an address of its own that forwards to a portal.
struct Forwarder {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Forwarder {
    fn to(portal: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(portal) else { continue };
                let pump = |mut from: TcpStream, mut to: TcpStream| {
                    // Either end may close at any time, and the other one is closed then.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                };
                let (back_from, back_to) =
                    (server.try_clone().expect("it clones"), client.try_clone().expect("it clones"));
                thread::spawn(move || pump(back_from, back_to));
                thread::spawn(move || pump(client, server));
            }
        });
        Self { port, connections }
    }

    fn is_used(&self) -> bool {
        self.connections.swap(0, Ordering::Relaxed) > 0
    }
}

/// Requires an installed program.
fn need(program: &str) {
    let runs = Command::new(program).arg("--help").stdin(Stdio::null()).output().is_ok();
    assert!(runs, "{program} is not installed; ./test installs it");
}

/// Runs a printed command in a shell with `input` on its standard input, and returns its success and output.
fn typed(line: &str, more: &str, input: &str) -> (bool, String) {
    let line = format!("exec {line} {more}");
    let mut child = Command::new("timeout")
        .args(["30", "sh", "-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    // A client that ends before it has read all input reports the reason on the other stream.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).expect("text");
    child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    (child.wait().expect("it ends").success(), said)
}

/// Returns the line of `printed` that runs this program.
fn line_of<'a>(printed: &'a str, program: &str) -> &'a str {
    let line = printed.lines().map(str::trim).find(|line| line.starts_with(program));
    line.unwrap_or_else(|| panic!("no line runs {program}:\n{printed}"))
}

/// Starts a daemon in `dir` with a host for the client, and returns it with its first portal.
fn furnished(dir: &Path) -> (Daemon, SocketAddr) {
    let daemon = start(dir);
    wait_until_served(dir);
    good(dir, &format!("host add client --initiator {INITIATOR}"));
    let portals = good(dir, "portal list --no-headers");
    let portal = portals.split('\t').next().expect("a portal").parse().expect("an address");
    (daemon, portal)
}

/// Starts qemu with the printed command, and requires a disk of `mib` MiB.
fn qemu_sees(printed: &str, mib: u32) {
    let line = line_of(printed, "qemu-system-x86_64").replace("INITIATOR", INITIATOR);
    let alone = "-machine pc,accel=tcg -nodefaults -display none -S -monitor stdio";
    let (well, said) = typed(&line, alone, "info block -v\nquit\n");
    assert!(well && said.contains(&format!("virtual size: {mib} MiB")), "{line}\n{said}");
}

#[test]
fn printed_lines_reach_the_volume_under_every_form_of_a_lun() {
    ["iscsi-ls", "qemu-system-x86_64", "qemu-img"].into_iter().for_each(need);
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut daemon, _) = furnished(dir);
    for (number, lun) in LUNS.into_iter().enumerate() {
        let mib = 8 + number as u32;
        good(dir, &format!("volume create v{number} {mib}MiB --ram"));
        qemu_sees(&good(dir, &format!("present v{number} client --lun {lun}")), mib);
    }
    // `connect` prints a line for each volume, in the order of LUNs.
    let printed = good(dir, "connect client --os qemu");
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.starts_with("qemu-system")).collect();
    assert_eq!(lines.len(), LUNS.len(), "{printed}");
    lines.iter().zip(8..).for_each(|(line, mib)| qemu_sees(line, mib));
    let (well, said) = typed(line_of(&printed, "iscsi-ls"), "", "");
    assert!(well && said.contains("Target:iqn.2026-11.io.blockyard:test."), "{said}");
    // libiscsi shows the first two bytes of the LUN field unchanged: 256 is 4100h.
    for raw in ["0", "255", "16640", "16684", "32767"] {
        assert!(said.contains(&format!("Lun:{raw:<4} ")), "LUN {raw}: {said}");
    }
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn hosts_behind_a_forwarder_find_the_target_and_are_redirected_where_they_can_follow() {
    ["iscsi-ls", "iscsi-inq", "qemu-system-x86_64"].into_iter().for_each(need);
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut daemon, portal) = furnished(dir);
    let front = Forwarder::to(portal);
    good(dir, "volume create v 8MiB --ram");
    for host in ["127.0.0.1", "localhost"] {
        let advertised = format!("{host}:{}", front.port);
        assert!(good(dir, &format!("portal set {portal} advertise={advertised}")).contains(&advertised));
        let printed = good(dir, "present v client");
        let listed = typed(&format!("iscsi-ls -i {INITIATOR} iscsi://{advertised}"), "", "").1;
        assert!(listed.contains(&format!("Portal:{advertised},1")), "{listed}");
        front.is_used();
        qemu_sees(&printed, 8);
        assert!(front.is_used(), "{printed}");
        let discovery = format!("iscsiadm -m discovery -t sendtargets -p {advertised}");
        assert_eq!(line_of(&printed, "iscsiadm -m discovery"), discovery);
        good(dir, "unpresent v client");
    }
    // A redirected session is also sent to an address that it can reach.
    let data: SocketAddr = {
        good(dir, "portal add 127.0.0.2:0 role=data");
        let portals = good(dir, "portal list --no-headers");
        let line = portals.lines().find(|line| line.starts_with("127.0.0.2")).expect("it was added").to_owned();
        line.split('\t').next().expect("an address").parse().expect("an address")
    };
    let behind = Forwarder::to(data);
    good(dir, &format!("portal set {data} advertise=localhost:{}", behind.port));
    good(dir, &format!("portal set {portal} role=front"));
    good(dir, "present v client");
    let target = good(dir, "target list --no-headers").split('\t').nth(1).expect("a name").to_owned();
    let asked = format!("iscsi-inq -i {INITIATOR} iscsi://localhost:{}/{target}/0", front.port);
    let (well, said) = typed(&asked, "", "");
    assert!(well && said.contains("BLOCKYRD"), "{said}");
    assert!(behind.is_used(), "the session was not sent to the data portal");
    let document = good(dir, "export");
    assert!(document.contains(&format!("advertise = \"localhost:{}\"", behind.port)), "{document}");
    for wrong in ["0.0.0.0", "san:0", "10.0.0"] {
        let refused = ask(dir, &["portal", "set", &portal.to_string(), &format!("advertise={wrong}")]);
        assert!(refused.code != 0 && refused.stderr.contains("advertise cannot be"), "{wrong}: {}", refused.stderr);
    }
    assert!(good(dir, &format!("portal set {portal} advertise=off")).contains("off"));
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn doctor_finds_a_target_name_that_another_array_has_by_discovery() {
    let dirs = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [(mut here, _), (mut there, portal)] = [furnished(dirs[0].path()), furnished(dirs[1].path())];
    let (here_dir, there_dir) = (dirs[0].path(), dirs[1].path());
    let names = [here_dir, there_dir].map(|dir| good(dir, "target list --no-headers"));
    assert_ne!(names[0], names[1], "two machines of one name have targets of different names");
    for dir in [here_dir, there_dir] {
        good(dir, "target add twice --iqn iqn.2026-11.com.example:twice");
        good(dir, "volume create v 8MiB --ram");
    }
    let discover = portal.to_string();
    let look = || ask(here_dir, &["doctor", "--discover", &discover]).stdout;
    good(there_dir, "present v --everyone");
    assert!(look().contains("none with a name of this array"), "{}", look());
    good(there_dir, "present v --everyone --target twice");
    let said = look();
    assert!(said.contains("target iqn.2026-11.com.example:twice") && said.contains(&discover), "{said}");
    let portals = good(here_dir, "portal list --no-headers");
    let own = portals.split('\t').next().expect("a portal").to_owned();
    good(here_dir, "present v --everyone --target twice");
    let said = ask(here_dir, &["doctor", "--discover", &own]).stdout;
    assert!(said.contains("none with a name of this array"), "its own portal: {said}");
    for daemon in [&mut here, &mut there] {
        assert!(end(daemon, Signal::TERM).success());
    }
}

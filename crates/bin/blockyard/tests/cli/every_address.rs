//! Portal on the unspecified address, for both address families.

use crate::initiator::{Initiator, present};
use crate::serve::{ask, end, good, start_with, wait_until_served};
use rustix::process::Signal;

#[test]
fn portal_on_every_address_takes_both_families_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut daemon = start_with(dir, "test", &["--no-web", "--portal", "[::]:0"]);
    wait_until_served(dir);
    let portals = good(dir, "portal list");
    let every = portals.lines().find(|line| line.contains("[::]:")).expect("it listens");
    assert!(every.contains("open, IPv4 and IPv6"), "{portals}");
    let port = every.split("[::]:").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a port");
    good(dir, "disk add --name d0 --create 64MiB d0.img");
    good(dir, "pool create tank --level raid0 d0");
    good(dir, "volume create tank/v 8MiB");
    present(dir);
    for ip in ["127.0.0.1", "[::1]"] {
        let reached = format!("{ip}:{port}");
        let mut session = Initiator::login_at(dir, &reached);
        session.write(0, 8, 7).expect("it is written");
        let sessions = good(dir, "session list");
        assert!(sessions.contains(&reached) && !sessions.contains("ffff"), "{sessions}");
    }
    let refused = ask(dir, &["portal", "add", "fe80::1%lo"]);
    assert!(refused.code != 0 && refused.stderr.contains("is a link-local address"), "{}", refused.stderr);
    assert!(refused.stderr.contains("listen on [::]"), "{}", refused.stderr);
    assert!(end(&mut daemon, Signal::TERM).success());
}

//! Environment of a guest's script, and the table of its results.

use super::absent::SecondDaemon;
use super::guest::{Guest, HOST, MORE};
use super::image::Image;
use super::remote;
use super::requests;
use crate::workspace;
use anyhow::{Context, Result, bail};
use lab::target::product::{self, Launch, Product};
use lab::target::{self, Backing, Chap, Kind, Setup};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const PORT: u16 = 3260;
/// Initiator that authenticates with CHAP.
pub(super) const INITIATOR: &str = "iqn.1993-08.org.debian:01:guest";
/// Initiators without authentication.
const OPEN_INITIATOR: &str = "iqn.1993-08.org.debian:01:open";
/// Host without authentication.
pub(super) const OPEN_HOST: &str = "open";
const OTHER_INITIATOR: &str = "iqn.1993-08.org.debian:01:other";

fn secrets() -> (Chap, Chap) {
    let chap = |user: &str, secret: &str| Chap { user: user.into(), secret: secret.into() };
    (chap("guest", "what-the-guest-proves"), chap("array", "what-the-array-proves"))
}

/// Starts the target and the guest, and runs the script `name` in the guest.
pub(super) fn run(
    name: &str,
    kind: Kind,
    image: &Image,
    scratch: &Path,
    limit: Duration,
    verbose: bool,
) -> Result<bool> {
    let share = scratch.join("share");
    fs::create_dir(&share)?;
    let scripts = crate::workspace::root().join("tests/initiator-vm");
    for part in ["stage", "common", "moves"] {
        fs::copy(scripts.join(part), share.join(part))?;
    }
    fs::copy(scripts.join(name), share.join("main"))?;
    fs::set_permissions(share.join("main"), fs::Permissions::from_mode(0o755))?;
    let (guest_chap, array_chap) = secrets();
    let mut facts = vec![
        ("PORTAL", format!("{HOST}:{PORT}")),
        ("INITIATOR", INITIATOR.to_owned()),
        ("CHAP_USER", guest_chap.user.clone()),
        ("CHAP_SECRET", guest_chap.secret.clone()),
        ("MUTUAL_USER", array_chap.user.clone()),
        ("MUTUAL_SECRET", array_chap.secret.clone()),
    ];
    // Declared here, so that the log of the daemon can be read after the guest has ended.
    let mut product = None;
    let status = match kind {
        Kind::Tgt => {
            let portal = SocketAddr::from((HOST, PORT));
            let mut setup = Setup::new(scratch.to_owned(), 1, &Backing::File)?;
            setup.portal = portal;
            setup.unit_bytes = 1 << 30;
            setup.chap = Some((guest_chap, Some(array_chap)));
            let target = target::start(kind, &setup)?;
            facts.push(("IQN", target.units()[0].iqn.clone()));
            write_facts(&share, &facts)?;
            Guest::boot(image, &share, scratch)?.run(limit, verbose, |ask| bail!("tgt cannot answer \"{ask}\""))
        }
        Kind::Blockyard => {
            let product = product.insert(serve(scratch)?);
            facts.push(("IQN", format!("{}:vm", product::IQN)));
            facts.push(("OPEN_INITIATOR", OPEN_INITIATOR.to_owned()));
            facts.push(("OTHER_INITIATOR", OTHER_INITIATOR.to_owned()));
            facts.push(("DATA_PORTALS", MORE.map(|address| address.to_string()).join(" ")));
            facts.extend(remote::facts());
            facts.push(("MEMBER_DISKS", "6".to_owned()));
            write_facts(&share, &facts)?;
            let mut far = SecondDaemon::default();
            Guest::boot(image, &share, scratch)?.run(limit, verbose, |ask| requests::answer(product, &mut far, ask))
        }
    };
    let (status, said) = status?;
    let held = print_table(&share)?;
    if status != 0 || !held {
        println!("{said}");
        if let Some(product) = &product {
            println!("the daemon's log:\n{}", product.last_words());
        }
        bail!("the guest's script ended with status {status}");
    }
    Ok(true)
}

/// Writes the variables that the guest's script reads.
fn write_facts(share: &Path, facts: &[(&str, String)]) -> Result<()> {
    let lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
    Ok(fs::write(share.join("facts"), lines.concat())?)
}

/// Starts a daemon with a volume of a RAID-6 pool on six file disks, for one host with mutual CHAP and two without
/// authentication.
fn serve(folder: &Path) -> Result<Product> {
    let portals = [Ipv4Addr::LOCALHOST, HOST].map(|address| SocketAddr::from((address, PORT))).to_vec();
    let launch = Launch { build: workspace::product()?, folder: folder.to_owned(), portals, ..Launch::default() };
    let product = Product::launch(launch)?;
    product::make_pool(&product, folder, 6, "1GiB")?;
    let (guest_chap, array_chap) = secrets();
    product.command(&["volume", "create", "tank/vm", "2GiB"])?;
    product.command(&["target", "add", "vm", "--iqn", &format!("{}:vm", product::IQN)])?;
    let proof = product::proof(folder, &guest_chap, Some(&array_chap))?;
    let proof: Vec<&str> = proof.iter().map(String::as_str).collect();
    product.command(&[&["host", "add", "guest", "--initiator", INITIATOR][..], &proof].concat())?;
    product.command(&["host", "add", OPEN_HOST, "--initiator", OPEN_INITIATOR])?;
    product.command(&["host", "add", "other", "--initiator", OTHER_INITIATOR])?;
    for host in ["guest", OPEN_HOST, "other"] {
        product.command(&["present", "tank/vm", host, "--target", "vm", "--lun", "0"])?;
    }
    Ok(product)
}

/// Prints the checks and observations of the script; true when there are checks and all passed.
fn print_table(share: &Path) -> Result<bool> {
    let rows = fs::read_to_string(share.join("results")).context("the guest's script left no results")?;
    let mut counts = [0, 0];
    println!("{:<72} {:>8} {:>6}", "check by the Linux initiator", "result", "s");
    for row in rows.lines() {
        // The description may itself contain the separator.
        let mut cells = row.splitn(3, '|');
        let (result, seconds, what) = (cells.next(), cells.next(), cells.next());
        let (Some(result), Some(seconds), Some(what)) = (result, seconds, what) else { bail!("a row is \"{row}\"") };
        // An observation is neither passed nor failed.
        if result == "seen" {
            println!("{what:<72} {seconds:>8}");
            continue;
        }
        counts[usize::from(result != "ok")] += 1;
        println!("{what:<72} {result:>8} {seconds:>6}");
    }
    println!("{} passed, {} failed", counts[0], counts[1]);
    Ok(counts[0] > 0 && counts[1] == 0)
}

//! What serves a guest's script, and the table of what the script found.

use super::guest::{GUEST, Guest, HOST, MORE};
use super::image::Image;
use crate::target::product::{self, Launch, Product};
use crate::target::{self, Backing, Chap, Kind, Setup};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const PORT: u16 = 3260;
/// The target that the guest serves itself, where it does.
const LIO: &str = "iqn.2026-11.io.blockyard:lio";
/// The initiator that proves itself, and the one that need not.
const INITIATOR: &str = "iqn.1993-08.org.debian:01:guest";
const OPEN_INITIATOR: &str = "iqn.1993-08.org.debian:01:open";

fn secrets() -> (Chap, Chap) {
    let chap = |user: &str, secret: &str| Chap { user: user.into(), secret: secret.into() };
    (chap("guest", "what-the-guest-proves"), chap("array", "what-the-array-proves"))
}

/// Starts the target and the guest, and lets the guest run the script called `name`.
pub fn run(name: &str, kind: Kind, image: &Image, scratch: &Path, limit: Duration, verbose: bool) -> Result<bool> {
    let share = scratch.join("share");
    fs::create_dir(&share)?;
    let scripts = crate::workspace::root().join("tests/initiator-vm");
    for part in ["stage", "common"] {
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
            let product = serve(scratch)?;
            facts.push(("IQN", format!("{}:vm", product::IQN)));
            facts.push(("OPEN_INITIATOR", OPEN_INITIATOR.to_owned()));
            facts.push(("DATA_PORTALS", MORE.map(|address| address.to_string()).join(" ")));
            facts.push(("MEMBER_DISKS", "6".to_owned()));
            write_facts(&share, &facts)?;
            Guest::boot(image, &share, scratch)?.run(limit, verbose, |ask| answer(&product, ask))
        }
    };
    let (status, said) = status?;
    let held = print_table(&share)?;
    if status != 0 || !held {
        println!("{said}");
        bail!("the guest's script ended with status {status}");
    }
    Ok(true)
}

/// The guest reads what it must know from here.
fn write_facts(share: &Path, facts: &[(&str, String)]) -> Result<()> {
    let lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
    Ok(fs::write(share.join("facts"), lines.concat())?)
}

/// Serves a volume of a RAID-6 pool on six file disks, to one host with mutual CHAP and one without.
fn serve(folder: &Path) -> Result<Product> {
    let portals = [Ipv4Addr::LOCALHOST, HOST].map(|address| SocketAddr::from((address, PORT))).to_vec();
    let launch = Launch { folder: folder.to_owned(), portals, core: None, arguments: Vec::new(), wrapper: Vec::new() };
    let product = Product::launch(launch)?;
    product::make_pool(&product, folder, 6, "1GiB")?;
    let (guest_chap, array_chap) = secrets();
    let files = [("guest.secret", &guest_chap.secret), ("array.secret", &array_chap.secret)].map(|(name, secret)| {
        let path = folder.join(name);
        fs::write(&path, secret).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))?;
        Ok(path.to_string_lossy().into_owned())
    });
    let [guest_file, array_file]: [Result<String>; 2] = files;
    let (guest_file, array_file) = (guest_file?, array_file?);
    product.command(&["volume", "create", "tank/vm", "2GiB"])?;
    product.command(&["target", "add", "vm", "--iqn", &format!("{}:vm", product::IQN)])?;
    let prove = ["--chap-user", &guest_chap.user, "--chap-secret-file", &guest_file];
    let mutual = ["--mutual-user", &array_chap.user, "--mutual-secret-file", &array_file];
    product.command(&[&["host", "add", "guest", "--initiator", INITIATOR][..], &prove, &mutual].concat())?;
    product.command(&["host", "add", "open", "--initiator", OPEN_INITIATOR])?;
    for host in ["guest", "open"] {
        product.command(&["present", "tank/vm", host, "--target", "vm", "--lun", "0"])?;
    }
    Ok(product)
}

/// Does what the guest's script asks of the array: `fail-d1`; `front`, from which sessions are sent to two more portals;
/// `drain-10.77.0.3`, `resume-10.77.0.3`; `sessions` (at least one); or `conform` with the target that the guest serves.
fn answer(product: &Product, ask: &str) -> Result<()> {
    match ask.split_once('-') {
        Some(("fail", disk)) => product.command(&["disk", "fail", disk]).map(drop),
        Some((verb @ ("drain" | "resume"), address)) => product.command(&["portal", verb, address]).map(drop),
        None if ask == "front" => {
            for address in MORE {
                product.command(&["portal", "add", &address.to_string(), "role=data"])?;
            }
            product.command(&["portal", "set", &HOST.to_string(), "role=front"]).map(drop)
        }
        None if ask == "conform" => {
            let tried = product.attempt(&["conform", &format!("iscsi://{GUEST}/{LIO}"), "--no-headers"])?;
            println!("{}", tried.said.trim_end());
            // What another's target does wrong is a finding, and no failure of ours.
            ensure!(tried.said.contains(" passed, "), "conform did not come to its end");
            Ok(())
        }
        None if ask == "sessions" => {
            let listed = product.command(&["session", "list", "--no-headers"])?;
            ensure!(listed.contains(INITIATOR), "the array lists no session of {INITIATOR}: {listed}");
            Ok(())
        }
        _ => bail!("the guest asks for \"{ask}\", which nobody knows"),
    }
}

/// Prints the script's checks; true when there are some and all held.
fn print_table(share: &Path) -> Result<bool> {
    let rows = fs::read_to_string(share.join("results")).context("the guest's script left no results")?;
    let mut counts = [0, 0];
    println!("{:<58} {:>8} {:>6}", "check by the Linux initiator", "result", "s");
    for row in rows.lines() {
        let mut cells = row.splitn(3, '|');
        let (result, seconds, what) = (cells.next(), cells.next(), cells.next());
        let (Some(result), Some(seconds), Some(what)) = (result, seconds, what) else { bail!("a row is \"{row}\"") };
        counts[usize::from(result != "ok")] += 1;
        println!("{what:<58} {result:>8} {seconds:>6}");
    }
    println!("{} passed, {} failed", counts[0], counts[1]);
    Ok(counts[0] > 0 && counts[1] == 0)
}

//! Array as the initiator: a pool on logical units that the guest's own target (LIO) serves.
//!
//! Called for the requests `remote-…` of a script. The answers to the guest must contain only what a command of the
//! product prints.

use super::guest::{GUEST, GUEST_ASIDE};
use anyhow::{Context, Result, bail};
use lab::target::Chap;
use lab::target::product::Product;
use std::path::Path;

/// Common prefix of LIO's target names, followed by `one`, `two` or `three`.
const LIO: &str = "iqn.2026-11.io.blockyard:lio-";
/// Pool and volume on the units of the guest.
const POOL: &str = "far";
const VOLUME: &str = "far/vm";
/// Disks of the pool: target, LUN, and further options of `disk add`.
const DISKS: [(&str, u16, &[&str]); 6] = [
    ("one", 0, &[]),
    ("one", 1, &[]),
    ("one", 2, &[]),
    ("one", 3, &[]),
    ("two", 0, &["--digests"]),
    ("three", 0, &["--digests"]),
];

/// Returns the CHAP credentials of the array, and those of LIO at target `two`.
fn secrets() -> (Chap, Chap) {
    let chap = |user: &str, secret: &str| Chap { user: user.into(), secret: secret.into() };
    (chap("array", "secret-of-the-array"), chap("lio", "secret-of-the-target"))
}

/// Returns the variables that a script needs to serve the disks.
pub(super) fn facts() -> Vec<(&'static str, String)> {
    let (array, lio) = secrets();
    vec![
        ("LIO", LIO.to_owned()),
        ("FIRST_PATH", GUEST_ASIDE.to_string()),
        ("SECOND_PATH", GUEST.to_string()),
        ("ARRAY_USER", array.user),
        ("ARRAY_SECRET", array.secret),
        ("LIO_USER", lio.user),
        ("LIO_SECRET", lio.secret),
    ]
}

/// Carries out the request after `remote-` and returns the answer to the guest.
///
/// | request | action |
/// |---|---|
/// | `initiator` | return the initiator name of the array |
/// | `add` | add the six disks, with two paths each |
/// | `pool` | create a RAID-6 pool on the disks, with a volume of 256 MiB as LUN 1 of the open host |
/// | `health`, `disks`, `events` | return the list of the array |
/// | `r0` | return the paths of the disk |
/// | `export` | export the pool |
pub(super) fn answer(product: &mut Product, what: &str) -> Result<String> {
    match what {
        "initiator" => initiator(product),
        "add" => add(product).map(|()| String::new()),
        "pool" => make_pool(product),
        "health" => product.command(&["pool", "show", POOL]),
        "disks" => product.command(&["disk", "list", "--no-headers"]),
        "events" => product.command(&["event", "list", "--limit", "1000", "--no-headers"]),
        "export" => product.command(&["pool", "export", POOL, "--force"]),
        disk if disk.starts_with('r') => product.command(&["disk", "show", disk]),
        _ => bail!("the guest asks for \"remote-{what}\", which nobody knows"),
    }
}

/// Returns the initiator name of the array, which the refusal of an unreachable disk contains (BY-1314).
pub(super) fn initiator(product: &Product) -> Result<String> {
    // Nothing listens on the discard port, so the disk is refused.
    let refused = product.attempt(&["disk", "add", &format!("iscsi://127.0.0.1:9/{LIO}none/0")])?;
    let name = refused.said.split("to the initiator ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(name.with_context(|| format!("the refusal names no initiator: {}", refused.said))?.to_owned())
}

fn add(product: &Product) -> Result<()> {
    let socket = product.socket();
    let folder = socket.parent().context("the daemon has a folder")?;
    DISKS.iter().enumerate().try_for_each(|(index, disk)| add_disk(product, folder, &format!("r{index}"), disk))
}

fn add_disk(product: &Product, folder: &Path, name: &str, disk: &(&str, u16, &[&str])) -> Result<()> {
    let &(target, lun, options) = disk;
    let (array, lio) = secrets();
    let file = |chap: &Chap, name: &str| -> Result<String> {
        let path = folder.join(name);
        std::fs::write(&path, &chap.secret)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let own = file(&array, "array.secret")?;
    // Two portals in the address: one path for each network of the guest.
    let address = format!("iscsi://{}@{GUEST_ASIDE},{GUEST}/{LIO}{target}/{lun}", array.user);
    let mut words = vec!["disk", "add", "--name", name, "--chap-secret-file", &own];
    let mutual = file(&lio, "lio.secret")?;
    if target == "two" {
        words.extend(["--mutual-user", &lio.user, "--mutual-secret-file", &mutual]);
    }
    words.extend(options);
    words.push(&address);
    product.command(&words).map(|said| print!("{said}"))
}

fn make_pool(product: &Product) -> Result<String> {
    let names: Vec<String> = (0..DISKS.len()).map(|index| format!("r{index}")).collect();
    let mut create = vec!["pool", "create", POOL, "--level", "raid6"];
    create.extend(names.iter().map(String::as_str));
    product.command(&create)?;
    product.command(&["volume", "create", VOLUME, "256MiB"])?;
    product.command(&["present", VOLUME, "open", "--target", "vm", "--lun", "1", "--quiet"])
}

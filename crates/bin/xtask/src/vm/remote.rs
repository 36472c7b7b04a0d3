//! The array as the initiator: a pool on logical units that the guest's own target (LIO) serves.
//!
//! Called for a script's `remote-…` asks. It must never tell the guest more than a command of the product says.

use super::guest::{GUEST, GUEST_ASIDE};
use anyhow::{Context, Result, bail};
use lab::target::Chap;
use lab::target::product::Product;
use std::path::Path;

/// Targets of LIO are called so, with `one`, `two` and `three` behind it.
const LIO: &str = "iqn.2026-11.io.blockyard:lio-";
/// The pool, and its volume.
const POOL: &str = "far";
const VOLUME: &str = "far/vm";
/// Disks of the pool: the target, the LUN, and further options of `disk add`.
const DISKS: [(&str, u16, &[&str]); 6] = [
    ("one", 0, &[]),
    ("one", 1, &[]),
    ("one", 2, &[]),
    ("one", 3, &[]),
    ("two", 0, &["--digests"]),
    ("three", 0, &["--digests"]),
];

/// What LIO asks of the array, and how it authenticates at target `two`.
fn secrets() -> (Chap, Chap) {
    let chap = |user: &str, secret: &str| Chap { user: user.into(), secret: secret.into() };
    (chap("array", "secret-of-the-array"), chap("lio", "secret-of-the-target"))
}

/// What a script must know to serve the disks.
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

/// Does what is asked behind `remote-`, and says what the guest wants to know.
///
/// | asked | done |
/// |---|---|
/// | `initiator` | says the array's initiator name |
/// | `add` | the six disks are added, with two paths each |
/// | `pool` | they are a RAID-6 pool, whose volume of 256 MiB is LUN 1 of the open host |
/// | `health`, `disks`, `events` | says what the array lists |
/// | `r0` | says how the disk is reached |
/// | `export` | the pool is exported |
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

/// The refusal of a disk that cannot be reached names the initiator (BY-1314).
pub(super) fn initiator(product: &Product) -> Result<String> {
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

//! What a guest's script may ask of the array while it runs.

use super::absent::FarDaemon;
use super::guest::{GUEST, HOST};
use super::remote;
use super::scenario::INITIATOR;
use anyhow::{Context, Result, bail, ensure};
use lab::target::product::Product;
use serde_json::Value;

/// The target that the guest serves itself, where it does.
const LIO: &str = "iqn.2026-11.io.blockyard:lio";
/// The volume that takes space as it is written.
const THIN: &str = "tank/thin";
/// The volumes that change places in a host's LUN inventory.
const FIRST: &str = "tank/first";
const SECOND: &str = "tank/second";

/// Does what is asked, and says what the guest wants to know.
///
/// | asked | done |
/// |---|---|
/// | `fail-d1` | a disk of the pool fails |
/// | `front` | sessions are sent from the first portal to those for data |
/// | `plain-10.77.0.3`, `data-10.77.0.3` | one more portal of this role |
/// | `remove-10.77.0.3` | it is closed, and its sessions are cut off |
/// | `balance-bytes` | sessions are shared out by this |
/// | `drain-10.77.0.3`, `resume-10.77.0.3` | its sessions move away; it takes some again |
/// | `restart` | the daemon is killed and started again |
/// | `thin` | a thin volume of 512 MiB is LUN 1 of the open host |
/// | `mapped` | says how many bytes it takes |
/// | `resize-1GiB` | it has another size |
/// | `sessions` | the array lists at least one of the host that proves itself |
/// | `two` | two more volumes of 64 MiB; the first is LUN 1 of the open host |
/// | `unpresent` | unmapping the first is refused while its session is there; says the refusal |
/// | `swap` | it is unmapped by force, and the second is mapped with a LUN that the array chooses |
/// | `back` | the first is mapped again with a LUN that the array chooses |
/// | `remote-…` | what [`remote::answer`] knows |
/// | `absent-…` | what [`FarDaemon::answer`] knows |
/// | `conform` | the target that the guest serves is tried by what does not write |
/// | `conform-resets` | it is tried by the rules whose names begin so, also by those that write |
pub(super) fn answer(product: &mut Product, far: &mut FarDaemon, ask: &str) -> Result<String> {
    match ask.split_once('-') {
        Some(("remote", what)) => remote::answer(product, what),
        Some(("absent", what)) => far.answer(product, what),
        Some(("fail", disk)) => product.command(&["disk", "fail", disk]),
        Some((role @ ("plain" | "data"), address)) => {
            product.command(&["portal", "add", address, &format!("role={role}")])
        }
        Some(("remove", address)) => product.command(&["portal", "remove", address, "--force"]),
        Some(("balance", by)) => product.command(&["portal", "balance", by]),
        Some((verb @ ("drain" | "resume"), address)) => product.command(&["portal", verb, address]),
        Some(("resize", size)) => product.command(&["volume", "resize", THIN, size]),
        None if ask == "front" => product.command(&["portal", "set", &HOST.to_string(), "role=front"]),
        None if ask == "restart" => {
            product.kill()?;
            product.restart()?;
            Ok(String::new())
        }
        None if ask == "thin" => {
            product.command(&["volume", "create", THIN, "512MiB", "--thin"])?;
            product.command(&["present", THIN, "open", "--target", "vm", "--lun", "1", "--quiet"])
        }
        None if ask == "two" => {
            for volume in [FIRST, SECOND] {
                product.command(&["volume", "create", volume, "64MiB"])?;
            }
            product.command(&["present", FIRST, "open", "--target", "vm", "--lun", "1", "--quiet"])
        }
        None if ask == "unpresent" => {
            let tried = product.attempt(&["unpresent", FIRST, "open"])?;
            ensure!(!tried.well(), "a volume was unmapped under a logged-in host without --force");
            Ok(tried.said)
        }
        None if ask == "swap" => {
            product.command(&["unpresent", FIRST, "open", "--force"])?;
            product.command(&["present", SECOND, "open", "--target", "vm", "--quiet"])
        }
        None if ask == "back" => product.command(&["present", FIRST, "open", "--target", "vm", "--quiet"]),
        None if ask == "mapped" => mapped(product),
        None if ask == "sessions" => {
            let listed = product.command(&["session", "list", "--no-headers"])?;
            ensure!(listed.contains(INITIATOR), "the array lists no session of {INITIATOR}: {listed}");
            Ok(listed)
        }
        Some(("conform", rules)) => conform(product, &["--destructive", "--only", rules]),
        None if ask == "conform" => conform(product, &[]),
        _ => bail!("the guest asks for \"{ask}\", which nobody knows"),
    }
}

/// Linux's own target in the guest is tried. What it does wrong is a finding, and no failure of ours.
fn conform(product: &Product, options: &[&str]) -> Result<String> {
    let url = format!("iscsi://{GUEST}/{LIO}");
    let tried = product.attempt(&[&["conform", &url, "--no-headers"], options].concat())?;
    println!("{}", tried.said.trim_end());
    ensure!(tried.said.contains(" passed, "), "conform did not come to its end");
    Ok(String::new())
}

fn mapped(product: &Product) -> Result<String> {
    let shown: Value = serde_json::from_str(&product.command(&["volume", "show", THIN, "-o", "json"])?)?;
    let mapped = shown.pointer("/volume/space/mapped").and_then(Value::as_u64);
    Ok(mapped.with_context(|| format!("volume show does not say what is mapped: {shown}"))?.to_string())
}

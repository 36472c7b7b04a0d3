//! Requests of a guest's script to the array.

use super::absent::SecondDaemon;
use super::guest::{GUEST, HOST};
use super::remote;
use super::scenario::INITIATOR;
use anyhow::{Context, Result, bail, ensure};
use lab::target::product::Product;
use serde_json::Value;

/// Target that the guest itself serves, in some scenarios.
const LIO: &str = "iqn.2026-11.io.blockyard:lio";
/// Thin-provisioned volume.
const THIN: &str = "tank/thin";
/// Volumes that replace each other in the LUN inventory of a host.
const FIRST: &str = "tank/first";
const SECOND: &str = "tank/second";

/// Carries out a request and returns the answer to the guest.
///
/// | request | action |
/// |---|---|
/// | `fail-d1` | fail a disk of the pool |
/// | `front` | redirect sessions from the first portal to the data portals |
/// | `plain-10.77.0.3`, `data-10.77.0.3` | add a portal with this role |
/// | `remove-10.77.0.3` | close the portal and drop its sessions |
/// | `balance-bytes` | balance sessions by this measure |
/// | `drain-10.77.0.3`, `resume-10.77.0.3` | move the sessions of a portal away; accept sessions again |
/// | `restart` | kill and restart the daemon |
/// | `thin` | create a thin volume of 512 MiB as LUN 1 of the open host |
/// | `mapped` | return the mapped bytes of the thin volume |
/// | `resize-1GiB` | resize the thin volume |
/// | `sessions` | list the sessions; at least one must be of the host with CHAP |
/// | `two` | create two volumes of 64 MiB, the first as LUN 1 of the open host |
/// | `unpresent` | try to unmap the first volume during its session; return the refusal |
/// | `swap` | unmap it by force, and map the second with a LUN that the array chooses |
/// | `back` | map the first again with a LUN that the array chooses |
/// | `remote-…` | see [`remote::answer`] |
/// | `absent-…` | see [`SecondDaemon::answer`] |
/// | `conform` | run the checks that do not write against the target of the guest |
/// | `conform-resets` | run the checks whose names begin so, including those that write |
pub(super) fn answer(product: &mut Product, far: &mut SecondDaemon, ask: &str) -> Result<String> {
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
            // The success of the command is the fault here: the array must refuse it.
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

/// Runs the conformance checks against Linux's target in the guest. Violations by that target are printed and do not
/// fail the test.
fn conform(product: &Product, options: &[&str]) -> Result<String> {
    let url = format!("iscsi://{GUEST}/{LIO}");
    let tried = product.attempt(&[&["conform", &url, "--no-headers"], options].concat())?;
    println!("{}", tried.said.trim_end());
    // The exit code also reports violations, so only the final line shows that all checks ran.
    ensure!(tried.said.contains(" passed, "), "conform did not come to its end");
    Ok(String::new())
}

fn mapped(product: &Product) -> Result<String> {
    let shown: Value = serde_json::from_str(&product.command(&["volume", "show", THIN, "-o", "json"])?)?;
    let mapped = shown.pointer("/volume/space/mapped").and_then(Value::as_u64);
    Ok(mapped.with_context(|| format!("volume show does not say what is mapped: {shown}"))?.to_string())
}

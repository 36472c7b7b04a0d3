//! Test of the unit's sandbox: an attacker who controls the daemon can do none of the forbidden operations.

use super::machine::Machine;
use crate::workspace;
use anyhow::{Result, ensure};

const FOLDER: &str = "/etc/systemd/system/blockyard.service.d";
const SAID: &str = "/var/lib/blockyard/probe-said";
/// Operations of the probe, the error in the unit, and whether the user alone is denied as well.
const TRIED: [(&str, &str, bool); 11] = [
    ("read-shadow", "EACCES", true),
    ("write-etc", "EROFS", true),
    ("write-usr", "EROFS", true),
    ("see-process-1", "ENOENT", false),
    ("packet-socket", "EAFNOSUPPORT", true),
    ("ptrace", "EPERM", false),
    ("mount", "EPERM", true),
    ("new-namespace", "EPERM", true),
    ("other-personality", "EPERM", false),
    ("writable-code", "EPERM", false),
    ("set-user-id", "EPERM", false),
];

/// Checks that a program started by the unit is denied every unnecessary operation, by the intended rule. The same
/// program succeeds as root outside of the sandbox, and as the user of the unit it succeeds in the operations that only
/// the sandbox forbids.
pub(super) fn holds(machine: &Machine) -> Result<()> {
    let probe = machine.take(&workspace::root().join("tests/package/probe"))?;
    // In the folder of the unit's drop-ins, since the sandbox hides the homes and `/tmp`.
    machine.sh(&format!("install -D -m 755 {probe} {FOLDER}/probe"))?;
    // As root nothing is refused, which shows that the probe itself works.
    agrees("root", &machine.sh(&format!("{FOLDER}/probe"))?, |_| "done")?;
    let user = "setpriv --reuid=blockyard --regid=blockyard --init-groups --bounding-set=-all";
    let alone = machine.sh(&format!("{user} {FOLDER}/probe /tmp"))?;
    for (name, _, is_users) in TRIED {
        ensure!(
            is_users != alone.contains(&format!("{name} done\n")),
            "as the user alone, outside of the unit: {alone}"
        );
    }

    let start = format!("ExecStartPre=/bin/sh -c '{FOLDER}/probe /var/lib/blockyard >{SAID}'");
    machine.sh(&format!("printf '[Service]\\n%s\\n' \"{start}\" >{FOLDER}/probe.conf"))?;
    machine.sh("systemctl daemon-reload && systemctl restart blockyard")?;
    machine.await_active("blockyard")?;
    agrees("the unit", &machine.sh(&format!("cat {SAID}"))?, |refused| refused)?;
    // Restores the start limit of the unit, which allows five starts per minute.
    machine
        .sh(&format!("rm -r {FOLDER} {SAID} && systemctl daemon-reload && systemctl reset-failed blockyard"))
        .map(drop)
}

/// Checks the result of every operation, including the permitted one.
fn agrees(who: &str, said: &str, wanted: impl Fn(&'static str) -> &'static str) -> Result<()> {
    let lines = TRIED.map(|(name, refused, _)| format!("{name} {}\n", wanted(refused))).concat();
    ensure!(said == format!("{lines}write-place done\n"), "{who} was to have\n{lines}and had\n{said}");
    Ok(())
}

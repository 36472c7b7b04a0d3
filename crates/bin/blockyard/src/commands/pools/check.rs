//! Commands `blockyard pool check`, `repair` and `dump`.

use crate::client::Answer;
use crate::commands::{CommandContext, pool_path};
use crate::confirm;
use crate::failure::Failure;
use crate::output::put;
use control::request::RepairPool;
use model::{CheckFinding, CheckKind, Name, PoolCheck, Refusal, code};

/// Prints the findings; exit code 1 if there are any.
pub(super) fn check(desk: &CommandContext, name: &Name) -> Result<(), Failure> {
    let (answer, found) = ask(desk, name)?;
    if desk.out.is_json() {
        desk.out.json(&answer)?;
    } else {
        tell(desk, name, &found)?;
    }
    if found.findings.is_empty() {
        return Ok(());
    }
    let repairable = found.findings.iter().filter(|finding| finding.kind.repair().is_some()).count();
    if repairable > 0 {
        eprintln!("blockyard: blockyard pool repair {name} puts {repairable} of {} right", found.findings.len());
    }
    say_losses(name, &found);
    Err(Failure::Said)
}

/// Prints how volumes with damaged maps can be used again.
fn say_losses(name: &Name, found: &PoolCheck) {
    if found.findings.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
        eprintln!(
            "blockyard: blockyard pool repair {name} --accept-loss uses what is left of the lost maps; restore a backup \
             instead where older blocks are not acceptable"
        );
    }
}

/// Repairs the repairable findings after confirmation; with `accept_loss` also those whose repair loses data.
pub(super) fn repair(desk: &CommandContext, name: &Name, accept_loss: bool, yes: bool) -> Result<(), Failure> {
    let (_, found) = ask(desk, name)?;
    let is_wanted = |finding: &&CheckFinding| {
        finding.kind.repair().is_some() || accept_loss && finding.kind.is_repaired_at_a_loss()
    };
    let repairable: Vec<&CheckFinding> = found.findings.iter().filter(is_wanted).collect();
    // Exit code 0 only if nothing was found at all.
    if repairable.is_empty() {
        tell(desk, name, &found)?;
        return if found.findings.is_empty() {
            desk.out.said(&format!("pool {name}: there is nothing to repair"))
        } else if found.findings.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
            say_losses(name, &found);
            Err(Failure::Said)
        } else if found.findings.iter().all(|finding| finding.kind == CheckKind::Held) {
            eprintln!("blockyard: there is nothing to repair; each line above says what its volume waits for");
            Err(Failure::Said)
        } else {
            eprintln!("blockyard: this cannot be repaired; copy what can be read and create the volume again");
            Err(Failure::Said)
        };
    }
    for finding in &repairable {
        let done = finding.kind.repair().unwrap_or("use what is left, and lose what is listed");
        desk.out.said(&format!("{}: {}: {done}", finding.volume, finding.what))?;
    }
    if !yes {
        let message = format!("{} findings in pool {name} would be put right", repairable.len());
        confirm::repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"))?;
    }
    let answer = desk.client.post(&format!("{}/check", pool_path(name)), &RepairPool { accept_loss }, "check")?;
    // Checked again: the exit code says whether the pool is consistent now.
    let (_, left) = ask(desk, name)?;
    let left_over = match left.findings.len() {
        0 => "no finding is left".to_owned(),
        1 => "1 finding is left".to_owned(),
        many => format!("{many} findings are left"),
    };
    desk.out.done(&answer, &format!("pool {name} is repaired; {left_over}"))?;
    if repairable.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
        desk.out
            .said("Volumes that did not open serve again when the pool is imported again or the daemon restarts.")?;
    }
    if left.findings.is_empty() { Ok(()) } else { Err(Failure::Said) }
}

/// Prints the catalog and the maps.
pub(super) fn dump(desk: &CommandContext, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("{}/dump", pool_path(name)), "dump")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    put(&answer.decode::<String>()?)
}

fn ask(desk: &CommandContext, name: &Name) -> Result<(Answer, PoolCheck), Failure> {
    let answer = desk.client.get(&format!("{}/check", pool_path(name)), "check")?;
    let found = answer.decode()?;
    Ok((answer, found))
}

fn tell(desk: &CommandContext, name: &Name, found: &PoolCheck) -> Result<(), Failure> {
    for finding in &found.findings {
        put(&format!("{}: {}: {}\n", finding.volume, finding.kind.as_str(), finding.what))?;
    }
    let all = format!("{} entries, {} granules, {} pages", found.entries, found.granules, found.pages);
    let verdict = match found.findings.len() {
        0 => "all right".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    };
    desk.out.said(&format!("pool {name}: {all} looked at, {verdict}"))
}

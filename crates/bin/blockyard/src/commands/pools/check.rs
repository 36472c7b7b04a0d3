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
        eprintln!(
            "blockyard: {repairable} of {} can be repaired with blockyard pool repair {name}",
            found.findings.len()
        );
    }
    say_losses(name, &found);
    Err(Failure::Said)
}

/// Prints how volumes with damaged maps can be used again.
fn say_losses(name: &Name, found: &PoolCheck) {
    if found.findings.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
        eprintln!(
            "blockyard: blockyard pool repair {name} --accept-loss keeps the readable rest of the lost maps; if \
             older blocks are not acceptable, restore from a backup instead"
        );
    }
}

/// Repairs the repairable findings after confirmation; with `accept_loss` also those whose repair loses data.
pub(super) fn repair(desk: &CommandContext, name: &Name, accept_loss: bool, yes: bool) -> Result<(), Failure> {
    // Checked now: the confirmation must name the present findings.
    let (_, found) = ask(desk, name)?;
    let is_wanted = |finding: &&CheckFinding| {
        finding.kind.repair().is_some() || accept_loss && finding.kind.is_repaired_at_a_loss()
    };
    let repairable: Vec<&CheckFinding> = found.findings.iter().filter(is_wanted).collect();
    // Exit code 0 only if nothing was found at all.
    if repairable.is_empty() {
        tell(desk, name, &found)?;
        return if found.findings.is_empty() {
            desk.out.said(&format!("pool {name}: nothing to repair"))
        } else if found.findings.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
            say_losses(name, &found);
            Err(Failure::Said)
        } else if found.findings.iter().all(|finding| finding.kind == CheckKind::Offline) {
            eprintln!("blockyard: nothing to repair; each line above shows what its volume waits for");
            Err(Failure::Said)
        } else {
            eprintln!("blockyard: cannot be repaired; copy the readable data and create the volume again");
            Err(Failure::Said)
        };
    }
    // The findings are listed before the question.
    for finding in &repairable {
        let done = finding.kind.repair().unwrap_or("keep the readable rest and lose the listed data");
        desk.out.said(&format!("{}: {}: {done}", finding.volume, finding.description))?;
    }
    if !yes {
        let message = format!("{} findings in pool {name} would be repaired", repairable.len());
        confirm::repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"))?;
    }
    let answer = desk.client.post(&format!("{}/check", pool_path(name)), &RepairPool { accept_loss }, "check")?;
    // Checked again: the exit code says whether the pool is consistent now.
    let (_, left) = ask(desk, name)?;
    let left_over = match left.findings.len() {
        0 => "no findings left".to_owned(),
        1 => "1 finding left".to_owned(),
        many => format!("{many} findings left"),
    };
    desk.out.done(&answer, &format!("pool {name} repaired; {left_over}"))?;
    if repairable.iter().any(|finding| finding.kind.is_repaired_at_a_loss()) {
        desk.out
            .said("To bring volumes online that did not open, export and import the pool, or restart the daemon.")?;
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
        put(&format!("{}: {}: {}\n", finding.volume, finding.kind.as_str(), finding.description))?;
    }
    let all = format!("{} entries, {} granules, {} pages", found.entries, found.granules, found.pages);
    let verdict = match found.findings.len() {
        0 => "all right".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    };
    desk.out.said(&format!("pool {name}: {all} checked, {verdict}"))
}

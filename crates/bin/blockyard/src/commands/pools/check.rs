//! `blockyard pool check|repair|dump`

use crate::client::Answer;
use crate::commands::{Desk, pool_path};
use crate::confirm;
use crate::failure::Failure;
use crate::output::put;
use model::{CheckFinding, Name, PoolCheck, Refusal, code};

/// What was found is printed; exit code 1 when something is wrong.
pub fn check(desk: &Desk, name: &Name) -> Result<(), Failure> {
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
    Err(Failure::Said)
}

/// What can be put right is, after it was said and confirmed.
pub fn repair(desk: &Desk, name: &Name, yes: bool) -> Result<(), Failure> {
    let (_, found) = ask(desk, name)?;
    let repairable: Vec<&CheckFinding> =
        found.findings.iter().filter(|finding| finding.kind.repair().is_some()).collect();
    if repairable.is_empty() {
        tell(desk, name, &found)?;
        return if found.findings.is_empty() {
            desk.out.said(&format!("pool {name}: there is nothing to repair"))
        } else {
            eprintln!(
                "blockyard: nothing of this can be put right here; copy what can be read, and make the volume anew"
            );
            Err(Failure::Said)
        };
    }
    for finding in &repairable {
        let done = finding.kind.repair().unwrap_or_default();
        desk.out.said(&format!("{}: {}: {done}", finding.volume, finding.what))?;
    }
    if !yes {
        let message = format!("{} findings in pool {name} would be put right", repairable.len());
        confirm::repetition(name, Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"))?;
    }
    let answer = desk.client.post(&format!("{}/check", pool_path(name)), &(), "check")?;
    let (_, left) = ask(desk, name)?;
    desk.out.done(&answer, &format!("pool {name} is repaired; {} findings are left", left.findings.len()))?;
    if left.findings.is_empty() { Ok(()) } else { Err(Failure::Said) }
}

/// The catalog and the maps are printed.
pub fn dump(desk: &Desk, name: &Name) -> Result<(), Failure> {
    let answer = desk.client.get(&format!("{}/dump", pool_path(name)), "dump")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    put(&answer.decode::<String>()?)
}

fn ask(desk: &Desk, name: &Name) -> Result<(Answer, PoolCheck), Failure> {
    let answer = desk.client.get(&format!("{}/check", pool_path(name)), "check")?;
    let found = answer.decode()?;
    Ok((answer, found))
}

fn tell(desk: &Desk, name: &Name, found: &PoolCheck) -> Result<(), Failure> {
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

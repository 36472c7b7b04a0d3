//! Front end of the conformance checks of a target (`blockyard conform`); the checks are in `conform`.

use crate::args::{ConformOptions, Global, TargetOptions};
use crate::failure::Failure;
use crate::output::{Output, Rows, put};
use crate::secret;
use conform::{CHECKS, Check, LoginFailure, TestTarget, Verdict, probe_login};
use iscsi::IscsiName;
use iscsi::chap::{Algorithm, Credential, Secret};
use iscsi::login::InitiatorAuth;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const HEADER: &[&str] = &["RESULT", "CHECK", "SECTION", "RULE"];

/// Runs the selected checks, and prints each result when it is known.
pub(crate) fn run(options: &ConformOptions, global: &Global) -> Result<(), Failure> {
    let mut aim = test_target(&options.aim)?;
    aim.listen = Duration::from_secs(options.listen.into());
    let out = Output::new(global);
    let chosen = || CHECKS.iter().filter(|check| check.name.starts_with(&options.only));
    let left_out = chosen().filter(|check| check.destroys && !options.destructive).count();
    let chosen: Vec<&Check> = chosen().filter(|check| options.destructive || !check.destroys).collect();
    if chosen.is_empty() && left_out > 0 {
        return Err(Failure::Usage(
            "these checks overwrite data on the unit; add --destructive to run them".to_owned(),
        ));
    }
    if chosen.is_empty() {
        return Err(Failure::Usage(format!("no check has a name that begins with \"{}\"", options.only)));
    }
    // One login attempt first: if it is denied, the reason is reported once, and checks without a login still run.
    let shut = match probe_login(&aim) {
        Err(unreachable @ LoginFailure::Unreachable(_)) => return Err(Failure::Failed(unreachable.into())),
        other => other.err(),
    };
    let (mut counts, mut report) = ([0; 3], Vec::new());
    for (number, check) in chosen.into_iter().enumerate() {
        let verdict = match &shut {
            Some(_) if check.logs_in => Verdict::Skipped("needs a login".to_owned()),
            _ => check.run(&aim),
        };
        let (at, result, why) = match &verdict {
            Verdict::Passed => (0, "passed", None),
            Verdict::Failed(how) => (1, "FAILED", Some(how)),
            Verdict::Skipped(why) => (2, "skipped", Some(why)),
        };
        counts[at] += 1;
        let rule = why.map_or(check.rule.to_owned(), |why| format!("{}: {why}", check.rule));
        let row = [result, check.name, check.section].map(str::to_owned).into_iter().chain([rule]).collect();
        match out.is_json() {
            // JSON is one object, so it is printed at the end.
            true => report.push(json!({
                "check": check.name, "section": check.section, "rule": check.rule,
                "result": result.to_lowercase(), "reason": why,
            })),
            // The header is printed once, above the first row.
            false if number == 0 => out.lines(&Rows { header: HEADER, rows: vec![row] })?,
            false => out.without_headers().lines(&Rows { header: HEADER, rows: vec![row] })?,
        }
    }
    let [passed, failed, skipped] = counts;
    if out.is_json() {
        let refused = shut.as_ref().map(ToString::to_string);
        let whole = json!({
            "target": aim.to_string(), "refused": refused, "passed": passed, "failed": failed, "skipped": skipped,
            "checks": report,
        });
        put(&format!("{whole:#}\n"))?;
    } else if !out.is_quiet() {
        eprintln!("{aim}: {passed} passed, {failed} failed, {skipped} skipped");
        if left_out > 0 {
            eprintln!(
                "{left_out} checks that write to, reset or reserve the unit were skipped; add --destructive to \
                 run them"
            );
        }
    }
    match shut {
        Some(shut) => Err(Failure::Failed(shut.into())),
        None if failed == 0 => Ok(()),
        None => Err(Failure::Said),
    }
}

/// Parses the unit and the initiator identity of the options.
pub(crate) fn test_target(options: &TargetOptions) -> Result<TestTarget, Failure> {
    let TargetOptions { url, who } = options;
    let usage = |why: &dyn ToString| Failure::Usage(why.to_string());
    let mut aim: TestTarget = url.parse().map_err(|why| usage(&why))?;
    if let Some(name) = &who.initiator {
        aim.initiator = IscsiName::parse(name)
            .map_err(|why| Failure::Usage(format!("\"{name}\" is not an iSCSI initiator name: {why}")))?;
    }
    if let Some(user) = &who.chap_user {
        let own = credential(user, who.chap_secret_file.as_deref(), ["BLOCKYARD_CHAP_SECRET", "--chap-secret-file"])?;
        let target = who.mutual_user.as_ref().map(|user| {
            let ways = ["BLOCKYARD_MUTUAL_SECRET", "--mutual-secret-file"];
            credential(user, who.mutual_secret_file.as_deref(), ways)
        });
        // MD5 is the one algorithm that every implementation of CHAP has (RFC 1994 §3).
        let weakest = who.chap_algorithm.map_or(Algorithm::Md5, Algorithm::from);
        aim.auth = InitiatorAuth::chap(own, target.transpose()?, weakest).map_err(|why| usage(&why))?;
    }
    Ok(aim)
}

/// Returns a CHAP name with its secret, from the file or from the environment variable.
fn credential(name: &str, file: Option<&Path>, [variable, option]: [&str; 2]) -> Result<Credential, Failure> {
    let told = secret::read(file, variable, false)?;
    let told =
        told.ok_or_else(|| Failure::Usage(format!("CHAP user {name} has no secret; give its file with {option}")))?;
    let secret = Secret::new(told.secret()?.expose()).map_err(|why| Failure::Usage(why.to_string()))?;
    Ok(Credential { name: name.to_owned(), secret })
}

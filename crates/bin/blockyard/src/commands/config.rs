//! `blockyard export`, `diff`, `apply` and `config`: the array as a document.

use super::Desk;
use crate::args::{ApplyOptions, ConfigCommand, DiffOptions, DocumentOptions};
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::secret;
use control::config::{Applied, ApplyConfig, ChapEntry, Document, PastConfig, Plan, Step, StepKind};
use model::{ConfigVersion, Refusal, code};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// How many things that a document does not name are named on a terminal.
const KEPT_SHOWN: usize = 20;

/// The largest document that is read.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

/// The array is printed as a document: TOML, or JSON when that is asked for.
pub fn export(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/config", "config")?;
    let document: Document = answer.decode()?;
    let text = if desk.out.is_json() { json(&document)? } else { toml(&document)? };
    put(&text)
}

/// What would change is printed, a line each.
pub fn diff(desk: &Desk, options: &DiffOptions) -> Result<(), Failure> {
    let (plan, answer) = plan(desk, &request(&options.document)?)?;
    if desk.out.is_json() {
        desk.out.json(&answer)?;
    } else {
        show(desk, &plan)?;
    }
    if options.exit_code && !plan.steps.is_empty() { Err(Failure::Pending) } else { Ok(()) }
}

/// The array is what the document says.
pub fn apply(desk: &Desk, options: ApplyOptions) -> Result<(), Failure> {
    let mut request = request(&options.document)?;
    let (plan, planned) = plan(desk, &request)?;
    if options.dry_run || plan.steps.is_empty() {
        return if desk.out.is_json() { desk.out.json(&planned) } else { show(desk, &plan) };
    }
    if !desk.out.is_json() && !desk.out.is_quiet() {
        show(desk, &plan)?;
    }
    admit(&plan.steps, plan.sessions, options.yes)?;
    request.fingerprint = Some(plan.fingerprint);
    request.initiators = options.initiators;
    request.within = options.within;
    let answer = desk.client.post("/config/apply", &request, "applied")?;
    let applied: Applied = answer.decode()?;
    desk.out.done(&answer, &format!("{} applied", steps(applied.steps.len())))
}

/// Earlier configurations are printed, or one is restored.
pub fn run(desk: &Desk, command: &ConfigCommand) -> Result<(), Failure> {
    match *command {
        ConfigCommand::List => list(desk),
        ConfigCommand::Restore { version, yes } => restore(desk, version, yes),
    }
}

fn list(desk: &Desk) -> Result<(), Failure> {
    let answer = desk.client.get("/config/versions", "configs")?;
    let configs: Vec<PastConfig> = answer.decode()?;
    let row = |config: &PastConfig| {
        let back = match config.steps.as_slice() {
            _ if config.present => "as it is now".to_owned(),
            [] => "nothing".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
        };
        vec![config.version.to_string(), config.time.to_string(), back]
    };
    desk.out
        .rows(&answer, &Rows { header: &["VERSION", "SINCE", "TO GO BACK"], rows: configs.iter().map(row).collect() })
}

fn restore(desk: &Desk, version: ConfigVersion, yes: bool) -> Result<(), Failure> {
    let configs: Vec<PastConfig> = desk.client.get("/config/versions", "configs")?.decode()?;
    if let Some(config) = configs.iter().find(|config| config.version == version.0) {
        if !desk.out.is_json() && !desk.out.is_quiet() {
            put(&config.steps.iter().map(|step| format!("{step}\n")).collect::<String>())?;
        }
        admit(&config.steps, config.sessions, yes)?;
    }
    let answer =
        desk.client.post(&format!("/config/versions/{}/restore", version.0), &serde_json::json!({}), "applied")?;
    desk.out.done(&answer, &format!("everybody sees what they saw in configuration {}", version.0))
}

/// Admits steps that take something from somebody only when that is wanted.
fn admit(steps: &[Step], sessions: u32, yes: bool) -> Result<(), Failure> {
    let removed = steps.iter().filter(|step| step.kind == StepKind::Remove).count();
    if yes || (sessions == 0 && removed == 0) {
        return Ok(());
    }
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let notice = if sessions == 1 { "notices" } else { "notice" };
    let message = format!("{} would go, and {} {notice}", count(removed, "thing"), count(sessions as usize, "session"));
    confirm::agreement("apply", Refusal::new(code::UNCONFIRMED, message, "repeat with --yes if that is wanted"))
}

fn plan(desk: &Desk, request: &ApplyConfig) -> Result<(Plan, crate::client::Answer), Failure> {
    let answer = desk.client.post("/config/plan", request, "plan")?;
    Ok((answer.decode()?, answer))
}

fn show(desk: &Desk, plan: &Plan) -> Result<(), Failure> {
    let mut text: String = plan.steps.iter().map(|step| format!("{step}\n")).collect();
    if plan.steps.is_empty() {
        text.push_str("everything is so already\n");
    }
    put(&text)?;
    if !plan.kept.is_empty() && !desk.out.is_quiet() {
        let more = plan.kept.len().saturating_sub(KEPT_SHOWN);
        let more = if more > 0 { format!(" and {more} more; -o json names all") } else { String::new() };
        eprintln!("not in the document, and kept: {}{more}", plan.kept[..plan.kept.len().min(KEPT_SHOWN)].join(", "));
    }
    Ok(())
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// The document of the file, with the secrets that it names.
fn request(options: &DocumentOptions) -> Result<ApplyConfig, Failure> {
    let mut document = read(&options.file)?;
    let folder = options.file.parent().unwrap_or(Path::new("."));
    let hosts = document.host.values_mut().flat_map(|host| [&mut host.chap, &mut host.mutual_chap]);
    let discovery = document.auth.as_mut().and_then(|auth| auth.discovery.as_mut());
    let discovery = discovery.into_iter().flat_map(|proof| [&mut proof.chap, &mut proof.mutual_chap]);
    hosts.chain(discovery).flatten().try_for_each(|entry| take_secret(entry, folder))?;
    for receiver in document.receiver.iter_mut().flat_map(BTreeMap::values_mut) {
        if let Some(file) = receiver.password_file.take() {
            receiver.password = secret::read(Some(&folder.join(file)), "", false)?;
        }
        if let Some(file) = receiver.secret_file.take() {
            receiver.secret = secret::read(Some(&folder.join(file)), "", false)?;
        }
    }
    Ok(ApplyConfig { document, prune: options.prune, ..ApplyConfig::default() })
}

/// The secret of the file beside the document, where one is named.
fn take_secret(entry: &mut ChapEntry, folder: &Path) -> Result<(), Failure> {
    if let Some(file) = entry.secret_file.take() {
        entry.secret = secret::read(Some(&folder.join(file)), "", false)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Document, Failure> {
    let shown = file.display();
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(DOCUMENT_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| {
        let message = format!("{shown} cannot be read: {error}");
        Refusal::new(code::REQUEST_INVALID, message, "name a document; blockyard export writes one")
    })?;
    let parsed = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string().trim_end().to_owned())
    };
    parsed.map_err(|error| {
        let message = format!("{shown} is no document: {error}");
        Refusal::new(code::REQUEST_INVALID, message, "compare it with what blockyard export writes").into()
    })
}

fn json(document: &Document) -> Result<String, Failure> {
    serde_json::to_string_pretty(document).map(|text| text + "\n").map_err(|error| unsaid(&error))
}

fn toml(document: &Document) -> Result<String, Failure> {
    toml::to_string(document).map_err(|error| unsaid(&error))
}

fn unsaid(error: &dyn std::fmt::Display) -> Failure {
    Refusal::new(code::INTERNAL, format!("the document cannot be written: {error}"), "report this").into()
}

//! Commands `blockyard export`, `diff`, `apply` and `config`: the configuration of the array as a document.

use super::CommandContext;
use crate::args::{ApplyOptions, ConfigCommand, DiffOptions, DocumentOptions};
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::secret;
use control::config::{
    Applied, ApplyConfig, ChapEntry, DOCUMENT_BYTES_MAX, Document, PastConfig, Plan, RestoreConfig, Step, StepKind,
};
use model::{ConfigVersion, Refusal, code};
use std::collections::BTreeMap;
use std::path::Path;

/// Limit of objects missing in the document that are listed on a terminal.
const KEPT_SHOWN: usize = 20;

/// Prints the configuration as a document, in TOML or in JSON.
pub(super) fn export(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/config", "config")?;
    let document: Document = answer.decode()?;
    let text = if desk.out.is_json() { json(&document)? } else { toml(&document)? };
    // The document as it is, without the frame of other answers, so that it can be applied again.
    put(&text)
}

/// Prints the changes that a document would make, one per line.
pub(super) fn diff(desk: &CommandContext, options: &DiffOptions) -> Result<(), Failure> {
    let (plan, answer) = plan(desk, &request(&options.document)?)?;
    if desk.out.is_json() {
        desk.out.json(&answer)?;
    } else {
        show(desk, &plan)?;
    }
    if options.exit_code && !plan.steps.is_empty() { Err(Failure::Pending) } else { Ok(()) }
}

/// Applies a document.
///
/// The plan is shown and confirmed first. Its fingerprint goes along with the request, so that the daemon refuses it if
/// the array has changed since.
pub(super) fn apply(desk: &CommandContext, options: ApplyOptions) -> Result<(), Failure> {
    let mut request = request(&options.document)?;
    let (plan, planned) = plan(desk, &request)?;
    if options.dry_run || plan.steps.is_empty() {
        return if desk.out.is_json() { desk.out.json(&planned) } else { show(desk, &plan) };
    }
    if !desk.out.is_json() && !desk.out.is_quiet() {
        show(desk, &plan)?;
    }
    // Permission to disrupt hosts is stronger than `--yes`, so no question follows it.
    let allow_disruption = options.disruption.allow_disruption;
    admit(&plan.steps, plan.sessions, options.yes || allow_disruption)?;
    request.allow_disruption = allow_disruption;
    request.fingerprint = Some(plan.fingerprint);
    request.initiators = options.initiators;
    request.within = options.within;
    let sent = desk.client.post("/config/apply", &request, "applied");
    // The plan is computed again without the fingerprint, to show what differs from the one that was confirmed.
    let answer = sent.map_err(|failure| {
        with_both(failure, &plan.steps, || {
            request.fingerprint = None;
            Ok(self::plan(desk, &request)?.0.steps)
        })
    })?;
    let applied: Applied = answer.decode()?;
    desk.out.done(&answer, &format!("{} applied", steps(applied.steps.len())))
}

/// Lists earlier configurations, or restores one.
pub(super) fn run(desk: &CommandContext, command: &ConfigCommand) -> Result<(), Failure> {
    match *command {
        ConfigCommand::List => list(desk),
        ConfigCommand::Restore { version, yes, disruption, reuse_luns } => {
            let allow_disruption = disruption.allow_disruption;
            restore(desk, version, yes, RestoreConfig { allow_disruption, reuse_luns, fingerprint: None })
        }
    }
}

fn list(desk: &CommandContext) -> Result<(), Failure> {
    let answer = desk.client.get("/config/versions", "configs")?;
    let configs: Vec<PastConfig> = answer.decode()?;
    let row = |config: &PastConfig| {
        let back = match config.steps.as_slice() {
            _ if config.current => "current".to_owned(),
            [] => "nothing".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
        };
        vec![config.version.to_string(), config.time.to_string(), back]
    };
    desk.out
        .rows(&answer, &Rows { header: &["VERSION", "SINCE", "TO RESTORE"], rows: configs.iter().map(row).collect() })
}

fn restore(
    desk: &CommandContext,
    version: ConfigVersion,
    yes: bool,
    mut request: RestoreConfig,
) -> Result<(), Failure> {
    let past = || -> Result<Option<PastConfig>, Failure> {
        let configs: Vec<PastConfig> = desk.client.get("/config/versions", "configs")?.decode()?;
        Ok(configs.into_iter().find(|config| config.version == version.0))
    };
    let mut shown = Vec::new();
    // A configuration that is no longer kept is refused by the daemon itself.
    if let Some(config) = past()? {
        if !desk.out.is_json() && !desk.out.is_quiet() {
            put(&config.steps.iter().map(|step| format!("{step}\n")).collect::<String>())?;
        }
        admit(&config.steps, config.sessions, yes || request.allow_disruption)?;
        // The fingerprint binds the restore to the steps shown; the daemon may send none.
        request.fingerprint = Some(config.fingerprint).filter(|fingerprint| !fingerprint.is_empty());
        shown = config.steps;
    }
    let sent = desk.client.post(&format!("/config/versions/{}/restore", version.0), &request, "applied");
    let now = || Ok(past()?.map(|config| config.steps).unwrap_or_default());
    let answer = sent.map_err(|failure| with_both(failure, &shown, now))?;
    desk.out.done(&answer, &format!("access is restored to configuration {}", version.0))
}

/// Extends the failure by the steps that differ between those `shown` and those of `now`, if the array has changed.
fn with_both(failure: Failure, shown: &[Step], now: impl FnOnce() -> Result<Vec<Step>, Failure>) -> Failure {
    let Failure::Refused(refusal) = &failure else { return failure };
    if refusal.code != code::CHANGED_MEANWHILE {
        return failure;
    }
    // Without a connection the refusal alone is the best description.
    let Ok(now) = now() else { return failure };
    let without = |these: &[Step], others: &[Step]| {
        let only: Vec<String> = these.iter().filter(|step| !others.contains(step)).map(ToString::to_string).collect();
        if only.is_empty() { "nothing".to_owned() } else { only.join(", ") }
    };
    let (then, is) = (without(shown, &now), without(&now, shown));
    let message = match then == is {
        true => format!("{}; the steps have not changed", refusal.message),
        false => format!("{}; you saw {then}; the change would now be {is}", refusal.message),
    };
    Refusal::new(refusal.code, message, "repeat the command to see and confirm the current steps").into()
}

/// Asks for confirmation if steps remove something or affect sessions.
fn admit(steps: &[Step], sessions: u32, yes: bool) -> Result<(), Failure> {
    let removed = steps.iter().filter(|step| step.kind == StepKind::Remove).count();
    if yes || (sessions == 0 && removed == 0) {
        return Ok(());
    }
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let notice = if sessions == 1 { "notices" } else { "notice" };
    let (removed, sessions) = (count(removed, "object"), count(sessions as usize, "session"));
    let message = format!("{removed} would be deleted, and {sessions} {notice}");
    confirm::agreement("apply", Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"))
}

fn plan(desk: &CommandContext, request: &ApplyConfig) -> Result<(Plan, crate::client::Answer), Failure> {
    let answer = desk.client.post("/config/plan", request, "plan")?;
    Ok((answer.decode()?, answer))
}

fn show(desk: &CommandContext, plan: &Plan) -> Result<(), Failure> {
    let mut text: String = plan.steps.iter().map(|step| format!("{step}\n")).collect();
    if plan.steps.is_empty() {
        text.push_str("no changes\n");
    }
    let losses = plan.losses.iter().map(|loss| format!("! {loss}\n"));
    text.extend(losses);
    put(&text)?;
    // Standard error, so that a script that reads standard output sees steps alone.
    if !plan.losses.is_empty() && !desk.out.is_quiet() {
        eprintln!(
            "sessions would end or lose access: unmount the volumes on those hosts first, or apply with \
             --allow-disruption"
        );
    }
    if !plan.kept.is_empty() && !desk.out.is_quiet() {
        let more = plan.kept.len().saturating_sub(KEPT_SHOWN);
        let more = if more > 0 { format!(" and {more} more; -o json lists all") } else { String::new() };
        eprintln!("not in the document, kept: {}{more}", plan.kept[..plan.kept.len().min(KEPT_SHOWN)].join(", "));
    }
    Ok(())
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// Reads the document, and the secret files that it names.
fn request(options: &DocumentOptions) -> Result<ApplyConfig, Failure> {
    let mut document = read(&options.file)?;
    // Secret files are relative to the document, as in a repository; the daemon only gets their content.
    let folder = options.file.parent().unwrap_or(Path::new("."));
    let hosts = document.host.values_mut().flat_map(|host| [&mut host.chap, &mut host.mutual_chap]);
    let discovery = document.auth.as_mut().and_then(|auth| auth.discovery.as_mut());
    let discovery = discovery.into_iter().flat_map(|proof| [&mut proof.chap, &mut proof.mutual_chap]);
    let disks = document.disk.values_mut().flat_map(|disk| [&mut disk.chap, &mut disk.mutual_chap]);
    hosts.chain(discovery).chain(disks).flatten().try_for_each(|entry| take_secret(entry, folder))?;
    for receiver in document.receiver.iter_mut().flat_map(BTreeMap::values_mut) {
        if let Some(file) = receiver.password_file.take() {
            receiver.password = secret::read(Some(&folder.join(file)), "", false)?;
        }
        if let Some(file) = receiver.secret_file.take() {
            receiver.secret = secret::read(Some(&folder.join(file)), "", false)?;
        }
    }
    let DocumentOptions { prune, reuse_luns, .. } = *options;
    Ok(ApplyConfig { document, prune, reuse_luns, ..ApplyConfig::default() })
}

/// Reads the secret file of an entry, relative to `folder`, if one is named.
fn take_secret(entry: &mut ChapEntry, folder: &Path) -> Result<(), Failure> {
    // Only from the file: a secret in the environment could belong to any of the hosts.
    if let Some(file) = entry.secret_file.take() {
        entry.secret = secret::read(Some(&folder.join(file)), "", false)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Document, Failure> {
    let shown = file.display();
    let read = bounded::source_or_stdin(file, DOCUMENT_BYTES_MAX as u64).and_then(bounded::text_of);
    let text = read.map_err(|error| {
        let message = format!("{shown} cannot be read: {error}");
        Refusal::new(code::DOCUMENT_INVALID, message, "give the file of a document; blockyard export writes one")
    })?;
    // JSON documents are objects; no TOML document begins with a brace.
    let parsed = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| bounded::excerpt(&error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| bounded::complaint(&text, error.span(), error.message()))
    };
    parsed.map_err(|error| {
        let message = format!("{shown} is not a valid document: {error}");
        Refusal::new(code::DOCUMENT_INVALID, message, "compare it with the output of blockyard export").into()
    })
}

fn json(document: &Document) -> Result<String, Failure> {
    serde_json::to_string_pretty(document).map(|text| text + "\n").map_err(|error| unsaid(&error))
}

fn toml(document: &Document) -> Result<String, Failure> {
    toml::to_string(document).map_err(|error| unsaid(&error))
}

fn unsaid(error: &dyn std::fmt::Display) -> Failure {
    Refusal::new(code::INTERNAL, format!("the document cannot be encoded: {error}"), "report this as a bug").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::{HostEntry, PresentEntry, VolumeEntry};
    use model::{Iqn, Name, Size, VolumeName, VolumePolicy};

    /// Returns a name of 63 letters.
    fn long(kind: &str, number: usize) -> Name {
        format!("{kind}-{number:-<width$}", width = 62 - kind.len()).replace('-', ".").parse().expect("a name")
    }

    #[test]
    fn document_of_the_largest_array_is_half_of_what_is_read() {
        let volume = |number: usize| VolumeName::in_pool(long("p", number % 8), long("v", number % 10_000));
        let host = |number: usize| long("h", number % 4096);
        let mut document = Document { schema: 1, ..Document::default() };
        for number in 0..10_000 {
            let settings =
                VolumePolicy::default().settings().map(|(name, _)| (name.to_owned(), "back-volatile".to_owned()));
            let entry =
                VolumeEntry { size: Some(Size::mib(1025)), settings: settings.into(), ..VolumeEntry::default() };
            document.volume.insert(volume(number), entry);
        }
        for number in 0..4096 {
            let iqn: Iqn = format!("iqn.2026-11.com.example:{number:x>199}").parse().expect("an iSCSI name");
            document.host.insert(host(number), HostEntry { initiators: vec![iqn], ..HostEntry::default() });
        }
        for number in 0..16_384 {
            let (volume, host, target) = (volume(number), host(number), Some(long("t", number % 512)));
            let lun = u16::try_from(number).ok();
            document.present.push(PresentEntry { volume, host, target, lun, groups: vec![1, 2, 3], read_only: true });
        }
        let toml = toml(&document).expect("it is written");
        let request = ApplyConfig { document: document.clone(), ..ApplyConfig::default() };
        let sent = serde_json::to_string(&request).expect("it is sent");
        let longest = toml.len().max(sent.len()).max(json(&document).expect("it is written").len());
        assert!(longest < DOCUMENT_BYTES_MAX / 2, "{longest}");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("array.toml");
        std::fs::write(&file, toml).expect("writes");
        assert!(read(&file).is_ok_and(|read| read == document));
    }

    #[test]
    fn document_that_is_too_long_or_no_document_is_refused_in_a_few_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("array.toml");
        let refused = |text: &[u8]| {
            std::fs::write(&file, text).expect("writes");
            format!("{:?}", read(&file).expect_err("no document"))
        };
        let mut text = b"[host.a]\n#".to_vec();
        text.resize(DOCUMENT_BYTES_MAX, b'x');
        text.extend_from_slice(b"\n[host.b]\n");
        let why = refused(&text);
        assert!(why.contains("it has 33,554,442 bytes, and the limit is 33,554,432 bytes"), "{why}");
        let why = refused(&[b'['; 1 << 20]);
        assert!(why.len() < 700 && why.contains("line 1"), "{why}");
        let why = refused(&[b"[host.\"\x1b]0;\x07".to_vec(), vec![b'a'; 1 << 20], b"\"]\ncolor=1".to_vec()].concat());
        assert!(why.len() < 700 && !why.contains('\x1b'), "{why}");
    }
}

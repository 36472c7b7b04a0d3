//! Command `blockyard up`: creates everything from bare disks to a mapped volume, completely or not at all.

use super::CommandContext;
use super::new_disks::named;
use crate::args::UpOptions;
use crate::connect;
use crate::failure::Failure;
use crate::output::put;
use crate::secret;
use control::config::SetupReport;
use control::request::{NewChap, NewSetup, SetupDisk};
use model::{DiskReport, Iqn, Name, Provision, Refusal, code};

pub(super) fn run(desk: &CommandContext, options: &UpOptions) -> Result<(), Failure> {
    // A registered disk keeps its name, so that a repeated command changes nothing.
    let known: Vec<DiskReport> = desk.client.get("/disks", "disks")?.decode()?;
    let answer = desk.client.post("/setup", &request(options, &known)?, "applied")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let SetupReport { steps, presentation } = answer.decode()?;
    let mut text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if steps.is_empty() {
        text.push_str("no changes\n");
    }
    text.extend(presentation.as_ref().map(connect::lines));
    if desk.out.is_quiet() { Ok(()) } else { put(&text) }
}

fn request(options: &UpOptions, known: &[DiskReport]) -> Result<NewSetup, Failure> {
    let UpOptions { volume, size, disks, level, thin, initiators, chap_secret_file, .. } = options;
    let disks = named(disks, known)?.into_iter().map(|(name, path)| SetupDisk { name, path }).collect();
    let secret = secret::read(chap_secret_file.as_deref(), "BLOCKYARD_CHAP_SECRET", false)?;
    // A secret in the environment is only meant for a host that is created by this command.
    let chap = secret.filter(|_| !initiators.is_empty());
    Ok(NewSetup {
        volume: volume.clone(),
        size: *size,
        provision: thin.then_some(Provision::Thin),
        disks,
        level: *level,
        force: options.force,
        host: host_name(options)?,
        initiators: initiators.clone(),
        chap: chap.map(|secret| NewChap { secret: Some(secret), ..NewChap::default() }),
        // What exists already is accepted, so that the command can be repeated after a failure.
        must_be_new: false,
        allow_disruption: options.disruption.allow_disruption,
    })
}

/// Returns the given name, or the end of the first initiator's name.
fn host_name(options: &UpOptions) -> Result<Name, Failure> {
    let of_initiator = |iqn: &Iqn| {
        let end = iqn.as_str().rsplit([':', '.']).next().unwrap_or_default().to_ascii_lowercase();
        // The end of an IQN may have characters that a name cannot have.
        end.parse::<Name>().or_else(|_| "host1".parse())
    };
    match (&options.host, options.initiators.first()) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(iqn)) => Ok(of_initiator(iqn)?),
        (None, None) => Err(Refusal::new(
            code::HOST_EMPTY,
            "no host was given for the volume",
            "give --initiator IQN or --host NAME",
        )
        .into()),
    }
}

//! `blockyard up`: from bare disks to a volume that a host uses, in one command, whole or not at all.

use super::Desk;
use super::newcomers::named;
use crate::args::UpOptions;
use crate::connect;
use crate::failure::Failure;
use crate::output::put;
use crate::secret;
use control::config::{
    Applied, ApplyConfig, ChapEntry, DiskEntry, Document, HostEntry, PoolEntry, PresentEntry, VolumeEntry,
};
use control::request::NewGroup;
use control::{HostReport, PresentationReport};
use model::{DiskReport, Iqn, Level, Name, PoolReport, Provision, Refusal, code};
use std::collections::BTreeMap;

pub fn run(desk: &Desk, options: &UpOptions) -> Result<(), Failure> {
    let disks: Vec<DiskReport> = desk.client.get("/disks", "disks")?.decode()?;
    let host = host_name(options)?;
    let hosts: Vec<HostReport> = desk.client.get("/hosts", "hosts")?.decode()?;
    let is_known = admit_host(options, hosts.iter().find(|known| known.name == host))?;
    admit_pool(options, &desk.client.get("/pools", "pools")?.decode::<Vec<PoolReport>>()?)?;
    let document = document(options, (&host, is_known), &disks)?;
    let allow_disruption = options.disruption.allow_disruption;
    let request = ApplyConfig { document, allow_disruption, ..ApplyConfig::default() };
    let answer = desk.client.post("/config/apply", &request, "applied")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let applied: Applied = answer.decode()?;
    let seen: Vec<PresentationReport> = desk.client.get("/presentations", "presentations")?.decode()?;
    let mut text: String = applied.steps.iter().map(|step| format!("{step}\n")).collect();
    if applied.steps.is_empty() {
        text.push_str("everything is so already\n");
    }
    let ours = seen.iter().find(|seen| seen.volume == options.volume && seen.host == host);
    text.extend(ours.map(connect::lines));
    if desk.out.is_quiet() { Ok(()) } else { put(&text) }
}

fn document(options: &UpOptions, (host, is_known): (&Name, bool), known: &[DiskReport]) -> Result<Document, Failure> {
    let UpOptions { volume, size, disks, level, thin, initiators, chap_secret_file, .. } = options;
    let mut document = Document { schema: 1, ..Document::default() };
    if !disks.is_empty() {
        let pool = volume.pool().ok_or_else(|| {
            let hint = "call it POOL/VOLUME, such as tank/vm1";
            Refusal::new(code::NAME_INVALID, format!("volume {volume} names no pool for its disks"), hint)
        })?;
        let named = named(disks, known)?;
        let group = NewGroup {
            level: level.unwrap_or(usual_level(named.len())),
            chunk: None,
            no_integrity: false,
            member_size: None,
            disks: named.iter().map(|(name, _)| name.clone()).collect(),
        };
        document.disk = named.into_iter().map(|(name, path)| (name, DiskEntry { path, spare: None })).collect();
        document
            .pool
            .insert(pool.clone(), PoolEntry { groups: vec![group], settings: BTreeMap::new(), read_only: None });
    }
    let provision = thin.then_some(Provision::Thin);
    document.volume.insert(volume.clone(), VolumeEntry { size: Some(*size), provision, ..VolumeEntry::default() });
    if !is_known {
        let secret = secret::read(chap_secret_file.as_deref(), "BLOCKYARD_CHAP_SECRET", false)?;
        let chap = secret.map(|secret| ChapEntry { secret: Some(secret), ..ChapEntry::default() });
        document.host.insert(host.clone(), HostEntry { initiators: initiators.clone(), chap, ..HostEntry::default() });
    }
    let (volume, host) = (volume.clone(), host.clone());
    document.present.push(PresentEntry { volume, host, target: None, lun: None, groups: Vec::new(), read_only: false });
    Ok(document)
}

/// True for a host that is there and stays as it is: it has these initiators.
fn admit_host(options: &UpOptions, known: Option<&HostReport>) -> Result<bool, Failure> {
    let Some(known) = known else { return Ok(false) };
    let Some(new) = options.initiators.iter().find(|iqn| !known.initiators.contains(iqn)) else { return Ok(true) };
    let message = format!("host {} is there already, without initiator {new}", known.name);
    let hint = "add it with blockyard host change --add-initiator, or call this one otherwise with --host";
    Err(Refusal::new(code::NAME_TAKEN, message, hint).into())
}

/// Disks are for a pool that is new.
fn admit_pool(options: &UpOptions, pools: &[PoolReport]) -> Result<(), Failure> {
    let there = pools.iter().find(|pool| Some(&pool.name) == options.volume.pool() && !options.disks.is_empty());
    let Some(there) = there else { return Ok(()) };
    let message = format!("pool {} is there already", there.name);
    let hint = "leave out the disks, or give it more with blockyard pool add-group";
    Err(Refusal::new(code::NAME_TAKEN, message, hint).into())
}

/// The level that bears the loss of as many disks as so few can.
fn usual_level(disks: usize) -> Level {
    match disks {
        0 | 1 => Level::Raid0,
        2 => Level::Raid1,
        3 => Level::Raid5,
        _ => Level::Raid6,
    }
}

/// The name that was given, or the end of the first initiator's.
fn host_name(options: &UpOptions) -> Result<Name, Failure> {
    let of_initiator = |iqn: &Iqn| {
        let end = iqn.as_str().rsplit([':', '.']).next().unwrap_or_default().to_ascii_lowercase();
        end.parse::<Name>().or_else(|_| "host1".parse())
    };
    match (&options.host, options.initiators.first()) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(iqn)) => Ok(of_initiator(iqn)?),
        (None, None) => {
            Err(Refusal::new(code::HOST_EMPTY, "nobody is named who may use it", "give --initiator IQN").into())
        }
    }
}

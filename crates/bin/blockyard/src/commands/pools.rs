//! Commands `blockyard pool …`.

mod care;
mod check;
mod grow;
mod key;
mod log;

use super::new_disks::with_disks;
use super::{CommandContext, joined, known, or_dash, pool_path};
use crate::args::{ListOptions, PoolCommand};
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::progress::{self, WaitTimeout};
use control::request::{AddGroup, GrowPool, ImportPool, NewGroup, NewPool, Removal};
use model::{
    DiskName, GroupReport, Level, MemberFitness, MemberReport, PoolReport, Problem, Refusal, Size, StatusReport, code,
};
use std::collections::BTreeSet;
use std::fmt::Write;

pub(super) fn run(desk: &CommandContext, command: PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::List(options) => list(desk, &options),
        PoolCommand::Create { name, disks, level, groups, chunk, spares, spread, member_size, no_integrity, force } => {
            let answer = with_disks(desk, &disks, force, |disks| {
                let like = NewGroup { level, chunk, no_integrity, member_size, disks: Vec::new() };
                let groups = share_out(&like, &disks, groups)?;
                desk.client.post("/pools", &NewPool { name, groups, force, spares, spread: spread.is_some() }, "pool")
            })?;
            let pool: PoolReport = answer.decode()?;
            desk.out.done(&answer, &created(&pool, level, disks.len()))?;
            // A layout that does not survive the loss of an enclosure is allowed, but must not go unnoticed.
            weak(&pool).iter().for_each(|warning| eprintln!("blockyard: {warning}"));
            Ok(())
        }
        PoolCommand::Show { name, watch, wait, patience } => {
            if watch || wait {
                let report =
                    progress::follow(&desk.client, &name, watch || !desk.out.is_quiet(), WaitTimeout::new(patience))?;
                show(desk, &name)?;
                // A watcher has seen the end, whatever the state is; only `--wait` judges it.
                return if wait { progress::judge(&report) } else { Ok(()) };
            }
            show(desk, &name)
        }
        PoolCommand::Set { name, settings } => care::set(desk, &name, settings),
        PoolCommand::Pause { name } => care::pause(desk, &name),
        PoolCommand::Resume { name } => care::resume(desk, &name),
        PoolCommand::Scrub(command) => care::scrub(desk, command),
        PoolCommand::AddGroup { name, disks, level, chunk, member_size, no_integrity, force } => {
            with_disks(desk, &disks, force, |disks| {
                let request = AddGroup { group: NewGroup { level, chunk, no_integrity, member_size, disks }, force };
                grow::add_group(desk, &name, &request)
            })
        }
        PoolCommand::AddMember { name, disk, group, force, wait, patience } => {
            grow::add_member(desk, &name, &disk, (group, force), wait.then(|| WaitTimeout::new(patience)))
        }
        PoolCommand::Grow { name, group, member_size } => grow::grow(desk, &name, GrowPool { group, member_size }),
        PoolCommand::AddLog { name, disks, yes, force } => {
            with_disks(desk, &disks, force, |disks| log::add(desk, &name, disks, yes, force))
        }
        PoolCommand::RemoveLog { name, lost, yes } => log::remove(desk, &name, lost, yes),
        PoolCommand::Export { name, force } => {
            desk.client.post_and_forget(&format!("{}/export", pool_path(&name)), &Removal { force })?;
            desk.out.said(&format!("pool {name} exported; import it on any node with blockyard pool import {name}"))
        }
        PoolCommand::Key { name, file } => key::write(desk, &name, &file),
        PoolCommand::Import { name, force, accept_log_loss, read_only, key_file, keep, yes } => {
            let key = key_file.as_deref().map(key::read).transpose()?;
            let request = ImportPool { force, accept_log_loss, read_only, key, keep, confirmed: yes };
            import(desk, &name, request)
        }
        PoolCommand::Check { name } => check::check(desk, &name),
        PoolCommand::Repair { name, accept_loss, yes } => check::repair(desk, &name, accept_loss, yes),
        PoolCommand::Dump { name } => check::dump(desk, &name),
        PoolCommand::Destroy { name, yes } => {
            let path = pool_path(&name);
            let seen = confirm::destruction(&desk.client, (&path, "pool"), &name, yes)?;
            desk.client.delete_if_unchanged(&path, "", seen.as_ref())?;
            desk.out.said(&format!("pool {name} destroyed; its disks are free"))
        }
    }
}

/// Imports a pool; if that may lose data, after confirmation.
fn import(desk: &CommandContext, name: &model::Name, request: ImportPool) -> Result<(), Failure> {
    let path = format!("{}/import", pool_path(name));
    // The daemon decides whether the import may lose data; only then is a question asked.
    let answer = match desk.client.post(&path, &request, "pool") {
        Err(Failure::Refused(refusal)) if refusal.code == code::UNCONFIRMED => {
            confirm::repetition(name, refusal)?;
            desk.client.post(&path, &ImportPool { confirmed: true, ..request }, "pool")?
        }
        answered => answered?,
    };
    let pool: PoolReport = answer.decode()?;
    let volumes = if pool.volumes == 1 { "volume" } else { "volumes" };
    let how = pool.read_only.as_ref().map_or(String::new(), |why| format!(" read-only ({why})"));
    let text = format!("pool {name} imported{how}: {}, {} {volumes}", pool.state.as_str(), pool.volumes);
    desk.out.done(&answer, &text)
}

/// Describes the new pool, with the member size of its groups.
fn created(pool: &PoolReport, level: Level, disks: usize) -> String {
    // Groups of different disks have different member sizes.
    let sizes: BTreeSet<Size> = pool.groups.iter().map(|group| group.member_size).collect();
    let sizes: Vec<String> = sizes.into_iter().map(Size::iec).collect();
    let (name, size) = (&pool.name, pool.size);
    format!(
        "pool {name} created: {level} of {disks} disks, {size}; a replacement disk needs at least {}",
        sizes.join(" or ")
    )
}

/// Divides the disks in order into `count` groups of the same number.
fn share_out(like: &NewGroup, disks: &[DiskName], count: usize) -> Result<Vec<NewGroup>, Failure> {
    if count == 0 || !disks.len().is_multiple_of(count) {
        let message = format!("{} disks cannot be divided evenly into {count} groups", disks.len());
        let hint = "give the same number of disks for each group";
        return Err(Failure::usage(&Refusal::new(code::GROUPS_UNEQUAL, message, hint)));
    }
    let group = |disks: &[DiskName]| NewGroup { disks: disks.to_vec(), ..like.clone() };
    // `count` divides the number of disks, so no group is shorter.
    Ok(disks.chunks(disks.len() / count).map(group).collect())
}

fn list(desk: &CommandContext, options: &ListOptions) -> Result<(), Failure> {
    let answer = desk.client.list("/pools", "pools", options, &[])?;
    let pools: Vec<PoolReport> = answer.decode()?;
    // Problems of the volumes and disks of a pool are in the status only.
    let status = status(desk)?;
    let row = |pool: &PoolReport| {
        vec![
            pool.name.to_string(),
            Problem::pool_state(pool, concerns(&status, pool)),
            known(pool.size, Size::iec),
            pool.used.iec(),
            pool.free().iec(),
            pool.volumes.to_string(),
            pool.members().count().to_string(),
            or_dash(pool.rebuild().map(|progress| format!("{} %", progress.percent()))),
            or_dash(pool.log.as_ref().map(log::brief)),
        ]
    };
    let header = &["POOL", "STATE", "SIZE", "USED", "FREE", "VOLUMES", "DISKS", "REBUILD", "LOG"];
    desk.out.rows(&answer, &Rows { header, rows: pools.iter().map(row).collect() })
}

fn show(desk: &CommandContext, name: &model::Name) -> Result<(), Failure> {
    let answer = desk.client.get(&pool_path(name), "pool")?;
    if desk.out.is_json() {
        return desk.out.json(&answer);
    }
    let status = status(desk)?;
    let pool: PoolReport = answer.decode()?;
    put(&drawn(&pool, &concerns(&status, &pool)))
}

fn status(desk: &CommandContext) -> Result<StatusReport, Failure> {
    desk.client.get("/status", "status")?.decode()
}

/// Returns the problems of the pool, its log, its volumes and its disks, the most severe first.
fn concerns<'a>(status: &'a StatusReport, pool: &PoolReport) -> Vec<&'a Problem> {
    let members: Vec<&DiskName> = pool.members().filter_map(|member| member.disk.as_ref()).collect();
    status.problems.iter().filter(|problem| problem.concerns_pool(&pool.name, &members)).collect()
}

/// Draws the pool: groups, disks, running work.
fn drawn(pool: &PoolReport, problems: &[&Problem]) -> String {
    let state = Problem::pool_state(pool, problems.iter().copied());
    let mut text = format!("pool {}: {state}\n", pool.name);
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args).expect("a string takes all text");
        text.push('\n');
    };
    match &pool.read_only {
        Some(why) => line(format_args!("  read-only: {why}; {}", pool.writable_hint())),
        // Only an open pool has a reason. The way of its import is known also while it is closed.
        None if pool.imported_read_only => line(format_args!("  read-only: imported with --read-only")),
        None => {}
    }
    for Problem { subject, state, meaning, action, .. } in problems {
        line(format_args!("  {subject} is {state}: {meaning}; {action}"));
    }
    line(format_args!("  size    {}, used {}, free {}", pool.size, pool.used.iec(), pool.free().iec()));
    line(format_args!("  volumes {}", pool.volumes));
    for sentence in care::told(pool) {
        line(format_args!("  {sentence}"));
    }
    if let Some(warning) = weak(pool) {
        line(format_args!("  layout  {warning}"));
    }
    if !pool.spares.is_empty() {
        line(format_args!("  spares  {}", joined(&pool.spares)));
    }
    let heads = pool.groups.iter().map(|group| {
        let sums = if group.integrity { "" } else { ", no checksums" };
        let (chunk, used) = (group.chunk.iec(), group.member_size.iec());
        let head = format!("group {}: {}, chunk {chunk}, member size {used}{sums}", group.number, layout(group));
        (format!("{head}, {}", group.state.as_str()), group)
    });
    let logs = pool.log.iter().map(|log| (format!("log: {}", log::drawn(log)), &log.group));
    for (head, group) in heads.chain(logs) {
        line(format_args!("  {head}"));
        for member in &group.members {
            line(format_args!("    {}", drawn_member(member, problems)));
        }
        let works = [("rebuild", &group.rebuild), ("resync", &group.resync), ("reshape", &group.reshape)];
        for (what, progress) in works {
            let Some(progress) = progress else { continue };
            line(format_args!("    {} {}", progress::drawn(progress), progress::sentence(what, progress)));
        }
        if let Some(growth) = group.growth {
            let command = format!("blockyard pool grow {} --group {}", pool.name, group.number);
            line(format_args!("    its disks can provide {} more: {command}", growth.iec()));
        }
    }
    if !pool.lost.is_empty() {
        line(format_args!("  lost: {}", pool.lost.amount()));
        pool.lost.ranges.iter().take(LOST_SHOWN).for_each(|range| line(format_args!("    {range}")));
        if pool.lost.truncated || pool.lost.ranges.len() > LOST_SHOWN {
            line(format_args!("    more: blockyard pool show {} --output json", pool.name));
        }
    }
    text
}

/// Limit of the ranges of lost blocks that are listed.
const LOST_SHOWN: usize = 32;

/// Warns of enclosures whose loss the pool would not survive.
fn weak(pool: &PoolReport) -> Option<String> {
    let weak = &pool.weak_enclosures;
    let plural = if weak.len() == 1 { "enclosure" } else { "any of the enclosures" };
    (!weak.is_empty()).then(|| format!("pool {} would not survive the loss of {plural} {}", pool.name, weak.join(", ")))
}

/// Describes the layout as level, data and redundancy: `raid6 4+2`.
fn layout(group: &GroupReport) -> String {
    let (members, level) = (group.members.len(), group.level);
    let data = level.data_members(members);
    format!("{level} {data}+{}", members - data)
}

fn drawn_member(member: &MemberReport, problems: &[&Problem]) -> String {
    let disk = member.disk.as_ref().map_or_else(|| member.id.to_string(), ToString::to_string);
    let errors = match member.errors {
        0 => String::new(),
        1 => ", 1 error".to_owned(),
        n => format!(", {n} errors"),
    };
    let wrong = match member.checksum_errors {
        0 => String::new(),
        // Blocks of members are 4 KiB.
        n => format!(", {} checksum errors", Size::new(n * 4096).iec()),
    };
    let fitness = match (&member.copy, member.health) {
        // The copy is the reaction to the errors, so it says more than their number.
        (Some(copy), _) => format!(", being copied to {}, {} %", copy.disk, copy.progress.percent()),
        (None, MemberFitness::Failing | MemberFitness::Critical) => {
            format!(", {} failed reads in 24 h", member.errors_24h)
        }
        (None, MemberFitness::Good | MemberFitness::Slow) => String::new(),
    };
    let spare = member.replaces.as_ref().map_or(String::new(), |of| format!(", former spare, replaces {of}"));
    let subject = format!("disk {disk}");
    let worst = problems.iter().find(|problem| problem.subject == subject);
    let worst = worst.map_or(String::new(), |problem| format!(", {}", problem.state));
    let next = member.next_step().map_or(String::new(), |next| format!(", {next}"));
    format!("{:>2}  {disk:<12} {}{worst}{errors}{wrong}{fitness}{spare}{next}", member.slot, member.state.as_str())
}

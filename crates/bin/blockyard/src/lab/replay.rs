//! Command `blockyard lab replay`.

use crate::args::{Global, ReplayOptions, ReplayPace, TargetOptions};
use crate::conform::test_target;
use crate::failure::Failure;
use crate::output::{Output, Rows, put};
use ::lab::drive::{self, Login, Replaying, Transport};
use ::lab::replay::{Compared, Figures, Pace, Plan, Recorded, Replayed};
use anyhow::{Context, Result};
use model::{Size, Traced, TracedCommand};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::net::ToSocketAddrs;

/// Queue depth of a session of our initiator.
const DEPTH: u32 = 1024;

/// Lists, summarizes or replays a trace.
pub(super) fn replay(options: &ReplayOptions, global: &Global) -> Result<(), Failure> {
    let name = options.trace.display();
    let file = fs::read(&options.trace).with_context(|| format!("cannot read {name}"))?;
    let traced = ::trace::parse(&file).with_context(|| name.to_string())?;
    if options.speed.is_some() && matches!(options.pace, ReplayPace::Fast) {
        let why = "--speed has no effect with --pace fast; omit it";
        return Err(Failure::Usage(why.to_owned()));
    }
    // The list has every command, also those that cannot be replayed.
    if options.show {
        return show(&traced, global);
    }
    let plan = Plan::of(&traced).with_context(|| name.to_string())?;
    match &options.to {
        None => sum_up(&plan.recorded(), global),
        Some(to) => {
            let way = way_of(to, options, plan.sessions.len())?;
            let pace = match options.pace {
                ReplayPace::Recorded => Pace::Recorded { speed: options.speed.unwrap_or(1.0) },
                ReplayPace::Fast => Pace::Fast,
            };
            let (wrap, overwrite) = (options.wrap, options.overwrite);
            // A fixed seed: a second replay of the same trace writes the same data.
            let how = Replaying { pace, wrap, overwrite, seed: traced.begun_unix_ns };
            let run = async move |world| drive::replay(&world, plan, &way, how).await;
            say(&uring::run(&uring::Options::default(), run).context("cannot reach the system's I/O")??, global)
        }
    }
}

/// Returns the logins, one for each recorded session, or the device.
fn way_of(to: &str, options: &ReplayOptions, sessions: usize) -> Result<Transport, Failure> {
    if !to.starts_with("iscsi://") {
        return Ok(Transport::Device(vec![to.to_owned()]));
    }
    let aim = test_target(&TargetOptions { url: to.to_owned(), who: options.who.clone() })?;
    let portal = aim.portal.to_socket_addrs().with_context(|| format!("no address of {}", aim.portal))?.next();
    let portal = portal.with_context(|| format!("no address of {}", aim.portal))?;
    let login = |session: usize| Login {
        portal,
        target: aim.target.clone(),
        lun: aim.lun,
        initiator: aim.initiator.clone(),
        // A separate ISID per session: an equal one would reinstate the session before (RFC 7143 §6.3.5).
        session: session as u16,
        auth: aim.auth.clone(),
        digests: false,
        // A trace records sessions and not their connections.
        connections: 1,
        depth: DEPTH,
    };
    Ok(Transport::Iscsi((0..sessions).map(login).collect()))
}

fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    put(&(serde_json::to_string(value).context("cannot be encoded as JSON")? + "\n"))
}

/// Prints every command, as a row or as a line of JSON.
fn show(traced: &Traced, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let operation = |command: &TracedCommand| scsi::Cdb::new(&command.cdb).operation_name();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if output.is_json() {
        return traced.commands.iter().try_for_each(|command| {
            json_line(&json!({
                "number": command.number,
                "began_ns": command.began_ns,
                "took_ns": command.took_ns,
                "session": command.session,
                "initiator": traced.sessions[command.session as usize],
                "operation": operation(command),
                "cdb": hex(&command.cdb),
                "status": command.status,
                "sense": hex(&command.sense),
                "data_out_bytes": command.data_out_bytes,
                "data_in_bytes": command.data_in_bytes,
            }))
        });
    }
    let row = |command: &TracedCommand| {
        vec![
            command.number.to_string(),
            format!("{:.6}", command.began_ns as f64 / 1e9),
            us(command.took_ns),
            command.session.to_string(),
            operation(command).to_owned(),
            hex(&command.cdb),
            format!("{:02x}", command.status),
            hex(&command.sense),
            command.data_out_bytes.to_string(),
            command.data_in_bytes.to_string(),
        ]
    };
    let header = &["NUMBER", "START S", "DURATION US", "SESSION", "OPERATION", "CDB", "STATUS", "SENSE", "OUT", "IN"];
    output.lines(&Rows { header, rows: traced.commands.iter().map(row).collect() })
}

fn us(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

/// Prints a summary of the recorded commands.
fn sum_up(recorded: &Recorded, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    if output.is_json() {
        return json_line(recorded);
    }
    let row = |(kind, figures): (&&str, &Figures)| {
        let mut row = vec![(*kind).to_owned(), figures.commands.to_string(), Size::new(figures.bytes).iec()];
        row.extend([figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.longest_ns].map(us));
        row
    };
    let header = &["KIND", "COMMANDS", "BYTES", "P50 US", "P99 US", "P99.9 US", "MAX US"];
    output.lines(&Rows { header, rows: recorded.kinds.iter().map(row).collect() })?;
    say_skipped(&recorded.skipped, output);
    Ok(())
}

fn say_skipped(skipped: &BTreeMap<String, u64>, output: Output) {
    if !skipped.is_empty() && !output.is_quiet() {
        let skipped: Vec<String> = skipped.iter().map(|(what, times)| format!("{times} × {what}")).collect();
        eprintln!("not replayed: {}", skipped.join(", "));
    }
}

/// Prints the recorded and the replayed load side by side.
///
/// *Errors*: commands failed that had succeeded when they were recorded.
fn say(replayed: &Replayed, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    if output.is_json() {
        json_line(replayed)?;
    } else {
        let rows = replayed.kinds.iter().map(compared).collect();
        let header = &[
            "KIND",
            "RECORDED",
            "REPLAYED",
            "FAILED",
            "BYTES",
            "P50 US THEN",
            "NOW",
            "P99 US THEN",
            "NOW",
            "P99.9 US THEN",
            "NOW",
        ];
        output.lines(&Rows { header, rows })?;
        output.said("")?;
        output.lines(&totals(replayed))?;
        say_skipped(&replayed.skipped, output);
    }
    let failed: u64 = replayed.kinds.iter().map(|kind| kind.replayed.failed).sum();
    if failed > 0 {
        return Err(anyhow::anyhow!("{failed} commands failed that had succeeded in the recording").into());
    }
    Ok(())
}

fn compared(Compared { kind, recorded, replayed }: &Compared) -> Vec<String> {
    let mut row = vec![
        kind.name().to_owned(),
        recorded.commands.to_string(),
        replayed.commands.to_string(),
        replayed.failed.to_string(),
        Size::new(replayed.bytes).iec(),
    ];
    let pairs =
        [(recorded.p50_ns, replayed.p50_ns), (recorded.p99_ns, replayed.p99_ns), (recorded.p999_ns, replayed.p999_ns)];
    row.extend(pairs.into_iter().flat_map(|(before, after)| [us(before), us(after)]));
    row
}

fn totals(replayed: &Replayed) -> Rows {
    let row = |name: &str, of: fn(&Compared) -> &Figures, seconds: f64, late: [String; 2]| {
        let commands: u64 = replayed.kinds.iter().map(|kind| of(kind).commands).sum();
        let bytes: u64 = replayed.kinds.iter().map(|kind| of(kind).bytes).sum();
        // A trace of one command has no duration.
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let [rate, bandwidth] = [per_second(commands as f64), per_second(bytes as f64 / 1e6)];
        let figures = [name.to_owned(), format!("{seconds:.3}"), format!("{rate:.0}"), format!("{bandwidth:.1}")];
        figures.into_iter().chain(late).collect::<Vec<_>>()
    };
    let late = [us(replayed.late.p99_ns), us(replayed.late.longest_ns)];
    Rows {
        header: &["LOAD", "SECONDS", "COMMANDS/S", "MB/S", "LATE P99 US", "LATE MAX US"],
        rows: vec![
            row("recorded", |kind| &kind.recorded, replayed.recorded_seconds, ["-", "-"].map(str::to_owned)),
            row("replayed", |kind| &kind.replayed, replayed.replayed_seconds, late),
        ],
    }
}

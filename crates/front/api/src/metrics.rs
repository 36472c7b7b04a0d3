//! Metrics for Prometheus, under names by its conventions.
//!
//! Volumes that were not used since they were opened have no histogram, only the other metrics.

mod text;

pub(crate) use text::MEDIA;

use alert::Alerts;
use control::Control;
use model::{
    Activity, DiskReport, EventSeverity, Histogram, MeasureState, MemberFitness, MemberReport, PoolReport,
    PortalReport, PortalState, Refusal, Severity, StatusReport, VolumeReport, VolumeState,
};
use std::sync::Arc;
pub(crate) use text::Text;
use text::{Kind, Labels};

/// Step over the bounds of a histogram: every second one is exported (16 µs, 64 µs, … 67 s).
const BOUNDS_STEP: usize = 2;

/// All metric families in the text format of Prometheus.
///
/// *Errors*: the engine is not running.
pub(crate) async fn metrics(control: Arc<Control>, alerts: &Alerts) -> Result<String, Refusal> {
    let mut text = Text::default();
    node(&mut text, &control.status.report().await?);
    let all = control.pools.list().await?;
    pools(&mut text, &all);
    members(&mut text, &all);
    let (volumes, activity) = (control.volumes.list().await?, control.live.activity().await?);
    volumes_as_they_are(&mut text, &volumes);
    volumes_as_used(&mut text, &activity);
    let known = control.disks.list().await?;
    disks(&mut text, &known);
    disk_paths(&mut text, &known);
    sessions(&mut text, &activity);
    portals(&mut text, &control.portals.list().await?);
    alerts_and_receivers(&mut text, alerts);
    process(&mut text);
    Ok(text.into_string())
}

fn node(text: &mut Text, status: &StatusReport) {
    let (engine, node) = (&status.engine, status.node.as_str());
    let about = [("version", status.version.as_str()), ("node", node), ("io", engine.io.as_str())];
    text.family("blockyard_build_info", Kind::Gauge, "The daemon's version, node and I/O engine.").sample(&about, 1);
    let mut problems = text.family("blockyard_problems", Kind::Gauge, "Active problems by severity.");
    // With a sample also for none, so that a rule of Prometheus finds a zero.
    for (word, severity) in [("warning", Severity::Warning), ("critical", Severity::Critical)] {
        let count = status.problems.iter().filter(|problem| problem.severity == severity).count();
        problems.sample(&[("severity", word)], count);
    }
    for (name, kind, help, value) in [
        ("blockyard_uptime_seconds", Kind::Gauge, "Uptime of the data plane.", engine.uptime_seconds),
        ("blockyard_shards", Kind::Gauge, "Shards of the data plane.", u64::from(engine.shards)),
        ("blockyard_sessions", Kind::Gauge, "Logged-in iSCSI sessions.", u64::from(engine.sessions)),
        ("blockyard_commands_total", Kind::Counter, "Completed SCSI commands.", engine.commands),
        ("blockyard_read_bytes_total", Kind::Counter, "Bytes sent to initiators.", engine.read_bytes),
        ("blockyard_written_bytes_total", Kind::Counter, "Bytes received from initiators.", engine.written_bytes),
        ("blockyard_buffer_bytes", Kind::Gauge, "Buffers in use.", engine.buffer_bytes),
        ("blockyard_buffer_limit_bytes", Kind::Gauge, "Limit of buffers.", engine.buffer_bytes_max),
    ] {
        text.family(name, kind, help).sample(&[], value);
    }
    // A family without samples is left out.
    if !status.confinement.is_empty() {
        let help = "1 if the sandbox measure is active, else 0.";
        let mut family = text.family("blockyard_confinement", Kind::Gauge, help);
        for report in &status.confinement {
            let in_force = report.state == MeasureState::InForce;
            // Prometheus has no booleans: states are exported as 0 and 1.
            family.sample(&[("measure", report.measure.as_str())], u64::from(in_force));
        }
    }
    let Some(memory) = &status.memory else { return };
    for (name, help, value) in [
        ("blockyard_memory_limit_bytes", "Smallest memory limit of the daemon.", memory.limit),
        ("blockyard_read_cache_limit_bytes", "Configured limit of the read cache.", memory.cache_max),
        (
            "blockyard_read_cache_allowed_bytes",
            "Current limit of the read cache; lower while memory is low.",
            memory.cache_now,
        ),
    ] {
        text.family(name, Kind::Gauge, help).sample(&[], value.bytes());
    }
    // A kernel without PSI reports no pressure.
    if let Some(percent) = memory.pressure_percent {
        let help = "Share of the last 10 seconds with tasks stalled on memory (PSI).";
        text.family("blockyard_memory_pressure_ratio", Kind::Gauge, help).sample(&[], f64::from(percent) / 100.0);
    }
}

pub(crate) fn pools(text: &mut Text, pools: &[PoolReport]) {
    let mut each = |name, help, value: &dyn Fn(&PoolReport) -> Option<f64>| {
        let mut family = text.family(name, Kind::Gauge, help);
        for pool in pools {
            if let Some(value) = value(pool) {
                family.sample(&[("pool", pool.name.as_str())], value);
            }
        }
    };
    each("blockyard_pool_capacity_bytes", "Capacity of a pool for volumes.", &|pool| Some(float(pool.size.bytes())));
    each("blockyard_pool_used_bytes", "Space used by the volumes of a pool.", &|pool| Some(float(pool.used.bytes())));
    each("blockyard_pool_healthy", "1 while all members of a pool are in sync.", &|pool| {
        Some(f64::from(u8::from(pool.state == model::PoolState::Healthy)))
    });
    each("blockyard_pool_serves", "1 while a pool is online.", &|pool| {
        // States are ordered by severity, and from `Failed` on a pool is offline.
        Some(f64::from(u8::from(pool.state < model::PoolState::Failed)))
    });
    each("blockyard_pool_waits", "1 while a closed pool waits for its disks.", &|pool| {
        Some(f64::from(u8::from(pool.waiting.as_ref().is_some_and(|waiting| !waiting.needs_operator))))
    });
    each("blockyard_pool_needs_operator", "1 while a closed pool needs an operator.", &|pool| {
        Some(f64::from(u8::from(pool.waiting.as_ref().is_some_and(|waiting| waiting.needs_operator))))
    });
    each("blockyard_pool_read_only", "1 while a pool is read-only.", &|pool| {
        Some(f64::from(u8::from(pool.read_only.is_some())))
    });
    each("blockyard_pool_members_lost", "Members of a pool that are out of sync and not joining.", &|pool| {
        let lost = |member: &&model::MemberReport| member.state.is_lost();
        Some(float(pool.members().filter(lost).count() as u64))
    });
    each("blockyard_rebuild_progress_ratio", "Progress of the running rebuild of a pool.", &|pool| {
        let under_way = pool.groups.iter().filter_map(|group| group.rebuild.as_ref());
        // Several groups may rebuild at once; the slowest one decides.
        under_way.map(|progress| ratio(progress.done_bytes, progress.total_bytes)).reduce(f64::min)
    });
    each("blockyard_pool_lost_blocks", "Unrecoverable blocks of 4096 bytes.", &|pool| Some(float(pool.lost.blocks)));
    each("blockyard_pool_spare_due_seconds", "Seconds until a hot spare replaces a lost member.", &|pool| {
        pool.members()
            .filter_map(|member| member.next_spare.as_ref())
            .map(|next| float(next.seconds_left))
            .reduce(f64::min)
    });
    each("blockyard_pool_members_erring", "Members of a pool that fail more reads than its policy allows.", &|pool| {
        let errs = |member: &&MemberReport| matches!(member.health, MemberFitness::Failing | MemberFitness::Critical);
        Some(float(pool.members().filter(errs).count() as u64))
    });
    each(
        "blockyard_pool_wrong_blocks",
        "Blocks with checksum errors since the pool was opened; repaired if possible.",
        &|pool| Some(float(pool.members().map(|member| member.checksum_errors).sum())),
    );
}

/// Latency of an operation at a percentile; both texts are empty for a metric without these labels.
type Percentile = (&'static str, &'static str, f64);

fn members(text: &mut Text, pools: &[PoolReport]) {
    // One family at a time, because the format requires its samples to be consecutive.
    let mut each = |name, help, value: &dyn Fn(&model::MemberLatency) -> Vec<Percentile>| {
        let mut family = text.family(name, Kind::Gauge, help);
        for pool in pools {
            for member in pool.members() {
                let (Some(disk), Some(latency)) = (&member.disk, &member.latency) else { continue };
                for (operation, percentile, value) in value(latency) {
                    let labels = [
                        ("pool", pool.name.as_str()),
                        ("disk", disk.as_str()),
                        ("operation", operation),
                        ("percentile", percentile),
                    ];
                    // A value of the member as a whole has no labels of an operation.
                    family.sample(if operation.is_empty() { &labels[..2] } else { &labels }, value);
                }
            }
        }
    };
    // Prometheus expects base units, so times are in seconds.
    let seconds = |us: u64| float(us) / 1e6;
    each("blockyard_member_latency_seconds", "Moving average of the latency of a member.", &|latency| {
        vec![
            ("read", "50", seconds(latency.read_p50_us)),
            ("read", "99", seconds(latency.read_p99_us)),
            ("write", "50", seconds(latency.write_p50_us)),
            ("write", "99", seconds(latency.write_p99_us)),
        ]
    });
    each("blockyard_member_silent_seconds", "Age of the oldest outstanding operation of a member.", &|latency| {
        vec![("", "", float(latency.unresponsive_ms) / 1e3)]
    });
    each("blockyard_member_slow", "1 while a member is many times slower than the other members.", &|latency| {
        vec![("", "", f64::from(u8::from(latency.slow)))]
    });
}

fn volumes_as_they_are(text: &mut Text, volumes: &[VolumeReport]) {
    let mut each = |name, help, value: &dyn Fn(&VolumeReport) -> Option<u64>| {
        let mut family = text.family(name, Kind::Gauge, help);
        for volume in volumes {
            if let Some(value) = value(volume) {
                family.sample(&[("volume", &volume.name.to_string())], value);
            }
        }
    };
    each("blockyard_volume_size_bytes", "Size of a volume.", &|volume| Some(volume.size.bytes()));
    each("blockyard_volume_mapped_bytes", "Mapped (allocated) bytes of a volume that has a map.", &|volume| {
        volume.space.as_ref().map(|space| space.mapped.bytes())
    });
    each("blockyard_volume_online", "1 while a volume is online.", &|volume| {
        Some(u64::from(volume.state == VolumeState::Online))
    });
    each("blockyard_volume_cache_bytes", "Cache memory used by a volume.", &|volume| {
        volume.cache.map(|cache| cache.used.bytes())
    });
    each("blockyard_volume_dirty_bytes", "Dirty bytes: acknowledged but not on the disks yet.", &|volume| {
        volume.cache.map(|cache| cache.dirty.bytes())
    });
}

fn volumes_as_used(text: &mut Text, activity: &Activity) {
    // Names are formatted once for all families.
    let named: Vec<(String, &model::VolumeActivity)> =
        activity.volumes.iter().map(|volume| (volume.name.to_string(), volume)).collect();
    let help = "Latency of host commands at a volume, from the complete command to its response.";
    let mut family = text.family("blockyard_volume_io_duration_seconds", Kind::Histogram, help);
    for (name, volume) in &named {
        let took = &volume.took;
        for (op, histogram) in [("read", &took.reads), ("write", &took.writes), ("other", &took.others)] {
            durations(&mut family, &[("volume", name), ("op", op)], histogram);
        }
    }
    let mut each = |name, help, value: &dyn Fn(&model::VolumeActivity) -> Option<u64>| {
        let mut family = text.family(name, Kind::Counter, help);
        for (volume, activity) in &named {
            if let Some(value) = value(activity) {
                family.sample(&[("volume", volume)], value);
            }
        }
    };
    each("blockyard_volume_read_bytes_total", "Bytes that hosts read.", &|volume| Some(volume.counters.read_bytes));
    each("blockyard_volume_written_bytes_total", "Bytes that hosts wrote.", &|volume| {
        Some(volume.counters.written_bytes)
    });
    each("blockyard_volume_errors_total", "Commands that failed with a medium or hardware error.", &|volume| {
        Some(volume.counters.errors)
    });
    each(
        "blockyard_volume_reservation_conflicts_total",
        "Commands refused because of a reservation of another host.",
        &|volume| Some(volume.counters.conflicts),
    );
    each("blockyard_volume_cache_hit_bytes_total", "Bytes of read cache hits.", &|volume| {
        volume.cache.map(|cache| cache.hits.bytes())
    });
    each("blockyard_volume_cache_miss_bytes_total", "Bytes of read cache misses.", &|volume| {
        volume.cache.map(|cache| cache.misses.bytes())
    });
}

/// Paths of remote disks.
fn disk_paths(text: &mut Text, disks: &[DiskReport]) {
    let remote = disks.iter().filter_map(|disk| Some((disk.name.as_ref()?, disk.remote.as_ref()?)));
    let paths: Vec<_> = remote.flat_map(|(name, remote)| remote.paths.iter().map(move |path| (name, path))).collect();
    if paths.is_empty() {
        // A family without samples is left out.
        return;
    }
    let mut each = |name, kind, help, value: &dyn Fn(&model::DiskPathReport) -> u64| {
        let mut family = text.family(name, kind, help);
        for (disk, path) in &paths {
            let portal = path.portal.to_string();
            family.sample(&[("disk", disk.as_str()), ("portal", &portal)], value(path));
        }
    };
    each("blockyard_disk_path_up", Kind::Gauge, "1 while a path to a remote disk is logged in.", &|path| {
        u64::from(path.state == model::DiskPathState::Up)
    });
    each("blockyard_disk_path_active", Kind::Gauge, "1 for the active path.", &|path| u64::from(path.active));
    each("blockyard_disk_path_losses_total", Kind::Counter, "Failures of a path.", &|path| path.losses);
    each("blockyard_disk_path_commands_total", Kind::Counter, "Commands sent over a path.", &|path| path.commands);
    each("blockyard_disk_path_bytes_total", Kind::Counter, "Bytes transferred over a path.", &|path| path.bytes);
}

fn disks(text: &mut Text, disks: &[DiskReport]) {
    let mut each = |name, kind, help, values: &dyn Fn(&DiskReport) -> Vec<(&'static str, f64)>| {
        let mut family = text.family(name, kind, help);
        for disk in disks {
            let Some(named) = &disk.name else { continue };
            let serial = disk.identity.serial.as_deref().unwrap_or_default();
            for (what, value) in values(disk) {
                let labels = [("disk", named.as_str()), ("serial", serial), ("kind", what)];
                // An empty kind leaves the label out.
                family.sample(if what.is_empty() { &labels[..2] } else { &labels }, value);
            }
        }
    };
    each("blockyard_disk_up", Kind::Gauge, "1 while a disk is present and has not failed.", &|disk| {
        let is_up = !matches!(disk.state, model::DiskState::Failed | model::DiskState::Missing);
        vec![("", f64::from(u8::from(is_up)))]
    });
    each("blockyard_disk_size_bytes", Kind::Gauge, "Size of a disk.", &|disk| vec![("", float(disk.size.bytes()))]);
    each("blockyard_disk_operations_total", Kind::Counter, "Operations of a disk.", &|disk| {
        let counted = &disk.counters;
        vec![("read", float(counted.reads)), ("write", float(counted.writes)), ("flush", float(counted.flushes))]
    });
    each("blockyard_disk_bytes_total", Kind::Counter, "Bytes that a disk read and wrote.", &|disk| {
        vec![("read", float(disk.counters.read_bytes)), ("write", float(disk.counters.written_bytes))]
    });
    each("blockyard_disk_errors_total", Kind::Counter, "Operations of a disk that failed.", &|disk| {
        vec![("", float(disk.counters.errors))]
    });
    each("blockyard_disk_busy_seconds_total", Kind::Counter, "Time with at least one operation in flight.", &|disk| {
        vec![("", float(disk.counters.busy_ns) / 1e9)]
    });
    each("blockyard_disk_waited_seconds_total", Kind::Counter, "Total time of all operations.", &|disk| {
        vec![("", float(disk.counters.waited_ns) / 1e9)]
    });
}

fn sessions(text: &mut Text, activity: &Activity) {
    let mut each = |name, kind, help, value: &dyn Fn(&model::SessionActivity) -> u64| {
        let mut family = text.family(name, kind, help);
        for session in &activity.sessions {
            let (id, portal) = (session.id.to_string(), session.portal.to_string());
            // An initiator without a host entry has an empty host label.
            let host = session.host.as_ref().map(|host| host.as_str()).unwrap_or_default();
            let labels =
                [("session", id.as_str()), ("host", host), ("initiator", &session.initiator), ("portal", &portal)];
            family.sample(&labels, value(session));
        }
    };
    each("blockyard_session_info", Kind::Gauge, "A session that is logged in.", &|_| 1);
    each("blockyard_session_commands_total", Kind::Counter, "SCSI commands of a session.", &|session| session.commands);
    each("blockyard_session_read_bytes_total", Kind::Counter, "Bytes sent to a session.", &|session| {
        session.read_bytes
    });
    each("blockyard_session_written_bytes_total", Kind::Counter, "Bytes received from a session.", &|session| {
        session.written_bytes
    });
}

fn portals(text: &mut Text, portals: &[PortalReport]) {
    let mut family = text.family("blockyard_portal_up", Kind::Gauge, "1 while a portal listens and its link is up.");
    for portal in portals {
        let is_up = portal.state == PortalState::Open;
        family.sample(&[("portal", &portal.address.to_string())], u8::from(is_up));
    }
    let mut family = text.family("blockyard_portal_sessions", Kind::Gauge, "Sessions on a portal.");
    for portal in portals {
        family.sample(&[("portal", &portal.address.to_string())], portal.sessions);
    }
}

fn alerts_and_receivers(text: &mut Text, alerts: &Alerts) {
    let active = alerts.active();
    let mut family = text.family("blockyard_alerts_active", Kind::Gauge, "Active alerts.");
    for severity in [EventSeverity::Warning, EventSeverity::Critical] {
        let count = active.iter().filter(|alert| alert.facts.severity == severity).count();
        family.sample(&[("severity", severity.as_str())], count);
    }
    let mut family =
        text.family("blockyard_alert_deliveries_total", Kind::Counter, "Alert messages by delivery result.");
    for delivered in alerts.delivered() {
        let outcome = if delivered.is_good { "taken" } else { "failed" };
        family.sample(&[("receiver", delivered.receiver.as_str()), ("outcome", outcome)], delivered.count);
    }
}

/// Metrics that every process has by convention. Values that the system does not provide are left out.
fn process(text: &mut Text) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command name in parentheses may contain anything; the fields from number 3 on follow it.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or_else(Vec::new, |(_, rest)| rest.split(' ').collect());
    // Numbers as in proc(5), where the first of these fields has number 3.
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
    // Times in `/proc` are in hundredths of a second (`USER_HZ`), whatever the kernel uses internally.
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let seconds = float(user + system) / 100.0;
        text.family("process_cpu_seconds_total", Kind::Counter, "CPU time of the daemon.").sample(&[], seconds);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(kib) = resident {
        let mut family = text.family("process_resident_memory_bytes", Kind::Gauge, "Memory of the daemon.");
        family.sample(&[], kib * 1024);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", Kind::Gauge, "Open files of the daemon.").sample(&[], open.count());
    }
}

fn durations(family: &mut text::Family<'_>, labels: &Labels<'_>, histogram: &Histogram) {
    let count = histogram.commands();
    if count == 0 {
        // An unused operation would export a histogram of zeros for every volume.
        return;
    }
    let cumulated = histogram.cumulated();
    let bounds = cumulated.iter().skip(BOUNDS_STEP - 1).step_by(BOUNDS_STEP);
    let buckets: Vec<(f64, u64)> = bounds.map(|&(us, below)| (float(us) / 1e6, below)).collect();
    family.histogram(labels, &buckets, count, float(histogram.took_us()) / 1e6);
}

#[allow(clippy::cast_precision_loss, reason = "a Prometheus server keeps doubles")]
fn float(value: u64) -> f64 {
    value as f64
}

fn ratio(done: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { float(done) / float(total) }
}

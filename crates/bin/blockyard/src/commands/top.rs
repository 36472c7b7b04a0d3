//! Command `blockyard top`: current activity, the slowest first.

use super::{CommandContext, counted, joined, or_dash};
use crate::args::{TopNoun, TopOptions};
use crate::failure::Failure;
use crate::output::{Output, Rows, put};
use control::live::{DiskRates, HostRates, LiveRates, PortalRates, Rates, SessionRates, VolumeRates};
use std::io::{self, IsTerminal};

/// Escape sequence that clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Limit of rows of each noun in the overview.
const OVERVIEW: [(TopNoun, usize); 3] = [(TopNoun::Volumes, 20), (TopNoun::Disks, 8), (TopNoun::Sessions, 8)];

pub(super) fn run(desk: &CommandContext, options: &TopOptions) -> Result<(), Failure> {
    let lines = usize::from(options.lines);
    if options.once {
        let answer = desk.client.get(&format!("/activity?limit={lines}"), "rates")?;
        let moment: LiveRates = answer.decode()?;
        return if desk.out.is_json() { desk.out.json(&answer) } else { one(desk.out, &moment, options, lines) };
    }
    let mut shown = Ok(());
    let mut feed = Feed::default();
    let ended = desk.client.fetch(&format!("/stream?limit={lines}"), |bytes| {
        // A frame of the stream may hold several events, or a part of one.
        for moment in feed.moments(bytes) {
            // The error stays in `shown`, since `fetch` returns only an I/O error.
            shown = show(desk.out, &moment, options, lines);
            if shown.is_err() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    })?;
    shown?;
    // The stream ends when the daemon stops, or when stdout is closed; neither is an error.
    let _ = ended;
    Ok(())
}

fn show(out: Output, moment: &LiveRates, options: &TopOptions, lines: usize) -> Result<(), Failure> {
    if out.is_json() {
        // One line for each moment, so that a reader can parse the stream by lines.
        return put(&format!("{}\n", serde_json::to_value(moment).unwrap_or_default()));
    }
    if io::stdout().is_terminal() {
        put(CLEAR)?;
    }
    one(out, moment, options, lines)
}

fn one(out: Output, moment: &LiveRates, options: &TopOptions, lines: usize) -> Result<(), Failure> {
    if let Some(noun) = options.noun {
        return out.lines(&table(noun, moment, lines));
    }
    // A pipe gets one table, so that every line has the same columns.
    if !io::stdout().is_terminal() {
        return out.lines(&table(TopNoun::Volumes, moment, lines));
    }
    put(&format!("{}\n", summary(moment)))?;
    for (noun, most) in OVERVIEW {
        let table = table(noun, moment, most.min(lines));
        if !table.rows.is_empty() {
            put("\n")?;
            out.lines(&table)?;
        }
    }
    Ok(())
}

fn summary(moment: &LiveRates) -> String {
    let (total, sessions) = (&moment.total, moment.portals.iter().map(|portal| portal.sessions).sum::<u32>());
    format!(
        "{}  {} IOPS ({} reads, {} writes)  {} MB/s read, {} written  p50 {}, p99 {}  {}",
        moment.time,
        count(total.commands()),
        count(total.reads),
        count(total.writes),
        mega(total.read_bytes),
        mega(total.written_bytes),
        time(total.p50_us),
        time(total.p99_us),
        counted(sessions, "session"),
    )
}

/// Column headers of [`rates`], between the name and the further columns.
macro_rules! with_rates {
    ($name:literal, $($more:literal),*) => {
        &[$name, "IOPS", "READS", "WRITES", "READ MB/S", "WRITTEN MB/S", "P50", "P99", "P99.9", $($more),*]
    };
}

fn table(noun: TopNoun, moment: &LiveRates, lines: usize) -> Rows {
    match noun {
        TopNoun::Volumes => Rows {
            header: with_rates!("VOLUME", "CACHE", "BOTTLENECK"),
            rows: moment.volumes.iter().take(lines).map(volume).collect(),
        },
        TopNoun::Hosts => {
            Rows { header: with_rates!("HOST", "SESSIONS"), rows: moment.hosts.iter().take(lines).map(host).collect() }
        }
        TopNoun::Sessions => Rows {
            header: with_rates!("SESSION", "HOST", "PORTAL", "INITIATOR"),
            rows: moment.sessions.iter().take(lines).map(session).collect(),
        },
        TopNoun::Portals => Rows {
            header: &["PORTAL", "IOPS", "READ MB/S", "WRITTEN MB/S", "SESSIONS"],
            rows: moment.portals.iter().take(lines).map(portal).collect(),
        },
        TopNoun::Disks => Rows {
            header: &["DISK", "READS", "WRITES", "READ MB/S", "WRITTEN MB/S", "MEAN", "BUSY", "DEPTH", "ERRORS"],
            rows: moment.disks.iter().take(lines).map(disk).collect(),
        },
    }
}

fn rates(name: String, rates: &Rates) -> Vec<String> {
    vec![
        name,
        count(rates.commands()),
        count(rates.reads),
        count(rates.writes),
        mega(rates.read_bytes),
        mega(rates.written_bytes),
        time(rates.p50_us),
        time(rates.p99_us),
        time(rates.p999_us),
    ]
}

fn volume(volume: &VolumeRates) -> Vec<String> {
    // Without reads there is no hit rate.
    let cached = volume.cache.filter(|cache| cache.hits + cache.misses > 0.0);
    let hits = cached.map(|cache| format!("{:.0} %", cache.hits / (cache.hits + cache.misses) * 100.0));
    let mut row = rates(volume.volume.to_string(), &volume.rates);
    row.extend([or_dash(hits), or_dash(volume.cause.as_ref())]);
    row
}

fn host(host: &HostRates) -> Vec<String> {
    let mut row = rates(or_dash(host.host.as_ref()), &host.rates);
    row.push(host.sessions.to_string());
    row
}

fn session(session: &SessionRates) -> Vec<String> {
    let mut row = rates(session.id.to_string(), &session.rates);
    row.extend([or_dash(session.host.as_ref()), session.portal.to_string(), session.initiator.clone()]);
    row
}

fn portal(portal: &PortalRates) -> Vec<String> {
    vec![
        portal.portal.to_string(),
        count(portal.commands),
        mega(portal.read_bytes),
        mega(portal.written_bytes),
        portal.sessions.to_string(),
    ]
}

fn disk(disk: &DiskRates) -> Vec<String> {
    vec![
        disk.disk.to_string(),
        count(disk.reads),
        count(disk.writes),
        mega(disk.read_bytes),
        mega(disk.written_bytes),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time that is not negative")]
        time(disk.mean_us.round() as u64),
        format!("{:.0} %", disk.busy * 100.0),
        format!("{:.1}", disk.depth),
        disk.errors.to_string(),
    ]
}

/// Formats a rate per second, with commas between thousands.
fn count(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let (first, rest) = digits.split_at(digits.len() % 3);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let all: Vec<String> = Some(first.to_owned()).filter(|first| !first.is_empty()).into_iter().chain(groups).collect();
    joined(&all)
}

/// Formats bytes per second as MB/s.
fn mega(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

/// Formats a latency; zero means none.
fn time(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// Decoder of the event stream, which arrives in pieces.
#[derive(Default)]
struct Feed(Vec<u8>);

impl Feed {
    fn moments(&mut self, bytes: &[u8]) -> Vec<LiveRates> {
        self.0.extend_from_slice(bytes);
        let mut moments = Vec::new();
        // A blank line ends an event (server-sent events).
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let rest = self.0.split_off(end + 2);
            let told = std::mem::replace(&mut self.0, rest);
            let told = String::from_utf8_lossy(&told).into_owned();
            // Other events of the stream are not rates, and have no data here.
            let data = told.strip_prefix("event: rates\n").and_then(|told| told.strip_prefix("data: "));
            moments.extend(data.and_then(|data| serde_json::from_str(data).ok()));
        }
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_said_as_people_read_them() {
        assert_eq!([0.0, 7.4, 999.6, 1_234_567.0].map(count), ["0", "7", "1,000", "1,234,567"]);
        assert_eq!([0, 999, 1000, 12_345, 1_500_000].map(time), ["-", "999 us", "1.0 ms", "12.3 ms", "1.5 s"]);
        assert_eq!(mega(160_900_000.0), "160.9");
    }

    #[test]
    fn feed_is_put_together_from_pieces_and_other_events_are_passed_over() {
        let rates = serde_json::to_value(Rates::default()).expect("json");
        let moment = serde_json::json!({
            "time": "2026-11-23T10:00:00Z", "span_ms": 1000, "total": rates,
            "volumes": [], "hosts": [], "sessions": [], "portals": [], "disks": [],
        });
        let text = format!(
            "event: rates\ndata: {moment}\n\nid: 7\nevent: event\ndata: {{}}\n\nevent: rates\ndata: {moment}\n\n"
        );
        let mut feed = Feed::default();
        let told: Vec<LiveRates> = text.as_bytes().chunks(7).flat_map(|piece| feed.moments(piece)).collect();
        assert_eq!((told.len(), told[0].span_ms), (2, 1000));
        assert!(feed.0.is_empty());
    }
}

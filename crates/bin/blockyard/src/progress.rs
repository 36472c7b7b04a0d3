//! Progress display and timeout of commands that wait for a rebuild or a reshape.

use crate::args::PatienceOptions;
use crate::client::Client;
use crate::commands::pool_path;
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use model::{Name, PoolReport, PoolState, Progress, Refusal, Size, Span, code};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Polling interval.
const INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a waiting command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimeout {
    span: Option<Span>,
    since: Instant,
}

impl WaitTimeout {
    /// Starts the timeout now, as set by `--timeout`.
    pub(crate) fn new(options: PatienceOptions) -> Self {
        Self { span: options.timeout, since: Instant::now() }
    }

    /// Sleeps until the next poll.
    ///
    /// *Errors*: the timeout has passed; `what` (`the rebuild of pool tank`) is named in the error.
    pub(crate) fn pause(self, what: &str) -> Result<(), Failure> {
        let Some(span) = self.span else {
            std::thread::sleep(INTERVAL);
            return Ok(());
        };
        let left = span.duration().saturating_sub(self.since.elapsed());
        if left.is_zero() {
            let message = format!("{what} did not finish within {span}");
            let hint = "it continues; see blockyard operation list, or wait longer";
            return Err(Refusal::new(code::TIMED_OUT, message, hint).into());
        }
        // The last sleep ends with the timeout, not an interval later.
        std::thread::sleep(left.min(INTERVAL));
        Ok(())
    }
}

/// Waits until no rebuild and no reshape of the pool is running, and returns its report.
///
/// *Errors*: the daemon is gone, or the timeout has passed.
///
/// `shown`: a progress bar on a terminal, a line for every ten percent elsewhere, both on stderr.
pub(crate) fn follow(client: &Client, pool: &Name, shown: bool, patience: WaitTimeout) -> Result<PoolReport, Failure> {
    // A terminal gets a bar; a file or a pipe gets lines.
    let bar = (shown && std::io::stderr().is_terminal()).then(|| bar(pool));
    let mut told = None;
    loop {
        let report: PoolReport = client.get(&pool_path(pool), "pool")?.decode()?;
        let rebuild = report.rebuild().map(|progress| ("rebuild", progress));
        let Some((what, progress)) = rebuild.or_else(|| report.reshape().map(|progress| ("reshape", progress))) else {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            return Ok(report);
        };
        let step = progress.percent() / 10;
        match &bar {
            Some(bar) => show(bar, what, &progress),
            // One line for every ten percent, so that a log of hours stays short.
            None if shown && told != Some(step) => {
                eprintln!("pool {pool}: {}", sentence(what, &progress));
                told = Some(step);
            }
            None => {}
        }
        patience.pause(&format!("the {what} of pool {pool}"))?;
    }
}

/// Succeeds if the pool is healthy; else prints its state, with exit code 1.
pub(crate) fn judge(report: &PoolReport) -> Result<(), Failure> {
    if report.state == PoolState::Healthy {
        return Ok(());
    }
    eprintln!("blockyard: pool {} is {}; see blockyard status", report.name, report.state.as_str());
    Err(Failure::Said)
}

/// Draws progress as a bar of 30 characters.
pub(crate) fn drawn(progress: &Progress) -> String {
    let done = usize::from(progress.percent()) * 30 / 100;
    format!("[{}{}]", "#".repeat(done), "-".repeat(30 - done))
}

/// Describes progress: `rebuild 52 %, 1.2 GiB of 2.3 GiB, 340 MB/s, 3 s left`.
pub(crate) fn sentence(what: &str, progress: &Progress) -> String {
    let left = progress.seconds_left.map_or("time unknown".to_owned(), |seconds| format!("{} left", duration(seconds)));
    format!(
        "{what} {} %, {} of {}, {}/s, {left}",
        progress.percent(),
        Size::new(progress.done_bytes).iec(),
        Size::new(progress.total_bytes).iec(),
        Size::new(progress.bytes_per_second).decimal(),
    )
}

/// Formats seconds in the two largest units: `3 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn duration(seconds: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {part}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn bar(pool: &Name) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:24}] {wide_msg}").expect("the template is well formed");
    ProgressBar::new(0).with_prefix(pool.to_string()).with_style(style.progress_chars("=> "))
}

fn show(bar: &ProgressBar, what: &str, progress: &Progress) {
    bar.set_length(progress.total_bytes);
    bar.set_position(progress.done_bytes);
    bar.set_message(sentence(what, progress));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_said_in_two_units_at_most() {
        let said = [0, 59, 60, 250, 3_600, 7_500, 273_600].map(duration);
        assert_eq!(said, ["0 s", "59 s", "1 min", "4 min 10 s", "1 h", "2 h 5 min", "3 d 4 h"]);
    }
}

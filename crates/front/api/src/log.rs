//! Recent lines of the daemon's log, for support without access to the journal.

use model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Lines kept at most.
pub(crate) const LINES_MAX: usize = 2000;
/// Bytes of all kept lines at most.
pub(crate) const BYTES_MAX: usize = 512 << 10;
/// Bytes kept of one line.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 10;

/// Buffer of recent log lines. A clone refers to the same buffer; the logger writes each line to it as well.
#[derive(Clone, Debug, Default)]
pub struct LastLines(Arc<Mutex<StoredLines>>);

#[derive(Debug, Default)]
struct StoredLines {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines written so far.
    written: u64,
}

/// Recent lines of the daemon's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonLog {
    /// Time of the request.
    pub time: Timestamp,
    /// Lines, the oldest first.
    pub lines: Vec<String>,
    /// Number of lines before them since the daemon started.
    pub before: u64,
}

impl LastLines {
    /// Returns the last lines, at most `limit`.
    #[must_use]
    pub fn last(&self, limit: usize) -> DaemonLog {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = kept.lines.len().saturating_sub(limit);
        let lines: Vec<String> = kept.lines.range(from..).cloned().collect();
        // Every kept line was counted as written, so the difference cannot wrap.
        DaemonLog { time: control::now(), before: kept.written - lines.len() as u64, lines }
    }

    fn keep(&self, line: &str) {
        // Cut at a character boundary: lines are text.
        let end = line.floor_char_boundary(LINE_BYTES_MAX);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += end;
        kept.written += 1;
        kept.lines.push_back(line[..end].to_owned());
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            kept.bytes -= kept.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

/// Expects whole lines in each write.
impl io::Write for LastLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        String::from_utf8_lossy(bytes).lines().for_each(|line| self.keep(line));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn log_is_kept_to_its_bounds_and_the_latest_lines_are_told() {
        let mut log = LastLines::default();
        for line in 0..LINES_MAX + 5 {
            log.write_all(format!("line {line}\n").as_bytes()).expect("it takes all");
        }
        let all = log.last(usize::MAX);
        assert_eq!((all.lines.len(), all.before), (LINES_MAX, 5));
        assert_eq!(all.lines[0], "line 5");
        let last = log.last(2);
        assert_eq!((last.lines, last.before), (vec!["line 2003".to_owned(), "line 2004".to_owned()], 2003));
        let long = "ä".repeat(LINE_BYTES_MAX);
        for _ in 0..LINES_MAX {
            log.write_all(format!("{long}\n").as_bytes()).expect("it takes all");
        }
        let all = log.last(usize::MAX);
        assert_eq!(all.lines.len(), BYTES_MAX / LINE_BYTES_MAX);
        assert!(all.lines.iter().all(|line| line.len() == LINE_BYTES_MAX));
    }
}

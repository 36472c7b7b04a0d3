//! Log on stderr, with a filter and a rate limit per call site.
//!
//! Without the limit, any client that can cause one line could cause millions of them and fill a disk.

use crate::args::LogForm;
use crate::failure::Failure;
use api::LastLines;
use model::{Refusal, code};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Limit of lines of one call site in one window.
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Starts logging to stderr, and keeps the last lines in memory for `blockyard log`.
///
/// *Errors*: `filter` is not a log filter, as a sentence for the operator.
pub(crate) fn start(filter: &str, form: LogForm) -> Result<LastLines, Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        let message = format!("\"{filter}\" is not a log filter: {error}");
        Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "write, for example, info or info,engine=debug"))
    })?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = lines(form, std::io::stderr, colours);
    let last = LastLines::default();
    let kept = self::lines(
        form,
        {
            let last = last.clone();
            move || last.clone()
        },
        // The kept lines have no color codes, whatever stderr is.
        false,
    );
    // The rate limit vetoes an event for both writers, so memory and stderr have the same lines.
    tracing_subscriber::registry().with(filter).with(LogRateLimit::default()).with(lines).with(kept).init();
    Ok(last)
}

/// Returns the layer that formats and writes a line for each event.
fn lines<S, W>(form: LogForm, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let text = tracing_subscriber::fmt::layer().with_writer(writer);
    match form {
        LogForm::Text => text.with_ansi(colours).boxed(),
        // Fields at the top level, where log collectors look for them.
        LogForm::Json => text.json().flatten_event(true).boxed(),
    }
}

/// Rate limit of log lines: drops lines of a call site beyond the limit, and logs their number.
#[derive(Default)]
struct LogRateLimit(Mutex<HashMap<Identifier, Cause>>);

/// Window of one call site.
struct Cause {
    /// Start of the window.
    since: Instant,
    lines: u32,
    left_out: u64,
    /// Message of the first dropped line.
    said: String,
}

impl LogRateLimit {
    /// Counts a line of a call site. Returns whether it may be written, and the dropped lines of windows that are over.
    fn count(&self, cause: Identifier, now: Instant, said: impl FnOnce() -> String) -> (bool, Vec<(u64, String)>) {
        // The counters stay usable after a panic: the worst is one line too many.
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = Vec::new();
        // Removing all windows that are over bounds the map to the call sites of one second.
        causes.retain(|_, cause| {
            let is_over = now.saturating_duration_since(cause.since) >= WINDOW;
            if is_over && cause.left_out > 0 {
                left_out.push((cause.left_out, std::mem::take(&mut cause.said)));
            }
            !is_over
        });
        let fresh = || Cause { since: now, lines: 0, left_out: 0, said: String::new() };
        let cause = causes.entry(cause).or_insert_with(fresh);
        let admitted = cause.lines < LINES_MAX;
        if admitted {
            cause.lines += 1;
        } else {
            cause.left_out += 1;
            // The text is formatted only once per window: formatting is what the limit saves.
            if cause.left_out == 1 {
                cause.said = said();
            }
        }
        (admitted, left_out)
    }
}

impl<S: Subscriber> Layer<S> for LogRateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let (admitted, left_out) = self.count(event.metadata().callsite(), Instant::now(), || message_of(event));
        // This line is itself subject to the limit, so it cannot recur without bound.
        for (count, said) in left_out {
            tracing::warn!(count, said, "repeated lines suppressed");
        }
        admitted
    }
}

/// Returns the message of an event, without its fields.
fn message_of(event: &Event<'_>) -> String {
    struct Message(String);
    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                // Writing to a string does not fail.
                let _ = write!(self.0, "{value:?}");
            }
        }
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_of_a_flood_is_short_and_says_what_was_left_out() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber = tracing_subscriber::registry().with(LogRateLimit::default()).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for peer in 0..1000 {
                tracing::warn!(peer, "too many logins");
            }
            tracing::warn!("something else");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("too many logins").count(), 10, "{text}");
        assert_eq!(text.matches("something else").count(), 1);
    }

    #[test]
    fn line_for_programs_has_each_fact_under_its_name() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines(LogForm::Json, move || writer.clone(), true);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(pool = "tank", group = 0, "a member has failed");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"a member has failed".into()));
        assert_eq!((&line["pool"], &line["group"]), (&"tank".into(), &0.into()));
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }

    #[test]
    fn window_that_is_over_tells_what_it_left_out_once() {
        let (brevity, now) = (LogRateLimit::default(), Instant::now());
        let cause = || tracing::callsite::Identifier(&CALLSITE);
        let said = || "half-open".to_owned();
        let admitted = (0..25).filter(|_| brevity.count(cause(), now, said).0).count();
        assert_eq!(admitted, 10);
        assert_eq!(brevity.count(cause(), now + WINDOW / 2, said), (false, Vec::new()));
        assert_eq!(brevity.count(cause(), now + WINDOW, said), (true, vec![(16, "half-open".to_owned())]));
        assert_eq!(brevity.count(cause(), now + 2 * WINDOW, said), (true, Vec::new()));
    }

    struct TestCallsite;
    static CALLSITE: TestCallsite = TestCallsite;

    impl tracing::callsite::Callsite for TestCallsite {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &tracing::Metadata<'_> {
            unreachable!("nobody asks what it is")
        }
    }
}

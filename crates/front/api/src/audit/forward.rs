//! Forwarding of the audit log to a syslog server: each record in order, at least once.
//!
//! *Source*: RFC 5424 (message), RFC 5425 (TLS) and RFC 6587 §3.4.1 (octet counting). Syslog has no acknowledgments, so
//! a record counts as delivered once the connection has stayed up for a while; after a failure the latest records are
//! sent again. Runs beside the changes and delays none of them.

use super::Audit;
use crate::request::SetForward;
use alert::AUDIT_RECEIVER;
use control::{Control, now};
use model::{ForwardReport, Problem, ReceiverTrust, Refusal, Severity, Subject, SubjectKind, Timestamp, code, event};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use trust::Trust;

/// Name of the document in the state.
const DOCUMENT: &str = "audit-forward";
/// Default ports with TLS and in the clear. *Source*: RFC 5425 §4.1; RFC 6587 for plain TCP.
const TLS_PORT: u16 = 6514;
const PLAIN_PORT: u16 = 601;
/// Facility 13 (log audit), severity 5 (notice). *Source*: RFC 5424 §6.2.1.
const PRIORITY: u8 = 13 * 8 + 5;
/// Interval at which new records are looked for.
const ROUND: Duration = Duration::from_millis(500);
/// Time that a connection must stay up before the records sent on it count as delivered.
const SETTLED: Duration = Duration::from_secs(5);
/// Timeout for connecting and sending.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// Records in one batch.
const BATCH: usize = 200;

/// Destination and progress of the forwarding.
pub(crate) struct Forward {
    control: Arc<Control>,
    audit: Arc<Audit>,
    kept: Mutex<StoredForward>,
    status: Mutex<DeliveryStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct StoredForward {
    to: Option<String>,
    trust: ReceiverTrust,
    /// Number of the last record that counts as delivered.
    position: u64,
}

#[derive(Clone, Debug, Default)]
struct DeliveryStatus {
    last: Option<Timestamp>,
    why: Option<String>,
}

impl Forward {
    /// Loads the settings from the state.
    ///
    /// *Errors*: they cannot be read.
    pub(crate) fn open(control: Arc<Control>, audit: Arc<Audit>) -> Result<Self, Refusal> {
        let kept =
            control.core.document(DOCUMENT)?.map_or_else(|| Ok(StoredForward::default()), serde_json::from_value);
        let kept = kept.map_err(|error| {
            let message = format!("the audit forwarding settings cannot be read: {error}");
            Refusal::new(code::STATE_DAMAGED, message, "start the version that wrote them")
        })?;
        Ok(Self { control, audit, kept: Mutex::new(kept), status: Mutex::default() })
    }

    /// Report of the forwarding.
    pub(crate) fn report(&self) -> ForwardReport {
        let StoredForward { to, trust, position } = self.kept().clone();
        let DeliveryStatus { last, why } = self.status().clone();
        ForwardReport { to, trust, position, last, error: why }
    }

    /// Sets the destination; all records that are kept are sent there. `None` stops the forwarding.
    ///
    /// *Errors*: the destination is invalid, or the settings cannot be stored.
    pub(crate) fn set(&self, asked: SetForward) -> Result<ForwardReport, Refusal> {
        let SetForward { to, pin, ca_file } = asked;
        // Only for its error, because the address is stored as it was given.
        to.as_deref().map(place).transpose()?;
        let trust = match (pin, ca_file) {
            (Some(_), Some(_)) => {
                let message = "a pinned key and a CA file exclude each other";
                return Err(Refusal::new(code::OPTIONS_CONFLICT, message, "give one of the two"));
            }
            (Some(pin), None) => ReceiverTrust::Pin { pin },
            (None, Some(path)) => ReceiverTrust::CaFile { path },
            (None, None) => ReceiverTrust::System,
        };
        // Fails now rather than at the first connection: the pin or the file may be unusable.
        if trust != ReceiverTrust::System {
            believed(&trust).client()?;
        }
        // Another destination gets the log from its beginning.
        let position = if self.kept().to == to { self.kept().position } else { 0 };
        self.keep(StoredForward { to, trust, position })?;
        *self.status() = DeliveryStatus::default();
        Ok(self.report())
    }

    /// Forwards records in an endless loop.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            // A copy: the settings may change while a connection is open.
            let kept = self.kept().clone();
            let Some(to) = &kept.to else {
                sleep(ROUND).await;
                continue;
            };
            match self.say(to, &kept).await {
                Ok(()) => {}
                Err(why) => {
                    self.note(Some(why));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Sends records on one connection until the settings change.
    async fn say(&self, to: &str, kept: &StoredForward) -> Result<(), String> {
        let place = place(to).map_err(|refusal| refusal.to_string())?;
        let trust = believed(&kept.trust);
        let line = trust::connect(&place.host, place.port, place.is_tls.then_some(&trust), PATIENCE).await;
        let line = line.map_err(|error| format!("it cannot be reached: {error}"))?;
        let (mut reader, mut writer) = tokio::io::split(line);
        let (mut said, mut unsettled) = (kept.position, VecDeque::new());
        let broke = |error: io::Error| format!("connection lost: {error}");
        let mut heard = [0; 512];
        loop {
            let batch = self.after(said).await?;
            // With a full batch more records are waiting, so the pause below is left out.
            let more = batch.len() == BATCH;
            if let Some(&(last, _)) = batch.last() {
                let node = self.control.core.settings().node.as_str();
                let frames: String = batch.iter().map(|(_, line)| frame(node, line)).collect();
                let written = async {
                    writer.write_all(frames.as_bytes()).await?;
                    // TLS may hold back a part of what was written.
                    writer.flush().await
                };
                timeout(PATIENCE, written).await.map_err(|_| "it accepts no data".to_owned())?.map_err(broke)?;
                said = last;
                unsettled.push_back((Instant::now(), last));
            }
            // Anything that the server sends is ignored; the read only notices that it has closed the connection.
            tokio::select! {
                read = reader.read(&mut heard) => if read.map_err(broke)? == 0 {
                    return Err("it has closed the connection".to_owned());
                },
                () = sleep(if more { Duration::ZERO } else { ROUND }) => {}
            }
            // Records sent before the settling time are delivered, as far as can be known.
            let mut settled = None;
            while unsettled.front().is_some_and(|(when, _): &(Instant, u64)| when.elapsed() >= SETTLED) {
                settled = unsettled.pop_front();
            }
            if !self.settle(kept, settled.map(|(_, number)| number)) {
                return Ok(());
            }
        }
    }

    /// Marks the records up to this one as delivered. False if the settings have changed.
    fn settle(&self, wanted: &StoredForward, position: Option<u64>) -> bool {
        let now_kept = self.kept().clone();
        // The position changes with each batch, and is no setting.
        if (&now_kept.to, &now_kept.trust) != (&wanted.to, &wanted.trust) {
            return false;
        }
        if let Some(position) = position {
            // A position that could not be stored only causes repeated records.
            if let Err(refusal) = self.keep(StoredForward { position, ..now_kept }) {
                tracing::error!(%refusal, "the progress of audit forwarding could not be saved");
            }
            self.note(None);
        }
        true
    }

    /// Records after `position`, at most [`BATCH`].
    async fn after(&self, position: u64) -> Result<Vec<(u64, String)>, String> {
        let files = self.audit.files();
        let read = tokio::task::spawn_blocking(move || after(&files, position));
        read.await.map_err(|error| error.to_string())?.map_err(|error| format!("the audit log cannot be read: {error}"))
    }

    /// Records the outcome, with an event when it changes.
    fn note(&self, why: Option<String>) {
        self.status().why.clone_from(&why);
        // A receiver of its own, so that its state is separate from those of alert receivers.
        let subject = Subject::new(SubjectKind::Receiver, &AUDIT_RECEIVER);
        let Some(why) = why else {
            self.status().last = Some(now());
            self.control.notices.settle(
                event::RECEIVER_AWAY,
                subject,
                event::RECEIVER_BACK,
                "audit forwarding works again",
            );
            return;
        };
        let problem = Problem {
            severity: Severity::Warning,
            subject: "receiver audit".to_owned(),
            state: "not receiving the audit log".to_owned(),
            meaning: format!("{why}; delivery is retried"),
            action: "see blockyard audit forward".to_owned(),
        };
        self.control.notices.add(event::RECEIVER_AWAY, subject, problem);
    }

    fn keep(&self, next: StoredForward) -> Result<(), Refusal> {
        let value = serde_json::to_value(&next).map_err(|error| {
            tracing::error!(%error, "the audit forwarding settings cannot be encoded as JSON");
            Refusal::new(
                code::INTERNAL,
                "the audit forwarding settings cannot be encoded as JSON",
                "report this as a bug",
            )
        })?;
        self.control.core.keep_document(DOCUMENT, value)?;
        *self.kept() = next;
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, StoredForward> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> MutexGuard<'_, DeliveryStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records with higher numbers, in order. File names contain the number of their first record.
fn after(files: &[PathBuf], position: u64) -> io::Result<Vec<(u64, String)>> {
    let first = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()).unwrap_or(0);
    // The last file that starts at or before the next record.
    let begin = files.iter().rposition(|path| first(path) <= position + 1).unwrap_or(0);
    let mut found = Vec::new();
    for path in &files[begin.min(files.len())..] {
        let text = std::fs::read_to_string(path)?;
        // An incomplete last line is being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            // A damaged line has no number; the verification of the log reports it.
            let number = serde_json::from_str::<Value>(line).ok().and_then(|it| it["number"].as_u64());
            if let Some(number) = number.filter(|number| *number > position) {
                found.push((number, line.to_owned()));
                if found.len() == BATCH {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}

/// Frame of a record: length, space, message (RFC 6587 §3.4.1).
fn frame(node: &str, line: &str) -> String {
    let record = serde_json::from_str::<Value>(line).unwrap_or_default();
    let time = record["time"].as_str().unwrap_or("-");
    let message = format!("<{PRIORITY}>1 {time} {node} blockyard - audit - {line}");
    // The length counts bytes, and follows from the finished message.
    format!("{} {message}", message.len())
}

struct ForwardTarget {
    is_tls: bool,
    host: String,
    port: u16,
}

fn place(to: &str) -> Result<ForwardTarget, Refusal> {
    let wrong = |hint: &str| {
        let message = format!("\"{}\" is not a valid audit forwarding target", to.escape_debug());
        Refusal::new(code::ADDRESS_INVALID, message, hint)
    };
    let usual = "write syslog+tls://host, or with a port syslog+tls://host:6514";
    let (is_tls, rest) = match to.split_once("://") {
        Some(("syslog+tls", rest)) => (true, rest),
        Some(("syslog+tcp", rest)) => (false, rest),
        _ => return Err(wrong(usual)),
    };
    let parsed: axum::http::uri::Authority = rest.trim_end_matches('/').parse().map_err(|_| wrong(usual))?;
    // Only in a URI does an IPv6 address stand in brackets (RFC 3986 §3.2.2).
    let host = parsed.host().trim_matches(['[', ']']).to_owned();
    // User information in the address would be ignored silently.
    if host.is_empty() || rest.contains('@') || to.len() > 300 {
        return Err(wrong(usual));
    }
    // Audit records contain names and addresses, so in the clear they do not leave the node.
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
    if !is_tls && !is_here {
        return Err(wrong("unencrypted syslog is allowed only to this node itself; write syslog+tls://…"));
    }
    let port = parsed.port_u16().unwrap_or(if is_tls { TLS_PORT } else { PLAIN_PORT });
    Ok(ForwardTarget { is_tls, host, port })
}

fn believed(trust: &ReceiverTrust) -> Trust {
    match trust {
        ReceiverTrust::System => Trust::System,
        ReceiverTrust::CaFile { path } => Trust::Authority(PathBuf::from(path)),
        ReceiverTrust::Pin { pin } => Trust::Pin(pin.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_has_its_length_before_it() {
        let line = r#"{"number":7,"time":"2026-11-21T10:19:59Z","caller":"ü"}"#;
        let framed = frame("node1", line);
        let (length, message) = framed.split_once(' ').expect("a length");
        assert_eq!(length.parse::<usize>().expect("a number"), message.len());
        assert_eq!(message, format!("<109>1 2026-11-21T10:19:59Z node1 blockyard - audit - {line}"));
    }

    #[test]
    fn records_after_a_number_come_in_order_from_the_file_that_has_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let files: Vec<PathBuf> = [1u64, 4].iter().map(|first| dir.path().join(format!("{first:012}.jsonl"))).collect();
        let lines = |range: std::ops::Range<u64>| range.map(|n| format!("{{\"number\":{n}}}\n")).collect::<String>();
        std::fs::write(&files[0], lines(1..4)).expect("writes");
        std::fs::write(&files[1], lines(4..7) + "{\"number\":7").expect("writes");
        let numbers = |position| -> Vec<u64> {
            after(&files, position).expect("reads").into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(0), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(3), [4, 5, 6]);
        assert_eq!(numbers(5), [6]);
        assert!(numbers(6).is_empty() && after(&[], 0).expect("reads").is_empty());
    }

    #[test]
    fn places_are_told_from_what_is_none() {
        assert!(place("syslog+tls://host").is_ok_and(|it| it.is_tls && it.port == 6514));
        assert!(place("syslog+tls://[fd00::5]:1514").is_ok_and(|it| it.host == "fd00::5" && it.port == 1514));
        assert!(place("syslog+tcp://127.0.0.1:601").is_ok());
        for wrong in ["host", "syslog+tcp://10.0.0.1", "https://host", "syslog+tls://", "syslog+tls://a@b"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}

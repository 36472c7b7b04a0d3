//! Command `blockyard event list`.

use super::CommandContext;
use crate::args::{EventCommand, ListOptions, Since};
use crate::client::Answer;
use crate::failure::Failure;
use crate::output::{Output, Rows, put};
use model::{Event, Timestamp};
use std::time::{Duration, SystemTime};

/// Polling interval of `--follow`.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn run(desk: &CommandContext, command: EventCommand) -> Result<(), Failure> {
    let EventCommand::List { since, severity, search, limit, follow } = command;
    let since = since.map(|since| ("since", moment(since).to_string()));
    let severity = severity.map(|severity| ("severity", severity.as_str().to_owned()));
    let asked: Vec<_> = since.into_iter().chain(severity).collect();
    let ask = |limit: Option<u16>, pair: (&'static str, String)| {
        let options = ListOptions { search: search.clone(), limit };
        let answer = desk.client.list("/events", "events", &options, &[asked.as_slice(), &[pair]].concat())?;
        let events: Vec<Event> = answer.decode()?;
        Ok::<_, Failure>((answer, events))
    };
    let (mut answer, mut events) = match limit {
        // `--limit 0` shows only new events; the number of the last event is still needed as a start.
        0 => ask(None, ("last", "0".to_owned()))?,
        limit => ask(Some(limit), ("sort", "-number".to_owned()))?,
    };
    // The newest came first, so that the limit omits the oldest.
    events.reverse();
    if let Some(each) = answer.whole["events"].as_array_mut() {
        each.reverse();
    }
    if !follow {
        return print(desk.out, &answer, &events);
    }
    let mut last = print_each(desk.out, &answer, &events, 0)?;
    loop {
        std::thread::sleep(INTERVAL);
        // By number, not by time: several events may share a second.
        let (answer, events) = ask(None, ("after", last.to_string()))?;
        if !events.is_empty() {
            last = print_each(desk.out.without_headers(), &answer, &events, last)?;
        }
    }
}

/// Prints events in a form that can be continued, and returns the number of the last one.
fn print_each(out: Output, answer: &Answer, events: &[Event], before: u64) -> Result<u64, Failure> {
    if !out.is_json() {
        print(out, answer, events)?;
    // One object per line, since an array could never be closed.
    } else if let Some(each) = answer.whole["events"].as_array() {
        put(&each.iter().map(|event| format!("{event}\n")).collect::<String>())?;
    }
    Ok(events.last().map_or(before, |event| event.number))
}

fn print(out: Output, answer: &Answer, events: &[Event]) -> Result<(), Failure> {
    let row = |event: &Event| {
        let again = match event.count {
            1 => String::new(),
            times => format!(" ({} more since {})", times - 1, event.since),
        };
        vec![
            event.number.to_string(),
            event.time.to_string(),
            event.severity.as_str().to_owned(),
            event.code.to_string(),
            event.subject.to_string(),
            format!("{}{again}", event.message),
        ]
    };
    let header = &["NUMBER", "TIME", "SEVERITY", "CODE", "SUBJECT", "EVENT"];
    out.rows(answer, &Rows { header, rows: events.iter().map(row).collect() })
}

/// Converts the start of a query to a time.
fn moment(since: Since) -> Timestamp {
    match since {
        Since::At(time) => time,
        Since::Ago(span) => {
            // A clock before 1970 lists all events instead of failing.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
            Timestamp::from_unix(now).minus(span.seconds())
        }
    }
}

//! Live data as server-sent events.
//!
//! *Source*: WHATWG HTML, "Server-sent events". A `rates` event comes every second with a `control::live::LiveRates`;
//! an `event` event comes for each new entry of the event list, with a `model::Event` and its number as the ID.

use axum::body::Body;
use control::live::{LiveRates, RateSubscription};
use control::{Control, EventFilter};
use model::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;

/// Media type of the answer.
pub(crate) const MEDIA: &str = "text/event-stream";

/// Default number of items of each kind.
const MOST: usize = 100;

/// Parameters of live data.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamQuery {
    /// Number of volumes, hosts, sessions and disks in each moment, the slowest or busiest first [default: 100].
    #[serde(default)]
    #[serde(alias = "most")]
    pub limit: Option<usize>,
    /// Number of the last known event; later ones are sent. Only new events if absent.
    #[serde(default)]
    pub after: Option<u64>,
}

struct EventStream {
    control: Arc<Control>,
    watching: RateSubscription,
    after: u64,
    most: usize,
}

/// Returns the next moment, cut to the requested size.
///
/// *Errors*: the engine is not running.
pub(crate) async fn moment(control: Arc<Control>, look: StreamQuery) -> Result<LiveRates, Refusal> {
    let told = control.live.watch().next().await;
    let gone = || Refusal::new(model::code::ENGINE_GONE, "the daemon is stopping", "try again when it has restarted");
    Ok(cut(&*told.ok_or_else(gone)??, look.limit.unwrap_or(MOST)))
}

/// Streams moments and events until the client disconnects or the daemon stops.
pub(crate) async fn stream(control: Arc<Control>, look: StreamQuery) -> Body {
    // Without a position the stream starts after the latest event.
    let after = match look.after {
        Some(after) => after,
        None => control
            .reconciler
            .events(EventFilter { limit: Some(1), ..EventFilter::default() })
            .await
            .last()
            .map_or(0, |last| last.number),
    };
    let told = EventStream { watching: control.live.watch(), control, after, most: look.limit.unwrap_or(MOST) };
    // Ends when `next` returns `None`, at the stop of the daemon.
    Body::from_stream(futures_util::stream::unfold(told, async |mut told| {
        let text = told.next().await?;
        Some((Ok::<_, Infallible>(text), told))
    }))
}

impl EventStream {
    async fn next(&mut self) -> Option<String> {
        let moment = self.watching.next().await?;
        let mut text = String::new();
        match moment {
            Ok(moment) => put(&mut text, "rates", None, &cut(&moment, self.most)),
            // Sent as an event of its own; the stream continues.
            Err(refusal) => put(&mut text, "refusal", None, &refusal),
        }
        for event in self.control.reconciler.events(EventFilter { after: self.after, ..EventFilter::default() }).await {
            put(&mut text, "event", Some(event.number), &event);
            self.after = event.number;
        }
        Some(text)
    }
}

fn put(text: &mut String, name: &str, id: Option<u64>, data: &impl Serialize) {
    let json = serde_json::to_string(data).expect("reports are said in JSON, which has no line breaks");
    // Writing to a string cannot fail.
    let _ = id.map(|id| writeln!(text, "id: {id}"));
    let _ = write!(text, "event: {name}\ndata: {json}\n\n");
}

fn cut(moment: &LiveRates, most: usize) -> LiveRates {
    // The rates are shared by all clients, so each cuts a copy of its own.
    let mut moment = moment.clone();
    moment.volumes.truncate(most);
    moment.hosts.truncate(most);
    moment.sessions.truncate(most);
    moment.disks.truncate(most);
    moment
}

//! What moves, as it moves: server-sent events for whoever looks on.
//!
//! *Source*: WHATWG HTML, "Server-sent events". `moment` comes every second with a `control::live::Moment`; `event` comes when
//! something was written down, with a `model::Event` and its number as the id.

use axum::body::Body;
use control::live::{Moment, Watching};
use control::{Control, Wanted};
use model::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;

/// What the answer is.
pub(crate) const MEDIA: &str = "text/event-stream";

/// How much is told when nobody says.
const MOST: usize = 100;

/// What somebody wants to look on.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Look {
    /// At most so many volumes, hosts, sessions and disks of each moment, the slowest or busiest; 100 when absent.
    #[serde(default)]
    pub most: Option<usize>,
    /// The number of the last event that is known; those after it are told. Only new ones when absent.
    #[serde(default)]
    pub after: Option<u64>,
}

struct Told {
    control: Arc<Control>,
    watching: Watching,
    after: u64,
    most: usize,
}

/// The next moment, cut to what is wanted.
///
/// *Errors*: the data plane is gone.
pub(crate) async fn moment(control: Arc<Control>, look: Look) -> Result<Moment, Refusal> {
    let told = control.live.watch().next().await;
    let gone = || Refusal::new(model::code::ENGINE_GONE, "the daemon stops", "ask again when it is back");
    Ok(cut(&*told.ok_or_else(gone)??, look.most.unwrap_or(MOST)))
}

/// Moments and events until the reader goes away or the daemon stops.
pub(crate) async fn stream(control: Arc<Control>, look: Look) -> Body {
    let after = match look.after {
        Some(after) => after,
        None => control
            .steward
            .events(Wanted { limit: Some(1), ..Wanted::default() })
            .await
            .last()
            .map_or(0, |last| last.number),
    };
    let told = Told { watching: control.live.watch(), control, after, most: look.most.unwrap_or(MOST) };
    Body::from_stream(futures_util::stream::unfold(told, async |mut told| {
        let text = told.next().await?;
        Some((Ok::<_, Infallible>(text), told))
    }))
}

impl Told {
    async fn next(&mut self) -> Option<String> {
        let moment = self.watching.next().await?;
        let mut text = String::new();
        match moment {
            Ok(moment) => put(&mut text, "moment", None, &cut(&moment, self.most)),
            Err(refusal) => put(&mut text, "refusal", None, &refusal),
        }
        for event in self.control.steward.events(Wanted { after: self.after, ..Wanted::default() }).await {
            put(&mut text, "event", Some(event.number), &event);
            self.after = event.number;
        }
        Some(text)
    }
}

fn put(text: &mut String, name: &str, id: Option<u64>, data: &impl Serialize) {
    let json = serde_json::to_string(data).expect("reports are said in JSON, which has no line breaks");
    // A string takes everything that is written to it.
    let _ = id.map(|id| writeln!(text, "id: {id}"));
    let _ = write!(text, "event: {name}\ndata: {json}\n\n");
}

fn cut(moment: &Moment, most: usize) -> Moment {
    let mut moment = moment.clone();
    moment.volumes.truncate(most);
    moment.hosts.truncate(most);
    moment.sessions.truncate(most);
    moment.disks.truncate(most);
    moment
}

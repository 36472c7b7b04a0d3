//! Monitor of the open-file limit. When descriptors run short, hosts and browsers are turned away before the
//! administrator is.

use crate::core::Core;
use crate::notices::Notices;
use bounded::descriptors;
use model::{Problem, Severity, Subject, SubjectKind, event};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Interval between two checks.
const ROUND: Duration = Duration::from_secs(2);
/// Descriptors that must be free beside the reserve, and for how long, before a shortage counts as over.
const ROOM: u64 = 8;
const CALM: Duration = Duration::from_secs(10);

/// Use of the open-file limit.
pub struct Descriptors {
    pub(crate) core: Arc<Core>,
    pub(crate) notices: Arc<Notices>,
}

impl Descriptors {
    /// Raises BY-E915 while descriptors are short, until the task is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut enough_since = None;
        loop {
            // Between the two thresholds nothing is recorded, so that the alert does not flap.
            if descriptors::are_short() {
                enough_since = None;
                self.record(true);
            } else if descriptors::has_room_for(ROOM) {
                // A client that keeps taking the last descriptors causes one alert, not one each round.
                let since = *enough_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= CALM {
                    self.record(false);
                }
            }
            sleep(ROUND).await;
        }
    }

    /// Records the result of one check.
    pub(crate) fn record(&self, short: bool) {
        let node = Subject::new(SubjectKind::Node, &self.core.settings.node);
        if short {
            self.notices.add(event::DESCRIPTORS_SHORT, node, problem(descriptors::allowed().unwrap_or_default()));
        } else {
            let sentence = "open files are no longer short; new connections are accepted";
            self.notices.settle(event::DESCRIPTORS_SHORT, node, event::DESCRIPTORS_ENOUGH, sentence);
        }
    }
}

fn problem(allowed: u64) -> Problem {
    Problem {
        severity: Severity::Critical,
        subject: "open-file limit".to_owned(),
        state: "nearly reached".to_owned(),
        meaning: format!(
            "nearly all of the {allowed} allowed open files are in use: new connections of hosts and browsers are \
             refused"
        ),
        action: "raise LimitNOFILE of the service (ulimit -Hn) and restart, or close sessions: blockyard session list"
            .to_owned(),
    }
}

//! Descriptors: open files and sockets. When they run short, hosts and browsers are turned away before the administrator is.

use crate::Control;
use bounded::descriptors;
use model::{Problem, Severity, Subject, SubjectKind, event};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked at.
const ROUND: Duration = Duration::from_secs(2);

impl Control {
    /// Raises BY-E915 while descriptors are short, until it is dropped.
    pub async fn watch_descriptors(self: Arc<Self>) {
        loop {
            // What is opened here has the lowest free number, as the next connection would.
            let short = File::open("/dev/null").is_ok_and(|file| descriptors::is_of_the_reserve(&file));
            self.look_at_descriptors(short);
            sleep(ROUND).await;
        }
    }

    /// One look.
    pub(crate) fn look_at_descriptors(&self, short: bool) {
        let node = Subject::new(SubjectKind::Node, &self.settings.node);
        if short {
            self.notice(event::DESCRIPTORS_SHORT, node, problem(descriptors::allowed().unwrap_or_default()));
        } else {
            let sentence = "open files are no longer short; new connections are accepted";
            self.settle(event::DESCRIPTORS_SHORT, node, event::DESCRIPTORS_ENOUGH, sentence);
        }
    }
}

fn problem(allowed: u64) -> Problem {
    Problem {
        severity: Severity::Critical,
        subject: "open-file limit".to_owned(),
        state: "nearly reached".to_owned(),
        meaning: format!(
            "nearly all of the {allowed} open files that the system allows are in use: new connections of hosts and browsers are refused"
        ),
        action: "raise LimitNOFILE of the service (ulimit -Hn) and restart, or end sessions: blockyard session list"
            .to_owned(),
    }
}

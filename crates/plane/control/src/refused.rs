//! Persistence of denied logins across restarts.
//!
//! The data plane counts them, and the control plane writes them down: at most once per [`WRITE_INTERVAL`],
//! because an initiator may retry endlessly, and when the daemon stops. A daemon that is killed loses the last
//! interval.

use crate::core::Core;
use model::{Order, Refusal, RefusedLogin, code};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Name of the document.
const DOCUMENT: &str = "refused-logins";

/// Minimum interval between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// The written list, and the time of the last comparison.
#[derive(Default)]
struct Written {
    logins: Vec<RefusedLogin>,
    looked: Option<Instant>,
}

impl Written {
    /// Returns true when the interval has passed.
    fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.duration_since(looked) >= WRITE_INTERVAL)
    }
}

/// Keeper of the denied logins.
pub struct RefusedLogins {
    core: Arc<Core>,
    written: tokio::sync::Mutex<Written>,
}

impl RefusedLogins {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, written: tokio::sync::Mutex::default() }
    }

    /// Hands the stored denied logins to the data plane at start. A document that cannot be read is dropped.
    ///
    /// *Errors*: the data plane is gone.
    pub(crate) async fn remember(&self) -> Result<(), Refusal> {
        // A history alone must not keep the daemon from starting.
        let logins = self.kept().unwrap_or_else(|refusal| {
            tracing::warn!(%refusal, "the saved list of denied logins is discarded");
            Vec::new()
        });
        if logins.is_empty() {
            return Ok(());
        }
        // The data plane continues to count from these.
        self.core.engine.done(Order::RememberRefused(logins.clone())).await?;
        // Known as written, so the first comparison does not write them again.
        self.written.lock().await.logins = logins;
        Ok(())
    }

    /// Writes the denied logins if the interval has passed.
    pub(crate) async fn note(&self) -> Result<(), Refusal> {
        let mut written = self.written.lock().await;
        if written.is_due(Instant::now()) { self.write(&mut written).await } else { Ok(()) }
    }

    /// Writes the denied logins now.
    pub(crate) async fn store_now(&self) -> Result<(), Refusal> {
        let mut written = self.written.lock().await;
        self.write(&mut written).await
    }

    fn kept(&self) -> Result<Vec<RefusedLogin>, Refusal> {
        let Some(kept) = self.core.document(DOCUMENT)? else { return Ok(Vec::new()) };
        serde_json::from_value(kept).map_err(|error| unreadable(&error))
    }

    async fn write(&self, written: &mut Written) -> Result<(), Refusal> {
        let logins = self.list().await?;
        // Before the write, so that a state disk that fails is not tried in each round.
        written.looked = Some(Instant::now());
        // An unchanged list is not written again.
        if logins != written.logins {
            self.core.keep_document(
                DOCUMENT,
                serde_json::to_value(&logins).expect("it has no map with other keys than text"),
            )?;
            written.logins = logins;
        }
        Ok(())
    }

    /// Lists recent denied logins of initiators that have not logged in since.
    pub async fn list(&self) -> Result<Vec<RefusedLogin>, Refusal> {
        self.core.engine.refused(Order::RefusedLogins).await
    }
}

fn unreadable(error: &serde_json::Error) -> Refusal {
    let message = format!("the saved list of denied logins is from another version: {error}");
    Refusal::new(code::STATE_DAMAGED, message, "no action needed: the list is rebuilt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_knocks_without_end_is_written_down_now_and_then() {
        let now = Instant::now();
        assert!(Written::default().is_due(now));
        let written = Written { logins: Vec::new(), looked: Some(now) };
        assert!(!written.is_due(now + Duration::from_secs(59)) && written.is_due(now + Duration::from_secs(60)));
    }
}

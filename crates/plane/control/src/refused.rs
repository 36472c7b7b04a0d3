//! Who was not let in, known again after the daemon was stopped and started.
//!
//! The data plane remembers it and control writes it down: now and then, for whoever knocks at the door does so without end,
//! and when the daemon stops. A daemon that is killed forgets what happened in the last [`EVERY`].

use crate::Control;
use crate::parts::Written;
use model::{Order, Refusal, RefusedLogin, code};
use tokio::time::Instant;

/// The document that it stands in.
const DOCUMENT: &str = "refused-logins";

impl Control {
    /// The data plane knows who was not let in before it was started. What cannot be read is forgotten.
    ///
    /// *Errors*: the data plane is gone.
    pub(crate) async fn remember_refused(&self) -> Result<(), Refusal> {
        let logins = self.kept_refused().unwrap_or_else(|refusal| {
            tracing::warn!(%refusal, "who was not let in before is forgotten");
            Vec::new()
        });
        if logins.is_empty() {
            return Ok(());
        }
        self.core.engine.done(Order::RememberRefused(logins.clone())).await?;
        self.refused.lock().await.logins = logins;
        Ok(())
    }

    /// Who was not let in is written down, if that was not looked at just now.
    pub(crate) async fn note_refused(&self) -> Result<(), Refusal> {
        let mut written = self.refused.lock().await;
        if written.is_due(Instant::now()) { self.write_refused(&mut written).await } else { Ok(()) }
    }

    /// Who was not let in until now is written down.
    pub(crate) async fn note_refused_at_last(&self) -> Result<(), Refusal> {
        let mut written = self.refused.lock().await;
        self.write_refused(&mut written).await
    }

    fn kept_refused(&self) -> Result<Vec<RefusedLogin>, Refusal> {
        let Some(kept) = self.core.document(DOCUMENT)? else { return Ok(Vec::new()) };
        serde_json::from_value(kept).map_err(|error| unreadable(&error))
    }

    async fn write_refused(&self, written: &mut Written) -> Result<(), Refusal> {
        let logins = self.refused_logins().await?;
        written.looked = Some(Instant::now());
        if logins != written.logins {
            self.core.keep_document(
                DOCUMENT,
                serde_json::to_value(&logins).expect("it has no map with other keys than text"),
            )?;
            written.logins = logins;
        }
        Ok(())
    }
}

fn unreadable(error: &serde_json::Error) -> Refusal {
    let message = format!("what was kept of logins that were refused is of another version: {error}");
    Refusal::new(code::STATE_DAMAGED, message, "nothing has to be done: it is written anew")
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

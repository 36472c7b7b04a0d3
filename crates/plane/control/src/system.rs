//! What the operating system gives: time, random numbers, and the wish that the daemon stops.

use model::{Refusal, Timestamp, code};
use std::time::SystemTime;
use tokio::sync::watch;

/// What the system's clock says.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::from_unix(since.map_or(0, |since| since.as_secs()))
}

/// Bytes that nobody can predict.
///
/// *Errors*: the operating system has none to give.
pub fn random<const N: usize>() -> Result<[u8; N], Refusal> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("the system gives no random numbers: {error}"), "repair the system")
    })?;
    Ok(bytes)
}

/// Ready when answers that are long in coming had better end, and what was begun for others is to be taken back.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A control plane that is gone stops, too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

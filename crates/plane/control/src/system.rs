//! Services of the operating system: clock, random numbers, and the shutdown signal.

use model::{Refusal, Timestamp, code};
use std::time::SystemTime;
use tokio::sync::watch;

/// Returns the time of the system clock.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A clock before 1970 counts as 1970.
    Timestamp::from_unix(since.map_or(0, |since| since.as_secs()))
}

/// Returns cryptographically secure random bytes.
///
/// *Errors*: the operating system provides none.
pub fn random<const N: usize>() -> Result<[u8; N], Refusal> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Refusal::new(
            code::IO_FAILED,
            format!("the system random number generator failed: {error}"),
            "repair the system",
        )
    })?;
    Ok(bytes)
}

/// Completes at shutdown: long-running answers end, and work on behalf of clients is rolled back.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A dropped sender means that the control plane is gone, which is a shutdown as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

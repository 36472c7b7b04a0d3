//! Writes that a device refuses for a moment are tried again.

use crate::Pause;
use std::time::Duration;

/// How long is waited before each further try of a write that a device refuses for want of space: about four seconds, well
/// below the time after which hosts give up. Somebody may make room on the file system below a file-backed disk meanwhile.
pub const WANT_OF_SPACE_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What `attempt` comes to, which came to `first`: it is made again after each of the pauses while `may_pass` says so of its error.
pub async fn insist<T, E>(
    pause: &Pause,
    first: Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, E> {
    let mut result = first;
    for duration in WANT_OF_SPACE_PAUSES {
        if !result.as_ref().is_err_and(&may_pass) {
            break;
        }
        pause(duration).await;
        result = attempt().await;
    }
    result
}

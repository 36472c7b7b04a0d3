//! Retries of writes that a device refuses temporarily.

use crate::Pause;
use std::time::Duration;

/// Pauses before each retry of a write that failed for lack of space: four seconds in total, well below the command
/// timeout of hosts. An operator may free space on the file system below a file-backed disk meanwhile.
pub const NO_SPACE_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Retries `attempt`, whose first result was `first`, after each pause of [`NO_SPACE_PAUSES`] while `may_pass` is
/// true for its error; returns the last result.
pub async fn retry_on_error<T, E>(
    pause: &Pause,
    first: Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
    attempt: impl AsyncFn() -> Result<T, E>,
) -> Result<T, E> {
    let mut result = first;
    for duration in NO_SPACE_PAUSES {
        // Success, or an error that does not pass with time.
        if !result.as_ref().is_err_and(&may_pass) {
            break;
        }
        // Growing pauses: a short shortage costs little time, a long one few attempts.
        pause(duration).await;
        result = attempt().await;
    }
    result
}

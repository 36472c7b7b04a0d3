//! Failure log that accepts every failed member, so that the array continues.

use block::{IoError, Stable};
use raid::FailureLog;
use std::future::Future;
use std::pin::Pin;

pub struct NoFailures;

impl FailureLog for NoFailures {
    fn record(&self, _: u16, _: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        Box::pin(async { Ok(Stable::attest()) })
    }
}

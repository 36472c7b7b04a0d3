//! Rate limits of requests, by caller or address.

use model::{Refusal, code};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Requests per second in the long run, and burst: of authenticated callers, and of others.
const KNOWN: (f64, f64) = (100.0, 400.0);
const UNKNOWN: (f64, f64) = (10.0, 60.0);

/// Callers remembered at most; the one that was idle longest is dropped first.
const REMEMBERED_MAX: usize = 4096;

/// Token buckets by caller: each fills with time, and each request takes one token.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<String, Bucket>>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    /// Admits one more request.
    ///
    /// *Errors*: the rate limit is exceeded.
    pub(crate) fn admit(&self, who: &str, known: bool, now: Instant) -> Result<(), Refusal> {
        let (rate, most) = if known { KNOWN } else { UNKNOWN };
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A dropped bucket is full when its caller returns; the bound on memory is worth that.
        if !buckets.contains_key(who) && buckets.len() >= REMEMBERED_MAX {
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(who, _)| who.clone());
            oldest.map(|oldest| buckets.remove(&oldest));
        }
        // A new caller starts with a full bucket.
        let bucket = buckets.entry(who.to_owned()).or_insert(Bucket { left: most, at: now });
        let gained = now.duration_since(bucket.at).as_secs_f64() * rate;
        (bucket.left, bucket.at) = ((bucket.left + gained).min(most), now);
        if bucket.left < 1.0 {
            let message = format!("too many requests from {who}");
            return Err(Refusal::new(code::ASKED_TOO_OFTEN, message, "try again in 1 s"));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_asks_too_often_waits_and_others_do_not() {
        let (rates, now) = (Rates::default(), Instant::now());
        let admitted = |who: &str, now| (0..1000).filter(|_| rates.admit(who, false, now).is_ok()).count();
        assert_eq!(admitted("a", now), 60);
        assert_eq!(admitted("b", now), 60);
        assert_eq!(admitted("a", now + Duration::from_secs(1)), 10);
        assert_eq!((0..1000).filter(|_| rates.admit("c", true, now).is_ok()).count(), 400);
        for n in 0..2 * REMEMBERED_MAX {
            let _ = rates.admit(&n.to_string(), false, now);
        }
        assert_eq!(rates.0.lock().expect("whole").len(), REMEMBERED_MAX);
    }
}

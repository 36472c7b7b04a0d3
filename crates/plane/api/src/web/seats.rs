//! How many connections there may be.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections in all, and from one address. A browser takes six.
const ALL_MAX: usize = 512;
const ONE_MAX: usize = 64;

/// Who is connected.
#[derive(Clone, Debug, Default)]
pub struct Seats(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    of: IpAddr,
}

impl Seats {
    /// A place for one more from there; none when it or all have enough.
    pub fn take(&self, of: IpAddr) -> Option<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, one) = (taken.values().sum::<usize>(), taken.get(&of).copied().unwrap_or(0));
        if all >= ALL_MAX || one >= ONE_MAX {
            return None;
        }
        taken.insert(of, one + 1);
        Some(Seat { seats: self.clone(), of })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.of) {
            Some(one) if *one > 1 => *one -= 1,
            _ => {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_bounded_for_one_and_for_all_and_given_back() {
        let seats = Seats::default();
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut held: Vec<Seat> = (0..ONE_MAX).map(|_| seats.take(address(1)).expect("a seat")).collect();
        assert!(seats.take(address(1)).is_none(), "one address does not take all");
        held.pop();
        held.push(seats.take(address(1)).expect("the seat that was given back"));
        while held.len() < ALL_MAX {
            let n = u8::try_from(1 + held.len() / ONE_MAX).expect("few");
            held.push(seats.take(address(n)).expect("a seat"));
        }
        assert!(seats.take(address(200)).is_none());
        drop(held);
        assert!(seats.take(address(200)).is_some());
        assert_eq!(seats.0.lock().expect("whole").len(), 0, "nobody is remembered");
    }
}

//! The table of operations under way: who waits for each, and which have nobody left.

use crate::operation::{Landed, Token};
use crate::orphans::OrphanGuard;
use std::task::{Context, Poll, Waker};

/// Operations by token. A token is free again when its operation has landed *and* somebody, or nobody
/// for an orphan, has taken the result.
#[derive(Default)]
pub(crate) struct Flights {
    places: Vec<Flight>,
    free: Vec<Token>,
}

enum Flight {
    Free,
    Waiting(Option<Waker>),
    Landed(Landed),
    /// Its future was dropped. The guard keeps later operations off what it may still write.
    Orphan {
        _guard: Option<OrphanGuard>,
    },
}

impl Flights {
    /// A token for an operation that is about to start.
    pub fn take_off(&mut self) -> Token {
        let token = self.free.pop().unwrap_or_else(|| {
            self.places.push(Flight::Free);
            Token::try_from(self.places.len() - 1).expect("operations under way are bounded by the limits")
        });
        self.places[token as usize] = Flight::Waiting(None);
        token
    }

    /// Keeps the result for the one who waits and wakes him; forgets it for an orphan.
    pub fn land(&mut self, token: Token, landed: Landed) {
        match std::mem::replace(&mut self.places[token as usize], Flight::Landed(landed)) {
            Flight::Waiting(Some(waker)) => waker.wake(),
            Flight::Waiting(None) => {}
            Flight::Orphan { .. } => drop(self.release(token)),
            Flight::Free | Flight::Landed(_) => unreachable!("an operation lands once"),
        }
    }

    /// The result, once it is there; the token is free then.
    pub fn poll(&mut self, token: Token, cx: &mut Context<'_>) -> Poll<Landed> {
        match &mut self.places[token as usize] {
            Flight::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            Flight::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Flight::Landed(_) => match self.release(token) {
                Flight::Landed(landed) => Poll::Ready(landed),
                _ => unreachable!("it was matched above"),
            },
            Flight::Free | Flight::Orphan { .. } => unreachable!("only the owner of a token polls it"),
        }
    }

    /// Nobody waits any more. True when the operation is still under way; `guard` is asked for then.
    pub fn abandon(&mut self, token: Token, guard: impl FnOnce() -> Option<OrphanGuard>) -> bool {
        if matches!(self.places[token as usize], Flight::Landed(_)) {
            self.release(token);
            return false;
        }
        self.places[token as usize] = Flight::Orphan { _guard: guard() };
        true
    }

    fn release(&mut self, token: Token) -> Flight {
        self.free.push(token);
        std::mem::replace(&mut self.places[token as usize], Flight::Free)
    }
}

//! Table of operations in flight: the waiting task of each, and those that were abandoned.

use crate::abandoned_writes::AbandonedRange;
use crate::operation::{Landed, Token};
use std::task::{Context, Poll, Waker};

/// Operations by token. A token is free again when its operation has landed *and* its result was taken, or discarded
/// for an abandoned operation.
#[derive(Default)]
pub(crate) struct OperationTable {
    places: Vec<OperationState>,
    free: Vec<Token>,
}

enum OperationState {
    Free,
    Waiting(Option<Waker>),
    Landed(Landed),
    /// The future was dropped. The guard keeps later operations away from the bytes that it may still write.
    Orphan {
        _guard: Option<AbandonedRange>,
    },
}

impl OperationTable {
    /// Allocates a token for an operation that is about to start.
    pub fn allocate(&mut self) -> Token {
        let token = self.free.pop().unwrap_or_else(|| {
            self.places.push(OperationState::Free);
            Token::try_from(self.places.len() - 1).expect("operations under way are bounded by the limits")
        });
        // No waker yet: a completion before the first poll is stored until then.
        self.places[token as usize] = OperationState::Waiting(None);
        token
    }

    /// Stores the result and wakes the waiting task; discards it for an abandoned operation.
    pub fn land(&mut self, token: Token, landed: Landed) {
        match std::mem::replace(&mut self.places[token as usize], OperationState::Landed(landed)) {
            OperationState::Waiting(Some(waker)) => waker.wake(),
            OperationState::Waiting(None) => {}
            // No caller: releasing the entry also releases the range that its guard protects.
            OperationState::Orphan { .. } => drop(self.release(token)),
            OperationState::Free | OperationState::Landed(_) => unreachable!("an operation lands once"),
        }
    }

    /// Takes the result once it is available, which frees the token.
    pub fn poll(&mut self, token: Token, cx: &mut Context<'_>) -> Poll<Landed> {
        match &mut self.places[token as usize] {
            // Spares the clone of the waker when the same task polls again.
            OperationState::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            OperationState::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            OperationState::Landed(_) => match self.release(token) {
                OperationState::Landed(landed) => Poll::Ready(landed),
                _ => unreachable!("it was matched above"),
            },
            OperationState::Free | OperationState::Orphan { .. } => unreachable!("only the owner of a token polls it"),
        }
    }

    /// Abandons an operation. Returns true, and asks for `guard`, when it is still in flight.
    pub fn abandon(&mut self, token: Token, guard: impl FnOnce() -> Option<AbandonedRange>) -> bool {
        // The result is there already: nothing can be written any more, so no guard is needed.
        if matches!(self.places[token as usize], OperationState::Landed(_)) {
            self.release(token);
            return false;
        }
        self.places[token as usize] = OperationState::Orphan { _guard: guard() };
        true
    }

    fn release(&mut self, token: Token) -> OperationState {
        self.free.push(token);
        std::mem::replace(&mut self.places[token as usize], OperationState::Free)
    }
}

//! Table of operations in flight: the waiting task of each, and those that were abandoned.

use crate::operation::{Landed, Token};
use rustix::io::Errno;
use std::task::{Context, Poll, Waker};

/// Receives the result of an operation whose future was dropped, when it has landed. Until then it keeps later
/// operations away from the bytes that the operation may still write.
pub(crate) type OnLanded = Box<dyn FnOnce(Result<usize, Errno>)>;

/// Operations by token. A token is free again when its operation has landed *and* its result was taken, or passed on
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
    /// The future was dropped.
    Orphan(Option<OnLanded>),
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

    /// Stores the result and wakes the waiting task; passes it on for an abandoned operation.
    pub fn land(&mut self, token: Token, landed: Landed) {
        match std::mem::replace(&mut self.places[token as usize], OperationState::Landed(landed)) {
            OperationState::Waiting(Some(waker)) => waker.wake(),
            OperationState::Waiting(None) => {}
            OperationState::Orphan(on_landed) => self.end_abandoned(token, on_landed),
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
            OperationState::Free | OperationState::Orphan(_) => unreachable!("only the owner of a token polls it"),
        }
    }

    /// Abandons an operation, and asks for the receiver of its result. Returns true when it is still in flight.
    pub fn abandon(&mut self, token: Token, on_landed: impl FnOnce() -> Option<OnLanded>) -> bool {
        // The result is there already, but its caller has not seen it.
        if matches!(self.places[token as usize], OperationState::Landed(_)) {
            self.end_abandoned(token, on_landed());
            return false;
        }
        self.places[token as usize] = OperationState::Orphan(on_landed());
        true
    }

    /// Frees the token of an abandoned operation that has landed, and passes its result on.
    fn end_abandoned(&mut self, token: Token, on_landed: Option<OnLanded>) {
        if let (OperationState::Landed(landed), Some(on_landed)) = (self.release(token), on_landed) {
            on_landed(landed.result);
        }
    }

    fn release(&mut self, token: Token) -> OperationState {
        self.free.push(token);
        std::mem::replace(&mut self.places[token as usize], OperationState::Free)
    }
}

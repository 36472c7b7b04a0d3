//! Attackers: logins that are never finished or arrive byte by byte, and guesses of a CHAP secret.

use super::load_setup::{GUARDED, SECRET};
use crate::client::{Caller, Client};
use anyhow::{Result, anyhow};
use iscsi::chap::{Algorithm, Credential, Secret};
use iscsi::login::InitiatorAuth;
use lab::random::Random;
use lab::target::Unit;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);
/// Per tick: new connections with half a login request, connections that send one more byte, and guesses.
const KNOCKS: usize = 10;
const DRIPS: usize = 20;
const GUESSES: usize = 1;
/// Initial burst of connections, as fast as possible.
const RUSH: usize = 20_000;
/// Connections that are kept open, even if the target has closed them; the target closes the oldest first.
const HELD_MAX: usize = 6_000;
const GUESSING_MAX: usize = 1500;
/// First bytes of a login: an immediate Login Request for the security negotiation stage.
const LOGIN: [u8; 4] = [0x43, 0x00, 0x00, 0x00];

/// Running attack.
pub(super) struct Attack {
    thread: JoinHandle<Result<AttackCounts>>,
    end: Arc<AtomicBool>,
}

/// Counts of the attack.
#[derive(Default)]
pub(super) struct AttackCounts {
    knocks: u64,
    refused: u64,
    drips: u64,
    guesses: u64,
}

impl fmt::Display for AttackCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knocks, refused, drips, guesses } = self;
        write!(f, "{knocks} half-open logins ({refused} not even that), {drips} single bytes, {guesses} wrong secrets")
    }
}

impl Attack {
    /// Starts an attack, which continues until [`Attack::end`].
    pub(super) fn begin(unit: &Unit) -> Self {
        let (unit, end) = (unit.clone(), Arc::new(AtomicBool::new(false)));
        let over = end.clone();
        Self { thread: thread::spawn(move || attack(&unit, &over)), end }
    }

    /// Ends the attack and returns its counts.
    pub(super) fn end(self) -> Result<AttackCounts> {
        // The flag guards no other data, so it needs no ordering.
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the attack panicked"))?
    }
}

fn attack(unit: &Unit, over: &AtomicBool) -> Result<AttackCounts> {
    let (mut harm, mut random) = (AttackCounts::default(), Random::new(7));
    let (mut held, mut guessing): (VecDeque<TcpStream>, Vec<Client>) = Default::default();
    // As long as the right secret, so that only its content is wrong.
    let wrong = Credential { name: "guarded".into(), secret: Secret::new(SECRET.to_uppercase())? };
    let wrong = InitiatorAuth::chap(wrong, None, Algorithm::Md5)?;
    let mut knocks = RUSH;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..knocks {
            // The initial burst takes seconds, and must not delay the end.
            if over.load(Ordering::Relaxed) {
                break;
            }
            let caller = Caller { from: Some(anywhere(&mut random)), ..Caller::default() };
            harm.knocks += 1;
            match caller.connect(unit.portal) {
                Ok(mut socket) => {
                    // The target may have closed the connection already.
                    let _ = socket.write(&LOGIN);
                    held.push_back(socket);
                    held.drain(..held.len().saturating_sub(HELD_MAX));
                }
                Err(_) => harm.refused += 1,
            }
        }
        knocks = KNOCKS;
        for _ in 0..DRIPS.min(held.len()) {
            let at = usize::try_from(random.below(held.len() as u64))?;
            harm.drips += u64::from(held[at].write(&[0]).is_ok());
        }
        for _ in 0..GUESSES {
            let caller = Caller { number: GUARDED, from: Some(anywhere(&mut random)), auth: wrong.clone() };
            if let Ok(client) = Client::start_login(unit, unit.portal, &caller) {
                harm.guesses += 1;
                guessing.push(client);
            }
        }
        // Refused guesses are dropped; the others wait for their answer.
        // `retain_mut` visits the clients in order, so each of them meets its own entry.
        let mut due = Client::which_are_due(&guessing)?.into_iter();
        guessing
            .retain_mut(|client| due.next() != Some(true) || client.turn(Duration::ZERO).is_ok() && !client.is_over());
        guessing.drain(..guessing.len().saturating_sub(GUESSING_MAX));
        thread::sleep(TICK);
    }
    Ok(harm)
}

/// Returns a random loopback address.
fn anywhere(random: &mut Random) -> Ipv4Addr {
    let mut octet = || u8::try_from(1 + random.below(250)).expect("at most 250");
    Ipv4Addr::new(127, octet(), octet(), octet())
}

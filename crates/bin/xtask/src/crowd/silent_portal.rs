//! Second victim of the attackers: measures the cost of the attack on the shared client core, without the daemon.

use anyhow::Result;
use lab::target::Unit;
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections that are kept, as many as a daemon keeps half-open logins; the oldest are closed first.
const HELD_MAX: usize = 1024;
/// Length of the accept queue; a client that finds it full retries only after a second.
const BACKLOG: i32 = 4096;
const PAUSE: Duration = Duration::from_millis(1);

/// Portal that never answers.
pub(super) struct SilentPortal {
    pub unit: Unit,
    thread: JoinHandle<()>,
    end: Arc<AtomicBool>,
}

impl SilentPortal {
    /// Starts a portal for the attackers, under the target name of `unit`.
    pub(super) fn start(unit: &Unit) -> Result<Self> {
        let door = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        door.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        door.listen(BACKLOG)?;
        door.set_nonblocking(true)?;
        let door = TcpListener::from(door);
        let unit = Unit { portal: door.local_addr()?, ..unit.clone() };
        let end = Arc::new(AtomicBool::new(false));
        let over = end.clone();
        Ok(Self { unit, thread: thread::spawn(move || take_all(&door, &over)), end })
    }

    /// Stops the portal and closes its connections.
    pub(super) fn stop(self) {
        // The flag guards no other data, so it needs no ordering.
        self.end.store(true, Ordering::Relaxed);
        // The thread does not panic, and its result would not matter.
        let _ = self.thread.join();
    }
}

fn take_all(door: &TcpListener, over: &AtomicBool) {
    let mut held: VecDeque<TcpStream> = VecDeque::new();
    while !over.load(Ordering::Relaxed) {
        while let Ok((socket, _)) = door.accept() {
            // The oldest connections end first, as at a daemon.
            held.push_back(socket);
            held.drain(..held.len().saturating_sub(HELD_MAX));
        }
        thread::sleep(PAUSE);
    }
}

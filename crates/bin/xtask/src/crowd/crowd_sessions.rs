//! Crowd: sessions that log in all at once, execute a few commands each, and stay.

use super::load_setup::LoadSetup;
use crate::client::{Caller, Client, ensure_good};
use anyhow::{Context, Result, anyhow};
use block::{Buf, Rope};
use iscsi::initiator::DataIn;
use lab::target::Unit;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Number of threads, each with a source address of its own, because half-open logins per address are limited.
const THREADS: u16 = 40;
/// Interval at which idle sessions check for requests of the target.
const LOOK: Duration = Duration::from_millis(500);

/// Sessions that stay until they are told to leave.
pub(super) struct CrowdSessions {
    threads: Vec<JoinHandle<Result<u16>>>,
    leave: Arc<AtomicBool>,
    /// Time from the first connection to the last login.
    pub logged_in_within: Duration,
    /// Number of commands of the crowd, all of which must end GOOD.
    pub commands: u32,
}

impl CrowdSessions {
    /// Logs in all sessions with these numbers at once; each writes and reads a block of its unit.
    pub(super) fn log_in_all(hall: &LoadSetup, numbers: &[u16]) -> Result<Self> {
        let leave = Arc::new(AtomicBool::new(false));
        let (ready, done) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let threads = (0..THREADS)
            .map(|thread| {
                let (ready, done, leave) = (ready.clone(), done.clone(), leave.clone());
                let numbers = numbers.iter().skip(usize::from(thread)).step_by(usize::from(THREADS));
                let seats = numbers.map(|&number| Ok((number, hall.unit(number)?.clone())));
                let seats: Vec<(u16, Unit)> = seats.collect::<Result<_>>()?;
                Ok(thread::spawn(move || {
                    let clients = log_in(thread, &seats);
                    // A thread that failed arrives as well; otherwise the others would wait forever.
                    ready.arrive();
                    let served = clients.and_then(|mut clients| {
                        // Sessions that are logged in answer pings of the target while others still log in.
                        Client::attend(&mut clients, LOOK, || Ok(ready.is_open()))?;
                        use_each(&mut clients).map(|()| clients)
                    });
                    done.arrive();
                    let mut clients = served?;
                    Client::attend(&mut clients, LOOK, || Ok(leave.load(Ordering::Relaxed)))?;
                    // A second use shows which sessions are still alive.
                    use_each(&mut clients)?;
                    Ok(u16::try_from(clients.len())?)
                }))
            })
            .collect::<Result<_>>()?;
        let begin = Instant::now();
        ready.wait();
        let logged_in_within = begin.elapsed();
        done.wait();
        // Each session executes two commands now, and two when it leaves.
        Ok(Self { threads, leave, logged_in_within, commands: 4 * u32::try_from(numbers.len())? })
    }

    /// Ends the crowd; returns the number of sessions that were alive until then.
    pub(super) fn log_out(self) -> Result<u16> {
        // The flag guards no other data, so it needs no ordering.
        self.leave.store(true, Ordering::Relaxed);
        let mut live = 0;
        for thread in self.threads {
            live += thread.join().map_err(|_| anyhow!("a guest panicked"))??;
        }
        Ok(live)
    }
}

fn log_in(thread: u16, seats: &[(u16, Unit)]) -> Result<Vec<Client>> {
    let [high, low] = thread.to_be_bytes();
    // `THREADS` is far below 255, so the octet does not overflow.
    let from = Some(Ipv4Addr::new(127, 1, high, low + 1));
    let mut clients = Vec::new();
    let mut looked = Instant::now();
    for (number, unit) in seats {
        let caller = Caller { number: *number, from, ..Caller::default() };
        clients.push(Client::log_in_as(unit, &caller).with_context(|| format!("guest {number}"))?);
        // Sessions that are already logged in answer pings of the target meanwhile.
        if looked.elapsed() >= LOOK {
            Client::turn_due(&mut clients)?;
            looked = Instant::now();
        }
    }
    Ok(clients)
}

fn use_each(clients: &mut [Client]) -> Result<()> {
    for client in clients {
        client.write(8, Rope::from(Buf::zeroed(client.block_bytes as usize)))?;
        ensure_good(&client.await_completion()?)?;
        client.read(8, 1, DataIn::Discard(client.block_bytes))?;
        ensure_good(&client.await_completion()?)?;
    }
    Ok(())
}

/// Barrier that opens when all threads have arrived, including failed ones; a waiting thread keeps working meanwhile.
#[derive(Default)]
struct Gate(AtomicU16);

impl Gate {
    fn arrive(&self) {
        // The gate orders no data: each thread keeps its own sessions.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= THREADS
    }

    fn wait(&self) {
        while !self.is_open() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

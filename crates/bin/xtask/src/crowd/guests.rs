//! The crowd: sessions that come all at once, do a little each, and stay.

use super::hall::Hall;
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

/// Threads, each with sessions from an address of its own: one address may not have more half-open.
const THREADS: u16 = 40;
/// Between two looks for what the target asks of a session that is idle.
const LOOK: Duration = Duration::from_millis(500);

/// Sessions that are there until they leave.
pub(super) struct Guests {
    threads: Vec<JoinHandle<Result<u16>>>,
    leave: Arc<AtomicBool>,
    /// From the first knock to the last login.
    pub logged_in_within: Duration,
    /// Commands that they have had answered by the end, all with GOOD.
    pub commands: u32,
}

impl Guests {
    /// All of them, with these numbers, log in at once; each writes and reads a block of its unit.
    pub(super) fn welcome(hall: &Hall, numbers: &[u16]) -> Result<Self> {
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
                    ready.arrive();
                    let served = clients.and_then(|mut clients| {
                        Client::attend(&mut clients, LOOK, || Ok(ready.is_open()))?;
                        use_each(&mut clients).map(|()| clients)
                    });
                    done.arrive();
                    let mut clients = served?;
                    Client::attend(&mut clients, LOOK, || Ok(leave.load(Ordering::Relaxed)))?;
                    use_each(&mut clients)?;
                    Ok(u16::try_from(clients.len())?)
                }))
            })
            .collect::<Result<_>>()?;
        let begin = Instant::now();
        ready.wait();
        let logged_in_within = begin.elapsed();
        done.wait();
        Ok(Self { threads, leave, logged_in_within, commands: 4 * u32::try_from(numbers.len())? })
    }

    /// How many of them were there to the end.
    pub(super) fn leave(self) -> Result<u16> {
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
    let from = Some(Ipv4Addr::new(127, 1, high, low + 1));
    let mut clients = Vec::new();
    let mut looked = Instant::now();
    for (number, unit) in seats {
        let caller = Caller { number: *number, from, ..Caller::default() };
        clients.push(Client::log_in_as(unit, &caller).with_context(|| format!("guest {number}"))?);
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

/// Opens when all threads are there, also those that failed; who waits at it goes on with what it has to do.
#[derive(Default)]
struct Gate(AtomicU16);

impl Gate {
    fn arrive(&self) {
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

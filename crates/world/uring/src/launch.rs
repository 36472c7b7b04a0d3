//! Threads that run shards.

use crate::options::Options;
use crate::stop::Stop;
use crate::world::Uring;
use rustix::thread::{CpuSet, sched_setaffinity};
use shard::World;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Turns this thread into a shard until `main` ends, and returns its output.
///
/// Remaining tasks are dropped then; disk operations in flight are waited for, up to two seconds.
///
/// *Errors*: the reactor could not be set up, or a system call of the reactor failed.
pub fn run<T: 'static>(options: &Options, main: impl AsyncFnOnce(Uring) -> T + 'static) -> io::Result<T> {
    run_until(options, Stop::default(), || {}, main)
}

fn run_until<T: 'static>(
    options: &Options,
    stop: Stop,
    ready: impl FnOnce(),
    main: impl AsyncFnOnce(Uring) -> T + 'static,
) -> io::Result<T> {
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    let world = Uring::new(options, stop)?;
    ready();
    let output = Rc::new(RefCell::new(None));
    let (inside, slot) = (world.clone(), output.clone());
    world.spawn(async move {
        let value = main(inside).await;
        *slot.borrow_mut() = Some(value);
    });
    let driven = world.drive(|| output.borrow().is_some());
    // Tasks hold the world, and the world holds the tasks: the cycle is broken here.
    world.0.executor.clear();
    // After the cycle was broken: an error must not leak the shard.
    driven?;
    Ok(output.take().expect("a shard is driven until its main future has ended"))
}

fn pin(cpu: usize) -> io::Result<()> {
    // `CpuSet` has no bit for such a number.
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("CPU core {cpu} does not exist")));
    }
    let mut cores = CpuSet::new();
    cores.set(cpu);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Handle of a shard on a thread of its own.
#[derive(Debug)]
pub struct Shard<T> {
    thread: JoinHandle<io::Result<T>>,
    stop: Stop,
}

/// Starts a thread named `name` as a shard that runs `main` until it ends.
///
/// *Errors*: no thread, no such core, or the reactor could not be set up.
pub fn spawn_shard<T: Send + 'static>(
    name: &str,
    options: Options,
    main: impl AsyncFnOnce(Uring) -> T + Send + 'static,
) -> io::Result<Shard<T>> {
    let stop = Stop::default();
    let inside = stop.clone();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // An error means that the parent has died; the shard then runs on its own.
        let ready = move || tell.send(()).unwrap_or(());
        run_until(&options, inside, ready, main)
    })?;
    if told.recv().is_err() {
        // The thread ended before it was ready, so its result is the error.
        return match thread.join() {
            Ok(Err(error)) => Err(error),
            _ => Err(io::Error::other("the thread of the shard panicked during its setup")),
        };
    }
    Ok(Shard { thread, stop })
}

impl<T> Shard<T> {
    /// Requests the main future to end; see [`Uring::stopped`].
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Waits for the end of the shard and returns the output of its main future.
    ///
    /// *Errors*: a system call of the reactor failed. *Panics*: when the shard has.
    pub fn join(self) -> io::Result<T> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

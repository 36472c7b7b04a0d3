//! The same tests for both backends: io_uring, and epoll with threads.

mod disk;
mod fallback;
mod net;
mod shards;
mod sys;
mod time;

use uring::{Io, Options, Uring};

/// Makes one test of `$body` for each backend.
macro_rules! on_both {
    ($($name:ident($world:ident) $body:block)*) => {$(
        mod $name {
            use super::*;
            async fn claim($world: uring::Uring) $body
            #[test]
            fn on_io_uring() {
                crate::run_on(uring::Io::Uring, claim);
            }
            #[test]
            fn on_threads() {
                crate::run_on(uring::Io::Threads, claim);
            }
        }
    )*};
}
pub(crate) use on_both;

/// Runs `claim` as the main future of a shard with these options.
pub(crate) fn run_with<F: Future<Output = ()>>(options: &Options, claim: impl FnOnce(Uring) -> F + Send + 'static) {
    uring::run(options, async move |world| claim(world).await).expect("the shard runs");
}

/// Runs `claim` as the main future of a shard, and fails when it takes longer than 20 s.
pub(crate) fn run_on<F: Future<Output = ()>>(io: Io, claim: impl FnOnce(Uring) -> F + Send + 'static) {
    if io == Io::Uring && uring::run(&options(io), async |_| ()).is_err() {
        eprintln!("io_uring is forbidden here; only the fallback is tested");
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let ran = uring::run(&options(io), async move |world| claim(world).await);
        tell.send(ran).expect("the test waits");
    });
    match told.recv_timeout(std::time::Duration::from_secs(20)) {
        Ok(ran) => ran.expect("the shard runs"),
        Err(error) => panic!("the claim did not hold within 20 s: {error}"),
    }
}

pub(crate) fn options(io: Io) -> Options {
    // Few entries, so that the submission queue is full from time to time.
    Options { io, queue_entries: 8, ..Options::default() }
}

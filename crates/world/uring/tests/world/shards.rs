//! Several shards: mailboxes between them, stopping, streams that move.

use crate::{on_both, options, run_with};
use shard::{Listener, Stream, StreamOptions, World, mailbox, yield_now};
use std::future::poll_fn;
use std::time::Duration;
use uring::{Io, Options, spawn_shard};

/// Busy-poll time that is long enough to find any event.
const POLL: Duration = Duration::from_secs(10);

fn ping_pong(io: Io) {
    let (to_far, far_inbox) = mailbox::channel::<u32>();
    let (to_near, near_inbox) = mailbox::channel::<u32>();
    let far = spawn_shard("far", options(io), async move |_| {
        while let Some(number) = far_inbox.receive().await {
            to_near.send(number + 1).expect("the near shard listens");
        }
    })
    .expect("a shard");
    let near = spawn_shard("near", options(io), async move |world| {
        for round in 0..500 {
            // Sleeps from time to time, so that the other shard has to end a real sleep.
            if round % 100 == 0 {
                world.sleep(Duration::from_millis(2)).await;
            }
            to_far.send(round).expect("the far shard listens");
            assert_eq!(near_inbox.receive().await, Some(round + 1));
        }
    })
    .expect("a shard");
    near.join().expect("near ends");
    far.join().expect("far ends when nobody can send any more");
}

#[test]
fn letters_wake_a_sleeping_shard_on_io_uring() {
    if spawn_shard("probe", options(Io::Uring), async |_| ()).is_ok() {
        ping_pong(Io::Uring);
    }
}

#[test]
fn letters_wake_a_sleeping_shard_on_threads() {
    ping_pong(Io::Threads);
}

/// The data plane uses idle periods to answer a waiting host sooner, so a busy-polling shard has to report them, too.
#[test]
fn shard_that_had_nothing_to_do_says_so_whether_it_slept_or_polled() {
    for (io, busy_poll) in
        [(Io::Auto, Duration::ZERO), (Io::Auto, POLL), (Io::Threads, Duration::ZERO), (Io::Threads, POLL)]
    {
        run_with(&Options { busy_poll, ..options(io) }, async move |world| {
            let before = world.idle_count();
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(world.idle_count(), before, "it was busy");
            let (tell, told) = mailbox::channel();
            let late = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                tell.send(()).expect("somebody waits");
            });
            told.receive().await.expect("it comes");
            late.join().expect("it has ended");
            assert_ne!(world.idle_count(), before, "{io:?}, {busy_poll:?}");
        });
    }
}

#[test]
fn shard_stops_when_told_and_drops_what_is_left() {
    let shard = spawn_shard("stops", options(Io::Auto), async |world| {
        let forever = world.clone();
        world.spawn(async move { forever.sleep(Duration::from_secs(3600)).await });
        world.stopped().await;
        7
    })
    .expect("a shard");
    std::thread::sleep(Duration::from_millis(20));
    shard.stop();
    assert_eq!(shard.join().expect("it ends"), 7);
}

#[test]
fn shard_on_a_core_that_is_not_there_is_refused() {
    let options = uring::Options { cpu: Some(1 << 20), ..options(Io::Auto) };
    assert!(spawn_shard("nowhere", options, async |_| ()).is_err());
}

on_both! {
    stream_moves_to_another_shard_and_goes_on_there(world) {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = listener.local_address();
        let (post, inbox) = mailbox::channel();
        let far = spawn_shard("far", options(uring::Io::Auto), async move |world: uring::Uring| {
            let stream = world.adopt_stream(inbox.receive().await.expect("a stream comes")).expect("it is ours");
            let mut byte = [0];
            poll_fn(|cx| stream.poll_read(cx, &mut byte)).await.expect("a byte comes");
            poll_fn(|cx| stream.poll_write(cx, &[std::io::IoSlice::new(&[byte[0] + 1])])).await.expect("it fits");
        })
        .expect("a shard");
        let client = world.connect(address, StreamOptions::default()).await.expect("the listener listens");
        let served = listener.accept(&StreamOptions::default()).await.expect("the client is there");
        // Polled on this shard first, so that there is a wait to cancel.
        let mut byte = [0];
        let early = poll_fn(|cx| std::task::Poll::Ready(served.poll_read(cx, &mut byte).is_ready())).await;
        assert!(!early, "nothing was sent yet");
        world.sleep(Duration::from_millis(1)).await;
        assert!(post.send(served.into_handle()).is_ok());
        poll_fn(|cx| client.poll_write(cx, &[std::io::IoSlice::new(&[41])])).await.expect("it fits");
        poll_fn(|cx| client.poll_read(cx, &mut byte)).await.expect("an answer comes");
        assert_eq!(byte, [42]);
        far.join().expect("it ends");
        assert_eq!(poll_fn(|cx| client.poll_read(cx, &mut byte)).await.expect("the end comes"), 0);
    }
}

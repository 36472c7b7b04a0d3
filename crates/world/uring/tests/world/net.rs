//! Sockets on the loopback interface.

use crate::on_both;
use shard::{Listener, Stream, StreamOptions, World};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;
use uring::{TcpStream, Uring};

pub(crate) async fn send(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let pieces = [IoSlice::new(one), IoSlice::new(two)];
        let sent = poll_fn(|cx| stream.poll_write(cx, &pieces)).await.expect("the peer reads");
        bytes = &bytes[sent..];
    }
}

pub(crate) async fn receive(stream: &TcpStream, into: &mut [u8]) {
    let mut filled = 0;
    while filled < into.len() {
        let count = poll_fn(|cx| stream.poll_read(cx, &mut into[filled..])).await.expect("the peer sends");
        assert_ne!(count, 0, "the peer sends all of it");
        filled += count;
    }
}

pub(crate) async fn pair(world: &Uring, host: &str) -> (TcpStream, TcpStream) {
    let address: SocketAddr = host.parse().expect("an address");
    let listener = world.listen(address).expect("a port");
    let client = world.connect(listener.local_address(), StreamOptions::default()).await.expect("it listens");
    let served = listener.accept(&StreamOptions::default()).await.expect("the client is there");
    (client, served)
}

/// Number of write calls of this thread to files and eventfds; data sent on sockets is not counted.
fn writes() -> u64 {
    let counted = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
    let writes = counted.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("writes are counted");
    writes.parse().expect("a number")
}

on_both! {
    listener_on_every_address_takes_both_families(world) {
        let listener = world.listen("[::]:0".parse().expect("an address")).expect("a port");
        assert!(listener.takes_ipv4());
        let port = listener.local_address().port();
        for ip in ["127.0.0.1", "::1"] {
            let there = SocketAddr::new(ip.parse().expect("an address"), port);
            let client = world.connect(there, StreamOptions::default()).await.expect("it listens");
            let served = listener.accept(&StreamOptions::default()).await.expect("the client is there");
            assert_eq!((served.local_address(), served.peer_address()), (there, client.local_address()));
        }
        let other = world.listen("0.0.0.0:0".parse().expect("an address")).expect("a port");
        let taken = SocketAddr::new("::".parse().expect("an address"), other.local_address().port());
        let alone = world.listen(taken).expect("of IPv6 it is free");
        assert!(!alone.takes_ipv4(), "IPv4 is another listener's");
    }

    shard_does_not_ring_its_own_bell_when_its_sleep_ends(world) {
        let (client, served) = pair(&world, "127.0.0.1:0").await;
        let before = writes();
        world.spawn(async move {
            let mut word = [0; 4];
            for _ in 0..200 {
                receive(&served, &mut word).await;
                send(&served, &word).await;
            }
        });
        let mut word = [0; 4];
        for _ in 0..200 {
            send(&client, b"ping").await;
            receive(&client, &mut word).await;
        }
        let rings = writes() - before;
        assert!(rings < 20, "it rang {rings} times for 200 words there and back");
    }

    bytes_arrive_whole_and_in_order_however_much_is_sent(world) {
        let (client, served) = pair(&world, "127.0.0.1:0").await;
        assert_eq!(client.local_address(), served.peer_address());
        assert_eq!(client.peer_address(), served.local_address());
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        let sent = bytes.clone();
        world.spawn(async move {
            send(&client, &sent).await;
            client.close_write().expect("it is open");
            let mut answer = [0; 4];
            receive(&client, &mut answer).await;
            assert_eq!(&answer, b"done");
        });
        let mut got = vec![0; bytes.len()];
        receive(&served, &mut got).await;
        assert!(got == bytes);
        let end = poll_fn(|cx| served.poll_read(cx, &mut [0; 10])).await.expect("no error");
        assert_eq!(end, 0, "the peer has closed its side");
        send(&served, b"done").await;
    }

    write_waits_for_a_reader_that_does_not_read(world) {
        let (client, served) = pair(&world, "127.0.0.1:0").await;
        let chunk = vec![7; 1 << 20];
        let mut sent = 0;
        let full = loop {
            let wrote = poll_fn(|cx| Poll::Ready(client.poll_write(cx, &[IoSlice::new(&chunk)]))).await;
            match wrote {
                Poll::Ready(count) => sent += count.expect("the peer is there"),
                Poll::Pending => break sent,
            }
        };
        let mut drain = vec![0; full];
        receive(&served, &mut drain).await;
        let more = poll_fn(|cx| client.poll_write(cx, &[IoSlice::new(&chunk)])).await.expect("there is room again");
        assert!(more > 0);
    }

    dropped_stream_ends_the_connection_at_once(world) {
        let (client, served) = pair(&world, "127.0.0.1:0").await;
        let waits = poll_fn(|cx| Poll::Ready(served.poll_read(cx, &mut [0]).is_pending())).await;
        assert!(waits);
        drop(served);
        let end = poll_fn(|cx| client.poll_read(cx, &mut [0])).await.expect("no error");
        assert_eq!(end, 0);
    }

    connect_to_a_closed_port_is_refused(world) {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = listener.local_address();
        drop(listener);
        world.sleep(Duration::from_millis(5)).await;
        let error = world.connect(address, StreamOptions::default()).await.err().expect("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    listener_on_a_taken_port_is_refused(world) {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let error = world.listen(listener.local_address()).err().expect("taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }

    unknown_congestion_control_falls_back_in_silence(world) {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let options = StreamOptions { congestion: Some("no-such-thing".to_owned()) };
        let client = world.connect(listener.local_address(), options.clone()).await;
        assert!(client.is_ok());
        assert!(listener.accept(&options).await.is_ok());
    }
}

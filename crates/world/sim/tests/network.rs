//! Tests of the simulated network: bytes arrive complete and in order, under all permitted disturbances.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use shard::{Listener, Stream, StreamOptions, World};
use sim::{Crash, NetworkFaults, Sim, SimStream};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::task::Poll;
use std::time::Duration;

async fn pair(sim: &Sim) -> (SimStream, SimStream, Sim) {
    let server = sim.add_node([10, 0, 0, 2].into());
    let listener = server.listen("0.0.0.0:3260".parse().unwrap()).unwrap();
    let address = "10.0.0.2:3260".parse().unwrap();
    let client = sim.connect(address, StreamOptions::default()).await.unwrap();
    let served = listener.accept(&StreamOptions::default()).await.unwrap();
    assert_eq!(served.local_address(), address);
    assert_eq!((client.peer_address(), client.local_address()), (served.local_address(), served.peer_address()));
    (client, served, server)
}

async fn send(stream: &SimStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let sent = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

async fn receive(stream: &SimStream, into: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match poll_fn(|cx| stream.poll_read(cx, &mut into[filled..])).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

fn reliable() -> NetworkFaults {
    NetworkFaults {
        delay: Duration::from_micros(5)..=Duration::from_millis(20),
        buffer_bytes: 16 << 10,
        split_per_million: 700_000,
        short_per_million: 500_000,
        ..NetworkFaults::default()
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_though_cut_and_joined() {
    for seed in 0..30 {
        Sim::new(seed).run(async |sim| {
            sim.network().set_faults(reliable());
            let (client, served, _) = pair(&sim).await;
            let bytes: Vec<u8> = (0..50_000u32).map(|n| (n / 3) as u8).collect();
            let sent = bytes.clone();
            sim.spawn(async move {
                send(&client, &sent).await.unwrap();
                client.close_write().unwrap();
                std::future::pending::<()>().await;
            });
            let mut got = vec![0; bytes.len()];
            receive(&served, &mut got).await.unwrap();
            assert!(got == bytes);
            assert_eq!(poll_fn(|cx| served.poll_read(cx, &mut [0])).await.unwrap(), 0, "the peer closed its side");
            assert!(poll_fn(|cx| served.poll_write(cx, &[IoSlice::new(b"x")])).await.is_ok(), "ours is open");
            let counts = sim.network().counts();
            assert!(counts.splits > 0 && counts.shorts > 0 && counts.merges > 0, "{counts:?}");
        });
    }
}

#[test]
fn writer_waits_for_a_reader_that_does_not_read() {
    Sim::new(1).run(async |sim| {
        sim.network().set_faults(NetworkFaults { buffer_bytes: 1000, ..NetworkFaults::default() });
        let (client, served, _) = pair(&sim).await;
        let mut sent = 0;
        while let Poll::Ready(count) =
            poll_fn(|cx| Poll::Ready(client.poll_write(cx, &[IoSlice::new(&[1; 4000])]))).await
        {
            sent += count.unwrap();
        }
        assert_eq!(sent, 1000);
        receive(&served, &mut [0; 1000]).await.unwrap();
        assert!(poll_fn(|cx| client.poll_write(cx, &[IoSlice::new(&[1; 4000])])).await.unwrap() > 0);
    });
}

#[test]
fn resets_happen_and_are_seen_by_both_ends() {
    Sim::new(4).run(async |sim| {
        let (client, served, _) = pair(&sim).await;
        sim.network().set_faults(NetworkFaults { reset_per_million: 1_000_000, ..NetworkFaults::default() });
        let _ = send(&client, b"hello").await;
        let error = receive(&served, &mut [0; 5]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = receive(&client, &mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(sim.network().counts().resets, 1);
    });
}

#[test]
fn nothing_arrives_behind_what_a_reset_swallowed() {
    for seed in 0..50 {
        Sim::new(seed).run(async |sim| {
            let (client, served, _) = pair(&sim).await;
            let delay = Duration::from_micros(5)..=Duration::from_millis(20);
            let faults = NetworkFaults { reset_per_million: 200_000, delay, ..NetworkFaults::default() };
            sim.network().set_faults(faults);
            let bytes: Vec<u8> = (0..=255).collect();
            for byte in bytes.chunks(1) {
                if send(&client, byte).await.is_err() {
                    break;
                }
                sim.sleep(Duration::from_micros(50)).await;
            }
            for &byte in &bytes {
                let mut got = [0];
                match receive(&served, &mut got).await {
                    Ok(()) => assert_eq!(got, [byte], "there is no hole in a stream"),
                    Err(_) => return,
                }
            }
        });
    }
}

#[test]
fn stall_is_silent_and_passes() {
    Sim::new(4).run(async |sim| {
        let (client, served, _) = pair(&sim).await;
        let stall = Duration::from_secs(10)..=Duration::from_secs(20);
        sim.network().set_faults(NetworkFaults { stall_per_million: 1_000_000, stall, ..NetworkFaults::default() });
        let start = sim.now();
        send(&client, b"hello").await.unwrap();
        let mut got = [0; 5];
        receive(&served, &mut got).await.unwrap();
        assert_eq!(&got, b"hello");
        assert!(sim.now().since(start) >= Duration::from_secs(10));
        assert!(sim.network().counts().stalls > 0);
    });
}

#[test]
fn cut_network_is_silent_until_it_is_healed() {
    Sim::new(4).run(async |sim| {
        let (client, served, server) = pair(&sim).await;
        sim.network().cut(sim.address(), server.address());
        send(&client, b"x").await.unwrap();
        sim.sleep(Duration::from_secs(50)).await;
        assert!(poll_fn(|cx| Poll::Ready(served.poll_read(cx, &mut [0]).is_pending())).await);
        let attempt = sim.connect("10.0.0.2:3260".parse().unwrap(), StreamOptions::default()).await;
        assert_eq!(attempt.err().unwrap().kind(), ErrorKind::TimedOut);
        sim.network().heal();
        receive(&served, &mut [0]).await.unwrap();
    });
}

#[test]
fn connect_is_refused_without_a_listener_and_by_chance() {
    Sim::new(4).run(async |sim| {
        let here = "10.0.0.1:9".parse().unwrap();
        let refused = sim.connect(here, StreamOptions::default()).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let _listener = sim.listen(here).unwrap();
        assert_eq!(sim.listen(here).err().unwrap().kind(), ErrorKind::AddrInUse);
        assert!(sim.connect(here, StreamOptions::default()).await.is_ok());
        sim.network().set_faults(NetworkFaults { refuse_per_million: 1_000_000, ..NetworkFaults::default() });
        assert!(sim.connect(here, StreamOptions::default()).await.is_err());
        assert_eq!(sim.network().counts().refusals, 1);
        let elsewhere = sim.listen("10.9.9.9:1".parse().unwrap()).err().unwrap();
        assert_eq!(elsewhere.kind(), ErrorKind::AddrNotAvailable);
    });
}

#[test]
fn killed_peer_is_heard_and_a_crashed_one_only_after_it_booted() {
    Sim::new(4).run(async |sim| {
        let (client, served, server) = pair(&sim).await;
        server.spawn(async move {
            std::future::pending::<()>().await;
            drop(served);
        });
        sim.sleep(Duration::from_millis(1)).await;
        server.kill();
        assert_eq!(poll_fn(|cx| client.poll_read(cx, &mut [0])).await.unwrap(), 0);
        let listener = server.listen("10.0.0.2:5".parse().unwrap()).unwrap();
        let client = sim.connect("10.0.0.2:5".parse().unwrap(), StreamOptions::default()).await.unwrap();
        let served = listener.accept(&StreamOptions::default()).await.unwrap();
        server.spawn(async move {
            std::future::pending::<()>().await;
            drop((listener, served));
        });
        sim.sleep(Duration::from_millis(1)).await;
        server.crash(Crash::AnySubset);
        send(&client, b"anybody?").await.unwrap();
        sim.sleep(Duration::from_secs(1000)).await;
        assert!(poll_fn(|cx| Poll::Ready(client.poll_read(cx, &mut [0]).is_pending())).await);
        server.boot();
        let error = poll_fn(|cx| client.poll_read(cx, &mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn stream_moves_between_holders_without_a_break() {
    Sim::new(4).run(async |sim| {
        let (client, served, server) = pair(&sim).await;
        let served = server.adopt_stream(served.into_handle()).unwrap();
        send(&client, b"on").await.unwrap();
        receive(&served, &mut [0; 2]).await.unwrap();
        drop(client);
        assert_eq!(poll_fn(|cx| served.poll_read(cx, &mut [0])).await.unwrap(), 0);
    });
}

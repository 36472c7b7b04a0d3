//! Cost of a message on the socket path: 48-byte requests, each answered with 48 + 4096 bytes, by a bare epoll loop and
//! by this world. `cargo run --release -p uring --example socket_path [depth] [seconds]`

use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use shard::{Listener, Stream, StreamOptions, World};
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use uring::{Io, Options};

const REQUEST: usize = 48;
const REPLY: usize = 48 + 4096;
type Server = fn(Sender<SocketAddr>) -> Duration;

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("it is not negative")
}

fn bare(tell: Sender<SocketAddr>) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    tell.send(listener.local_addr().expect("bound")).expect("the client waits");
    let (mut stream, _) = listener.accept().expect("a client");
    stream.set_nodelay(true).expect("a socket");
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&poll, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("epoll");
    let (mut requests, replies) = (vec![0; 64 << 10], vec![7; REPLY * 2048]);
    let (mut partial, mut events) = (0, Vec::with_capacity(8));
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).expect("epoll");
        let Ok(count @ 1..) = stream.read(&mut requests) else { return cpu_time() };
        partial += count;
        let _ = stream.write_all(&replies[..partial / REQUEST * REPLY]);
        partial %= REQUEST;
    }
}

fn world(tell: Sender<SocketAddr>, io: Io, spin: Duration) -> Duration {
    let main = async move |world: uring::Uring| {
        let listener = world.listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        tell.send(listener.local_address()).expect("the client waits");
        let stream = listener.accept(&StreamOptions::default()).await.expect("a client");
        let (mut requests, replies, mut partial) = (vec![0; 64 << 10], vec![7; REPLY * 2048], 0);
        loop {
            let read = poll_fn(|cx| stream.poll_read(cx, &mut requests)).await;
            let Ok(count @ 1..) = read else { return cpu_time() };
            partial += count;
            let mut unsent = &replies[..partial / REQUEST * REPLY];
            partial %= REQUEST;
            while !unsent.is_empty() {
                let sent = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(unsent)])).await;
                unsent = &unsent[sent.unwrap_or(unsent.len())..];
            }
        }
    };
    uring::run(&Options { io, busy_poll: spin, ..Options::default() }, main).expect("a shard")
}

/// Keeps `depth` requests in flight and returns the number of replies.
fn client(address: SocketAddr, depth: usize, seconds: f64) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let (requests, mut replies) = (vec![1; REQUEST * depth], vec![0; REPLY * depth]);
    let (start, mut done, mut partial, mut due) = (Instant::now(), 0, 0, depth);
    while start.elapsed().as_secs_f64() < seconds {
        stream.write_all(&requests[..REQUEST * due]).expect("the server reads");
        partial += stream.read(&mut replies).expect("the server answers");
        due = partial / REPLY;
        partial %= REPLY;
        done += due as u64;
    }
    done
}

fn main() {
    let number = |at, default: f64| std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"));
    let (depth, seconds) = (number(1, 32.0) as usize, number(2, 1.0));
    let servers: [(&str, Server); 4] = [
        ("bare epoll", bare),
        ("world, io_uring", |tell| world(tell, Io::Uring, Duration::ZERO)),
        ("world, threads", |tell| world(tell, Io::Threads, Duration::ZERO)),
        ("world, spin 20us", |tell| world(tell, Io::Uring, Duration::from_micros(20))),
    ];
    let mut cores = [CpuSet::new(); 2];
    (0..2).for_each(|cpu| cores[cpu].set(cpu));
    sched_setaffinity(None, &cores[0]).expect("a core for the client");
    for (name, serve) in (0..3).flat_map(|_| servers) {
        let (tell, told) = channel();
        let server = std::thread::spawn(move || sched_setaffinity(None, &cores[1]).map(|()| serve(tell)));
        let done = client(told.recv().expect("the server starts"), depth, seconds);
        let spent = server.join().expect("the server ends").expect("a core for it").as_secs_f64() * 1e6 / done as f64;
        println!("{name:17} {:8.0} messages/s {spent:6.2} us of server CPU each", done as f64 / seconds);
    }
}

//! A disk of this array as a remote disk of another one, over two portals: a write delayed by a slow disk while its
//! path is cut.

use crate::array::{Array, OPEN, TARGET, initiator, portal};
use block::{BlockDevice, Buf, Lba, View};
use initiator::{DiskConfig, DiskEvent, PathState, RemoteDisk};
use iscsi::IscsiName;
use model::Order;
use shard::{World, mailbox};
use sim::{DiskFaults, Sim};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Delay of the first write in the disk.
const HELD: Duration = Duration::from_secs(20);

fn filled(byte: u8) -> View {
    let mut buf = Buf::zeroed(512);
    buf.fill(byte);
    buf.freeze()
}

async fn open(sim: &Sim, portals: &[SocketAddr], events: &Rc<RefCell<Vec<DiskEvent>>>) -> RemoteDisk<Sim> {
    let name = |text: &str| IscsiName::parse(text).unwrap();
    let mut config = DiskConfig::new(portals.to_vec(), name(TARGET), 0, name(&initiator(OPEN)), [9; 16]);
    config.block_bytes = 512;
    let told = events.clone();
    config.events = Rc::new(move |event| told.borrow_mut().push(event));
    RemoteDisk::open(sim, config).await.unwrap()
}

#[test]
fn late_write_of_a_lost_path_never_overwrites_what_was_written_after_it() {
    Sim::new(11).run(async |sim| {
        let array = Array::start(&sim, 2).await;
        let second: SocketAddr = "10.0.0.3:3260".parse().unwrap();
        array.machine.add_address(second.ip());
        array.try_order(Order::OpenPortal { address: second }).await.unwrap();
        let host = sim.add_node("10.0.0.9".parse().unwrap());
        let events = Rc::default();
        let disk = Rc::new(open(&host, &[portal(), second], &events).await);
        array.disk.set_faults(DiskFaults { latency: HELD..=HELD, ..DiskFaults::default() });
        let begun = array.disk.counts().writes;
        let (tell, told) = mailbox::channel();
        let first = disk.clone();
        host.spawn(async move {
            // The test receives the result, unless it has failed.
            let _ = tell.send(first.write(Lba(5), filled(1)).await.is_ok());
        });
        while array.disk.counts().writes == begun {
            sim.sleep(Duration::from_millis(1)).await;
        }
        // The disk delays the write; nothing returns over the first portal.
        sim.network().cut(host.address(), portal().ip());
        array.disk.set_faults(DiskFaults::default());
        assert_eq!(told.receive().await, Some(true), "it is sent again over the other portal");
        let _ = disk.write(Lba(5), filled(2)).await.unwrap();
        sim.sleep(3 * HELD).await;
        assert_eq!(array.disk.content(5 * 512..6 * 512), vec![2; 512], "the late write has overwritten a later one");
        assert!(events.borrow().iter().any(|event| matches!(event, DiskEvent::PathFenced { key, .. } if *key != 0)));
        sim.network().heal();
        sim.sleep(HELD).await;
        assert!(disk.paths().iter().all(|path| path.state == PathState::Up), "{:?}", disk.paths());
        assert_eq!(array.disk.content(5 * 512..6 * 512), vec![2; 512]);
    });
}

#[test]
fn disk_that_was_closed_leaves_nothing_reserved() {
    Sim::new(12).run(async |sim| {
        let array = Array::start(&sim, 1).await;
        let host = sim.add_node("10.0.0.9".parse().unwrap());
        let events = Rc::default();
        let disk = open(&host, &[portal()], &events).await;
        let _ = disk.write(Lba(0), filled(3)).await.unwrap();
        disk.close().await;
        // Another owner finds no registration.
        let name = |text: &str| IscsiName::parse(text).unwrap();
        let mut other = DiskConfig::new(vec![portal()], name(TARGET), 0, name(&initiator(OPEN)), [8; 16]);
        other.block_bytes = 512;
        let disk = RemoteDisk::open(&host, other).await.unwrap();
        assert_eq!(disk.read(block::Extent::new(0, 1)).await.unwrap().into_view()[0], 3);
        drop(array);
    });
}

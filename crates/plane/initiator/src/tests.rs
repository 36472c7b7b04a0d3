//! Tests of remote disks over a simulated network: lost paths, retries, and late writes.

mod rig;

use crate::disk::{BlockBytesError, DiskConfig, DiskEvent, OpenError, OpenMode, PathState, RemoteDisk, UnitFacts};
use crate::fence::FenceError;
use crate::page::{Capacity, Limits};
use block::{BlockDevice, Blocks, Buf, Extent, IoErrorKind, Lba, View, Written};
use futures_util::FutureExt as _;
use iscsi::IscsiName;
use rig::{TARGET, Unit};
use shard::{World, mailbox};
use sim::{Network, Sim};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: usize = 4096;

/// A target with two addresses, and a machine that uses it.
struct Stage {
    network: Network,
    host: Sim,
    unit: Rc<Unit>,
    events: Rc<RefCell<Vec<DiskEvent>>>,
}

impl Stage {
    fn new(world: &Sim) -> Self {
        let target = world.add_node(ip(1));
        target.add_address(ip(2));
        let host = world.add_node(ip(9));
        let unit = Unit::new(&target, 8 * 1024);
        unit.serve();
        Self { network: world.network(), host, unit, events: Rc::default() }
    }

    fn config(&self, paths: u8) -> DiskConfig {
        let portals = (1..=paths).map(|path| (ip(path), 3260).into()).collect();
        let name = |text| IscsiName::parse(text).unwrap();
        let mut config = DiskConfig::new(portals, name(TARGET), 0, name("iqn.2026-01.test:array"), [5; 16]);
        let events = self.events.clone();
        config.events = Rc::new(move |event| events.borrow_mut().push(event));
        config
    }

    async fn open(&self, paths: u8) -> RemoteDisk<Sim> {
        RemoteDisk::open(&self.host, self.config(paths)).await.unwrap()
    }

    /// Cuts the network between the host and the portal of the path, silently.
    fn cut(&self, path: u8) {
        self.network.cut(self.host.address(), ip(path));
    }

    /// Runs `work` as a task of its own and returns the receiver of its result.
    fn start<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> mailbox::Receiver<T> {
        let (tell, told) = mailbox::channel();
        self.host.spawn(async move { drop(tell.send(work.await)) });
        told
    }
}

fn ip(last: u8) -> IpAddr {
    [10, 0, 7, last].into()
}

fn filled(byte: u8, blocks: usize) -> View {
    let mut buf = Buf::zeroed(blocks * BLOCK);
    buf.fill(byte);
    buf.freeze()
}

fn simulated(work: impl AsyncFnOnce(Stage) + 'static) {
    Sim::new(30).run(async move |world| {
        world.set_time_limit(Duration::from_secs(3600));
        work(Stage::new(&world)).await;
    });
}

#[test]
fn disk_shows_the_unit_and_keeps_what_is_written() {
    simulated(async |stage| {
        stage.unit.transfer_blocks_max.set(64);
        let disk = stage.open(2).await;
        let geometry = disk.geometry();
        assert_eq!((geometry.blocks, geometry.block_bytes, geometry.physical_block_bytes), (Blocks(1024), 4096, 4096));
        assert_eq!((disk.facts().name().as_str(), geometry.volatile_cache), ("naa.6000000000000000", false));
        let written = disk.write(Lba(10), filled(7, 40)).await.unwrap();
        let _ = disk.flush(written).await.unwrap();
        let read = disk.read(Extent::new(9, 42)).await.unwrap().into_view();
        assert!(read[..BLOCK].iter().chain(&read[41 * BLOCK..]).all(|byte| *byte == 0));
        assert!(read[BLOCK..41 * BLOCK].iter().all(|byte| *byte == 7));
        assert_eq!(stage.unit.longest.get(), 64, "the target takes 64 of its blocks in one command");
        assert_eq!(disk.read(Extent::new(1023, 2)).await.unwrap_err().kind, IoErrorKind::OutOfRange);
        assert_eq!(disk.paths().iter().filter(|path| path.state == PathState::Up).count(), 2);
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get()), (2, Some(7)));
        disk.close().await;
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get()), (0, None));
    });
}

#[test]
fn unit_whose_commands_transfer_less_than_a_block_is_refused() {
    simulated(async |stage| {
        stage.unit.transfer_blocks_max.set(7);
        let refused = RemoteDisk::open(&stage.host, stage.config(1)).await.err().unwrap();
        let expected = BlockBytesError::TransferTooShort { found: 7 * 512, wanted: 4096 };
        assert!(matches!(refused, OpenError::BlockBytes(why) if why == expected), "{refused}");
        assert!(stage.unit.keys.borrow().is_empty(), "nothing was registered");
        stage.unit.transfer_blocks_max.set(8);
        let disk = stage.open(1).await;
        let _ = disk.write(Lba(0), filled(1, 2)).await.unwrap();
        assert_eq!(stage.unit.longest.get(), 8);
    });
}

#[test]
fn unmap_never_exceeds_the_limit_of_the_unit() {
    let facts = |unmaps, unmap_blocks_max| UnitFacts {
        designators: Vec::new(),
        serial: None,
        model: None,
        capacity: Capacity { blocks: 8192, block_bytes: 512, physical_block_bytes: 512, thin: true },
        limits: Limits { unmap_blocks_max, ..Limits::default() },
        unmaps,
        write_cache: false,
        port_group: None,
    };
    let blocks = |unmaps, limit| facts(unmaps, limit).unmap_blocks_max(8);
    assert_eq!((blocks(true, 24), blocks(true, 8), blocks(true, 0)), (3, 1, 1 << 18));
    assert_eq!((blocks(true, 7), blocks(false, 24)), (0, 0), "a discard is ignored");
}

/// Central case: a late original write never takes effect after its retry and later writes.
async fn late_write(stage: &Stage) {
    let disk = Rc::new(stage.open(2).await);
    let unit = &stage.unit;
    unit.hold.set(Duration::from_secs(20));
    let first = disk.clone();
    let told = stage.start(async move { first.write(Lba(3), filled(1, 1)).await.is_ok() });
    unit.until_held(1).await;
    // The first write is with the target, and its answer is lost.
    stage.cut(1);
    unit.hold.set(Duration::ZERO);
    assert_eq!(told.receive().await, Some(true), "the write is sent again over the other path");
    assert_eq!(unit.byte(24), 1);
    let _ = disk.write(Lba(3), filled(2, 1)).await.unwrap();
    stage.host.sleep(Duration::from_secs(60)).await;
    assert_eq!(unit.byte(24), 2, "the late first write has overwritten a later one");
    stage.network.heal();
    stage.host.sleep(Duration::from_secs(60)).await;
    assert_eq!(unit.byte(24), 2, "what waited in the network has overwritten a later write");
    assert!(disk.paths().iter().all(|path| path.state == PathState::Up), "{:?}", disk.paths());
}

#[test]
fn write_whose_path_is_cut_is_sent_again_behind_a_preempt_and_abort() {
    simulated(async |stage| {
        late_write(&stage).await;
        assert_eq!((stage.unit.preempts.get(), stage.unit.resets.get()), (1, 0));
        let keys: Vec<u64> = stage.unit.keys.borrow().values().copied().collect();
        assert_eq!(keys.len(), 2, "the lost path has registered again");
        let events = stage.events.borrow();
        let fenced = events.iter().filter(|event| matches!(event, DiskEvent::PathFenced { .. })).count();
        let restored = events.iter().filter(|event| matches!(event, DiskEvent::PathRestored { .. })).count();
        assert_eq!((fenced, restored), (1, 1), "{events:?}");
    });
}

#[test]
fn write_whose_path_is_cut_is_sent_again_behind_a_reset_where_there_are_no_reservations() {
    simulated(async |stage| {
        stage.unit.reserves.set(false);
        late_write(&stage).await;
        assert_eq!(stage.unit.preempts.get(), 0);
        assert!(stage.unit.resets.get() >= 2, "one at open and one for the lost path");
    });
}

#[test]
fn writes_wait_for_a_target_that_ends_tasks_by_carrying_them_out() {
    for reserves in [true, false] {
        simulated(async move |stage| {
            stage.unit.reserves.set(reserves);
            stage.unit.waits.set(true);
            late_write(&stage).await;
        });
    }
}

#[test]
fn write_of_the_only_path_is_sent_again_when_the_path_logs_in_anew() {
    simulated(async |stage| {
        let disk = Rc::new(stage.open(1).await);
        stage.unit.hold.set(Duration::from_secs(25));
        let first = disk.clone();
        let told = stage.start(async move { first.write(Lba(0), filled(1, 1)).await.is_ok() });
        stage.unit.until_held(1).await;
        stage.cut(1);
        stage.unit.hold.set(Duration::ZERO);
        stage.host.sleep(Duration::from_secs(15)).await;
        stage.network.heal();
        assert_eq!(told.receive().await, Some(true));
        let _ = disk.write(Lba(0), filled(2, 1)).await.unwrap();
        stage.host.sleep(Duration::from_secs(60)).await;
        assert_eq!(stage.unit.byte(0), 2);
    });
}

#[test]
fn disk_without_a_path_fails_after_its_limit_and_stays_so() {
    simulated(async |stage| {
        let disk = stage.open(2).await;
        stage.cut(1);
        stage.cut(2);
        let began = stage.host.now();
        let error = disk.write(Lba(0), filled(1, 1)).await.unwrap_err();
        let took = stage.host.now().since(began);
        assert_eq!(error.kind, IoErrorKind::Gone);
        assert!((30..60).contains(&took.as_secs()), "{took:?}");
        stage.network.heal();
        stage.host.sleep(Duration::from_secs(30)).await;
        let after = disk.read(Extent::new(0, 1)).now_or_never();
        assert_eq!(after.unwrap().unwrap_err().kind, IoErrorKind::Gone, "who has given it up must not see it return");
        let events = stage.events.borrow();
        assert_eq!(events.iter().filter(|event| matches!(event, DiskEvent::Unreachable { .. })).count(), 1);
    });
}

#[test]
fn read_goes_on_over_the_other_path() {
    simulated(async |stage| {
        let disk = stage.open(2).await;
        let _ = disk.write(Lba(5), filled(9, 1)).await.unwrap();
        stage.cut(1);
        let data = disk.read(Extent::new(5, 1)).await.unwrap().into_view();
        assert_eq!(data[0], 9);
        assert_eq!(stage.unit.preempts.get(), 0, "no write was lost");
        let active = disk.paths().into_iter().find(|path| path.is_active).unwrap();
        assert_eq!(active.portal.ip(), ip(2));
    });
}

#[test]
fn closed_disk_removes_the_key_of_a_path_that_is_down() {
    simulated(async |stage| {
        let disk = stage.open(2).await;
        stage.cut(1);
        stage.host.sleep(Duration::from_secs(30)).await;
        assert_eq!(stage.unit.keys.borrow().len(), 2, "no write was lost, so nothing was preempted");
        disk.close().await;
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get()), (0, None));
    });
}

#[test]
fn path_to_another_unit_is_refused() {
    simulated(async |stage| {
        stage.unit.other_identity.set(Some(ip(2)));
        let refused = RemoteDisk::open(&stage.host, stage.config(2)).await.err().unwrap();
        assert!(matches!(refused, OpenError::OtherUnit { .. }), "{refused}");
        assert!(refused.to_string().contains("naa.600000000000000"), "{refused}");
        stage.host.sleep(Duration::from_secs(10)).await;
        assert!(stage.unit.keys.borrow().is_empty(), "nothing stays registered");
    });
}

#[test]
fn unit_that_another_host_has_reserved_is_taken_only_by_force() {
    simulated(async |stage| {
        stage.unit.reserve_for_another(0xbad);
        let refused = RemoteDisk::open(&stage.host, stage.config(2)).await.err().unwrap();
        assert!(matches!(refused, OpenError::Fence(FenceError::Foreign { key: 0xbad })), "{refused}");
        assert!(refused.to_string().contains("0x0000000000000bad"), "{refused}");
        let looks = DiskConfig { usage: OpenMode::Inspect, ..stage.config(2) };
        let disk = RemoteDisk::open(&stage.host, looks).await.unwrap();
        let _ = disk.read(Extent::new(0, 1)).await.unwrap();
        disk.close().await;
        let forced = DiskConfig { usage: OpenMode::ReadWrite { force: true }, ..stage.config(2) };
        let disk = RemoteDisk::open(&stage.host, forced).await.unwrap();
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        assert!(!stage.unit.keys.borrow().values().any(|key| *key == 0xbad));
        // The other host returns and preempts the keys of this array, which must not write again.
        stage.unit.keys.borrow_mut().clear();
        stage.unit.reserve_for_another(0xbad);
        assert_eq!(disk.write(Lba(0), filled(2, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
        assert_eq!(stage.unit.byte(0), 1);
    });
}

#[test]
fn keys_and_writes_of_an_earlier_life_are_ended_at_open() {
    simulated(async |stage| {
        let disk = Rc::new(stage.open(2).await);
        stage.unit.hold.set(Duration::from_secs(40));
        let first = disk.clone();
        let _never = stage.start(async move { first.write(Lba(0), filled(1, 1)).await.is_ok() });
        stage.unit.until_held(1).await;
        // The daemon is killed, and the next one reaches only the second portal.
        stage.host.kill();
        stage.cut(1);
        stage.unit.hold.set(Duration::ZERO);
        std::mem::forget(disk);
        let again = stage.open(2).await;
        assert!(stage.unit.preempts.get() >= 1, "the key of the first path was preempted");
        let _ = again.write(Lba(0), filled(2, 1)).await.unwrap();
        stage.host.sleep(Duration::from_secs(60)).await;
        assert_eq!(stage.unit.byte(0), 2);
    });
}

#[test]
fn busy_unit_is_asked_again() {
    simulated(async |stage| {
        let disk = stage.open(1).await;
        *stage.unit.statuses.borrow_mut() = vec![0x08, 0x28, 0x40, 0x08];
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        assert_eq!(stage.unit.byte(0), 1);
    });
}

#[test]
fn flush_behind_a_lost_cache_fails_for_good() {
    simulated(async |stage| {
        stage.unit.write_cache.set(true);
        let disk = stage.open(2).await;
        let written = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        let _ = disk.flush(written).await.unwrap();
        assert_eq!(stage.unit.flushes.get(), 1);
        // The cache is flushed, so losing all paths is harmless.
        stage.network.reset_all();
        let written = disk.write(Lba(0), filled(2, 1)).await.unwrap();
        let _ = disk.flush(written).await.unwrap();
        let _ = disk.write(Lba(0), filled(3, 1)).await.unwrap();
        stage.network.reset_all();
        stage.host.sleep(Duration::from_secs(1)).await;
        let failed = disk.flush(Written::attest()).await.unwrap_err();
        assert_eq!(failed.kind, IoErrorKind::Gone);
        assert_eq!(disk.read(Extent::new(0, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
    });
}

#[test]
fn lun_that_is_unmapped_for_a_while_returns_with_its_registrations() {
    simulated(async |stage| {
        let disk = Rc::new(stage.open(2).await);
        // The registrations are lost with the mapping.
        stage.unit.is_unmapped.set(true);
        stage.unit.keys.borrow_mut().clear();
        stage.unit.holder.set(None);
        let first = disk.clone();
        let told = stage.start(async move { first.write(Lba(0), filled(1, 1)).await.is_ok() });
        stage.host.sleep(Duration::from_secs(10)).await;
        let down = |path: &crate::PathReport| matches!(&path.state, PathState::Down(why) if why.contains("not mapped"));
        assert!(disk.paths().iter().all(down), "{:?}", disk.paths());
        stage.unit.is_unmapped.set(false);
        assert_eq!(told.receive().await, Some(true));
        stage.host.sleep(Duration::from_secs(15)).await;
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get(), stage.unit.byte(0)), (2, Some(7), 1));
        let events = stage.events.borrow();
        assert!(!events.iter().any(|event| matches!(event, DiskEvent::Unreachable { .. })), "{events:?}");
        assert!(
            matches!(&events[0], DiskEvent::PathLost { reason, .. } if reason.contains("not mapped")),
            "{:?}",
            events[0]
        );
    });
}

#[test]
fn lun_that_leads_to_another_unit_is_not_written() {
    for code in [[0x3f, 0x0e], [0x3f, 0x03], [0x3f, 0x05]] {
        simulated(async move |stage| {
            let disk = stage.open(1).await;
            stage.unit.other_identity.set(Some(ip(1)));
            stage.unit.attention.set(Some(code));
            assert_eq!(disk.write(Lba(0), filled(1, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
            assert_eq!(stage.unit.byte(0), 0);
            let events = stage.events.borrow();
            let names_both = |event: &DiskEvent| match event {
                DiskEvent::PathLost { reason, .. } => reason.contains("leads to another logical unit"),
                _ => false,
            };
            assert!(names_both(&events[0]), "{events:?}");
        });
    }
}

#[test]
fn standby_path_whose_registration_went_with_its_mapping_registers_before_it_writes() {
    simulated(async |stage| {
        let disk = stage.open(2).await;
        // The LUN was remapped while no command was sent; then the first path registers again, and is cut.
        stage.unit.keys.borrow_mut().clear();
        stage.unit.attention.set(Some([0x3f, 0x0e]));
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        assert_eq!(stage.unit.keys.borrow().len(), 1);
        stage.cut(1);
        stage.host.sleep(Duration::from_secs(15)).await;
        stage.unit.attention.set(Some([0x3f, 0x0e]));
        let _ = disk.write(Lba(0), filled(2, 1)).await.unwrap();
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.byte(0)), (2, 2));
    });
}

#[test]
fn unit_that_another_host_has_preempted_and_left_is_not_written() {
    simulated(async |stage| {
        let disk = stage.open(1).await;
        // A report about the keys of others, as after a fence, is no loss.
        stage.unit.attention.set(Some([0x2a, 0x05]));
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        stage.unit.keys.borrow_mut().clear();
        stage.unit.holder.set(None);
        stage.unit.attention.set(Some([0x2a, 0x05]));
        assert_eq!(disk.write(Lba(0), filled(2, 1)).await.unwrap_err().kind, IoErrorKind::Gone);
        assert_eq!(stage.unit.byte(0), 1);
    });
}

#[test]
fn target_that_registers_and_cannot_store_it_is_used() {
    simulated(async |stage| {
        stage.unit.cannot_store.set(true);
        let disk = stage.open(2).await;
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get()), (2, Some(7)));
        disk.close().await;
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.holder.get()), (0, None));
    });
}

#[test]
fn registration_that_the_target_has_lost_is_made_again() {
    simulated(async |stage| {
        let disk = stage.open(2).await;
        // The reservation of this array stays, and no other initiator has registered.
        stage.unit.keys.borrow_mut().clear();
        let _ = disk.write(Lba(0), filled(1, 1)).await.unwrap();
        stage.host.sleep(Duration::from_secs(5)).await;
        assert_eq!((stage.unit.keys.borrow().len(), stage.unit.byte(0)), (2, 1));
        let events = stage.events.borrow();
        assert!(!events.iter().any(|event| matches!(event, DiskEvent::Unreachable { .. })), "{events:?}");
        let says_why = |event: &DiskEvent| match event {
            DiskEvent::PathLost { reason, .. } => reason.contains("does not know the registration"),
            _ => false,
        };
        assert!(events.iter().any(says_why), "{events:?}");
    });
}

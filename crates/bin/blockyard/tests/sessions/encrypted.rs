//! Encrypted volumes: content on the disks, access from another node, and erasure by the key.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{MEMBERS, Node, furnished_with, name};
use control::EventFilter;
use control::request::{ImportPool, NewClone, NewCopy, NewSnapshots, NewVolume, Removal, SecretText, VolumeSettings};
use model::{Backend, Provision, Size, SnapshotLock, VolumeName, VolumeState, code, event};
use shard::World;
use sim::{Crash, DiskHandle, Sim};
use std::time::Duration;

const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);
const IN_PROGRESS: (u8, u8, u8) = (2, 0x04, 0x1B);
const SEQUENCE_ERROR: (u8, Option<(u8, u8, u8)>) = (2, Some((5, 0x2C, 0)));
const INVALID_FIELD: (u8, Option<(u8, u8, u8)>) = (2, Some((5, 0x24, 0)));
/// Blocks of the volume.
const BLOCKS: u64 = 16 << 11;
/// SANITIZE, CRYPTOGRAPHIC ERASE with IMMED.
const CRYPTOGRAPHIC_ERASE: [u8; 10] = [0x48, 0x83, 0, 0, 0, 0, 0, 0, 0, 0];

fn secret() -> VolumeName {
    "tank/secret".parse().unwrap()
}

/// Creates a volume of 16 MiB at LUN 1, with `fill` in every 64th block.
async fn filled(node: &Node, host: &mut Host, encrypted: bool, provision: Provision, fill: u8) {
    let new = NewVolume { provision: Some(provision), encrypted, ..NewVolume::new(secret(), Some(Size::mib(16))) };
    node.control.volumes.create(new).await.unwrap();
    node.show_as("tank/secret", 1).await;
    while host.test_unit_ready().await.is_some() {}
    // Until it has read the list, a host gets nothing under a number that was another volume.
    host.ask(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]).await.unwrap();
    host.address(1);
    while host.test_unit_ready().await.is_some() {}
    for block in (0..BLOCKS).step_by(64) {
        host.write(block, fill).await;
    }
}

/// Returns true if a sector full of `fill` is on one of the disks of the pool.
fn shows(disks: &[DiskHandle], fill: u8) -> bool {
    let sector = [fill; 512];
    disks.iter().any(|disk| disk.content(0..64 << 20).chunks_exact(512).any(|found| found == sector))
}

async fn session(sim: &Sim) -> Host {
    let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
    host.address(1);
    assert_eq!(host.ask(&[0; 6]).await, Err((6, 0x29, 0)));
    host
}

async fn until_served(sim: &Sim, host: &mut Host) {
    while host.try_read(0).await == Err(IN_PROGRESS) {
        sim.sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn encrypted_volume_shows_on_no_disk_what_a_host_wrote_and_a_plain_one_does() {
    for (seed, encrypted) in [(150, true), (151, false)] {
        Sim::new(seed).run(async move |sim| {
            let (node, disks, mut host) = furnished_with(&sim, 2, &[], false).await;
            filled(&node, &mut host, encrypted, Provision::Thin, 0x22).await;
            assert_eq!(shows(&disks, 0x22), !encrypted);
            let report = node.control.volumes.report(&secret()).await.unwrap();
            let Backend::Pool { encrypted: told, .. } = report.backend else { panic!("{report:?}") };
            assert_eq!(told, encrypted);
            drop(host);
            let node = node.restarted(1).await;
            let mut host = session(&sim).await;
            assert_eq!(host.read(128).await, [0x22; 512]);
            assert_eq!(host.read(129).await, [0; 512]);
            drop(node);
        });
    }
}

#[test]
fn encrypted_volume_is_cloned_and_copied_encrypted_and_never_written_to_a_log() {
    Sim::new(152).run(async move |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        filled(&node, &mut host, true, Provision::Thick, 0x22).await;
        let noon = NewSnapshots { volumes: vec![secret()], name: name("noon"), lock: SnapshotLock::Unlocked.into() };
        node.control.snapshots.create(noon).await.unwrap();
        let (snapshot, name) = ("tank/secret@noon".parse().unwrap(), "tank/clone".parse().unwrap());
        let clone = NewClone { snapshot, name, thick: false, zero_detection: false };
        let clone = node.control.snapshots.create_clone(clone).await.unwrap();
        assert!(matches!(clone.backend, Backend::Pool { encrypted: true, .. }), "{clone:?}");
        let copy: VolumeName = "tank/copy".parse().unwrap();
        node.control
            .copies
            .start(NewCopy { source: "tank/secret@noon".parse().unwrap(), name: copy.clone() })
            .await
            .unwrap();
        while node.control.volumes.report(&copy).await.unwrap().state == VolumeState::Copying {
            sim.sleep(Duration::from_millis(200)).await;
        }
        let copied = node.control.volumes.report(&copy).await.unwrap();
        assert!(matches!(copied.backend, Backend::Pool { encrypted: true, .. }), "{copied:?}");
        node.show_as("tank/copy", 2).await;
        while host.test_unit_ready().await.is_some() {}
        host.write(64, 0x33).await;
        host.address(2);
        while host.test_unit_ready().await.is_some() {}
        assert_eq!(host.read(64).await, [0x22; 512]);
        assert!(!shows(&disks, 0x22) && !shows(&disks, 0x33));
        let settings = [("write-policy".to_owned(), "back".to_owned())].into();
        let refusal = node.control.volumes.set(&secret(), VolumeSettings { settings }).await.unwrap_err();
        assert_eq!(refusal.code, code::POLICY_IMPOSSIBLE);
        assert!(refusal.message.contains("is encrypted"), "{refusal}");
    });
}

#[test]
fn encrypted_volume_of_an_imported_pool_serves_with_the_key_of_that_pool_alone() {
    Sim::new(153).run(async move |sim| {
        let (node, disks, mut host) = furnished_with(&sim, 1, &[], false).await;
        filled(&node, &mut host, true, Provision::Thin, 0x22).await;
        drop(host);
        let tank = name("tank");
        let key = node.control.pools.key(&tank).await.unwrap();
        node.hide("tank/vm1").await;
        node.hide("tank/secret").await;
        node.control.pools.export(&tank, Removal::default()).await.unwrap();

        let other = Node::start_second(&sim).await;
        for (disk, handle) in MEMBERS.iter().zip(&disks) {
            other.attach_disk(disk, handle).await;
        }
        other.control.pools.import(&tank, ImportPool::default()).await.unwrap();
        let state = async |node: &Node, volume: &str| {
            node.control.volumes.report(&volume.parse().unwrap()).await.unwrap().state
        };
        assert_eq!(state(&other, "tank/secret").await, VolumeState::Failed, "without its key");
        assert_eq!(state(&other, "tank/vm1").await, VolumeState::Online, "the others serve");
        let check = other.control.pools.check(&tank, false).await.unwrap();
        assert!(check.findings.iter().any(|finding| finding.description.contains(&key.id)), "{check:?}");
        other.control.pools.export(&tank, Removal::default()).await.unwrap();

        let import = |key| ImportPool { key: Some(key), ..ImportPool::default() };
        let wrong = other.control.pools.import(&tank, import(SecretText::hex(&[5; 32]))).await.unwrap_err();
        assert_eq!(wrong.code, code::POOL_KEY_WRONG);
        assert!(wrong.message.contains(&key.id), "{wrong}");
        other.control.pools.import(&tank, import(key.key.clone())).await.unwrap();
        assert_eq!(state(&other, "tank/secret").await, VolumeState::Online);
        let others = other.control.pools.key(&tank).await.unwrap();
        assert_ne!(others.id, key.id);
        other.control.pools.export(&tank, Removal::default()).await.unwrap();
        other.control.pools.import(&tank, ImportPool::default()).await.unwrap();
        assert_eq!(state(&other, "tank/secret").await, VolumeState::Online, "it is wrapped with this node's key now");
        other.control.pools.export(&tank, Removal::default()).await.unwrap();

        node.control.pools.import(&tank, import(others.key)).await.unwrap();
        node.show_as("tank/secret", 1).await;
        let mut host = session(&sim).await;
        assert_eq!(host.read(128).await, [0x22; 512]);
    });
}

#[test]
fn host_erases_an_encrypted_volume_by_its_key_and_no_other() {
    Sim::new(154).run(async move |sim| {
        let (node, _, mut host) = furnished_with(&sim, 2, &[], false).await;
        host.address(0);
        assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, INVALID_FIELD, "a plain volume has no key");
        for (number, provision) in [Provision::Thin, Provision::Thick].into_iter().enumerate() {
            filled(&node, &mut host, true, provision, 0x22).await;
            let noon =
                NewSnapshots { volumes: vec![secret()], name: name("noon"), lock: SnapshotLock::Unlocked.into() };
            node.control.snapshots.create(noon).await.unwrap();
            assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, SEQUENCE_ERROR);
            assert!(node.codes().await.contains(&event::SANITIZE_REFUSED));
            assert_eq!(host.read(64).await, [0x22; 512]);
            node.control.snapshots.delete(&"tank/secret@noon".parse().unwrap()).await.unwrap();

            assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, GOOD);
            until_served(&sim, &mut host).await;
            for block in (0..BLOCKS).step_by(64) {
                assert_eq!(host.read(block).await, [0; 512], "block {block} of {provision:?}");
            }
            let report = node.control.volumes.report(&secret()).await.unwrap();
            assert_eq!(report.space.unwrap().mapped, Size::new(0));
            // The volume is usable with its new key.
            host.write(64, 0x44).await;
            assert_eq!(host.read(64).await, [0x44; 512]);
            assert_eq!(node.codes().await.iter().filter(|&&code| code == event::SANITIZE_ENDED).count(), number + 1);
            node.hide("tank/secret").await;
            node.control.volumes.delete(&secret(), Removal::default()).await.unwrap();
            // The next volume of this name is another one, under a number that the host knows.
            let forget = node.control.hosts.forget_luns(&name("web")).await;
            forget.unwrap();
            host.address(0);
        }
    });
}

#[test]
fn operator_hears_of_disks_that_were_not_there_when_a_key_was_lost() {
    Sim::new(155).run(async move |sim| {
        let (node, _, mut host) = furnished_with(&sim, 1, &[], false).await;
        filled(&node, &mut host, true, Provision::Thin, 0x22).await;
        assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, GOOD);
        until_served(&sim, &mut host).await;
        assert!(!node.codes().await.contains(&event::KEY_LEFT_BEHIND), "all of them were there");
        node.control.pools.fail_disk(&name(MEMBERS[2])).await.unwrap();
        assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, GOOD);
        until_served(&sim, &mut host).await;
        let events = node.control.reconciler.events(EventFilter::default()).await;
        let told = events.iter().find(|event| event.code == event::KEY_LEFT_BEHIND).unwrap();
        assert!(told.message.contains(MEMBERS[2]) && !told.message.contains(MEMBERS[1]), "{told:?}");
    });
}

#[test]
fn erasing_by_the_key_is_done_after_every_end_of_the_daemon() {
    let ends = [None, Some(None), Some(Some(Crash::NoneLanded)), Some(Some(Crash::Torn))];
    for (seed, end) in ends.into_iter().enumerate() {
        for wait_us in [0, 300, 3_000] {
            Sim::new(160 + seed as u64).run(async move |sim| {
                let (node, _, mut host) = furnished_with(&sim, 1 + seed % 2, &[], seed % 2 == 0).await;
                filled(&node, &mut host, true, Provision::Thin, 0x22).await;
                assert_eq!(host.status_of(&CRYPTOGRAPHIC_ERASE, &[]).await, GOOD);
                sim.sleep(Duration::from_micros(wait_us)).await;
                drop(host);
                let node = match end {
                    None => node.restarted(1).await,
                    Some(crash) => node.revived(1, crash).await,
                };
                let mut host = session(&sim).await;
                until_served(&sim, &mut host).await;
                for block in (0..BLOCKS).step_by(64) {
                    assert_eq!(host.read(block).await, [0; 512], "block {block}, {end:?} after {wait_us} us");
                }
                host.write(64, 0x44).await;
                drop(host);
                let node = node.restarted(1).await;
                assert_eq!(session(&sim).await.read(64).await, [0x44; 512]);
                drop(node);
            });
        }
    }
}

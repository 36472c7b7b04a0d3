//! SANITIZE of volumes: continues after its command and across every end of the daemon, and spares blocks of snapshots.

use crate::array::OPEN;
use crate::host::{Host, Login};
use crate::node::{Node, furnished, name};
use control::request::{ImportPool, NewSnapshots, NewVolume, Removal, VolumeSettings};
use model::{Provision, SanitizeReport, Size, SnapshotLock, VolumeName, code, event};
use scsi::ParsedSense;
use shard::World;
use sim::{Crash, Sim};
use std::time::Duration;

const GOOD: (u8, Option<(u8, u8, u8)>) = (0, None);
const IN_PROGRESS: (u8, u8, u8) = (2, 0x04, 0x1B);
const SEQUENCE_ERROR: (u8, Option<(u8, u8, u8)>) = (2, Some((5, 0x2C, 0)));
/// Blocks of the volume.
const BLOCKS: u64 = 16 << 11;
/// SANITIZE, BLOCK ERASE with IMMED.
const BLOCK_ERASE: [u8; 10] = [0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];
const REQUEST_SENSE: [u8; 6] = [3, 0, 0, 0, 18, 0];

fn big() -> VolumeName {
    "tank/big".parse().unwrap()
}

/// Creates a volume of 16 MiB at LUN 1, limited to `rate` of writes per second.
async fn big_volume(node: &Node, host: &mut Host, provision: Provision, rate: &str) {
    let new = NewVolume { provision: Some(provision), ..NewVolume::new(big(), Some(Size::mib(16))) };
    node.control.volumes.create(new).await.unwrap();
    let settings = [("bandwidth".to_owned(), rate.to_owned())].into();
    node.control.volumes.set(&big(), VolumeSettings { settings }).await.unwrap();
    node.show_as("tank/big", 1).await;
    while host.test_unit_ready().await.is_some() {}
    host.address(1);
    while host.test_unit_ready().await.is_some() {}
}

async fn overwrite(host: &mut Host, passes: u8) -> (u8, Option<(u8, u8, u8)>) {
    host.status_of(&[0x48, 0x81, 0, 0, 0, 0, 0, 0, 6, 0], &[passes, 0, 0, 2, 0xA5, 0x5A]).await
}

/// Logs in; commands go to LUN 1.
async fn session(sim: &Sim) -> Host {
    let mut host = Host::login(sim, &Login::of(OPEN, 0)).await;
    host.address(1);
    assert_eq!(host.ask(&[0; 6]).await, Err((6, 0x29, 0)));
    host
}

/// Polls until the volume is online again; returns the progress of each poll in 65,536ths, and the final sense data.
async fn wait(sim: &Sim, host: &mut Host) -> (Vec<u16>, ParsedSense) {
    let mut told = Vec::new();
    loop {
        let sensed = ParsedSense::parse(&host.ask(&REQUEST_SENSE).await.unwrap()).unwrap();
        if sensed.triple() != IN_PROGRESS {
            return (told, sensed);
        }
        told.push(sensed.progress.unwrap());
        sim.sleep(Duration::from_millis(500)).await;
    }
}

#[test]
fn sanitize_goes_on_through_resets_logouts_and_every_end_of_the_daemon() {
    let ends = [None, Some(None), Some(Some(Crash::NoneLanded)), Some(Some(Crash::Torn))];
    for (seed, end) in ends.into_iter().enumerate() {
        Sim::new(120 + seed as u64).run(async move |sim| {
            let (node, mut host) = furnished(&sim, 1 + seed % 2).await;
            big_volume(&node, &mut host, Provision::Thick, "1MiB/s").await;
            for block in [0, 7, BLOCKS - 1] {
                host.write(block, 0x11).await;
            }
            assert_eq!(overwrite(&mut host, 3).await, GOOD);
            assert_eq!(host.try_read(7).await, Err(IN_PROGRESS));
            sim.sleep(Duration::from_secs(2)).await;
            let told = node.control.volumes.report(&big()).await.unwrap().sanitize;
            assert!(matches!(told, Some(SanitizeReport::Running { percent: 1..=99 })), "{told:?}");
            let why = node.control.presentations.explain(&name("web"), &big()).await.unwrap();
            assert!(why.checks.iter().any(|point| point.message.contains("is being sanitized")), "{why:?}");
            assert_eq!(host.try_write(7, 1).await, Err(IN_PROGRESS));
            assert!(host.ask(&[0x12, 0, 0, 0, 36, 0]).await.is_ok());
            drop(host);
            let node = match end {
                None => node.restarted(1 + seed % 3).await,
                Some(crash) => node.revived(1 + seed % 3, crash).await,
            };
            let mut host = session(&sim).await;
            assert_eq!(host.try_read(7).await, Err(IN_PROGRESS), "{end:?}");
            let (told, last) = wait(&sim, &mut host).await;
            assert!(told.is_sorted() && told.len() > 2 && told.last() > told.first(), "{told:?}");
            assert_eq!(last.key, 0, "{last:?}");
            for block in [0, 1, 7, 1000, BLOCKS - 1] {
                assert_eq!(host.read(block).await, [0xA5, 0x5A].repeat(256), "block {block}");
            }
            let codes = node.codes().await;
            assert!(codes.contains(&event::SANITIZE_BEGAN) && codes.contains(&event::SANITIZE_ENDED), "{codes:?}");
            let node = node.restarted(1).await;
            assert_eq!(session(&sim).await.read(7).await, [0xA5, 0x5A].repeat(256), "it is over");
            drop(node);
        });
    }
}

#[test]
fn sanitize_spares_what_a_snapshot_keeps_and_a_thin_volume_gives_all_of_it_back() {
    Sim::new(130).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 2).await;
        big_volume(&node, &mut host, Provision::Thin, "4MiB/s").await;
        for block in (0..BLOCKS).step_by(64) {
            host.write(block, 0x22).await;
        }
        let noon = || NewSnapshots { volumes: vec![big()], name: name("noon"), lock: SnapshotLock::Unlocked.into() };
        node.control.snapshots.create(noon()).await.unwrap();
        assert_eq!(host.status_of(&BLOCK_ERASE, &[]).await, SEQUENCE_ERROR);
        assert_eq!(overwrite(&mut host, 1).await, SEQUENCE_ERROR);
        assert!(node.codes().await.contains(&event::SANITIZE_REFUSED));
        assert_eq!(host.read(64).await, [0x22; 512]);
        node.control.snapshots.delete(&"tank/big@noon".parse().unwrap()).await.unwrap();

        assert_eq!(host.status_of(&BLOCK_ERASE, &[]).await, GOOD);
        let refusal = node.control.snapshots.create(noon()).await.unwrap_err();
        assert_eq!(refusal.code, code::VOLUME_SANITIZED, "{refusal}");
        assert_eq!(wait(&sim, &mut host).await.1.key, 0);
        assert_eq!(host.read(64).await, [0; 512]);
        let report = node.control.volumes.report(&big()).await.unwrap();
        assert_eq!(report.space.unwrap().mapped, Size::new(0));
        node.control.snapshots.create(noon()).await.unwrap();
    });
}

#[test]
fn sanitize_of_a_volume_whose_pool_is_exported_goes_on_where_it_is_imported() {
    Sim::new(131).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        big_volume(&node, &mut host, Provision::Thick, "1MiB/s").await;
        assert_eq!(overwrite(&mut host, 1).await, GOOD);
        sim.sleep(Duration::from_secs(1)).await;
        drop(host);
        node.hide("tank/vm1").await;
        node.hide("tank/big").await;
        node.control.pools.export(&name("tank"), Removal::default()).await.unwrap();
        node.control.pools.import(&name("tank"), ImportPool::default()).await.unwrap();
        node.show_as("tank/big", 1).await;
        let mut host = session(&sim).await;
        assert_eq!(host.try_read(7).await, Err(IN_PROGRESS));
        assert_eq!(wait(&sim, &mut host).await.1.key, 0);
        assert_eq!(host.read(7).await, [0xA5, 0x5A].repeat(256));
    });
}

//! Offloaded copies (EXTENDED COPY, tokens): only between volumes that the host sees.

use crate::array::initiator;
use crate::host::{Host, Login};
use crate::node::{Node, SIZE, furnished, name};
use control::request::{NewHost, NewPresentation, NewVolume};
use sim::Sim;

type Answer = (u8, Option<(u8, u8, u8)>);

const GOOD: Answer = (0, None);
const NOT_REACHABLE: Answer = (2, Some((0xA, 0x0D, 0x02)));

/// Returns the NAA designator of the addressed unit.
async fn naa(host: &mut Host) -> Vec<u8> {
    let page = host.ask(&[0x12, 1, 0x83, 2, 0, 0]).await.unwrap();
    assert_eq!(page[4..8], [0x01, 0x03, 0, 16], "the first designator is the NAA");
    page[8..24].to_vec()
}

/// Sends EXTENDED COPY (LID1) of 8 blocks from block 0 of one unit to block 16 of another.
async fn copy(host: &mut Host, from: &[u8], to: &[u8]) -> Answer {
    let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for unit in [from, to] {
        list.extend([0xE4, 0, 0, 0, 1, 3, 0, 16]);
        list.extend(unit);
        list.extend([0, 0, 0, 0, 0, 0, 2, 0]);
    }
    list.extend([0x02, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 8]);
    list.extend(0_u64.to_be_bytes());
    list.extend(16_u64.to_be_bytes());
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    host.status_of(&cdb, &list).await
}

async fn volume(node: &Node, volume: &str, host: &str, lun: u16) {
    node.control.volumes.create(NewVolume::new(volume.parse().unwrap(), Some(SIZE))).await.unwrap();
    let (volume, host, target) = (volume.parse().unwrap(), name(host), Some(name("t")));
    let shown =
        NewPresentation { volume, host, target, lun: Some(lun), read_only: false, groups: Vec::new(), force: false };
    node.control.presentations.present(shown).await.unwrap();
}

/// Logs in another host with a volume of its own.
async fn other(sim: &Sim, node: &Node) -> Host {
    let initiators = vec![initiator("db").parse().unwrap()];
    let (networks, chap, mutual_chap) = (Vec::new(), None, None);
    let db = NewHost { name: name("db"), initiators, any: false, networks, chap, mutual_chap, force: false };
    node.control.hosts.add(db).await.unwrap();
    volume(node, "tank/secret", "db", 0).await;
    let mut db = Host::login(sim, &Login { unproven: true, ..Login::of("db", 0) }).await;
    db.take_attention().await;
    db
}

/// Two hosts with volumes of their own: each copies between its own, and cannot address the other's.
#[test]
fn host_copies_between_its_own_volumes_and_finds_no_other() {
    for shards in [1, 3] {
        Sim::new(21).run(async move |sim| {
            let (node, mut web) = furnished(&sim, shards).await;
            volume(&node, "tank/vm2", "web", 1).await;
            let mut db = other(&sim, &node).await;
            let secret = naa(&mut db).await;
            db.write(0, 0x5E).await;
            assert_eq!(web.test_unit_ready().await, Some((0x3F, 0x0E)), "it sees one volume more");
            let first = naa(&mut web).await;
            for block in 0..8 {
                web.write(block, 0x11).await;
            }
            web.address(1);
            web.take_attention().await;
            let second = naa(&mut web).await;
            assert_eq!(copy(&mut web, &first, &second).await, GOOD);
            assert_eq!((web.read(16).await, web.read(23).await), (vec![0x11; 512], vec![0x11; 512]));
            assert_eq!((web.read(15).await, web.read(24).await), (vec![0; 512], vec![0; 512]));
            // Through a third unit, and in the other direction.
            web.address(0);
            assert_eq!(copy(&mut web, &second, &first).await, GOOD);
            assert_eq!(web.read(16).await, [0; 512]);
            for (from, to) in [(&secret, &first), (&first, &secret), (&secret, &secret)] {
                assert_eq!(copy(&mut web, from, to).await, NOT_REACHABLE);
            }
            assert_eq!((db.read(0).await, db.read(16).await), (vec![0x5E; 512], vec![0; 512]));
            node.hide("tank/vm2").await;
            assert_eq!(web.test_unit_ready().await, Some((0x3F, 0x0E)));
            assert_eq!(copy(&mut web, &first, &second).await, NOT_REACHABLE, "it sees it no more");
        });
    }
}

/// Sends POPULATE TOKEN of 8 blocks from block 0, and returns the token.
async fn token(host: &mut Host) -> Vec<u8> {
    let mut list = vec![0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16];
    list.extend(0_u64.to_be_bytes());
    list.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9], cdb[13]) = (0x83, 0x10, 1, 32);
    assert_eq!(host.status_of(&cdb, &list).await, GOOD);
    let mut token = Vec::new();
    // RECEIVE ROD TOKEN INFORMATION, with an allocation length as large as the host accepts.
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[5], cdb[12]) = (0x84, 7, 1, 4);
    token.extend(host.ask_long(&cdb, 1024).await.unwrap());
    assert_eq!(token.len(), 38 + 512);
    token.split_off(38)
}

/// Sends WRITE USING TOKEN of 8 blocks to block 32.
async fn write_by(host: &mut Host, token: &[u8]) -> Answer {
    let mut list = vec![0x02, 0x26];
    list.resize(16, 0);
    list.extend(token);
    list.extend([0, 0, 0, 0, 0, 0, 0, 16]);
    list.extend(32_u64.to_be_bytes());
    list.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9], cdb[12], cdb[13]) = (0x83, 0x11, 2, 0x02, 0x28);
    host.status_of(&cdb, &list).await
}

/// A token copies between volumes of its host, in any pools and shards; it gives no other host access to its data.
#[test]
fn token_copies_between_volumes_of_its_host_until_it_is_written_and_opens_nothing_to_others() {
    for shards in [1, 3] {
        Sim::new(22).run(async move |sim| {
            let (node, mut web) = furnished(&sim, shards).await;
            volume(&node, "tank/vm2", "web", 1).await;
            let mut db = other(&sim, &node).await;
            db.write(0, 0x5E).await;
            let stolen = token(&mut db).await;
            assert_eq!(web.test_unit_ready().await, Some((0x3F, 0x0E)));
            for block in 0..8 {
                web.write(block, 0x11).await;
            }
            let own = token(&mut web).await;
            web.address(1);
            web.take_attention().await;
            assert_eq!(write_by(&mut web, &own).await, GOOD);
            assert_eq!((web.read(32).await, web.read(39).await), (vec![0x11; 512], vec![0x11; 512]));
            assert_eq!((web.read(31).await, web.read(40).await), (vec![0; 512], vec![0; 512]));
            assert_eq!(write_by(&mut web, &stolen).await, (2, Some((5, 0x23, 0x04))), "it does not see the volume");
            assert_eq!(write_by(&mut db, &own).await, (2, Some((5, 0x23, 0x04))));
            assert_eq!(db.read(32).await, [0; 512]);
            web.address(0);
            web.write(3, 0x22).await;
            web.address(1);
            assert_eq!(write_by(&mut web, &own).await, (2, Some((5, 0x23, 0x08))), "its blocks were written");
            let node = node.restarted(1).await;
            let mut web = Host::login(&sim, &Login::of(crate::array::OPEN, 0)).await;
            web.take_attention().await;
            assert_eq!(write_by(&mut web, &own).await, (2, Some((5, 0x23, 0x04))), "tokens end with the daemon");
            drop(node);
        });
    }
}

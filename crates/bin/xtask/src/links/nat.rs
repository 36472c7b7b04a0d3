//! Test of an array behind NAT: a host in this namespace, a router in a second one that translates two public addresses
//! (nftables, DNAT with other ports) and forwards nothing else, and the daemon in a third. The setting `advertise` must
//! lead the host through in discovery, in the login and in the redirect to a data portal.

use super::{Namespace, ip, said};
use crate::client::{Client, ensure_good};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use block::{Buf, Rope};
use iscsi::initiator::DataIn;
use lab::child::{output_of, run_within};
use lab::target::Unit;
use lab::target::product::{IQN, Launch, Product};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
/// Portals as the daemon listens and as hosts reach them: a front portal and a data portal.
const PORTALS: [(&str, &str); 2] =
    [("192.168.77.2:3260", "203.0.113.5:13260"), ("192.168.77.3:3260", "203.0.113.6:13261")];
const BLOCKS: u32 = 64;

/// True when nftables is installed.
pub(super) fn is_possible() -> bool {
    Command::new("nft").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs the test of an array behind NAT.
pub(super) fn play() -> Result<()> {
    let (router, there) = (Namespace::new("nat-router")?, Namespace::new("nat-array")?);
    link(&router, &there)?;
    let folder = tempfile::tempdir()?;
    translate(&router, folder.path())?;
    let array = start(&there, folder.path())?;
    let played = reach(&array);
    if played.is_err() {
        eprintln!("{}", array.last_words());
    }
    played
}

/// Connects host, router and array in a row. The host has no route to the network of the array.
fn link(router: &Namespace, there: &Namespace) -> Result<()> {
    ip(&format!("link add wan0 type veth peer name wan1 netns {}", router.0))?;
    router.ip(&format!("link add lan0 type veth peer name lan1 netns {}", there.0))?;
    ip("address add 198.51.100.2/24 dev wan0")?;
    ip("link set wan0 up")?;
    router.ip("address add 198.51.100.1/24 dev wan1")?;
    router.ip("link set wan1 up")?;
    router.ip("address add 192.168.77.1/24 dev lan0")?;
    router.ip("link set lan0 up")?;
    there.ip("link set lo up")?;
    there.ip("address add 192.168.77.2/24 dev lan1")?;
    there.ip("address add 192.168.77.3/24 dev lan1")?;
    there.ip("link set lan1 up")?;
    there.ip("route add default via 192.168.77.1")?;
    ip("route add 203.0.113.0/24 via 198.51.100.1")
}

/// Configures the router to forward traffic for a public address to its portal, and nothing else.
fn translate(router: &Namespace, folder: &Path) -> Result<()> {
    let mut rules =
        // Traffic that was not translated is dropped, as by a router that knows only the public addresses.
        "table ip translation {\n chain forward {\n  type filter hook forward priority filter; policy drop;\n  \
        ct status dnat accept\n }\n chain inbound {\n  type nat hook prerouting priority dstnat;\n"
            .to_owned();
    for (listens, public) in PORTALS {
        let (address, port) = public.rsplit_once(':').expect("an address with a port");
        rules.push_str(&format!("  ip daddr {address} tcp dport {port} dnat to {listens}\n"));
    }
    rules.push_str(" }\n}\n");
    let file = folder.join("translation.nft");
    fs::write(&file, rules)?;
    let inside =
        |words: &[&str]| output_of(Command::new("ip").args(["netns", "exec", &router.0]).args(words), LIMIT).map(drop);
    inside(&["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])?;
    inside(&["nft", "-f", &file.to_string_lossy()]).context("the rules of the translation")
}

fn start(there: &Namespace, folder: &Path) -> Result<Product> {
    let portals = PORTALS.iter().flat_map(|(listens, _)| ["--portal".to_owned(), (*listens).to_owned()]);
    let arguments = ["--shards", "1"].map(str::to_owned).into_iter().chain(portals).collect();
    let wrapper = ["ip", "netns", "exec", &there.0].map(str::to_owned).into();
    let launch =
        Launch { build: workspace::product()?, folder: folder.to_owned(), arguments, wrapper, ..Launch::default() };
    let array = Product::launch(launch)?;
    for line in [
        "volume create v 8MiB --ram",
        "host add anyone --any",
        &format!("target add t --iqn {IQN}:nat"),
        "present v anyone --target t --lun 0",
    ] {
        told(&array, line)?;
    }
    Ok(array)
}

fn reach(array: &Product) -> Result<()> {
    let [(front, public_front), (data, public_data)] = PORTALS;
    let listed = list(public_front)?;
    ensure!(listed.contains("Portal:192.168.77."), "discovery should tell of a portal as it listens: {listed}");
    ensure!(!listed.contains("Lun:0"), "a portal that the host has no way to was reached: {listed}");
    said("behind NAT, a host is told an address that it cannot reach");

    told(array, &format!("portal set {front} advertise={public_front}"))?;
    told(array, &format!("portal set {data} advertise={public_data}"))?;
    let listed = list(public_front)?;
    for public in [public_front, public_data] {
        ensure!(listed.contains(&format!("Portal:{public},1")), "discovery should tell of {public}: {listed}");
    }
    ensure!(listed.contains("Lun:0") && !listed.contains("192.168."), "libiscsi should reach the unit: {listed}");
    said("it is told the advertised ones, and libiscsi finds the unit there");
    write_and_read(public_front, public_front)?;

    told(array, &format!("portal set {front} role=front"))?;
    told(array, &format!("portal set {data} role=data"))?;
    let listed = list(public_front)?;
    ensure!(listed.contains("Lun:0") && !listed.contains(public_data), "discovery tells of the front alone: {listed}");
    write_and_read(public_front, public_data)?;
    said("a login at the front is sent to the advertised address of the data portal, and blocks come and go there");
    Ok(())
}

/// Returns the output of libiscsi's discovery: targets, their portals, and the units that it reaches through the first
/// one.
fn list(portal: &str) -> Result<String> {
    let mut command = Command::new("iscsi-ls");
    command.args(["-i", "iqn.2026-11.io.blockyard:xtask.nat", "-s", &format!("iscsi://{portal}")]);
    Ok(run_within(&mut command, LIMIT)?.said)
}

/// Logs in at `portal`, checks that the session is at `data`, and verifies written data.
fn write_and_read(portal: &str, data: &str) -> Result<()> {
    let unit = Unit { portal: portal.parse()?, iqn: format!("{IQN}:nat"), lun: 0 };
    let mut client = Client::log_in(&unit, 1)?;
    ensure!(client.portal == data.parse::<SocketAddr>()?, "the session is at {}, not at {data}", client.portal);
    let bytes = usize::try_from(client.block_bytes * BLOCKS)?;
    // Neighboring blocks differ, so that exchanged ones are noticed.
    let written: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
    client.write(0, Rope::from(Buf::copy_of(&written)))?;
    ensure_good(&client.await_completion()?)?;
    client.read(0, BLOCKS, DataIn::Into(Buf::zeroed(bytes)))?;
    let read = client.await_completion()?.data_in.context("a read has data")?;
    ensure!(read[..] == written[..], "what was read is not what was written");
    Ok(())
}

fn told(array: &Product, line: &str) -> Result<String> {
    array.command(&line.split(' ').collect::<Vec<_>>())
}

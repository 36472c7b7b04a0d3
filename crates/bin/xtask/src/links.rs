//! Test of portals with links that fail, addresses that disappear, and packets that exceed the path MTU: real links
//! between network namespaces, with the daemon in one and the initiator in the other. Also tests portals behind NAT.

mod nat;

use crate::client::Client;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use block::Buf;
use clap::Args;
use iscsi::initiator::DataIn;
use lab::child::{again_in_own_network, output_of};
use lab::target::Unit;
use lab::target::product::{IQN, Launch, Product};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit for the detection of a link change.
const NOTICED: Duration = Duration::from_secs(3);
/// Time limit for the detection of a lower path MTU, which the timer of the session checks.
const LOOKED: Duration = Duration::from_secs(40);
/// Number of links: one for the front portal, and one per data portal.
const LINKS: usize = 3;

#[derive(Args)]
pub(crate) struct Options {
    /// This process is already in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Returns true when every link failure and recovery is detected and sessions use the intended portals.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.inside {
        return inside();
    }
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: sudo cargo xtask links");
    again_in_own_network()
}

/// Network namespace of the daemon, deleted on drop.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Result<Self> {
        let there = Self(format!("blockyard-{name}-{}", std::process::id()));
        ip(&format!("netns add {}", there.0))?;
        Ok(there)
    }

    /// Creates a namespace with a link per portal, `t0` there and `h0` here, each in a network of its own.
    fn linked() -> Result<Self> {
        let there = Self::new("links")?;
        ip("link set lo up")?;
        there.ip("link set lo up")?;
        for link in 0..LINKS {
            ip(&format!("link add h{link} type veth peer name t{link} netns {}", there.0))?;
            ip(&format!("address add 10.77.{link}.2/24 dev h{link}"))?;
            ip(&format!("link set h{link} up"))?;
            there.raise(link)?;
        }
        Ok(there)
    }

    /// Brings up the daemon's end of the link with its address. All portals are in one network, because a redirect
    /// stays within a network; still each of them has a link of its own.
    fn raise(&self, link: usize) -> Result<()> {
        // `noprefixroute`: otherwise each link would add a route to the whole network of all portals.
        self.ip(&format!("address replace 10.77.{link}.1/16 dev t{link} noprefixroute"))?;
        self.ip(&format!("link set t{link} up"))?;
        self.ip(&format!("route replace 10.77.{link}.0/24 dev t{link} src 10.77.{link}.1"))
    }

    fn ip(&self, line: &str) -> Result<()> {
        ip(&format!("-n {} {line}", self.0))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A leftover namespace does not disturb later runs.
        let _ = ip(&format!("netns delete {}", self.0));
    }
}

fn ip(line: &str) -> Result<()> {
    output_of(Command::new("ip").args(line.split(' ')), Duration::from_secs(10)).map(drop)
}

/// Returns the portal at the other end of a link.
fn portal(link: usize) -> SocketAddr {
    let link = u8::try_from(link).expect("few links");
    SocketAddr::new(IpAddr::from([10, 77, link, 1]), 3260)
}

fn inside() -> Result<bool> {
    let there = Namespace::linked()?;
    let folder = tempfile::tempdir()?;
    let array = Array::start(&there, folder.path())?;
    // The daemon's last lines explain a failure better than the step that failed.
    let played = play(&there, &array);
    if played.is_err() {
        eprintln!("{}", array.0.last_words());
    }
    played?;
    println!("links: all noticed");
    drop((array, there));
    if nat::is_possible() {
        nat::play()?;
        println!("NAT: reached by the advertised addresses");
    } else {
        println!("NAT: not tried, nft is not installed");
    }
    Ok(true)
}

fn play(there: &Namespace, array: &Array) -> Result<()> {
    // The sessions stay open, since the portal with the fewest sessions is chosen for the next one.
    let _both = [array.session(1, 1)?, array.session(2, 2)?];
    said("sessions are shared out over the links");

    there.ip("link set t1 down")?;
    array.await_state(1, "no link: t1 is down")?;
    array.await_event("BY-E404", "10.77.1.1")?;
    let third = array.session(3, 2)?;
    said("a link that is down is noticed, and takes no new session");

    ip("link set h2 down")?;
    array.await_state(2, "no link: t2 is down")?;
    let _fourth = array.session(4, 0)?;
    said("so is one whose other end is down; the front serves when no data portal can");

    ip("link set h2 up")?;
    there.raise(1)?;
    array.await_state(1, "open")?;
    array.await_state(2, "open")?;
    array.await_event("BY-E405", "10.77.1.1")?;
    let _fifth = array.session(5, 1)?;
    said("links that are back take sessions again");

    there.ip("address delete 10.77.2.1/16 dev t2")?;
    array.await_state(2, "no link: no interface")?;
    drop(third);
    let _sixth = array.session(6, 1)?;
    there.raise(2)?;
    array.await_state(2, "open")?;
    said("an address that is gone, and back, is the same");

    // Only the end of the host is changed, so the array sees it in the segment size that the host offers.
    ip("link set h1 mtu 1400")?;
    let _small = array.session_at(7, 1)?;
    array.await_event("BY-E406", "limits packets to 1400 bytes, but t1 of portal 10.77.1.1:3260 has an MTU of 1500")?;
    said("a host that takes smaller packets is named");

    // The initiator's end of the link uses another address, whose route has a small MTU.
    ip("address add 10.77.9.2/32 dev h2")?;
    ip("route add 10.77.2.1/32 dev h2 src 10.77.9.2")?;
    there.ip("route add 10.77.9.0/24 via 10.77.2.2 mtu 1300")?;
    let mut far = array.session_at(8, 2)?;
    array.await_event("BY-E406", "at 10.77.9.2 limits packets to 1300 bytes")?;
    there.ip("route change 10.77.9.0/24 via 10.77.2.2 mtu 1200")?;
    let until = Instant::now() + LOOKED;
    while !array.has_event("BY-E406", "at 10.77.9.2 limits packets to 1200 bytes")? {
        ensure!(Instant::now() < until, "a way that has become narrower was not noticed");
        let bytes = usize::try_from(far.block_bytes)? * 64;
        far.read(0, 64, DataIn::Into(Buf::zeroed(bytes)))?;
        far.await_completion()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    said("a narrow way is named, also one that becomes so");
    Ok(())
}

fn said(what: &str) {
    println!("  ok  {what}");
}

/// Daemon with a front portal and two data portals.
struct Array(Product);

impl Array {
    fn start(there: &Namespace, folder: &std::path::Path) -> Result<Self> {
        let wrapper = ["ip", "netns", "exec", &there.0].map(str::to_owned).into();
        let arguments = vec!["--shards".to_owned(), "2".to_owned()];
        let folder = folder.to_path_buf();
        let (build, portals) = (workspace::product()?, vec![portal(0)]);
        let product = Product::launch(Launch { build, folder, portals, arguments, wrapper, ..Launch::default() })?;
        for line in [
            "portal set 10.77.0.1 role=front",
            "portal add 10.77.1.1 role=data",
            "portal add 10.77.2.1 role=data",
            "volume create v 8MiB --ram",
            "host add anyone --any",
            &format!("target add t --iqn {IQN}:links"),
            "present v anyone --target t --lun 0",
        ] {
            product.command(&line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(Self(product))
    }

    /// Logs in at the front portal and checks the portal to which the session is redirected.
    fn session(&self, number: u16, link: usize) -> Result<Client> {
        let client = self.log_in(number, 0)?;
        let at = client.portal;
        ensure!(at == portal(link), "session {number} is at {at}, not at {}", portal(link));
        Ok(client)
    }

    /// Logs in directly at a data portal.
    fn session_at(&self, number: u16, link: usize) -> Result<Client> {
        self.log_in(number, link)
    }

    fn log_in(&self, number: u16, link: usize) -> Result<Client> {
        Client::log_in(&Unit { portal: portal(link), iqn: format!("{IQN}:links"), lun: 0 }, number)
    }

    fn await_state(&self, link: usize, state: &str) -> Result<()> {
        let address = portal(link).to_string();
        let until = Instant::now() + NOTICED;
        loop {
            let list = self.0.command(&["portal", "list", "--no-headers"])?;
            let line = list.lines().find(|line| line.starts_with(&address)).context("the portal is listed")?;
            // STATE is the last column.
            if line.split('\t').next_back().is_some_and(|said| said.starts_with(state)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "portal {address} should be \"{state}\": {line}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn await_event(&self, code: &str, what: &str) -> Result<()> {
        let until = Instant::now() + NOTICED;
        while Instant::now() < until {
            if self.has_event(code, what)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("there is no event {code} with \"{what}\":\n{}", self.0.command(&["event", "list"])?)
    }

    fn has_event(&self, code: &str, what: &str) -> Result<bool> {
        let events = self.0.command(&["event", "list", "--no-headers"])?;
        Ok(events.lines().any(|line| line.contains(code) && line.contains(what)))
    }
}

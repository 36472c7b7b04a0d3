//! SPDK's `iscsi_tgt`, given by its path, and controlled by JSON-RPC over its Unix socket.
//!
//! *Source*: SPDK, doc/jsonrpc.md and doc/applications.md.

use super::{Backing, Setup, Target, Unit, await_portal};
use crate::child::Background;
use crate::meter::number_of;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Maximum of sessions with SPDK's default memory pools.
pub const SESSIONS_MAX: u32 = 128;
/// Commands in flight per session: twice the default.
const QUEUE_DEPTH: u32 = 128;
/// Tag of the only portal group, and of the only initiator group.
const TAG: u32 = 1;
/// Memory in bytes beyond the units.
const SPARE_BYTES: u64 = 1 << 30;
/// Timeout of the start: SPDK takes seconds to set up its memory.
const START_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Running `iscsi_tgt`.
pub struct Spdk {
    daemon: Background,
    units: Vec<Unit>,
}

impl Spdk {
    /// Starts `iscsi_tgt` from the setup's path, and creates one target node for each unit.
    ///
    /// *Errors*: it does not start, does not answer, or refuses a request; the end of its log is included.
    pub fn start(setup: &Setup) -> Result<Self> {
        let (socket, log) = (setup.folder.join("spdk.sock"), setup.folder.join("spdk.log"));
        let mut command = Command::new(&setup.build);
        let cores: Vec<String> = setup.cores.iter().map(ToString::to_string).collect();
        // SPDK pins its threads itself, and needs no `taskset`.
        command.arg("-r").arg(&socket).args(["-m", &format!("[{}]", cores.join(","))]);
        // No PCI device of this machine is touched. `--wait-for-rpc` lets options be set before the subsystems start.
        command.args(["--no-pci", "--wait-for-rpc"]);
        let bytes = setup.unit_bytes * setup.units.len() as u64 + SPARE_BYTES;
        let told = |path| fs::read_to_string(path).unwrap_or_default();
        // Without enough huge pages SPDK would fail to start.
        if free_huge_bytes(&told("/proc/meminfo"), &told("/proc/mounts")) < bytes {
            command.args(["--no-huge", "-s", &(bytes >> 20).to_string()]);
        }
        command.args(&setup.arguments);
        // The daemon is owned before it is configured, so that it is stopped if that fails.
        let mut spdk = Self { daemon: Background::start(&mut command, &log)?, units: Vec::new() };
        let configured = spdk.configure(setup, &socket);
        configured.with_context(|| format!("{}: {}", setup.build.display(), last_words(&log)))?;
        Ok(spdk)
    }

    fn configure(&mut self, setup: &Setup, socket: &Path) -> Result<()> {
        let mut door = self.open(socket)?;
        door.ask("iscsi_set_options", json!({ "max_queue_depth": QUEUE_DEPTH }))?;
        // SPDK takes options only before this request.
        door.ask("framework_start_init", Value::Null)?;
        let (host, port) = (setup.portal.ip().to_string(), setup.portal.port().to_string());
        let portal = json!({ "host": host, "port": port });
        door.ask("iscsi_create_portal_group", json!({ "tag": TAG, "portals": [portal] }))?;
        // Any initiator may log in, as with the other targets of a comparison.
        let everybody = json!({ "tag": TAG, "initiators": ["ANY"], "netmasks": ["ANY"] });
        door.ask("iscsi_create_initiator_group", everybody)?;
        for (index, backing) in setup.units.iter().enumerate() {
            let name = format!("unit{index}");
            let (method, device) = device(setup, &name, backing)?;
            door.ask(method, device)?;
            let iqn = format!("iqn.2016-06.io.spdk:{name}");
            let node = json!({
                "name": iqn,
                "alias_name": name,
                "pg_ig_maps": [{ "pg_tag": TAG, "ig_tag": TAG }],
                "luns": [{ "lun_id": 0, "bdev_name": name }],
                "queue_depth": QUEUE_DEPTH,
                "disable_chap": true,
            });
            door.ask("iscsi_create_target_node", node)?;
            self.units.push(Unit { portal: setup.portal, iqn, lun: 0 });
        }
        await_portal(setup.portal, Duration::from_secs(10))
    }

    /// Connects to its socket, as soon as it listens.
    fn open(&mut self, socket: &Path) -> Result<RpcClient> {
        let until = Instant::now() + START_LIMIT;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return RpcClient::new(stream),
                Err(error) if !self.daemon.is_alive() => return Err(error).context("it ended at once"),
                Err(error) if Instant::now() > until => {
                    return Err(error).context(format!("it does not listen on {}", socket.display()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Returns the RPC method that creates the device of a unit, with its parameters.
fn device(setup: &Setup, name: &str, backing: &Backing) -> Result<(&'static str, Value)> {
    let (block_bytes, blocks) = (setup.block_bytes, setup.unit_bytes / u64::from(setup.block_bytes));
    let of_blocks = json!({ "name": name, "num_blocks": blocks, "block_size": block_bytes });
    Ok(match backing {
        Backing::Null => ("bdev_null_create", of_blocks),
        Backing::Ram => ("bdev_malloc_create", of_blocks),
        Backing::File => {
            let file = setup.folder.join(name);
            fs::File::create(&file)?.set_len(setup.unit_bytes)?;
            ("bdev_aio_create", json!({ "name": name, "filename": file, "block_size": block_bytes }))
        }
        Backing::Thin | Backing::Thick => bail!("SPDK has no pools"),
    })
}

/// Returns the free huge page memory in bytes; zero without a mounted hugetlbfs, which DPDK allocates from.
fn free_huge_bytes(meminfo: &str, mounts: &str) -> u64 {
    if !mounts.lines().any(|line| line.split_whitespace().nth(2) == Some("hugetlbfs")) {
        return 0;
    }
    let value = |name: &str| number_of(meminfo, name).unwrap_or(0);
    (value("HugePages_Free") * value("Hugepagesize")) << 10
}

fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("; ")
}

/// JSON-RPC client, one request at a time.
struct RpcClient {
    stream: UnixStream,
    asked: u64,
}

impl RpcClient {
    fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self { stream, asked: 0 })
    }

    /// Calls `method`; `parameters` may be null.
    ///
    /// *Errors*: no answer in time, or the refusal of SPDK.
    ///
    /// *Source*: JSON-RPC 2.0; answers are JSON objects without separators.
    fn ask(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.asked += 1;
        let mut question = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method });
        if !parameters.is_null() {
            question["params"] = parameters;
        }
        serde_json::to_writer(&self.stream, &question).with_context(|| format!("cannot ask for {method}"))?;
        // Bytes are read one by one up to the end of the object, so no byte of the next answer is lost.
        let mut answers = serde_json::Deserializer::from_reader(&self.stream).into_iter::<Value>();
        let answer = answers.next().with_context(|| format!("it closed its socket instead of answering {method}"))?;
        let mut answer = answer.with_context(|| format!("no answer to {method}"))?;
        if let Some(error) = answer.get("error") {
            let (code, said) = (&error["code"], error["message"].as_str().unwrap_or("no reason"));
            bail!("{method} is refused: {said} ({code})");
        }
        ensure!(answer["id"] == self.asked, "the answer to {method} is one to something else: {answer}");
        Ok(answer["result"].take())
    }
}

impl Target for Spdk {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn pid(&self) -> u32 {
        self.daemon.pid()
    }
}

#[cfg(test)]
mod tests;

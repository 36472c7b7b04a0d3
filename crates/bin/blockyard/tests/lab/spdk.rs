//! Stand-in for SPDK that speaks its JSON-RPC, and serves the requested targets with Blockyard's daemon.

use crate::{brief, means};
use lab::drive;
use lab::peer::TestResources;
use lab::point::{Peer, Point};
use lab::target::product::{Launch, Product};
use serde_json::{Deserializer, Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waits for the program to announce its listening socket, and returns it.
fn told(kept: &Path) -> PathBuf {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let words = fs::read_to_string(kept).unwrap_or_default();
        if let Some(socket) = words.split_whitespace().skip_while(|word| *word != "-r").nth(1) {
            return socket.into();
        }
        assert!(Instant::now() < until, "nobody was started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Serves SPDK's requests with a daemon of ours until the socket is closed; returns the daemon, and the number of its
/// nodes.
fn serve(socket: &Path, folder: PathBuf) -> (Option<Product>, usize) {
    let (mut stream, _) = UnixListener::bind(socket).expect("a socket").accept().expect("a connection");
    let reads = stream.try_clone().expect("a socket");
    let (mut product, mut nodes) = (None, 0);
    for question in Deserializer::from_reader(reads).into_iter::<Value>() {
        let question = question.expect("JSON");
        let parameters = &question["params"];
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        match question["method"].as_str().expect("a method") {
            "iscsi_create_portal_group" => {
                let portal = &parameters["portals"][0];
                let portal =
                    format!("{}:{}", text(&portal["host"]), text(&portal["port"])).parse().expect("an address");
                let build = env!("CARGO_BIN_EXE_blockyard").into();
                let launch = Launch { build, folder: folder.clone(), portals: vec![portal], ..Launch::default() };
                product = Some(Product::launch(launch).expect("it starts"));
            }
            "iscsi_create_initiator_group" => {
                assert_eq!(parameters["initiators"], json!(["ANY"]));
                let product = product.as_ref().expect("the portals come before");
                product.command(&["host", "add", "anyone", "--any"]).expect("a host");
            }
            "bdev_malloc_create" => {
                let of = |key: &str| parameters[key].as_u64().expect("a number");
                let size = format!("{}B", of("num_blocks") * of("block_size"));
                let create = ["volume", "create", &text(&parameters["name"]), &size, "--ram"];
                product.as_ref().expect("the portals come before").command(&create).expect("a volume");
            }
            "iscsi_create_target_node" => {
                let (name, volume) = (text(&parameters["alias_name"]), text(&parameters["luns"][0]["bdev_name"]));
                let product = product.as_ref().expect("the portals come before");
                product.command(&["target", "add", &name, "--iqn", &text(&parameters["name"])]).expect("a target");
                product.command(&["present", &volume, "anyone", "--target", &name, "--lun", "0"]).expect("a map");
                nodes += 1;
            }
            "iscsi_set_options" | "framework_start_init" => {}
            other => panic!("SPDK has no use for {other} here"),
        }
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": true });
        stream.write_all(answer.to_string().as_bytes()).expect("it listens");
    }
    (product, nodes)
}

#[test]
fn spdk_is_driven_where_its_program_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, kept) = (folder.path().join("iscsi_tgt"), folder.path().join("arguments"));
    let script = format!("#!/bin/sh\necho \"$@\" > {0}.new; mv {0}.new {0}; exec sleep 60\n", kept.display());
    fs::write(&program, script).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    let means = TestResources { spdk: Some(program), ..means() };
    let point = Point { peer: Peer::Spdk, luns: 2, sessions: 2, reads: 50, verify: true, ..brief() };
    assert_eq!(means.lacks(&point), None);
    let (own, state) = (folder.path().join("own"), folder.path().join("state"));
    fs::create_dir(&own).and_then(|()| fs::create_dir(&state)).expect("a folder");
    let stand_in = std::thread::spawn(move || serve(&told(&kept), state));
    let serving = means.start(&point, &own).expect("it serves");
    let (product, nodes) = stand_in.join().expect("it was asked what it knows");
    assert_eq!((product.is_some(), nodes, serving.meter.servers.len()), (true, 2, 1));
    let (way, meter, load) = (serving.way.clone(), serving.meter.clone(), point.clone());
    let load = async move |world| drive::run(&world, &load, &way, &meter, true, 1).await;
    let sample = uring::run(&uring::Options::default(), load).expect("a world").expect("it is measured");
    assert!(sample.proof.is_some_and(|proof| proof.faults == 0 && proof.judged > 0), "every block holds what it must");
    assert!(sample.reads.errors + sample.writes.errors == 0 && sample.server.is_some());
    let pid = serving.meter.servers[0];
    drop(serving);
    assert!(!Path::new("/proc").join(pid.to_string()).exists(), "it ends with the measurement");
    let lacks = |point: Point| means.lacks(&point).expect("nobody serves that");
    assert!(lacks(Point { backing: lab::point::Backing::Pool, ..point.clone() }).contains("no pools"));
    assert!(lacks(Point { sessions: 512, ..point }).contains("128 sessions"));
}

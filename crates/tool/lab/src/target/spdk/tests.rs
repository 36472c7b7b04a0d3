use super::*;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

/// Creates a program that writes its arguments to `arguments`, and runs until it is ended.
fn program(folder: &Path) -> PathBuf {
    let path = folder.join("iscsi_tgt");
    let kept = folder.join("arguments");
    let script = format!("#!/bin/sh\necho \"$@\" > {0}.new; mv {0}.new {0}; exec sleep 60\n", kept.display());
    fs::write(&path, script).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    path
}

/// Answers on the socket of the program in `folder`, and returns the received methods and parameters. The method
/// `refuses` is refused, and a portal group listens.
fn stand_in(folder: &Path, refuses: &'static str) -> JoinHandle<Vec<(String, Value)>> {
    let kept = folder.join("arguments");
    std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(10);
        let told = loop {
            match fs::read_to_string(&kept) {
                Ok(told) => break told,
                Err(_) => assert!(Instant::now() < until, "nobody was started"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let words: Vec<&str> = told.split_whitespace().collect();
        let socket = words.iter().position(|word| *word == "-r").expect("a socket is told") + 1;
        let mut asked = vec![("arguments".to_owned(), json!(words))];
        let (mut stream, _) = UnixListener::bind(words[socket]).expect("a socket").accept().expect("a connection");
        let mut portals = Vec::new();
        let reads = stream.try_clone().expect("a socket");
        for question in serde_json::Deserializer::from_reader(reads).into_iter::<Value>() {
            let mut question = question.expect("JSON");
            let (id, method) = (question["id"].clone(), question["method"].as_str().expect("a method").to_owned());
            if method == "iscsi_create_portal_group" {
                let at = &question["params"]["portals"][0];
                let (host, port) = (at["host"].as_str().expect("a text"), at["port"].as_str().expect("a text"));
                portals.push(TcpListener::bind(format!("{host}:{port}")).expect("the port is free"));
            }
            let answer = if method == refuses {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32602, "message": "Invalid parameters" } })
            } else {
                json!({ "jsonrpc": "2.0", "id": id, "result": true })
            };
            asked.push((method, question["params"].take()));
            // In pieces, as sockets may deliver it.
            let answer = answer.to_string();
            let (one, other) = answer.split_at(7);
            stream.write_all(one.as_bytes()).and_then(|()| stream.flush()).expect("it listens");
            std::thread::sleep(Duration::from_millis(2));
            stream.write_all(other.as_bytes()).expect("it listens");
        }
        asked
    })
}

fn setup(folder: &Path, units: Vec<Backing>) -> Setup {
    let mut setup = Setup::new(folder.to_owned(), 0, &Backing::Ram).expect("a port");
    (setup.units, setup.cores, setup.build) = (units, vec![1, 3], program(folder));
    setup
}

#[test]
fn spdk_is_told_of_its_devices_groups_and_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = setup(folder.path(), vec![Backing::Ram, Backing::Null, Backing::File]);
    let answers = stand_in(folder.path(), "");
    let spdk = Spdk::start(&setup).expect("it starts");
    let pid = spdk.pid();
    let names: Vec<&str> = spdk.units().iter().map(|unit| unit.iqn.as_str()).collect();
    assert_eq!(names, ["iqn.2016-06.io.spdk:unit0", "iqn.2016-06.io.spdk:unit1", "iqn.2016-06.io.spdk:unit2"]);
    drop(spdk);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it ends with its owner");
    let asked = answers.join().expect("it was asked what it knows");
    let methods: Vec<&str> = asked.iter().map(|(method, _)| method.as_str()).collect();
    let begin =
        ["iscsi_set_options", "framework_start_init", "iscsi_create_portal_group", "iscsi_create_initiator_group"];
    assert_eq!(methods[1..5], begin);
    let node = "iscsi_create_target_node";
    assert_eq!(methods[5..], ["bdev_malloc_create", node, "bdev_null_create", node, "bdev_aio_create", node]);
    let words = asked[0].1.to_string();
    assert!(
        words.contains(r#""-m","[1,3]""#) && words.contains("--wait-for-rpc") && words.contains("--no-pci"),
        "{words}"
    );
    let portal = json!({ "host": "127.0.0.1", "port": setup.portal.port().to_string() });
    assert_eq!(asked[3].1, json!({ "tag": 1, "portals": [portal] }));
    assert_eq!(asked[5].1, json!({ "name": "unit0", "num_blocks": (64 << 20) / 512, "block_size": 512 }));
    assert_eq!(asked[6].1["luns"], json!([{ "lun_id": 0, "bdev_name": "unit0" }]));
    assert_eq!(asked[6].1["pg_ig_maps"], json!([{ "pg_tag": 1, "ig_tag": 1 }]));
    let file = asked[9].1["filename"].as_str().expect("a file");
    assert_eq!(fs::metadata(file).expect("it is there").len(), 64 << 20);
}

#[test]
fn what_spdk_refuses_is_said_in_its_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = setup(folder.path(), vec![Backing::Ram]);
    let answers = stand_in(folder.path(), "bdev_malloc_create");
    let error = Spdk::start(&setup).map(|spdk| spdk.pid()).expect_err("it was refused");
    let said = format!("{error:#}");
    assert!(said.contains("bdev_malloc_create is refused: Invalid parameters (-32602)"), "{said}");
    answers.join().expect("it was asked what it knows");
}

#[test]
fn program_that_is_no_iscsi_tgt_is_said_to_have_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = setup(folder.path(), vec![Backing::Ram]);
    fs::write(&setup.build, "#!/bin/sh\necho no huge pages >&2; exit 1\n").expect("a program");
    setup.arguments.clear();
    let error = Spdk::start(&setup).map(|spdk| spdk.pid()).expect_err("it ended");
    let said = format!("{error:#}");
    assert!(said.contains("it ended at once") && said.contains("no huge pages"), "{said}");
}

#[test]
fn huge_pages_are_taken_where_they_are_free() {
    let meminfo = "MemTotal: 1 kB\nHugePages_Total: 600\nHugePages_Free:      512\nHugepagesize:       2048 kB\n";
    let mounts = "proc /proc proc rw 0 0\nnodev /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n";
    assert_eq!((free_huge_bytes(meminfo, mounts), free_huge_bytes("", mounts)), (1 << 30, 0));
    // DPDK exits immediately if pages are free but no hugetlbfs is mounted.
    assert_eq!(free_huge_bytes(meminfo, "proc /proc proc rw 0 0\n"), 0);
}

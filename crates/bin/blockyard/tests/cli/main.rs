//! The command line from outside: output streams and exit codes.

mod alerts;
mod clients;
mod config;
mod confirmed;
mod descriptors;
mod devices;
mod elsewhere;
mod encrypted;
mod every_address;
mod faulty;
mod fenced;
mod forward;
mod full;
mod golden;
mod hanging;
mod holes;
mod hostile;
mod initiator;
mod isns;
mod lab;
mod limited;
mod lists;
mod load;
mod manual;
mod metadata;
mod presenting;
mod process;
mod read_only;
mod ready;
mod remote;
mod rest;
mod secrets;
mod serve;
mod state;
mod steps;
mod systemd;
mod tune;
mod verdict;

use self::lab::{Lab, run_in};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn exit_codes_are_done_usage_not_found_and_no_daemon() {
    let lab = Lab::new();
    assert_eq!(lab.run(&["pool", "list"]).code, 0);
    assert_eq!(lab.run(&["pool", "show", "tank"]).code, 3);
    assert_eq!(lab.run(&["pool", "create"]).code, 2);
    let alone = run_in(lab.dir.path().to_path_buf(), &["pool", "list", "--socket", "nowhere"], &[]);
    assert_eq!(alone.code, 6);
    assert_eq!(
        alone.stderr,
        "blockyard: no daemon is listening at nowhere; start it with blockyard serve, or give its socket with \
         --socket (BY-1808)\n"
    );
    assert_eq!(lab.run(&["--version"]).code, 0);
    assert_eq!(lab.run(&["help"]).code, 0);
}

/// Returns the pools without the counters of their disks.
fn pools_as_set(lab: &Lab) -> serde_json::Value {
    let mut pools: serde_json::Value =
        serde_json::from_str(&lab.good(&["pool", "list", "-o", "json"])).expect("it is JSON");
    for pool in pools["pools"].as_array_mut().expect("a list") {
        for group in pool["groups"].as_array_mut().expect("a list") {
            let members = group["members"].as_array_mut().expect("a list");
            members.iter_mut().for_each(|member| member["latency"] = serde_json::Value::Null);
        }
    }
    pools
}

#[test]
fn bad_input_gets_one_sentence_that_says_what_would_be_right() {
    let lab = Lab::new();
    lab.furnish();
    let before = pools_as_set(&lab);
    for (line, code, sentence) in [
        (
            "volume create tank/vm2 10bananas",
            2,
            "\"10bananas\" is not a size; write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B (BY-1001)",
        ),
        (
            "volume create tank/vm2 1",
            2,
            "size \"1\" has no unit; write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B (BY-1001)",
        ),
        (
            "volume resize tank/vm1 67108864",
            2,
            "size \"67108864\" has no unit; write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B (BY-1001)",
        ),
        (
            "disk add --create 64 d9.img",
            2,
            "size \"64\" has no unit; write a number with a unit, such as 1GiB, 1.5TiB, 100GB or 512B (BY-1001)",
        ),
        (
            "volume create tank/vm2 4KiB",
            2,
            "volume tank/vm2 of 4 KiB is too small; give at least 1MiB, such as 100GiB (BY-1504)",
        ),
        (
            "volume create tank/vm2 0",
            2,
            "volume tank/vm2 of 0 B is too small; give at least 1MiB, such as 100GiB (BY-1504)",
        ),
        (
            "volume create mem 1023KiB --ram",
            2,
            "volume mem of 1023 KiB is too small; give at least 1MiB, such as 100GiB (BY-1504)",
        ),
        (
            "volume set tank/vm1 --bandwidth 559513/s",
            2,
            "bandwidth cannot be \"559513/s\"; write a rate such as 100MiB/s, or off (BY-1010)",
        ),
        (
            "volume set tank/vm1 --read-ahead 65536",
            2,
            "read-ahead cannot be \"65536\"; write off, adaptive, or a size from 4KiB to 64MiB (BY-1010)",
        ),
        ("volume create tank/vm1 1MiB", 4, "volume tank/vm1 already exists; choose another name (BY-1201)"),
        ("volume create pond/vm1 1MiB", 3, "pool pond does not exist; see blockyard pool list (BY-1102)"),
        (
            "volume resize tank/vm1 16MiB",
            4,
            "volume tank/vm1 has 32 MiB (33.6 MB) and cannot shrink to 16 MiB (16.8 MB); give a larger size, or \
             create a smaller volume and copy the data (BY-1501)",
        ),
        (
            "volume create Tank/vm1 1MiB",
            2,
            "\"Tank/vm1\" is not a volume name; write POOL/VOLUME, or one name for a volume without a pool, each 1 to 63 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or a digit (BY-1002)",
        ),
        (
            "volume create loose 1MiB",
            2,
            "volume loose has neither a pool nor a back end; write POOL/VOLUME, or give --file PATH, --ram or \
             --null (BY-1517)",
        ),
        (
            "volume create loose --ram --null 1MiB",
            2,
            "the argument '--ram' cannot be used with '--null'; see blockyard volume create --help",
        ),
        (
            "pool create p2 --level raid6 d4 d5",
            4,
            "raid6 of 2 disks is not possible; give at least 4 disks or choose another level (BY-1401)",
        ),
        (
            "pool create p2 --level raid7 d5",
            2,
            "\"raid7\" is not a RAID level; write raid0, raid1, raid5, raid6 or raid10 (BY-1004)",
        ),
        (
            "pool create p2 --level raid1 d4 d5",
            4,
            "disk d4 is in use by pool tank; choose a free disk, see blockyard disk list (BY-1303)",
        ),
        (
            "pool create p2 --level raid1 --groups 2 d4 d5 d6",
            2,
            "3 disks cannot be divided evenly into 2 groups; give the same number of disks for each group (BY-1410)",
        ),
        (
            "pool destroy tank --yes",
            4,
            "pool tank has 1 volume; delete them first, see blockyard volume list (BY-1403)",
        ),
        (
            "pool destroy tank",
            4,
            "pool tank and all of its data would be deleted; repeat with --yes to confirm (BY-1809)",
        ),
        (
            "volume delete tank/vm1",
            4,
            "volume tank/vm1 and all of its data would be deleted; repeat with --yes to confirm (BY-1809)",
        ),
        (
            "disk add d0.img",
            4,
            "DIR/d0.img is already disk d0; use that name, or remove it first with blockyard disk remove (BY-1309)",
        ),
        (
            "disk add nothing.img",
            4,
            "DIR/nothing.img does not exist; give the path of a block device or a regular file, or create a \
             file with --create SIZE (BY-1301)",
        ),
        ("disk add --name x a.img b.img", 2, "--name works for one disk only; add the disks one by one, or omit it"),
        (
            "disk remove d9",
            3,
            "disk d9 does not exist; see blockyard disk list, or add it with blockyard disk add (BY-1101)",
        ),
        (
            "disk replace d0 d5",
            4,
            "disk d0 is healthy; give the failed disk, or repeat with --force to replace a healthy one (BY-1306)",
        ),
        (
            "disk replace d0 d5 --force",
            4,
            "disk d0 is healthy, and pool tank would run without it until the rebuild has finished; repeat with \
             --yes to confirm (BY-1809)",
        ),
        (
            "disk replace d0 d0",
            4,
            "disk d0 is healthy and in use; give a free disk, or fail it first with blockyard disk fail d0 (BY-1306)",
        ),
        (
            "portal add 0.0.0.0:3261 role=data",
            2,
            "sessions cannot be redirected to the wildcard address 0.0.0.0:3261; add a portal for each address \
             with blockyard portal add (BY-1705)",
        ),
        ("portal set 10.0.0.1 role=back", 2, "role cannot be \"back\"; write plain, front or data (BY-1010)"),
        (
            "portal drain 10.0.0.1",
            4,
            "no other portal of group 1 can take over the sessions of 10.0.0.1:3260; add one with blockyard \
             portal add, or resume a drained one (BY-1704)",
        ),
        ("portal drain 10.9.9.9", 3, "portal 10.9.9.9:3260 does not exist; see blockyard portal list (BY-1107)"),
        ("portal balance luck", 2, "sessions cannot be balanced by \"luck\"; write sessions or bytes (BY-1010)"),
        (
            "host add db --initiator web1",
            2,
            "\"web1\" is not an iSCSI name; write it as the initiator shows it, such as iqn.1993-08.org.debian:01:abc123, eui.0123456789abcdef or naa.… (BY-1003)",
        ),
        (
            "host add db --initiator iqn.2001-04.com.example:WEB",
            4,
            "initiator iqn.2001-04.com.example:web belongs to host web; present to host web, or remove the \
             initiator first with blockyard host change web --remove-initiator iqn.2001-04.com.example:web (BY-1202)",
        ),
        (
            "host add db --any --address 10.0.0.0/40",
            2,
            "\"10.0.0.0/40\" is neither an address nor a network; write 192.168.1.10, 192.168.1.0/24 or fd00::/64 (BY-1006)",
        ),
        (
            "host add db --any --chap-user db",
            2,
            "CHAP as db has no secret; give a file that contains only the secret with --chap-secret-file or \
             --mutual-secret-file (BY-1605)",
        ),
        ("auth weakest md4", 2, "\"md4\" is not a CHAP hash function; write md5, sha-1, sha-256 or sha3-256 (BY-1010)"),
        (
            "auth discovery",
            2,
            "no credentials were given for discovery; give its CHAP secret, or --open or --as-host (BY-1605)",
        ),
        (
            "isns set nas",
            2,
            "\"nas\" is not the address of an iSNS server; write 10.0.0.5, 10.0.0.5:3205 or [fd00::5]:3205 (BY-1006)",
        ),
        (
            "connect web --os linux",
            3,
            "nothing is presented to host web; present a volume to it first: blockyard present VOLUME web (BY-1106)",
        ),
        ("session show 7", 3, "there is no session 7; see blockyard session list (BY-1112)"),
        ("session record 7 --to it", 3, "there is no session 7; see blockyard session list (BY-1112)"),
        ("session kill 7 --now", 3, "there is no session 7; see blockyard session list (BY-1112)"),
        (
            "host add db",
            2,
            "the following required arguments were not provided: --initiator <IQN>; see blockyard host add --help",
        ),
        (
            "present tank/vm1 nobody",
            3,
            "host nobody does not exist; see blockyard host list, or add it with blockyard host add (BY-1104)",
        ),
        (
            "present tank/vm1 web --lun 99999",
            2,
            "invalid value '99999' for '--lun <N>': 99999 is not in 0..=65535; see blockyard present --help",
        ),
        ("present tank/vm1 web --lun 20000", 2, "LUN 20000 is out of range; choose 0 to 16383 (BY-1008)"),
        (
            "unpresent tank/vm1 web",
            3,
            "volume tank/vm1 is not presented to host web; see blockyard presentation list (BY-1106)",
        ),
        (
            "disk spare add d0",
            4,
            "disk d0 is in use by pool tank; choose a free disk, see blockyard disk list (BY-1303)",
        ),
        ("disk spare remove d5", 4, "disk d5 is not a hot spare; blockyard disk list shows the hot spares (BY-1311)"),
        ("pool set tank rebuild=faster", 2, "rebuild cannot be \"faster\"; write idle, balanced or fast (BY-1010)"),
        ("pool set tank fast", 2, "\"fast\" is not a setting; write KEY=VALUE, for example rebuild=fast (BY-1010)"),
        (
            "pool scrub stop tank",
            3,
            "no scrub of pool tank is running; start one with blockyard pool scrub start tank (BY-1109)",
        ),
        (
            "disk locate d0 on",
            4,
            "disk d0 has no known locate light; use its activity light: blockyard disk locate d0 --blink (BY-1312)",
        ),
        ("pool export pond", 3, "pool pond does not exist; see blockyard pool list (BY-1102)"),
        (
            "volume create tank/x 1MiB --thin --stripe-unit 64KiB",
            2,
            "a volume with a stripe unit has no map and cannot be thin; omit --stripe-unit or --thin (BY-1018)",
        ),
        (
            "volume create x 1MiB --ram --thin",
            2,
            "volume x has no pool; write POOL/VOLUME, or omit --thin and other pool options (BY-1517)",
        ),
        ("snapshot create tank/vm9 noon", 3, "volume tank/vm9 does not exist; see blockyard volume list (BY-1103)"),
        (
            "snapshot create tank/vm1,tank/vm1 noon",
            2,
            "volume tank/vm1 is listed twice; list every volume once (BY-1017)",
        ),
        (
            "snapshot create tank/vm1 noon --lock-until soon",
            2,
            "\"soon\" is neither a duration nor a time; write a duration such as 30d, or a UTC time such as \
             2027-11-21T10:19:59Z (BY-1009)",
        ),
        (
            "snapshot create tank/vm1 noon --lock-until 2001-01-01T00:00:00Z",
            2,
            "the lock time 2001-01-01T00:00:00Z is in the past; give a future time (BY-1009)",
        ),
        (
            "snapshot delete tank/vm1 --yes",
            2,
            "\"tank/vm1\" is not a snapshot name; write POOL/VOLUME@SNAPSHOT, such as tank/vm1@monday (BY-1002)",
        ),
        (
            "snapshot delete tank/vm1@noon --yes",
            3,
            "snapshot tank/vm1@noon does not exist; see blockyard snapshot list tank/vm1 (BY-1110)",
        ),
        (
            "snapshot lock tank/vm1@noon",
            2,
            "no lock time was given; give --lock-until TIME, or --locked to lock it permanently (BY-1019)",
        ),
        (
            "volume rollback tank/vm1 noon",
            3,
            "snapshot tank/vm1@noon does not exist; see blockyard snapshot list tank/vm1 (BY-1110)",
        ),
        ("volume delete tank/none", 3, "volume tank/none does not exist; see blockyard volume list (BY-1103)"),
        ("pool destroy none", 3, "pool none does not exist; see blockyard pool list (BY-1102)"),
        (
            "snapshot delete tank/vm1@noon",
            3,
            "snapshot tank/vm1@noon does not exist; see blockyard snapshot list tank/vm1 (BY-1110)",
        ),
        (
            "volume reservations tank/none --clear",
            3,
            "volume tank/none does not exist; see blockyard volume list (BY-1103)",
        ),
        ("pool remove-log none --lost", 3, "pool none does not exist; see blockyard pool list (BY-1102)"),
        ("pool remove-log tank --lost", 3, "pool tank has no log device; see blockyard pool show (BY-1425)"),
        (
            "snapshot create tank/vm1",
            2,
            "the snapshot of tank/vm1 has no name; write tank/vm1@NAME, or tank/vm1 NAME (BY-1019)",
        ),
        (
            "snapshot create tank/vm1@noon night",
            2,
            "two names were given for the snapshot of tank/vm1: noon and night; give one name (BY-1018)",
        ),
        (
            "snapshot create tank/vm1@",
            2,
            "\"\" is not a name; use 1 to 63 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or a digit (BY-1002)",
        ),
        (
            "alert add ops --mail ops@example.com",
            2,
            "receiver ops has no mail server; give the mail server: --smtp HOST, or smtp in a document (BY-1019)",
        ),
        (
            "alert silence tank --for 1h",
            2,
            "\"tank\" is neither a code nor an object; write a code such as BY-E302, or an object such as \"pool \
             tank\" (BY-1026)",
        ),
        (
            "connect web",
            3,
            "nothing is presented to host web; present a volume to it first: blockyard present VOLUME web (BY-1106)",
        ),
        ("pool check pond", 3, "pool pond does not exist; see blockyard pool list (BY-1102)"),
        (
            "volume set tank/vm1 --write-policy back",
            4,
            "volume tank/vm1 cannot use write-back: pool tank has no log device; add one with blockyard pool \
             add-log tank DISK DISK, or choose back-volatile, which loses unflushed writes at a power failure \
             (BY-1513)",
        ),
        (
            "volume set tank/vm1 --write-policy lazy",
            2,
            "write-policy cannot be \"lazy\"; write through, back or back-volatile (BY-1010)",
        ),
        ("volume set tank/vm1 --iops 0", 2, "iops cannot be \"0\"; write a number above zero, or off (BY-1010)"),
        (
            "volume set tank/vm1 --iops 10 --guarantee-iops 20",
            2,
            "guarantee-iops of 20 is more than iops of 10; lower guarantee-iops or raise iops (BY-1010)",
        ),
        (
            "pool set tank space.soft=96%",
            2,
            "space.soft of 96% is more than space.hard of 95%; lower space.soft or raise space.hard (BY-1010)",
        ),
        (
            "pool set tank space.hard=full",
            2,
            "space.hard cannot be \"full\"; write a percentage such as 95%, or off (BY-1010)",
        ),
        ("pool lst", 2, "unknown command \"pool lst\"; did you mean blockyard pool list?"),
        ("volume craete tank/x 1MiB", 2, "unknown command \"volume craete\"; did you mean blockyard volume create?"),
        ("volume present tank/x web", 2, "unknown command \"volume present\"; see blockyard volume --help"),
        ("disk creat", 2, "unknown command \"disk creat\"; see blockyard disk --help"),
        ("craete tank/x", 2, "unknown command \"craete\"; see blockyard --help"),
        ("pool list extra", 2, "unexpected argument 'extra' found; see blockyard pool list --help"),
        ("hosts", 2, "unknown command \"hosts\"; did you mean blockyard host?"),
        (
            "volume create tank/x 1MiB --thinn",
            2,
            "unknown option \"--thinn\" of blockyard volume create; did you mean --thin?",
        ),
        (
            "pool create p --thin d5",
            2,
            "unknown option \"--thin\" of blockyard pool create; see blockyard pool create --help",
        ),
        ("disk", 2, "no command given; see blockyard disk --help"),
        (
            "serve --config nothing.toml",
            2,
            "nothing.toml cannot be read: No such file or directory (os error 2); give a text file of less than 1 \
             MiB with --config, or omit the option (BY-1801)",
        ),
        (
            "serve --portal here",
            2,
            "\"here\" is not an address to listen on; write 10.0.0.1, 10.0.0.1:3260 or [fd00::1]:3260 (BY-1006)",
        ),
        (
            "serve --log ==",
            2,
            "\"==\" is not a log filter: invalid filter directive; write, for example, info or info,engine=debug \
             (BY-1801)",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let said = lab.bad(&words, code).replace(&lab.dir.path().to_string_lossy().into_owned(), "DIR");
        assert_eq!(said, sentence, "{line}");
    }
    assert_eq!(pools_as_set(&lab), before, "nothing was changed");
}

#[test]
fn json_has_stable_keys_and_integer_bytes() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["present", "tank/vm1", "web", "-o", "json"]);
    lab.good(&["snapshot", "create", "tank/vm1", "noon", "-o", "json"]);
    let keys = |noun: &str, arguments: &[&str]| {
        let text = lab.good(&[arguments, &["-o", "json"]].concat());
        let value: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(value["schema"], 1);
        let one = if value[noun].is_array() { value[noun][0].clone() } else { value[noun].clone() };
        one.as_object().expect(noun).keys().cloned().collect::<Vec<_>>().join(" ")
    };
    for (noun, arguments, expected) in [
        (
            "disks",
            ["disk", "list"].as_slice(),
            "counters health identity label logical_block_bytes name path physical_block_bytes size spare state",
        ),
        (
            "pools",
            &["pool", "list"],
            "fenced groups id imported_read_only log lost name next_scrub policy read_only scrub size space spares state used volumes waiting weak_enclosures",
        ),
        (
            "pool",
            &["pool", "show", "tank"],
            "fenced groups id imported_read_only log lost name next_scrub policy read_only scrub size space spares state used volumes waiting weak_enclosures",
        ),
        (
            "volumes",
            &["volume", "list"],
            "backend block_bytes cache copy counters id name policy reason reservation sanitize size space state",
        ),
        ("snapshots", &["snapshot", "list"], "cloned created id lock mapped name reclaimable set size state"),
        (
            "hosts",
            &["host", "list"],
            "any chap_demand chap_user former_luns initiators mutual_chap_demand mutual_chap_user name networks presentations",
        ),
        ("targets", &["target", "list"], "iqn name presentations"),
        (
            "presentations",
            &["presentation", "list"],
            "chap_user groups host iqn lun mutual_chap_user open portals read_only target volume volume_id",
        ),
        (
            "sessions",
            &["session", "list"],
            "address authentication chap_user commands connected_seconds connections data_digest header_digest host id initiator isid kind luns mutual negotiated portal read_bytes reservations target written_bytes",
        ),
        ("portals", &["portal", "list"], "address also_ipv4 drained role sessions state tag weight"),
        ("isns", &["isns", "show"], "entity portals server state targets"),
        ("portal_groups", &["portal", "groups"], "access portals preferred sessions tag"),
        (
            "status",
            &["status"],
            "disks engine hosts node notices pools problems severity size summary used version volumes",
        ),
    ] {
        assert_eq!(keys(noun, arguments), expected, "{noun}");
    }
    let pool: Value = serde_json::from_str(&lab.good(&["pool", "show", "tank", "-o", "json"])).expect("json");
    assert_eq!(pool["pool"]["size"], 129 << 20);
    assert_eq!(pool["pool"]["groups"][0]["level"], "raid6");
}

#[test]
fn piped_tables_are_tab_separated_and_asked_for_ones_aligned() {
    let lab = Lab::new();
    lab.furnish();
    let piped = lab.good(&["pool", "list"]);
    assert_eq!(piped.lines().next(), Some("POOL\tSTATE\tSIZE\tUSED\tFREE\tVOLUMES\tDISKS\tREBUILD\tLOG"));
    assert_eq!(piped.lines().nth(1), Some("tank\thealthy\t129 MiB\t48.38 MiB\t80.63 MiB\t1\t5\t-\t-"));
    assert_eq!(lab.good(&["pool", "list", "--no-headers"]).lines().count(), 1);
    let aligned = lab.good(&["pool", "list", "-o", "table"]);
    assert!(!aligned.contains('\t') && aligned.starts_with("POOL "), "{aligned}");
    assert!(aligned.lines().all(|line| line == line.trim_end()));
}

#[test]
fn quiet_prints_only_what_was_asked_for() {
    let lab = Lab::new();
    lab.furnish();
    assert_eq!(lab.good(&["-q", "present", "tank/vm1", "web"]), "");
    assert_eq!(lab.good(&["unpresent", "tank/vm1", "web", "--quiet"]), "");
    assert_eq!(lab.good(&["status", "-q"]), "All good\n");
    assert_eq!(lab.good(&["pool", "list", "-q", "--no-headers"]).lines().count(), 1);
}

#[test]
fn secrets_come_from_files_and_the_environment_and_are_never_shown() {
    let lab = Lab::new();
    fs::write(lab.dir.path().join("own"), "a host's secret # with blanks\n").expect("writes");
    fs::write(lab.dir.path().join("mutual"), [0xff; 16]).expect("writes");
    let add = ["host", "add", "web", "--initiator", "iqn.2001-04.com.example:web"];
    let files = ["--chap-secret-file", "own", "--mutual-secret-file", "mutual", "--mutual-user", "us"];
    let said = lab.good(&[add.as_slice(), &files].concat());
    assert_eq!(
        said,
        "host web added: it authenticates as web, mutual CHAP as us optional; next: blockyard present VOLUME web\n"
    );
    let everything = lab.good(&["host", "list", "-o", "json"]);
    assert!(!everything.contains("a host's secret") && !everything.contains("ffff"), "{everything}");

    let add = ["host", "add", "db", "--initiator", "iqn.2001-04.com.example:db"];
    let outcome = lab.run_with(&add, &[("BLOCKYARD_CHAP_SECRET", "too short")]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.stderr.contains("a secret of 9 bytes is not accepted") && !outcome.stderr.contains("too short"));
    let equal = [("BLOCKYARD_CHAP_SECRET", "the very same one"), ("BLOCKYARD_MUTUAL_SECRET", "the very same one")];
    let outcome = lab.run_with(&add, &equal);
    assert!(
        outcome.code == 2 && outcome.stderr.contains("the same CHAP secret in both directions"),
        "{}",
        outcome.stderr
    );
    assert_eq!(lab.run_with(&add, &[("BLOCKYARD_CHAP_SECRET", "long enough at last")]).code, 0);
}

#[test]
fn rebuild_is_followed_to_its_end() {
    let lab = Lab::new();
    lab.furnish();
    // Slow, so that the rebuild is still running when it is inspected.
    lab.good(&["pool", "set", "tank", "rebuild.max=4MiB/s"]);
    lab.good(&["disk", "fail", "d1"]);
    let outcome = lab.run(&["status", "--check"]);
    assert_eq!(outcome.code, 7);
    assert!(
        outcome.stdout.starts_with("pool tank is degraded: replace the lost disk with blockyard disk replace d1 NEW\n")
    );
    let outcome = lab.run(&["pool", "show", "tank", "--wait"]);
    assert_eq!(outcome.code, 1, "no rebuild runs, and the pool is not healthy");
    let outcome = lab.run(&["disk", "replace", "d1", "d5", "--wait"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("pool tank: rebuild "), "progress is told on stderr: {}", outcome.stderr);
    assert!(!outcome.stdout.contains(" %"), "and not on stdout: {}", outcome.stdout);
    assert!(lab.good(&["pool", "show", "tank"]).starts_with("pool tank: healthy\n"));
    lab.good(&["disk", "remove", "d1"]);
    assert_eq!(lab.run(&["status", "--check"]).code, 0);
    lab.good(&["disk", "fail", "d0"]);
    lab.good(&["disk", "replace", "d0", "d0", "--wait"]);
}

#[test]
fn recording_is_a_new_file_for_its_owner_alone_and_a_refusal_leaves_none() {
    let lab = Lab::new();
    lab.bad(&["session", "record", "7", "--to", "it"], 3);
    assert!(!lab.dir.path().join("it").exists());
    assert_eq!(
        lab.good(&["session", "record", "1", "--to", "it", "--for", "1s", "--max", "1MiB"]),
        "0 packets written to it\n"
    );
    let meta = fs::metadata(lab.dir.path().join("it")).expect("the file");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let there = lab.bad(&["session", "record", "1", "--to", "it"], 1);
    assert!(there.starts_with("it cannot be written: File exists"), "{there}");
    assert_eq!(fs::metadata(lab.dir.path().join("it")).expect("the file").len(), meta.len());
    let neither = lab.bad(&["session", "record", "--to", "other"], 2);
    assert!(neither.contains("were not provided"), "{neither}");
    lab.bad(&["session", "record", "1", "--from", "10.0.0.7", "--to", "other"], 2);
}

#[test]
fn trace_is_begun_shown_taken_out_and_stopped() {
    let lab = Lab::new();
    lab.furnish();
    let off = lab.good(&["volume", "trace", "tank/vm1"]);
    assert!(off.contains("tank/vm1\tno\t-"), "{off}");
    for options in [&["--stop"][..], &["--out", "it"], &["--out", "it", "--stop"]] {
        let refused = lab.bad(&[&["volume", "trace", "tank/vm1"], options].concat(), 3);
        assert!(refused.contains("no trace of volume tank/vm1 is running"), "{refused}");
    }
    assert!(!lab.dir.path().join("it").exists(), "a refusal leaves no file");
    lab.bad(&["volume", "trace", "tank/vm1", "--start", "--commands", "2000000"], 2);
    lab.bad(&["volume", "trace", "tank/vm1", "--start", "--stop"], 2);
    lab.bad(&["volume", "trace", "tank/vm1", "--commands", "9"], 2);
    assert!(lab.bad(&["volume", "trace", "tank/none", "--start"], 3).contains("tank/none"));
    let begun = lab.good(&["volume", "trace", "tank/vm1", "--start", "--commands", "9"]);
    assert_eq!(begun, "trace of volume tank/vm1 started: the last 9 commands are kept\n");
    assert!(lab.bad(&["volume", "trace", "tank/vm1", "--start"], 4).contains("is already running"));
    let shown: Value = serde_json::from_str(&lab.good(&["-o", "json", "volume", "trace", "tank/vm1"])).expect("JSON");
    assert_eq!((&shown["trace"]["is_on"], &shown["trace"]["commands_max"]), (&json!(true), &json!(9)));
    lab.good(&["volume", "trace", "tank/vm1", "--out", "it"]);
    let file = fs::read(lab.dir.path().join("it")).expect("the file");
    assert_eq!(trace::parse(&file).expect("a trace").volume.to_string(), "tank/vm1");
    let there = lab.bad(&["volume", "trace", "tank/vm1", "--out", "it", "--stop"], 1);
    assert!(there.starts_with("it cannot be written: File exists"), "{there}");
    // A trace that could not be written is kept.
    lab.good(&["volume", "trace", "tank/vm1", "--out", "other", "--stop"]);
    lab.bad(&["volume", "trace", "tank/vm1", "--stop"], 3);
}

#[test]
fn snapshot_has_its_name_behind_the_volume_or_apart() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["volume", "create", "tank/vm2", "4MiB"]);
    assert_eq!(lab.good(&["snapshot", "create", "tank/vm1@monday"]), "snapshot tank/vm1@monday created\n");
    assert_eq!(lab.good(&["snapshot", "create", "tank/vm1", "tuesday"]), "snapshot tank/vm1@tuesday created\n");
    let both = "snapshot tank/vm1@noon, tank/vm2@noon created, consistent with each other\n";
    assert_eq!(lab.good(&["snapshot", "create", "tank/vm1,tank/vm2@noon"]), both);
    let both = both.replace("noon", "night");
    assert_eq!(lab.good(&["snapshot", "create", "tank/vm1@night,tank/vm2@night", "night"]), both);
    let differ = lab.bad(&["snapshot", "create", "tank/vm1@a,tank/vm2@b"], 2);
    assert_eq!(differ, "two names were given for the snapshot of tank/vm1: a and b; give one name (BY-1018)");
    let back = lab.good(&["volume", "rollback", "tank/vm1@monday", "--yes"]);
    assert_eq!(back, "volume tank/vm1 rolled back to monday\n");
}

#[test]
fn connect_without_a_system_prints_the_lines_of_all() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["present", "tank/vm1", "web"]);
    let all = lab.good(&["connect", "web"]);
    let mut last = 0;
    for (system, title) in [
        ("linux", "Linux (open-iscsi)"),
        ("windows", "Windows (PowerShell)"),
        ("esxi", "ESXi (esxcli)"),
        ("proxmox", "Proxmox VE"),
        ("qemu", "qemu (libiscsi)"),
    ] {
        let one = lab.good(&["connect", "web", "--os", system]);
        let at = all.find(&format!("# ===== {title} =====\n\n")).unwrap_or_else(|| panic!("{system}: {all}"));
        assert!(at >= last && all[at..].contains(one.lines().nth(1).expect("a line to type")), "{system}: {all}");
        last = at;
    }
    let json: Value = serde_json::from_str(&lab.good(&["connect", "web", "-o", "json"])).expect("JSON");
    assert_eq!(json["systems"].as_array().map(Vec::len), Some(5));
    let linux: Value =
        serde_json::from_str(&lab.good(&["connect", "web", "--os", "linux", "-o", "json"])).expect("JSON");
    assert_eq!((&json["systems"][0]["os"], &json["systems"][0]["steps"]), (&json!("linux"), &linux["steps"]));
}

#[test]
fn completion_knows_every_noun() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.good(&["completion", shell]);
        for noun in ["disk", "pool", "volume", "host", "present", "session", "status"] {
            assert!(script.contains(noun), "{shell} lacks {noun}");
        }
    }
}

#[test]
fn host_show_says_what_it_sees_and_names_alone_are_a_line_each() {
    let lab = Lab::new();
    lab.furnish();
    lab.good(&["present", "tank/vm1", "web"]);
    let shown = lab.good(&["host", "show", "web"]);
    assert!(shown.contains("initiators\t") && shown.contains("tank/vm1"), "{shown}");
    assert_eq!(lab.good(&["host", "list", "-o", "name"]), "web\n");
    assert_eq!(lab.good(&["host", "list", "-o", "wide"]), lab.good(&["host", "list", "-o", "table"]));
}

#[test]
fn every_is_for_what_only_looks() {
    let lab = Lab::new();
    let outcome = lab.run(&["pool", "create", "tank", "--every"]);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    let outcome = lab.run(&["host", "remove", "web", "--every"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--every works only with read-only commands"), "{}", outcome.stderr);
}

//! `blockyard tune` on a machine made of files.

use crate::lab::Lab;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Creates a machine of files in the lab's folder, with a rotational disk.
fn machine(lab: &Lab) {
    for (path, text) in [
        ("m/proc/sys/net/core/somaxconn", "128\n"),
        ("m/proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
        ("m/proc/sys/net/ipv4/tcp_sack", "1\n"),
        ("m/sys/devices/system/cpu/online", "0-3\n"),
    ] {
        put(&lab.dir.path().join(path), text);
    }
}

/// Creates disks of the array, and their attributes on the machine of files.
fn disks(lab: &Lab, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        let path = format!("dev/{name}");
        put(&lab.dir.path().join(&path), "");
        lab.good(&["disk", "add", "--name", &format!("t{number}"), "--create", "64MiB", &format!("{name}.img")]);
        // Below the root of the machine, a disk is at the path that the array has for it.
        let at = lab
            .dir
            .path()
            .join("m")
            .join(lab.dir.path().join(format!("{name}.img")).strip_prefix("/").expect("absolute"));
        put(&lab.dir.path().join(format!("m/dev/{name}")), "");
        fs::create_dir_all(at.parent().expect("a folder")).expect("made");
        std::os::unix::fs::symlink(lab.dir.path().join(format!("m/dev/{name}")), &at).expect("a link");
        for (file, text) in [("scheduler", "[mq-deadline] none\n"), ("rotational", "0\n"), ("add_random", "1\n")] {
            let queue = lab.dir.path().join(format!("m/sys/class/block/{name}/queue/{file}"));
            put(&queue, text);
            put(&lab.dir.path().join(format!("m/sys/block/{name}/queue/{file}")), text);
        }
    }
}

#[test]
fn disks_that_are_alike_share_a_line_and_only_changes_are_shown() {
    let lab = Lab::new();
    machine(&lab);
    disks(&lab, &["sda", "sdb", "sdc"]);
    put(&lab.dir.path().join("m/sys/block/sdc/queue/add_random"), "0\n");
    let table = lab.good(&["tune", "show", "--root", "m", "--no-headers"]);
    let cells = |name: &str| -> Vec<Vec<String>> {
        let lines = table.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|cells| cells.get(1).is_some_and(|knob| knob == name)).collect()
    };
    assert_eq!(cells("scheduler").len(), 1, "{table}");
    assert_eq!(cells("scheduler")[0][..5], ["change", "scheduler", "sda, sdb, sdc", "mq-deadline", "none"]);
    assert_eq!(cells("add_random").len(), 1, "{table}");
    assert_eq!(cells("add_random")[0][..5], ["change", "add_random", "sda, sdb", "1", "0"]);
    assert!(!table.contains("\nok\t") && !table.starts_with("ok\t"), "{table}");
    assert!(table.contains("2 settings are already good: blockyard tune show --all\n"), "{table}");
    assert!(table.ends_with("4 to change: blockyard tune apply\n"), "{table}");
    let all = lab.good(&["tune", "show", "--root", "m", "--no-headers", "--all"]);
    assert!(all.contains("ok\tadd_random\tsdc\t0\tas it is\t"), "{all}");
    let changes = lab.good(&["tune", "show", "--root", "m", "-o", "json"]);
    let changes: Value = serde_json::from_str(&changes).expect("JSON");
    assert_eq!(changes["knobs"].as_array().map(Vec::len), Some(7), "each by itself for programs: {changes}");
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    fs::write(path, text).expect("it is written");
}

#[test]
fn knobs_are_shown_with_what_is_to_be_done() {
    let lab = Lab::new();
    machine(&lab);
    let table = lab.good(&["tune", "show", "--root", "m"]);
    let line = table.lines().find(|line| line.contains("net.core.somaxconn")).expect("it is shown");
    let cells: Vec<&str> = line.split('\t').collect();
    assert_eq!(cells[..5], ["change", "net.core.somaxconn", "-", "128", "4096"]);
    assert!(cells[6].ends_with("(documentation)"), "{line}");
    assert!(
        table.ends_with(
            "No portal uses a network card.\n1 setting is already good: blockyard tune show --all\n2 to change: \
             blockyard tune apply\n"
        ),
        "{table}"
    );
    let quiet = lab.good(&["tune", "show", "--root", "m", "--quiet", "--no-headers"]);
    assert_eq!(quiet.lines().count(), 2, "only what is not well: {quiet}");
    let only = lab.good(&["tune", "show", "--root", "m", "-o", "json", "--only", "net.ipv4.tcp_sack"]);
    let only: Value = serde_json::from_str(&only).expect("JSON");
    assert_eq!(only["schema"], 1);
    assert_eq!(only["knobs"].as_array().map(Vec::len), Some(1));
    assert_eq!((&only["knobs"][0]["verdict"], &only["knobs"][0]["kind"]), (&"ok".into(), &"network".into()));
}

#[test]
fn this_machine_is_shown_and_another_is_not() {
    let lab = Lab::new();
    lab.furnish();
    let table = lab.good(&["tune", "show", "--all"]);
    assert!(table.contains("net.ipv4.tcp_rmem"), "{table}");
    assert!(table.contains("6 disks are files: the devices below their file systems"), "{table}");
    let sentence = lab.bad(&["tune", "show", "--only", "warp"], 2);
    assert_eq!(sentence, "\"warp\" matches no setting of this machine; see blockyard tune show (BY-1015)");
    put(&lab.dir.path().join("token"), "x\n");
    let elsewhere = ["tune", "show", "--url", "https://127.0.0.1:9", "--token-file", "token"];
    assert!(lab.bad(&elsewhere, 2).starts_with("blockyard tune works on the local machine"));
}

#[test]
fn knobs_are_set_kept_and_set_back() {
    let lab = Lab::new();
    machine(&lab);
    let somaxconn = || fs::read_to_string(lab.dir.path().join("m/proc/sys/net/core/somaxconn")).expect("it is there");
    let apply = |more: &[&str]| lab.good(&[&["tune", "apply", "--root", "m"], more].concat());
    let plan = apply(&["--dry-run", "--no-headers"]);
    assert_eq!(plan.lines().nth(1), Some("net.core.somaxconn\t128\t4096\t/proc/sys/net/core/somaxconn\t"), "{plan}");
    let files = apply(&["--print"]);
    assert!(files.starts_with("### /etc/sysctl.d/90-blockyard.conf\n"), "{files}");
    assert!(files.contains("\nnet.core.somaxconn = 4096\n"), "{files}");
    let sentence = lab.run(&["tune", "apply", "--root", "m"]);
    assert_eq!((sentence.code, somaxconn().as_str()), (4, "128\n"), "nobody has agreed");
    assert!(apply(&["--yes"]).ends_with("m/etc/sysctl.d/90-blockyard.conf is written\n"));
    assert_eq!(somaxconn(), "4096");
    assert_eq!(apply(&["--yes"]), "No changes.\n");
    lab.good(&["tune", "revert", "--root", "m"]);
    assert_eq!(somaxconn(), "128");
    assert_eq!(lab.good(&["tune", "revert", "--root", "m"]), "No settings were applied by blockyard tune apply.\n");
    assert!(!lab.dir.path().join("m/etc/sysctl.d/90-blockyard.conf").exists());
}

#[test]
fn knobs_that_are_set_for_now_are_in_no_file() {
    let lab = Lab::new();
    machine(&lab);
    let done = lab.good(&["tune", "apply", "--root", "m", "--yes", "--until-restart", "--only", "net.core.somaxconn"]);
    assert!(done.ends_with("\nuntil the next reboot: net.core.somaxconn\n"), "{done}");
    assert!(!lab.dir.path().join("m/etc").exists());
    assert!(lab.good(&["tune", "revert", "--root", "m"]).contains("net.core.somaxconn\t4096\t128"));
}

#[test]
fn host_is_told_what_fits_its_paths() {
    let lab = Lab::new();
    lab.furnish();
    let any = lab.good(&["tune", "host", "--os", "linux"]);
    assert!(any.contains("# With multipath:") && any.contains("blockyard connect HOST --os linux"), "{any}");
    let sentence = lab.bad(&["tune", "host", "web", "--os", "linux"], 3);
    assert!(sentence.starts_with("nothing is presented to host web; present a volume to it first"), "{sentence}");
    lab.good(&["present", "tank/vm1", "web"]);
    let one = lab.good(&["tune", "host", "web", "--os", "linux"]);
    assert!(one.contains("replacement_timeout = 120\n") && !one.contains("replacement_timeout = 10\n"), "{one}");
    lab.good(&["portal", "add", "10.0.1.1"]);
    let two = lab.good(&["tune", "host", "web", "--os", "windows", "--ports", "2", "--cores", "8", "-o", "json"]);
    let two: Value = serde_json::from_str(&two).expect("JSON");
    let text = two.to_string();
    assert!(text.contains("LinkDownTime") && !text.contains("MaxRequestHoldTime"), "{text}");
    assert!(text.contains("-Name PORT2 -Enabled $true -Profile ClosestStatic"), "{text}");
    assert!(lab.bad(&["tune", "host", "--os", "linux", "--ports", "0"], 2).contains("0 is not in 1..=64"));
}

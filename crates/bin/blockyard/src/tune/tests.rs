mod picture;

use super::tunables::ALL;
use super::*;
use picture::Picture;
use std::fs;

/// Lists the recommended changes: verdict, name, present and recommended value.
fn to_do(all: &[Advice]) -> Vec<String> {
    let line = |advice: &Advice| format!("{:?} {}: {} -> {}", advice.verdict, advice.name(), advice.now, advice.wanted);
    all.iter().filter(|advice| advice.verdict != Verdict::Ok).map(line).collect()
}

fn one<'a>(all: &'a [Advice], name: &str) -> &'a Advice {
    all.iter().find(|advice| advice.name() == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn files(advice: &Advice) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for setting in &advice.settings {
        if let Setting::File { path, value } = setting {
            found.push((path.as_str(), value.as_str()));
        }
    }
    found
}

#[test]
fn two_sockets_with_nvme_sas_and_ixgbe_get_this_advice_and_no_other() {
    let picture = Picture::two_sockets();
    let all = look(&picture.root, &picture.array);
    let expected = [
        "Change nvme0n1/scheduler: mq-deadline -> none",
        "Change nvme0n1/rq_affinity: 1 -> 2",
        "Change sda/scheduler: none -> mq-deadline",
        "Change sda/nr_requests: 256 -> 1024",
        "Change sda/max_sectors_kb: 512 -> 1024",
        "Change sda/add_random: 1 -> 0",
        "Ask sdb/scheduler: none -> mq-deadline",
        "Ask sdb/nr_requests: 256 -> 1024",
        "Change net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 8388608",
        "Change net.ipv4.tcp_wmem: 4096 16384 4194304 -> 4096 16384 8388608",
        "Change net.ipv4.tcp_allowed_congestion_control: reno bbr -> reno bbr cubic",
        "Change net.ipv4.tcp_slow_start_after_idle: 1 -> 0",
        "Change net.core.netdev_budget: 300 -> 600",
        "Change net.core.somaxconn: 128 -> 4096",
        "Ask eth2/mtu: 1500 -> 9000",
        "Change eth2/queues: 4 -> 8",
        "Change eth2/rx_ring: 512 -> 4096",
        "Change eth2/gro: off -> on",
        "Change eth2/irq_affinity: 0 -> 8-11, queue by queue",
        "Change governor: powersave -> performance",
        "Ask guest_halt_poll_ns: 0 -> 200000",
        "Cannot shard_cpus: 0-15 -> 0-15",
        "Ask kernel.io_uring_disabled: 2 -> 0",
        "Change vm.swappiness: 60 -> 10",
    ];
    assert_eq!(to_do(&all), expected);
    // Settings that are inspected and need no change.
    let well: Vec<String> = all.iter().filter(|advice| advice.verdict == Verdict::Ok).map(Advice::name).collect();
    for name in ["sda/read_ahead_kb", "nvme0n1/write_cache", "eth2/tso", "net.core.rmem_max", "memlock", "isolated"] {
        assert!(well.iter().any(|it| it == name), "{name} is not in {well:?}");
    }
    assert_eq!(one(&all, "nvme0n1/irq_affinity").note, "the kernel distributes them and does not allow changes");
}

#[test]
fn settings_are_the_files_of_the_kernel_in_an_order_that_it_takes() {
    let picture = Picture::two_sockets();
    let all = look(&picture.root, &picture.array);
    assert_eq!(files(one(&all, "sda/scheduler")), [("sys/block/sda/queue/scheduler", "mq-deadline")]);
    let place = |name: &str| all.iter().position(|advice| advice.name() == name).expect(name);
    assert!(place("sda/scheduler") < place("sda/nr_requests"), "a new scheduler brings a number of its own");
    assert_eq!(files(one(&all, "net.ipv4.tcp_rmem")), [("proc/sys/net/ipv4/tcp_rmem", "4096 131072 8388608")]);
    // One core of the card's node per queue; an interrupt that belongs to no queue stays.
    assert_eq!(
        files(one(&all, "eth2/irq_affinity")),
        [
            ("proc/irq/70/smp_affinity_list", "8"),
            ("proc/irq/71/smp_affinity_list", "9"),
            ("proc/irq/72/smp_affinity_list", "10"),
            ("proc/irq/73/smp_affinity_list", "11"),
        ]
    );
    assert_eq!(files(one(&all, "governor")).len(), 16);
    let queues = &one(&all, "eth2/queues").settings;
    assert!(
        matches!(&queues[..], [Setting::Ethtool { option, interface, name, value }]
            if (option.as_str(), interface.as_str(), name.as_str(), value.as_str()) == ("-L", "eth2", "combined", "8")),
        "{queues:?}"
    );
}

#[test]
fn disks_of_others_are_not_looked_at_and_a_shared_one_is_asked_about() {
    let picture = Picture::two_sockets();
    let all = look(&picture.root, &picture.array);
    // The system's own disk is in the picture but not used by the array.
    assert!(!all.iter().any(|advice| advice.on == "sdz"), "{:?}", to_do(&all));
    assert!(one(&all, "sdb/scheduler").note.contains("only a part of sdb"));
    assert_eq!(super::files(&picture.root, &picture.array.disks), 1, "one of the array's disks is a file");
    let below = disks::devices(&picture.root, &["/dev/mapper/mpatha"]);
    assert_eq!(
        below.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        ["sda"],
        "what is below a multipath device"
    );
}

#[test]
fn idle_cores_are_asked_about_only_where_somebody_has_them_given_back_at_once() {
    let picture = Picture::two_sockets();
    let about = |picture: &Picture| {
        let all = look(&picture.root, &picture.array);
        all.into_iter()
            .find(|advice| advice.name() == "guest_halt_poll_ns")
            .map(|advice| (advice.verdict, advice.wanted))
    };
    assert_eq!(about(&picture), Some((Verdict::Ask, "200000".to_owned())));
    picture.put("sys/module/haltpoll/parameters/guest_halt_poll_ns", "50000\n");
    assert_eq!(about(&picture), Some((Verdict::Ok, "50000".to_owned())));
    picture.put("sys/devices/system/cpu/cpuidle/current_governor", "menu\n");
    assert_eq!(about(&picture), None);
}

#[test]
fn what_cannot_be_had_says_why() {
    let picture = Picture::two_sockets();
    picture.put("sys/block/sda/queue/scheduler", "[none]");
    picture.put("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr");
    picture.put("ethtool/-k/eth2", "tcp-segmentation-offload: off [fixed]\n");
    picture.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors", "powersave userspace");
    let all = look(&picture.root, &picture.array);
    for (name, why) in [
        ("sda/scheduler", "does not support mq-deadline"),
        ("net.ipv4.tcp_allowed_congestion_control", "no cubic"),
        ("eth2/tso", "not supported by the card"),
        ("governor", "not supported by this kernel"),
    ] {
        let advice = one(&all, name);
        assert_eq!(advice.verdict, Verdict::Cannot, "{name}");
        assert!(advice.note.contains(why) && advice.settings.is_empty(), "{advice:?}");
    }
}

#[test]
fn irqbalance_is_asked_to_leave_before_interrupts_are_spread() {
    let picture = Picture::two_sockets();
    picture.put("proc/311/comm", "irqbalance\n");
    let all = look(&picture.root, &picture.array);
    let advice = one(&all, "eth2/irq_affinity");
    assert_eq!((advice.verdict, advice.settings.len()), (Verdict::Ask, 4));
    assert!(advice.note.contains("systemctl disable --now irqbalance"), "{}", advice.note);
}

#[test]
fn shards_are_to_be_near_cards_and_disks_where_all_of_these_are_on_one_node() {
    let picture = Picture::two_sockets();
    picture.put("sys/block/nvme0n1/device/device/numa_node", "1");
    let all = look(&picture.root, &picture.array);
    let advice = one(&all, "shard_cpus");
    assert_eq!((advice.verdict, advice.wanted.as_str()), (Verdict::Ask, "8-15"));
    assert!(advice.note.contains("cpus = \"8-15\" in /etc/blockyard.toml"), "{}", advice.note);
    for (task, name, cpus) in [(4711, "blockyard", "0-15"), (4712, "shard-0", "8"), (4713, "shard-1", "9")] {
        picture.put(&format!("proc/4711/task/{task}/comm"), name);
        picture.put(&format!("proc/4711/task/{task}/status"), &format!("Cpus_allowed_list:\t{cpus}\n"));
    }
    let all = look(&picture.root, &picture.array);
    assert_eq!(one(&all, "shard_cpus").verdict, Verdict::Ok);
}

#[test]
fn bond_and_vlan_lead_to_the_cards_below() {
    let picture = Picture::two_sockets();
    for (path, text) in [
        ("sys/class/net/bond0.7/mtu", "1500"),
        ("sys/class/net/bond0.7/lower_bond0/mtu", ""),
        ("sys/class/net/bond0/mtu", "9000"),
        ("sys/class/net/bond0/lower_eth2/mtu", ""),
    ] {
        picture.put(path, text);
    }
    let array = Array { interfaces: vec!["bond0.7".to_owned(), "lo".to_owned()], ..Array::default() };
    let all = look(&picture.root, &array);
    assert_eq!(one(&all, "bond0.7/mtu").verdict, Verdict::Ask);
    assert_eq!(one(&all, "bond0/mtu").verdict, Verdict::Ok);
    assert_eq!(one(&all, "eth2/queues").verdict, Verdict::Change);
    assert!(!all.iter().any(|advice| advice.on == "lo" || advice.name() == "bond0/queues"));
}

#[test]
fn card_with_one_queue_is_not_told_to_pass_packets_on() {
    let picture = Picture::two_sockets();
    for file in ["sys/class/net/eth3/mtu", "sys/class/net/eth3/queues/rx-0/rps_cpus"] {
        picture.put(file, "0");
    }
    picture.put("sys/class/net/eth3/device/numa_node", "-1");
    let rps = || {
        let array = Array { interfaces: vec!["eth3".to_owned()], ..Array::default() };
        one(&look(&picture.root, &array), "eth3/rps_cpus").clone()
    };
    assert_eq!((rps().verdict, rps().now.as_str()), (Verdict::Ok, "none"), "where it was measured it loses");
}

#[test]
fn no_value_is_advised_with_a_reason_that_speaks_against_it() {
    let against = [
        "no gain",
        "no clear gain",
        "no difference",
        "none ",
        "no effect",
        "slower on",
        "mq-deadline 0.7",
        "0.8 of the 4 KiB",
    ];
    let picture = Picture::two_sockets();
    // A virtual card, and a solid-state disk with a small request size.
    for (path, text) in [
        ("sys/class/net/eth3/mtu", "1500"),
        ("sys/class/net/eth3/device/uevent", "DRIVER=virtio_net\n"),
        ("sys/class/net/eth3/queues/rx-0/rps_cpus", "0"),
        ("sys/devices/nvme0n1/queue/max_hw_sectors_kb", "2048\n"),
        ("sys/devices/sda/queue/nomerges", "2\n"),
        ("sys/devices/virtual/bdi/x", ""),
    ] {
        picture.put(path, text);
    }
    let mut array = picture.array.clone();
    array.interfaces.push("eth3".to_owned());
    let all = look(&picture.root, &array);
    for advice in all.iter().filter(|advice| matches!(advice.verdict, Verdict::Change | Verdict::Ask)) {
        let reason = format!("{}; {}; {}", advice.knob.why, advice.note, advice.knob.effect);
        // A reason must not argue against the recommended scheduler.
        let is_for = advice.wanted == "none";
        let wrong = against.iter().find(|words| reason.contains(**words) && !is_for);
        assert!(wrong.is_none(), "{} is to be {}, and: {reason}", advice.name(), advice.wanted);
    }
    for (name, verdict) in [
        ("eth3/mtu", Verdict::Ok),
        ("eth3/rps_cpus", Verdict::Ok),
        ("eth2/mtu", Verdict::Ask),
        ("nvme0n1/max_sectors_kb", Verdict::Ok),
        ("sda/max_sectors_kb", Verdict::Change),
        ("sda/nomerges", Verdict::Change),
    ] {
        assert_eq!(one(&all, name).verdict, verdict, "{name}");
    }
    assert!(one(&all, "sda/scheduler").knob.effect.contains("random I/O"), "a disk with heads has a reason of its own");
}

#[test]
fn machine_that_says_nothing_gets_no_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = Array { disks: vec!["/dev/sda".into()], interfaces: vec!["eth0".to_owned()], pid: Some(1) };
    assert_eq!(look(&Root::new(folder.path()), &array), []);
    // Nor may it argue about a scheduler that was not considered.
    let picture = Picture::two_sockets();
    for path in
        ["proc/sys/net/ipv4/tcp_rmem", "sys/block/sda/queue/nr_requests", "sys/class/net/eth2/mtu", "ethtool/-l/eth2"]
    {
        picture.put(path, "what? -1 \u{fffd}");
    }
    let all = look(&picture.root, &picture.array);
    assert!(
        !all.iter()
            .any(|advice| ["net.ipv4.tcp_rmem", "sda/nr_requests", "eth2/mtu"].contains(&advice.name().as_str()))
    );
    assert_eq!(one(&all, "eth2/queues").verdict, Verdict::Ok);
}

#[test]
fn this_machine_is_read_as_it_is() {
    let root = Root::new("/");
    let interfaces = root.names("sys/class/net");
    let all = look(&root, &Array { disks: Vec::new(), interfaces, pid: Some(std::process::id()) });
    let now = |name: &str| one(&all, name).now.clone();
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").expect("Linux has it");
    assert_eq!(now("net.ipv4.tcp_rmem"), text.split_whitespace().collect::<Vec<_>>().join(" "));
    for advice in &all {
        assert!(!advice.now.contains('\n'), "{advice:?}");
        for setting in &advice.settings {
            if let Setting::File { path, .. } = setting {
                assert!(root.has(path), "{path} is not there");
            }
        }
        let has_settings = !advice.settings.is_empty();
        assert!(!has_settings || matches!(advice.verdict, Verdict::Change | Verdict::Ask), "{advice:?}");
        assert_eq!(
            advice.verdict == Verdict::Ok,
            advice.now == advice.wanted || advice.verdict == Verdict::Cannot,
            "{advice:?}"
        );
    }
}

#[test]
fn every_knob_is_in_the_manual_with_what_it_brings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operate/tuning.md");
    let page = fs::read_to_string(path).expect("the page");
    for knob in ALL {
        let line = format!("| `{}` | {} | {} ({}) |", knob.name, knob.why, knob.effect, knob.source);
        assert!(page.contains(&line), "the page lacks:\n{line}");
    }
}

/// Returns the content of every file that the recommendations would change.
fn state(picture: &Picture, all: &[Advice]) -> Vec<String> {
    let paths = all.iter().flat_map(|advice| &advice.settings).filter_map(|setting| match setting {
        Setting::File { path, .. } => Some(path),
        Setting::Ethtool { .. } => None,
    });
    paths.map(|path| format!("{path} {:?}", picture.root.text(path))).collect()
}

fn set(picture: &Picture, only: &[&str]) -> (Vec<Step>, Vec<String>) {
    let all = look(&picture.root, &picture.array);
    let only: Vec<String> = only.iter().map(|word| (*word).to_owned()).collect();
    let entries = entries(&picture.root, &plan(&all, &only), true);
    apply(&picture.root, &entries).expect("it can be kept")
}

#[test]
fn what_is_set_is_well_then_stays_after_a_start_and_goes_back_to_what_was() {
    let picture = Picture::two_sockets();
    let before = look(&picture.root, &picture.array);
    let files_before = state(&picture, &before);
    let (steps, files) = set(&picture, &[]);
    let refused: Vec<&str> =
        steps.iter().filter(|step| step.refused.is_some()).map(|step| step.name.as_str()).collect();
    assert_eq!(refused, ["eth2/queues", "eth2/rx_ring", "eth2/gro"], "a picture has no ethtool, and the rest is done");
    assert_eq!(files.len(), 4, "{files:?}");
    // The kernel of the picture does not move interrupts by itself.
    for irq in 70..74 {
        let list = picture.root.text(&format!("proc/irq/{irq}/smp_affinity_list")).expect("it is there");
        picture.put(&format!("proc/irq/{irq}/effective_affinity_list"), &list);
    }
    let left: Vec<String> =
        to_do(&look(&picture.root, &picture.array)).into_iter().filter(|line| line.starts_with("Change")).collect();
    assert_eq!(left.len(), 3, "only ethtool's are left: {left:?}");
    let sysctl = picture.root.text("etc/sysctl.d/90-blockyard.conf").expect("it is written");
    assert!(sysctl.contains("net.ipv4.tcp_rmem = 4096 131072 8388608"), "{sysctl}");
    let udev = picture.root.text("etc/udev/rules.d/90-blockyard.rules").expect("it is written");
    assert!(udev.contains("ATTRS{wwid}==\"naa.5000c500a1b2c3d4\", ATTR{queue/scheduler}=\"mq-deadline\""), "{udev}");
    assert!(
        !udev.contains("ethtool") && !udev.contains("sdb"),
        "neither what was refused nor what is asked about: {udev}"
    );
    // A second `apply` changes nothing.
    let kept =
        ["etc/sysctl.d/90-blockyard.conf", "etc/udev/rules.d/90-blockyard.rules", "var/lib/blockyard-tune/before.json"];
    let texts = kept.map(|path| picture.root.text(path));
    let (_, files) = set(&picture, &["disks", "network", "processors"]);
    assert_eq!((files, kept.map(|path| picture.root.text(path))), (vec![], texts));
    let (steps, files) = revert(&picture.root).expect("there is a way back");
    assert!(steps.iter().all(|step| step.refused.is_none()), "{steps:?}");
    assert_eq!(files.len(), 4, "{files:?}");
    let trimmed = |lines: Vec<String>| {
        lines
            .into_iter()
            .map(|line| {
                line.replace("\\t", " ")
                    .replace("[none] mq-deadline kyber", "none")
                    .replace("none [mq-deadline]", "mq-deadline")
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(trimmed(state(&picture, &before)), trimmed(files_before));
    assert!(kept.iter().all(|path| !picture.root.has(path)), "nothing is left behind");
    assert_eq!(revert(&picture.root).expect("again").0.len(), 0);
}

#[test]
fn scheduler_goes_back_before_the_settings_that_it_resets() {
    let picture = Picture::two_sockets();
    drop(set(&picture, &[]));
    let (steps, _) = revert(&picture.root).expect("there is a way back");
    let place = |name: &str| steps.iter().position(|step| step.name == name).expect(name);
    assert!(place("sda/scheduler") < place("sda/nr_requests"), "a new scheduler brings a number of its own");
}

#[test]
fn what_is_asked_about_is_set_only_by_its_name() {
    let picture = Picture::two_sockets();
    let all = look(&picture.root, &picture.array);
    let names = |only: &[&str]| {
        let only: Vec<String> = only.iter().map(|word| (*word).to_owned()).collect();
        plan(&all, &only).into_iter().map(Advice::name).collect::<Vec<_>>()
    };
    assert!(!names(&[]).iter().any(|name| name == "eth2/mtu" || name == "sdb/scheduler"));
    assert!(!names(&["eth2", "interfaces"]).contains(&"eth2/mtu".to_owned()), "its kind is not its name");
    assert!(names(&["eth2/mtu"]).contains(&"eth2/mtu".to_owned()));
    assert!(!names(&["shard_cpus"]).contains(&"shard_cpus".to_owned()), "there is nothing that could be set");
    let (_, files) = set(&picture, &["eth2/mtu"]);
    assert_eq!(picture.root.text("sys/class/net/eth2/mtu").as_deref(), Some("9000"));
    let udev = picture.root.text("etc/udev/rules.d/90-blockyard.rules").expect("it is written");
    assert!(udev.contains("ATTR{address}==\"52:54:00:12:34:56\", ATTR{mtu}=\"9000\""), "{udev}, {files:?}");
}

#[test]
fn what_the_kernel_refuses_is_neither_kept_nor_tried_again_and_the_rest_is_done() {
    let picture = Picture::two_sockets();
    let all = look(&picture.root, &picture.array);
    let mut entries = entries(&picture.root, &plan(&all, &[]), true);
    let gone = Setting::File { path: "proc/sys/net/none".to_owned(), value: "1".to_owned() };
    entries[0].setting = gone.clone();
    let (steps, _) = apply(&picture.root, &entries).expect("it can be kept");
    assert!(steps[0].refused.as_ref().is_some_and(|why| why.contains("No such file")), "{:?}", steps[0]);
    assert!(steps[1].refused.is_none());
    let record = Record::load(&picture.root).expect("it is readable");
    assert!(!record.0.is_empty() && record.0.iter().all(|entry| entry.setting.place() != gone.place()));
}

#[test]
fn record_that_is_damaged_or_newer_is_refused_and_nothing_is_set() {
    for text in ["{\"schema\":2,\"set\":[]}", "{\"schema\":1,\"set\":[", ""] {
        let picture = Picture::two_sockets();
        picture.put("var/lib/blockyard-tune/before.json", text);
        let all = look(&picture.root, &picture.array);
        let entries = entries(&picture.root, &plan(&all, &[]), true);
        assert!(apply(&picture.root, &entries).is_err(), "{text}");
        assert!(revert(&picture.root).is_err(), "{text}");
        assert_eq!(picture.root.text("proc/sys/net/core/somaxconn").as_deref(), Some("128"));
        assert_eq!(picture.root.text("var/lib/blockyard-tune/before.json").as_deref(), Some(text), "it is not lost");
    }
}

//! Tests of memory limits and pressure on simulated machines.

use super::*;
use crate::tests::Array;
use std::path::Path;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// Lays out a machine of 16 GiB with these files.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
    files.iter().for_each(|(path, text)| put(dir.path(), path, text));
    dir
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, text).expect("writes");
}

fn found(files: &[(&str, &str)]) -> (String, u64) {
    let machine = machine(files);
    let found = MemoryLimits::detect(machine.path());
    let (name, bytes) = found.smallest();
    (name.to_owned(), bytes)
}

const SECOND: [(&str, &str); 2] = [
    ("proc/self/cgroup", "0::/system.slice/blockyard.service\n"),
    ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
];

#[test]
fn smallest_limit_of_machine_control_groups_and_resources_is_found() {
    assert_eq!(found(&[]), ("machine".to_owned(), 16 * GIB));
    let none = "sys/fs/cgroup/system.slice/blockyard.service/memory.max";
    assert_eq!(found(&[SECOND[0], SECOND[1], (none, "max\n")]).0, "machine");
    // The limit of an enclosing slice counts as well, and the smaller one wins.
    let (slice, own) =
        ("sys/fs/cgroup/system.slice/memory.max", "sys/fs/cgroup/system.slice/blockyard.service/memory.high");
    let both = [SECOND[0], SECOND[1], (slice, "1073741824\n"), (own, "2147483648\n")];
    assert_eq!(found(&both), ("/sys/fs/cgroup/system.slice/memory.max".to_owned(), GIB));
    let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                  Max data size             unlimited            unlimited            bytes\n\
                  Max address space         536870912            unlimited            bytes\n";
    let three = [SECOND[0], SECOND[1], (slice, "1073741824\n"), ("proc/self/limits", limits)];
    assert_eq!(found(&three), ("RLIMIT_AS".to_owned(), GIB / 2));
}

#[test]
fn limits_are_found_under_the_first_version_and_in_a_container() {
    let first = [
        ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/lxc/box/job\n0::/\n"),
        ("proc/self/mountinfo", "33 31 0:35 /lxc/box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
    ];
    let own = ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    let above = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    let name = "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned();
    assert_eq!(found(&[first[0], first[1], own, above]), (name.clone(), GIB / 2));
    // A path of the host, outside of the visible mount.
    let outside = ("proc/self/cgroup", "4:memory:/docker/0123\n");
    assert_eq!(found(&[outside, first[1], above]), (name, GIB / 2));
}

/// Hybrid setup: cgroup v1 accounts for memory, and v2 is mounted beside it without that controller.
#[test]
fn limit_of_the_first_version_counts_where_both_are_mounted() {
    let both = [
        ("proc/self/cgroup", "4:memory:/job\n0::/user.slice/session\n"),
        (
            "proc/self/mountinfo",
            "33 31 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n34 31 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912\n"),
        ("sys/fs/cgroup/unified/user.slice/session/cgroup.procs", "1\n"),
    ];
    assert_eq!(found(&both), ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes".to_owned(), GIB / 2));
}

/// Files of cgroup v2 for the daemon's group and the slice above it.
#[test]
fn second_version_tells_limits_use_and_pressure_of_each_group() {
    let (slice, own) = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/blockyard.service");
    let machine = machine(&SECOND);
    let say = |group: &str, file: &str, text: &str| put(machine.path(), &format!("{group}/{file}"), text);
    let strain = || MemoryPressure::measure(&MemoryLimits::detect(machine.path()));
    assert_eq!(strain(), MemoryPressure::default(), "nothing is told, and nothing is limited");
    say(own, "memory.current", "503316480\n");
    say(own, "memory.max", "max\n");
    say(own, "memory.high", "max\n");
    assert_eq!(strain().full_percent, None, "there is no limit");
    say(own, "memory.high", "536870912\n");
    assert_eq!((strain().full_percent, strain().is_short()), (Some(93), true), "the kernel slows it down there");
    say(own, "memory.max", "1073741824\n");
    assert_eq!(strain().full_percent, Some(93), "the smaller one counts");
    say(own, "memory.stat", "anon 1\nfile 2\ninactive_file 134217728\nactive_file 134217728\n");
    assert_eq!((strain().full_percent, strain().is_gone()), (Some(43), true), "pages of files are dropped");
    say(slice, "memory.max", "629145600\n");
    say(slice, "memory.current", "608174080\n");
    assert_eq!(strain().full_percent, Some(96), "the fullest group counts");
    put(machine.path(), "proc/pressure/memory", "some avg10=55.00 avg60=0.00 avg300=0.00 total=1\n");
    assert_eq!(strain().waiting_percent, Some(55));
    say(slice, "memory.pressure", "some avg10=22.00 avg60=0.00 avg300=0.00 total=1\n");
    say(own, "memory.pressure", "some avg10=7.49 avg60=0.00 avg300=0.00 total=1\n");
    assert_eq!(strain().waiting_percent, Some(7), "its own group knows better than those above it and the machine");
}

#[tokio::test]
async fn read_cache_shrinks_while_memory_is_short_and_grows_back() {
    let array = Array::new().await;
    let machine = machine(&SECOND);
    let own = "sys/fs/cgroup/system.slice/blockyard.service";
    let pressure = |percent: &str| {
        let text = format!(
            "some avg10={percent} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
        );
        put(machine.path(), &format!("{own}/memory.pressure"), &text);
    };
    let fill = |used: u64, files: u64| {
        put(machine.path(), &format!("{own}/memory.max"), "536870912\n");
        put(machine.path(), &format!("{own}/memory.current"), &format!("{used}\n"));
        put(machine.path(), &format!("{own}/memory.stat"), &format!("anon 1\ninactive_file {files}\nactive_file 0\n"));
    };
    pressure("0.00");
    fill(GIB / 2, GIB / 4);
    let found = MemoryLimits::detect(machine.path());
    let most = 128 << 20;
    let look = async |now| array.control.memory.check(&found, most, now).await.expect("looks");
    assert_eq!(look(most).await, most, "pages of files count for nothing");
    assert!(array.control.status.report().await.expect("a status").problems.is_empty());
    pressure("12.50");
    let mut now = look(most).await;
    assert_eq!(now, most / 2);
    for _ in 0..10 {
        now = look(now).await;
    }
    assert_eq!(now, most / 16);
    let status = array.control.status.report().await.expect("a status");
    assert!(status.problems.iter().any(|problem| problem.subject == "memory" && problem.state == "short"));
    let report = status.memory.expect("it was looked at");
    assert_eq!((report.limit.bytes(), report.cache_now.bytes(), report.pressure_percent), (GIB / 2, now, Some(12)));
    pressure("5.00");
    assert_eq!(look(now).await, now, "neither short nor enough");
    pressure("0.00");
    fill(GIB / 2, 0);
    assert_eq!(look(now).await, now, "full of what cannot be dropped");
    fill(GIB / 4, 0);
    for _ in 0..16 {
        now = look(now).await;
    }
    assert_eq!(now, most);
    assert!(array.control.status.report().await.expect("a status").problems.is_empty());
    let events = array.control.reconciler.events(crate::EventFilter::default()).await;
    let count = |code| events.iter().filter(|event| event.code == code).map(|event| event.count).sum::<u64>();
    assert_eq!((count(event::MEMORY_SHORT), count(event::MEMORY_ENOUGH)), (1, 1));
}

/// Regression: RAM volumes of any size were accepted, and the kernel killed the daemon once they were full.
#[tokio::test]
async fn volumes_in_memory_have_half_of_the_limit_together() {
    let array = Array::new().await;
    let control = &array.control;
    let machine = machine(&SECOND);
    put(machine.path(), "sys/fs/cgroup/system.slice/memory.max", "536870912\n");
    control.memory.check(&MemoryLimits::detect(machine.path()), 0, 0).await.expect("looks");
    let ram = |name: &str, mib| crate::request::NewVolume {
        backend: Some(crate::request::NewBackend::Ram {}),
        ..crate::tests::new_volume(name, Some(Size::mib(mib)))
    };
    let (a, b) = ("a".parse().expect("a name"), "b".parse().expect("a name"));
    control.volumes.create(ram("a", 200)).await.expect("fits");
    let refusal = control.volumes.create(ram("b", 57)).await.expect_err("does not fit");
    assert_eq!(refusal.code, code::LIMIT_REACHED);
    let said = "volume b of 57 MiB does not fit in memory: volumes may use 256 MiB of the limit 512 MiB \
         (/sys/fs/cgroup/system.slice/memory.max), and 56 MiB is left";
    assert_eq!(refusal.message, said);
    control.volumes.create(ram("b", 50)).await.expect("fits");
    let resize = |mib| crate::request::Resize { size: Size::mib(mib) };
    control.volumes.resize(&a, resize(207)).await.expect_err("does not fit");
    control.volumes.resize(&a, resize(206)).await.expect("fits");
    let mut document = control.config.export(&()).await.expect("a document");
    document.volume.get_mut(&b).expect("it is there").size = Some(Size::mib(51));
    let request = crate::config::ApplyConfig { document, ..crate::config::ApplyConfig::default() };
    let refusal = control.config.apply(request, &()).await.expect_err("does not fit");
    assert!(refusal.message.contains("volume b of 51 MiB does not fit in memory"), "{refusal}");
}

use super::*;

const MACHINE: Machine = Machine { paths: None, ports: 2, cores: 16, threads: true, queues: 4 };
const ALL: [System; 5] = [System::Linux, System::Windows, System::Esxi, System::Proxmox, System::Qemu];

fn text(system: System, machine: Machine) -> String {
    steps(system, Terms::ours(), machine).into_iter().flat_map(|step| step.lines).map(|line| line + "\n").collect()
}

#[test]
fn terms_are_those_that_the_array_negotiates() {
    // As in a login and in VPD page B0: 128 commands, segments of 256 KiB, bursts of 256 KiB and 1 MiB, commands of 4
    // MiB.
    let terms = Terms {
        commands: 128,
        segment_bytes: 262_144,
        first_burst_bytes: 262_144,
        burst_bytes: 1_048_576,
        transfer_bytes: 4_194_304,
    };
    assert_eq!(Terms::ours(), terms);
    for system in [System::Linux, System::Windows, System::Esxi, System::Proxmox] {
        let other = Terms { commands: 77, first_burst_bytes: 88_888, burst_bytes: 999_424, ..terms };
        let text: String = steps(system, other, MACHINE).into_iter().flat_map(|step| step.lines).collect();
        assert!(text.contains("77") && text.contains("88888") && text.contains("999424"), "{system:?}: {text}");
    }
}

#[test]
fn every_setting_has_its_reason_before_it() {
    for system in ALL {
        for step in steps(system, Terms::ours(), MACHINE) {
            let reasons = step.lines.iter().filter(|line| line.starts_with("# ")).count();
            assert!(reasons > 0, "{system:?}: {step:?}");
        }
    }
}

#[test]
fn windows_ports_have_queues_on_processors_of_their_own() {
    let lines: Vec<String> = text(System::Windows, MACHINE)
        .lines()
        .filter(|line| line.contains("NetAdapterRss -Name"))
        .map(str::to_owned)
        .collect();
    let ends = ["-BaseProcessorNumber 0 -MaxProcessorNumber 14", "-BaseProcessorNumber 16 -MaxProcessorNumber 30"];
    assert_eq!(lines.len(), 2);
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end) && line.contains("-Profile ClosestStatic -NumberOfReceiveQueues 4 "), "{line}");
    }
    // Without hyper-threads every processor counts; more queues than processors are useless.
    let small = text(System::Windows, Machine { cores: 2, threads: false, ..MACHINE });
    assert!(
        small.contains("-NumberOfReceiveQueues 1 -MaxProcessors 1 -BaseProcessorNumber 1 -MaxProcessorNumber 1\n"),
        "{small}"
    );
    let one = text(System::Windows, Machine { cores: 1, ports: 4, threads: false, ..MACHINE });
    assert_eq!(one.matches("-BaseProcessorNumber 0 -MaxProcessorNumber 0\n").count(), 4, "they share what there is");
}

#[test]
fn timeouts_are_short_where_another_path_goes_on() {
    for (system, short, long) in [
        (System::Linux, "replacement_timeout = 10\n", "replacement_timeout = 120\n"),
        (System::Windows, "LinkDownTime -Value 10 ", "MaxRequestHoldTime -Value 120 "),
        (System::Esxi, "--key=RecoveryTimeout --value=10\n", "--key=RecoveryTimeout --value=120\n"),
    ] {
        for (paths, has) in [(Some(true), (true, false)), (Some(false), (false, true)), (None, (true, true))] {
            let text = text(system, Machine { paths, ..MACHINE });
            assert_eq!((text.contains(short), text.contains(long)), has, "{system:?} {paths:?}: {text}");
        }
    }
}

#[test]
fn linux_rule_is_for_disks_of_this_array_alone() {
    let text = text(System::Linux, MACHINE);
    let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("ACTION")).collect();
    assert_eq!(rules.len(), 5);
    assert!(rules.iter().all(|rule| rule.contains("ATTRS{vendor}==\"BLOCKYRD\", ATTRS{model}==\"Volume*\"")));
    assert!(text.contains("ATTR{queue/max_sectors_kb}=\"1024\""), "{text}");
}

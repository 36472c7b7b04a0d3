//! Tests with shortened `smartctl` output of disks of each kind.

use super::*;
use crate::tests::Array;
use model::Timestamp;
use std::os::unix::fs::PermissionsExt;

const ATA: &str = r#"{"smartctl":{"exit_status":0},"smart_status":{"passed":true},"temperature":{"current":38},
  "power_on_time":{"hours":41234},"ata_smart_attributes":{"revision":16,"table":[
  {"id":5,"name":"Reallocated_Sector_Ct","value":100,"raw":{"value":8,"string":"8"}},
  {"id":197,"name":"Current_Pending_Sector","value":100,"raw":{"value":2,"string":"2"}},
  {"id":198,"name":"Offline_Uncorrectable","value":100,"raw":{"value":0,"string":"0"}},
  {"id":199,"name":"UDMA_CRC_Error_Count","value":200,"raw":{"value":17,"string":"17"}}]}}"#;
const NVME: &str = r#"{"smart_status":{"passed":true,"nvme":{"value":0}},"temperature":{"current":41},
  "nvme_smart_health_information_log":{"available_spare":9,"available_spare_threshold":10,"percentage_used":91,"media_errors":0},
  "power_on_time":{"hours":9000}}"#;
const SAS: &str = r#"{"smart_status":{"passed":false},"temperature":{"current":29,"drive_trip":65},"scsi_grown_defect_list":3,
  "scsi_error_counter_log":{"read":{"total_uncorrected_errors":4},"write":{"total_uncorrected_errors":1}}}"#;
const ASLEEP: &str = r#"{"smartctl":{"exit_status":2,"messages":[{"string":"Device is in STANDBY mode, exit(2)","severity":"information"}]}}"#;

fn told(json: &str) -> DiskHealth {
    smart::parse(json.as_bytes(), Timestamp::from_unix(1)).expect("an answer of smartctl")
}

#[test]
fn health_is_read_of_ata_nvme_and_sas_disks() {
    let ata = told(ATA);
    assert_eq!((ata.temperature, ata.power_on_hours, ata.link_errors), (Some(38), Some(41234), Some(17)));
    assert_eq!(ata.complaints(), ["2 pending (unreadable) sectors", "8 reallocated sectors"]);
    assert!(ata.is_failing());
    let nvme = told(NVME);
    assert_eq!(nvme.complaints(), ["91 % of rated life used", "9 % of spare flash left"]);
    assert!(!nvme.is_failing());
    let sas = told(SAS);
    assert_eq!(sas.complaints(), ["SMART self-assessment failed", "5 uncorrected errors", "3 reallocated sectors"]);
    assert!(sas.is_failing());
    assert!(told("{}").complaints().is_empty(), "who says nothing is not accused");
    assert!(smart::parse(b"Segmentation fault", Timestamp::from_unix(1)).is_err());
    assert!(smart::is_asleep(ASLEEP.as_bytes()));
    assert_eq!(smart::why(b"{}"), "smartctl could not read it");
}

#[test]
fn value_of_the_wrong_type_makes_only_that_value_unknown() {
    let odd = told(
        r#"{"smart_status":{"passed":false},"temperature":{"current":38.5},"power_on_time":"long","endurance_used":[],
        "ata_smart_attributes":{"table":[7,{"id":"five","raw":{"value":1}},{"id":5,"raw":{"value":-3}},{"id":197,"raw":{"value":2}}]}}"#,
    );
    assert!(odd.is_failing());
    assert_eq!((odd.passed, odd.temperature, odd.power_on_hours), (Some(false), None, None));
    assert_eq!((odd.reallocated_sectors, odd.pending_sectors), (None, Some(2)));
    assert!(smart::parse(b"[]", Timestamp::from_unix(1)).is_err());
    let deep = [r#"{"a":"#.repeat(100_000), "1".to_owned()].concat();
    assert!(smart::parse(deep.as_bytes(), Timestamp::from_unix(1)).is_err());
}

#[tokio::test]
async fn program_that_talks_without_end_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("smartctl");
    let pid = dir.path().join("pid");
    fs::write(&path, format!("#!/bin/sh\necho $$ > {}\nexec cat /dev/zero\n", pid.display())).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("is made a program");
    let refusal = ask(&path, Path::new("/dev/sdz")).await.expect_err("it says too much");
    assert!(refusal.message.contains("exceeds 1048576 bytes"), "{refusal}");
    let process = PathBuf::from("/proc").join(fs::read_to_string(&pid).expect("it ran").trim());
    let begun = std::time::Instant::now();
    while fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(10), "it runs on");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Installs a program that prints `json` and exits with `status`.
fn program(folder: &Path, json: &str, status: u8) -> PathBuf {
    let path = folder.join("smartctl");
    fs::write(&path, format!("#!/bin/sh\ncat <<'EOF'\n{json}\nEOF\nexit {status}\n")).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("is made a program");
    path
}

#[tokio::test]
async fn disk_is_asked_and_one_that_sleeps_is_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let device = Path::new("/dev/sdz");
    // Status bits above the lowest two report on the disk, not on the call.
    let health = ask(&program(dir.path(), ATA, 0x40), device).await.expect("an answer").expect("awake");
    assert_eq!(health.pending_sectors, Some(2));
    assert_eq!(ask(&program(dir.path(), ASLEEP, 2), device).await, Ok(None));
    let refusal = ask(&program(dir.path(), "nothing", 2), device).await.expect_err("it could not be opened");
    assert!(refusal.message.contains("could not read"), "{refusal}");
    assert_eq!(ask(Path::new("/nowhere/smartctl"), device).await, Ok(None), "without the program nothing is known");
}

#[tokio::test]
async fn what_is_worse_than_before_is_one_event() {
    let array = Array::new().await;
    array.add_disks(&["d0"]).await;
    let name: DiskName = "d0".parse().expect("a name");
    let events = async || {
        let events = array.control.reconciler.events(crate::EventFilter::default()).await;
        let of_disk = events.into_iter().filter(|event| [event::DISK_FAILING, event::DISK_WEARS].contains(&event.code));
        of_disk.map(|event| event.message).collect::<Vec<_>>()
    };
    array.control.health.poll(Path::new("/bin/false")).await;
    assert_eq!(array.control.health.of(&name), None, "a file is not asked");
    array.control.health.note(name.clone(), told(NVME));
    array.control.health.note(name.clone(), told(NVME));
    assert_eq!(events().await.len(), 1);
    array.control.health.note(name.clone(), told(ATA));
    let last = "disk d0: 2 pending (unreadable) sectors, 8 reallocated sectors; replace it before it fails";
    assert_eq!(events().await.last().map(String::as_str), Some(last));
    let report = array.control.disks.report(&name).await.expect("a disk");
    assert_eq!(report.health.and_then(|health| health.temperature), Some(38));
    let status = array.control.status.report().await.expect("a status");
    assert!(
        status.problems.iter().any(|problem| problem.subject == "disk d0" && problem.state == "failing"),
        "{status:?}"
    );
}

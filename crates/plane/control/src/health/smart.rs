//! What `smartctl --json --all` says. *Source*: smartmontools, smartctl(8); ATA SMART attributes 5, 197, 198, 199;
//! NVMe base specification, SMART / Health Information.

use model::{DiskHealth, Timestamp};
use serde::Deserialize;

#[derive(Deserialize)]
struct Told {
    smart_status: Option<Status>,
    temperature: Option<Temperature>,
    power_on_time: Option<PowerOn>,
    ata_smart_attributes: Option<Attributes>,
    nvme_smart_health_information_log: Option<Nvme>,
    scsi_grown_defect_list: Option<u64>,
    scsi_error_counter_log: Option<ScsiErrors>,
    scsi_percentage_used_endurance_indicator: Option<u64>,
    endurance_used: Option<Endurance>,
}

#[derive(Deserialize)]
struct Status {
    passed: Option<bool>,
}

#[derive(Deserialize)]
struct Temperature {
    current: Option<i64>,
}

#[derive(Deserialize)]
struct PowerOn {
    hours: Option<u64>,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(default)]
    table: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    id: u16,
    raw: Raw,
}

#[derive(Deserialize)]
struct Raw {
    value: u64,
}

#[derive(Deserialize)]
struct Nvme {
    media_errors: Option<u64>,
    percentage_used: Option<u64>,
    available_spare: Option<u64>,
}

#[derive(Deserialize)]
struct ScsiErrors {
    read: Option<ScsiCount>,
    write: Option<ScsiCount>,
}

#[derive(Deserialize)]
struct ScsiCount {
    total_uncorrected_errors: Option<u64>,
}

#[derive(Deserialize)]
struct Endurance {
    current_percent: Option<u64>,
}

/// What was told at `time`.
///
/// *Errors*: it is not what `smartctl` says.
pub fn parse(json: &[u8], time: Timestamp) -> Result<DiskHealth, String> {
    let told: Told =
        serde_json::from_slice(json).map_err(|error| format!("smartctl said what it should not: {error}"))?;
    let table = told.ata_smart_attributes.map(|attributes| attributes.table).unwrap_or_default();
    let attribute = |id| table.iter().find(|attribute| attribute.id == id).map(|attribute| attribute.raw.value);
    let (nvme, scsi) = (told.nvme_smart_health_information_log, told.scsi_error_counter_log);
    let uncorrected = scsi.map(|errors| {
        let counts = [errors.read, errors.write].into_iter().flatten();
        counts.filter_map(|count| count.total_uncorrected_errors).sum()
    });
    let percent_used = nvme.as_ref().and_then(|nvme| nvme.percentage_used);
    Ok(DiskHealth {
        time,
        passed: told.smart_status.and_then(|status| status.passed),
        temperature: told.temperature.and_then(|temperature| temperature.current),
        power_on_hours: told.power_on_time.and_then(|time| time.hours),
        reallocated_sectors: attribute(5).or(told.scsi_grown_defect_list),
        pending_sectors: attribute(197),
        uncorrected_errors: nvme.as_ref().and_then(|nvme| nvme.media_errors).or(uncorrected).or(attribute(198)),
        percent_used: percent_used
            .or(told.scsi_percentage_used_endurance_indicator)
            .or(told.endurance_used.and_then(|used| used.current_percent)),
        spare_percent: nvme.as_ref().and_then(|nvme| nvme.available_spare),
        link_errors: attribute(199),
    })
}

#[derive(Deserialize)]
struct Failed {
    smartctl: Program,
}

#[derive(Deserialize)]
struct Program {
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    string: String,
}

fn messages(json: &[u8]) -> Vec<String> {
    let failed: Option<Failed> = serde_json::from_slice(json).ok();
    failed.map_or_else(Vec::new, |failed| failed.smartctl.messages.into_iter().map(|message| message.string).collect())
}

/// Why the disk was not asked.
pub fn why(json: &[u8]) -> String {
    let messages = messages(json);
    if messages.is_empty() { "smartctl could not ask it".to_owned() } else { messages.join("; ") }
}

/// True when it was not asked because it sleeps.
pub fn is_asleep(json: &[u8]) -> bool {
    messages(json).iter().any(|message| message.contains("STANDBY") || message.contains("SLEEP"))
}

//! Parser of the output of `smartctl --json --all`. *Source*: smartmontools, smartctl(8); ATA SMART attributes
//! 5, 197, 198, 199; `NVMe` base specification, SMART / Health Information.

use model::{DiskHealth, Timestamp};
use serde_json::Value;

/// Parses the output read at `time`. A value of an unexpected type is unknown, and the others still count: a
/// disk that reports failure is heard, whatever stands beside it.
///
/// *Errors*: it is not output of `smartctl`.
pub(crate) fn parse(json: &[u8], time: Timestamp) -> Result<DiskHealth, String> {
    let told: Value = serde_json::from_slice(json)
        .map_err(|error| format!("unexpected smartctl output: {}", bounded::excerpt(&error.to_string())))?;
    if !told.is_object() {
        return Err("unexpected smartctl output: no object".to_owned());
    }
    let at = |pointer: &str| told.pointer(pointer);
    let number = |pointer: &str| at(pointer).and_then(Value::as_u64);
    let attribute = |id| attribute(at("/ata_smart_attributes/table")?, id);
    // SCSI disks count read and write errors separately.
    let uncorrected = ["read", "write"]
        .iter()
        .filter_map(|direction| number(&format!("/scsi_error_counter_log/{direction}/total_uncorrected_errors")))
        .reduce(u64::saturating_add);
    Ok(DiskHealth {
        time,
        passed: at("/smart_status/passed").and_then(Value::as_bool),
        temperature: at("/temperature/current").and_then(Value::as_i64),
        power_on_hours: number("/power_on_time/hours"),
        // Each quantity is looked up as ATA, `NVMe` and SCSI devices report it; at most one of them is present.
        reallocated_sectors: attribute(5).or(number("/scsi_grown_defect_list")),
        pending_sectors: attribute(197),
        uncorrected_errors: number("/nvme_smart_health_information_log/media_errors")
            .or(uncorrected)
            .or(attribute(198)),
        percent_used: number("/nvme_smart_health_information_log/percentage_used")
            .or(number("/scsi_percentage_used_endurance_indicator"))
            .or(number("/endurance_used/current_percent")),
        spare_percent: number("/nvme_smart_health_information_log/available_spare"),
        link_errors: attribute(199),
    })
}

/// Returns the raw value of an ATA attribute.
fn attribute(table: &Value, id: u64) -> Option<u64> {
    let has_id = |attribute: &&Value| attribute.get("id").and_then(Value::as_u64) == Some(id);
    table.as_array()?.iter().find(has_id)?.pointer("/raw/value")?.as_u64()
}

fn messages(json: &[u8]) -> Vec<String> {
    let told: Value = serde_json::from_slice(json).unwrap_or_default();
    let messages = told.pointer("/smartctl/messages").and_then(Value::as_array);
    let text = |message: &Value| message.get("string").and_then(Value::as_str).map(bounded::excerpt);
    messages.into_iter().flatten().filter_map(text).collect()
}

/// Returns the reason why the disk could not be read.
pub(crate) fn why(json: &[u8]) -> String {
    let messages = messages(json);
    if messages.is_empty() { "smartctl could not read it".to_owned() } else { messages.join("; ") }
}

/// Returns true if the disk was not read because it is in standby.
pub(crate) fn is_asleep(json: &[u8]) -> bool {
    messages(json).iter().any(|message| message.contains("STANDBY") || message.contains("SLEEP"))
}

//! Catalogue of events. A number is never reused for another meaning.

use super::EventSeverity;
use crate::number::unsigned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Number of an event type, shown as `BY-E101`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^BY-E[0-9]{3}$"))]
pub struct EventCode(u16);

/// Entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct EventEntry {
    /// Number of the event type.
    pub code: EventCode,
    /// Severity.
    pub severity: EventSeverity,
    /// General meaning, as one sentence.
    pub title: &'static str,
}

macro_rules! catalogue {
    ($($number:literal $name:ident $severity:ident $title:literal;)*) => {
        $(#[doc = $title] pub const $name: EventCode = EventCode($number);)*

        /// All event types of Blockyard.
        pub const CATALOGUE: &[EventEntry] =
            &[$(EventEntry { code: $name, severity: EventSeverity::$severity, title: $title }),*];
    };
}

catalogue! {
    // The hundreds group the codes: 1 disks, 2 repairs, logs and copies, 3 pools and volumes, 4 hosts and portals, 5
    // console and receivers, 9 the node.
    101 DISK_FAILED        Warning  "Disk failed and was removed from its pool.";
    102 DISK_MISSING       Warning  "Disk missing: a pool member was not found.";
    103 DISK_OUT           Info     "Disk removed from its pool by an operator.";
    104 DISK_RETURNED      Info     "Disk available again and back in its pool.";
    105 DISK_LEFT_OUT      Warning  "Disk outdated: its content does not match the latest commit of its pool, so it is not used.";
    106 DISK_WEARS         Warning  "Disk wearing out, or with reallocated sectors (SMART).";
    107 DISK_FAILING       Critical "Disk failing (SMART), or unable to read its content.";
    108 FILE_SYSTEM_FULL   Warning  "File system full: it holds files that are disks or volumes.";
    109 FILE_SYSTEM_ROOM   Info     "File system has free space again.";
    110 DISK_STALLED       Critical "Disk not responding; host commands may wait for it.";
    111 SPARE_TOOK_OVER    Info     "Hot spare took the place of a lost member.";
    112 SPARE_NONE         Warning  "Hot spare missing: a member is lost and no spare fits.";
    113 SPARE_REFUSED      Warning  "Hot spare could not take the place of a lost member.";
    114 DISK_ANSWERS       Info     "Disk responding again.";
    115 PATH_LOST          Warning  "Path to a remote disk lost.";
    116 PATH_RESTORED      Info     "Path to a remote disk available again.";
    117 PATH_FENCED        Info     "Path fenced: writes of a lost path were ended before the retry.";
    118 REMOTE_DISK_UNREACHABLE Warning "Remote disk unreachable: no path is available; its pool continues without it.";
    119 DISK_BEHIND        Warning  "Disk not responding; its pool continues without it until it responds again.";
    120 DISK_SLOW          Warning  "Disk slow: many times slower than the other disks of its group.";
    121 DISK_FAST_AGAIN    Info     "Disk no longer slow.";
    122 DISK_ERRS          Warning  "Disk error rate above the policy of its pool.";
    123 DISK_USELESS       Warning  "Disk removed from its pool: too many failed reads.";
    124 MEMBER_COPY_BEGAN  Info     "Copy of a failing member to a hot spare started.";
    125 MEMBER_COPIED      Warning  "Member copied to another disk and no longer used.";
    126 MEMBER_COPY_FAILED Warning  "Copy of a member to a hot spare failed; the member keeps its place.";
    127 SPARE_WAITS        Info     "Hot spare about to take the place of a lost member, unless it returns.";

    201 REBUILD_BEGAN      Info     "Rebuild started.";
    202 REBUILD_ENDED      Info     "Rebuild finished.";
    203 REBUILD_STOPPED    Critical "Rebuild failed.";
    204 REBUILD_LATE       Warning  "Rebuild will miss its deadline.";
    211 RESYNC_BEGAN       Info     "Resync started after a crash: redundancy is compared with the data.";
    212 RESYNC_ENDED       Info     "Resync finished: redundancy matches the data.";
    213 RESYNC_STOPPED     Critical "Resync failed.";
    221 SCRUB_BEGAN        Info     "Scrub started.";
    222 SCRUB_ENDED        Info     "Scrub finished without errors.";
    223 SCRUB_HEALED       Warning  "Scrub repaired errors.";
    224 SCRUB_FOUND        Critical "Scrub found errors that it could not repair.";
    225 SCRUB_STOPPED      Info     "Scrub stopped before it finished.";
    226 SCRUB_RESUMED      Info     "Scrub resumed after a restart or an import.";
    227 SCRUB_OVERDUE      Warning  "Scrub overdue: none has finished for twice the interval.";
    231 BLOCKS_HEALED      Warning  "Blocks repaired: their content did not match their checksum.";
    232 BLOCKS_LOST        Critical "Data lost: blocks could not be reconstructed. Reads return a medium error until the blocks are rewritten.";
    233 METADATA_REPAIRED  Warning  "Metadata of a pool disk damaged and repaired.";
    234 REDO_LOG_DAMAGED   Critical "Redo log damaged: blocks may be older than the last acknowledged write.";
    235 UNFLUSHED_LOST     Critical "Unflushed writes lost with the disks of the pool.";
    236 BLOCKS_RECOVERED   Info     "No lost blocks remain: they were rewritten, can be read again, or belong to no volume.";
    241 LOG_ADDED          Info     "Log device added to a pool.";
    242 LOG_REMOVED        Info     "Log device removed from a pool.";
    243 LOG_FAILED         Critical "Log device failed; the volumes of the pool are write-through now.";
    244 LOG_SETTLED        Info     "Log destaged: all data of a failed log device is on the disks.";
    245 LOG_REPLAYED       Info     "Log replayed: volumes have the writes that the log held when the daemon ended.";
    246 LOG_LOST           Critical "Log unreadable: volumes with data in it are offline.";
    247 VOLUME_HELD        Critical "Volume offline: its last acknowledged writes are not on its disks.";
    248 LOG_GIVEN_UP       Warning  "Log data discarded by an operator.";
    249 LOG_RETURNED       Info     "Log device available again.";
    250 RESHAPE_BEGAN      Info     "Reshape started.";
    251 RESHAPE_ENDED      Info     "Reshape finished.";
    252 RESHAPE_STOPPED    Critical "Reshape failed.";
    253 RESHAPE_LATE       Warning  "Reshape will miss its deadline.";
    254 MEMBER_REFUSED     Warning  "Disk could not be added to a group.";
    260 COPY_BEGAN         Info     "Volume copy started.";
    261 COPY_ENDED         Info     "Volume copy finished.";
    262 COPY_FAILED        Warning  "Volume copy failed.";
    263 COPY_CANCELLED     Info     "Volume copy cancelled.";
    264 COPY_CLEARED       Info     "Volume copy cleaned up after an interruption.";

    301 POOL_WHOLE         Info     "Pool healthy.";
    302 POOL_DEGRADED      Warning  "Pool degraded.";
    303 POOL_FAILED        Critical "Pool failed.";
    304 POOL_FILLING       Warning  "Pool nearly full.";
    305 POOL_FULL          Critical "Pool full.";
    306 POOL_OPENED        Info     "Pool opened.";
    307 POOL_UNOPENED      Critical "Pool could not be opened.";
    308 POOL_EXPORTED      Info     "Pool exported.";
    309 POOL_UNCLEAN       Warning  "Pool not closed cleanly; a consistency check runs when it is opened.";
    321 POOL_RELIEVED      Info     "Pool has free space again.";
    322 WRITE_REFUSED      Critical "Write refused: the pool has no free space.";
    323 POOL_GREW          Info     "Pool expanded.";
    331 POOL_TAKEN_OVER    Warning  "Pool forcibly imported (previous owner did not export).";
    332 POOL_FENCED        Critical "Pool fenced: another node has taken it over.";
    333 IMPORT_REFUSED     Warning  "Pool import refused: another node owns the pool, or may own it.";
    334 OVERWRITE_REFUSED  Warning  "Disk overwrite refused: another node uses the disk.";
    335 MEMBERSHIP_UNKEPT  Critical "Pool membership not stored in the node state.";
    339 POOL_READ_ONLY     Warning  "Pool opened read-only.";
    341 POLICY_DROPPED     Warning  "Volume policy not applied.";
    342 MEMORY_WRONG       Critical "Memory corruption detected: cached content changed.";

    401 LOGIN_REFUSED      Warning  "Login denied.";
    402 PORTAL_UNUSABLE    Critical "Portal could not be opened.";
    403 GUESSING           Warning  "Repeated failed authentication, possibly a guessed secret.";
    404 PORTAL_LINK_DOWN   Warning  "Portal unreachable: its link is down or its address was removed.";
    405 PORTAL_LINK_UP     Info     "Portal link available again.";
    406 PATH_MTU           Warning  "Path MTU below the MTU of the portal interface.";
    407 ISNS_REGISTERED    Info     "iSNS registration succeeded.";
    408 ISNS_FAILED        Warning  "iSNS registration failed.";
    409 PORTAL_OPENED      Info     "Portal opened after a failure.";
    411 RESERVED           Info     "Reservation conflict: another host has reserved the volume.";
    412 RESERVATIONS_CLEARED Warning "Reservations cleared by an operator.";
    413 SANITIZE_BEGAN     Warning  "Sanitize started by a host, or resumed after a restart.";
    414 SANITIZE_ENDED     Info     "Sanitize finished.";
    415 SANITIZE_FAILED    Critical "Sanitize failed.";
    416 SANITIZE_REFUSED   Warning  "Sanitize refused: snapshots would keep the content.";
    417 KEY_LEFT_BEHIND    Warning  "Erased key may remain on disks that were missing.";
    418 LUN_HIDDEN         Info     "Access to an unmapped LUN.";
    419 HOST_CUT_OFF       Warning  "Session closed: timeout or protocol error by the initiator.";
    425 LUN_REPLACED       Warning  "LUN reassigned to another volume.";
    426 TARGET_NAME_TAKEN  Critical "Target name conflict: another array has registered it with the iSNS server.";
    427 TARGET_NAME_FREE   Info     "Target name conflict resolved.";

    501 WEB_UNUSABLE       Warning  "Console unavailable at an address.";
    502 CERTIFICATE_ENDS   Warning  "Certificate of the console expires soon.";
    503 LOGINS_FAIL        Warning  "Repeated failed logins to the console, possibly a guessed password.";
    504 AUDIT_UNWRITABLE   Critical "Audit log not writable; changes are refused until it is.";
    505 RECEIVER_AWAY      Warning  "Alert receiver or audit target unreachable; deliveries are retried.";
    506 RECEIVER_BACK      Info     "Alert receiver or audit target reachable again.";
    507 WEB_OPENED         Info     "Console available again at an address.";
    508 CERTIFICATE_WRONG  Warning  "Certificate or key of the console unusable.";
    509 CERTIFICATE_RIGHT  Info     "Certificate and key of the console usable again.";
    511 AUDIT_DAMAGED      Critical "Audit records damaged or missing.";
    512 AUDIT_READABLE     Info     "Audit log available again; changes are accepted.";

    901 NODE_STARTED       Info     "Daemon started.";
    902 EVENTS_LOST        Warning  "Events lost: too many to store.";
    903 CLOCK_STEPPED      Warning  "System clock changed; snapshot locks and schedules depend on it.";
    904 CONFIG_APPLIED     Info     "Configuration applied or restored.";
    905 CONFIG_TAKEN_BACK  Warning  "Configuration rolled back: an expected initiator did not return or lost a volume.";
    911 MEMORY_SHORT       Warning  "Memory low; the read cache was reduced.";
    912 MEMORY_ENOUGH      Info     "Memory sufficient again; the read cache has its full size.";
    913 MEMORY_REDUCED     Warning  "Configured memory exceeds the memory limit; less is used.";
    914 ACKNOWLEDGED       Info     "Alert acknowledged by an operator.";
    915 DESCRIPTORS_SHORT  Critical "File descriptors exhausted; new connections of hosts and browsers are refused.";
    916 DESCRIPTORS_ENOUGH Info     "File descriptors available again; new connections are accepted.";
    921 STATE_OLDER        Critical "State damaged: an older version is active, and changes are refused until it is accepted.";
    922 STATE_ACCEPTED     Warning  "Older version of the state accepted by an operator.";
    923 STATE_REPLACED     Critical "State folder deleted, moved or replaced while the daemon runs; changes are refused.";
    924 STATE_COPY_DAMAGED Warning  "File of the state folder damaged; nothing depends on it.";
}

crate::code::ascending!(CATALOGUE);

impl EventCode {
    /// Returns the severity. A number that this version does not know counts as a warning.
    #[must_use]
    pub fn severity(self) -> EventSeverity {
        // Unknown codes occur after a downgrade: such an event is not hidden, and it is no outage either.
        CATALOGUE.iter().find(|entry| entry.code == self).map_or(EventSeverity::Warning, |entry| entry.severity)
    }
}

impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` honors the column width of tables, which `write!` alone would ignore.
        f.pad(&format!("BY-E{:03}", self.0))
    }
}

/// Error: the text is not `BY-E` and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event code; write BY-E and three digits, such as BY-E101")]
pub struct NotAnEventCode;

impl FromStr for EventCode {
    type Err = NotAnEventCode;
    fn from_str(text: &str) -> Result<Self, NotAnEventCode> {
        text.strip_prefix("BY-E").and_then(unsigned).map(Self).ok_or(NotAnEventCode)
    }
}

impl TryFrom<String> for EventCode {
    type Error = NotAnEventCode;
    fn try_from(text: String) -> Result<Self, NotAnEventCode> {
        text.parse()
    }
}

impl From<EventCode> for String {
    fn from(code: EventCode) -> Self {
        code.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_code_round_trips_through_text() {
        for entry in CATALOGUE {
            assert_eq!(entry.code.to_string().parse(), Ok(entry.code));
            assert_eq!(entry.code.severity(), entry.severity);
        }
        for text in ["BY-1234", "BY-E+10"] {
            assert_eq!(text.parse::<EventCode>(), Err(NotAnEventCode));
        }
        assert_eq!(EventCode(999).severity(), EventSeverity::Warning);
    }
}

//! Catalogue of events. A number is never reused for another meaning.

use super::EventSeverity;
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
    101 DISK_FAILED        Warning  "A member of a pool has failed and is not used any more.";
    102 DISK_MISSING       Warning  "A member of a pool was not found.";
    103 DISK_OUT           Info     "A member was taken out of its pool by an operator.";
    104 DISK_RETURNED      Info     "A member that was away is back in its place.";
    105 DISK_LEFT_OUT      Warning  "What a member holds is not what its pool has written last; it is not used.";
    106 DISK_WEARS         Warning  "A disk says that it wears out or has replaced sectors.";
    107 DISK_FAILING       Critical "A disk says that it fails, or cannot read what it holds.";
    108 FILE_SYSTEM_FULL   Warning  "A file system that disks or volumes are files on has no room left.";
    109 FILE_SYSTEM_ROOM   Info     "A file system that disks or volumes are files on has room again.";
    110 DISK_STALLED       Critical "A disk does not answer; commands of hosts may wait for it.";
    111 SPARE_TOOK_OVER    Info     "A spare has taken the place of a lost member.";
    112 SPARE_NONE         Warning  "A member is lost, and no spare fits.";
    113 SPARE_REFUSED      Warning  "A spare could not take the place of a lost member.";
    114 DISK_ANSWERS       Info     "A disk that did not answer does so again.";
    115 PATH_LOST          Warning  "A path to a remote disk was lost.";
    116 PATH_RESTORED      Info     "A path to a remote disk is available again.";
    117 PATH_FENCED        Info     "Writes of a lost path were ended before they were sent again.";
    118 REMOTE_DISK_UNREACHABLE Warning "No path to a remote disk is available; its pool goes on without it.";
    119 DISK_BEHIND        Warning  "A disk does not answer; its pool goes on without it until it does.";
    120 DISK_SLOW          Warning  "A disk is many times slower than the others of its group.";
    121 DISK_FAST_AGAIN    Info     "A disk that was slow is as fast as the others of its group again.";
    122 DISK_ERRS          Warning  "A disk fails reads more often than its pool's policy allows.";
    123 DISK_USELESS       Warning  "A disk failed too many of its reads and was taken out of its pool.";
    124 MEMBER_COPY_BEGAN  Info     "A member is being copied to a spare, which then takes its place.";
    125 MEMBER_COPIED      Warning  "A member was copied to another disk and is not used any more.";
    126 MEMBER_COPY_FAILED Warning  "A member could not be copied to a spare; it stays in its place.";
    127 SPARE_WAITS        Info     "A spare takes the place of a lost member soon, unless that returns.";

    201 REBUILD_BEGAN      Info     "A member is being filled.";
    202 REBUILD_ENDED      Info     "A member is filled and in service.";
    203 REBUILD_STOPPED    Critical "A member could not be filled.";
    204 REBUILD_LATE       Warning  "A rebuild will not end in the time that was promised.";
    211 RESYNC_BEGAN       Info     "After a crash, redundancy is compared with the data.";
    212 RESYNC_ENDED       Info     "Redundancy agrees with the data again.";
    213 RESYNC_STOPPED     Critical "Redundancy could not be compared with the data.";
    221 SCRUB_BEGAN        Info     "A scrub reads everything.";
    222 SCRUB_ENDED        Info     "A scrub has read everything, and all was right.";
    223 SCRUB_HEALED       Warning  "A scrub has found what was wrong and put it right.";
    224 SCRUB_FOUND        Critical "A scrub has found what it could not put right.";
    225 SCRUB_STOPPED      Info     "A scrub was stopped before its end.";
    226 SCRUB_RESUMED      Info     "Scrub resumed after a restart or an import.";
    227 SCRUB_OVERDUE      Warning  "Scrub overdue: none has finished for twice the interval.";
    231 BLOCKS_HEALED      Warning  "Blocks of a disk were not as they had been written, and were put right.";
    232 BLOCKS_LOST        Critical "Data lost: blocks could not be reconstructed. Reads return a medium error until the blocks are rewritten.";
    233 METADATA_REPAIRED  Warning  "Metadata on a disk of a pool was damaged, and was written again.";
    234 REDO_LOG_DAMAGED   Critical "Part of a group's redo log was lost: blocks may be older than what was acknowledged.";
    235 UNFLUSHED_LOST     Critical "Writes that a volume acknowledged from memory, and that no host had flushed, are lost with the disks of its pool.";
    236 BLOCKS_RECOVERED   Info     "No lost blocks remain: they were rewritten, can be read again, or belong to no volume.";
    241 LOG_ADDED          Info     "A pool has a log device.";
    242 LOG_REMOVED        Info     "A pool has no log device any more.";
    243 LOG_FAILED         Critical "The log device of a pool has failed; its volumes are written through since.";
    244 LOG_SETTLED        Info     "Everything that a failed log held is on the disks.";
    245 LOG_REPLAYED       Info     "Volumes have got what the log held for them when the daemon ended.";
    246 LOG_LOST           Critical "The log of a pool cannot be read; volumes that have something in it do not serve.";
    247 VOLUME_HELD        Critical "A volume does not serve, because what it acknowledged last is not on its disks.";
    248 LOG_GIVEN_UP       Warning  "An operator has given up what volumes had in a lost log.";
    249 LOG_RETURNED       Info     "A log that its pool was opened without is back.";
    250 RESHAPE_BEGAN      Info     "A group is being laid out over one member more.";
    251 RESHAPE_ENDED      Info     "A group is laid out over all of its members.";
    252 RESHAPE_STOPPED    Critical "A group could not be laid out over all of its members.";
    253 RESHAPE_LATE       Warning  "A reshape will not end in the time that was promised.";
    254 MEMBER_REFUSED     Warning  "A disk could not become one more member of a group.";
    260 COPY_BEGAN         Info     "A volume is being copied.";
    261 COPY_ENDED         Info     "A copy of a volume is whole.";
    262 COPY_FAILED        Warning  "A volume could not be copied.";
    263 COPY_CANCELLED     Info     "The copy of a volume was ended before its end.";
    264 COPY_CLEARED       Info     "What a copy had left that was cut short is gone.";

    301 POOL_WHOLE         Info     "All members of a pool are in step.";
    302 POOL_DEGRADED      Warning  "A pool has less protection than it should have.";
    303 POOL_FAILED        Critical "A pool does not serve.";
    304 POOL_FILLING       Warning  "A pool is nearly full.";
    305 POOL_FULL          Critical "A pool is full, or as good as full.";
    306 POOL_OPENED        Info     "A pool was opened.";
    307 POOL_UNOPENED      Critical "A pool could not be opened.";
    308 POOL_EXPORTED      Info     "A pool was closed, for another machine to open it.";
    309 POOL_UNCLEAN       Warning  "A pool was closed, and what its disks hold is looked through when it is opened.";
    321 POOL_RELIEVED      Info     "A pool has room again.";
    322 WRITE_REFUSED      Critical "A write was refused, because its pool has no space left.";
    323 POOL_GREW          Info     "A pool has more space.";
    331 POOL_TAKEN_OVER    Warning  "A pool was taken over from a node that did not let go of it.";
    332 POOL_FENCED        Critical "Another node has taken a pool over; this one has stopped using it.";
    333 IMPORT_REFUSED     Warning  "A pool was not opened because another node has it, or may have it.";
    334 OVERWRITE_REFUSED  Warning  "Disks were not overwritten because another node uses them.";
    335 MEMBERSHIP_UNKEPT  Critical "The state of the node did not take which disks of a pool are current.";
    339 POOL_READ_ONLY     Warning  "Pool opened read-only.";
    341 POLICY_DROPPED     Warning  "A volume could not have the policy that was set for it.";
    342 MEMORY_WRONG       Critical "Memory did not hold what was put there.";

    401 LOGIN_REFUSED      Warning  "An initiator was not let in.";
    402 PORTAL_UNUSABLE    Critical "A portal could not be opened.";
    403 GUESSING           Warning  "Somebody fails to prove itself again and again, and may guess a secret.";
    404 PORTAL_LINK_DOWN   Warning  "Hosts cannot reach a portal, because its link is down or its address is gone.";
    405 PORTAL_LINK_UP     Info     "The link of a portal is back.";
    406 PATH_MTU           Warning  "The way to a host takes smaller packets than a portal's interface sends.";
    407 ISNS_REGISTERED    Info     "Targets are registered with an iSNS server.";
    408 ISNS_FAILED        Warning  "Targets cannot be registered with an iSNS server.";
    409 PORTAL_OPENED      Info     "A portal that could not be opened listens now.";
    411 RESERVED           Info     "A host was refused because another has reserved the volume.";
    412 RESERVATIONS_CLEARED Warning "An operator has taken back what hosts had reserved.";
    413 SANITIZE_BEGAN     Warning  "A volume is being sanitized by order of a host, or that goes on after a restart.";
    414 SANITIZE_ENDED     Info     "A volume is sanitized.";
    415 SANITIZE_FAILED    Critical "A volume could not be sanitized.";
    416 SANITIZE_REFUSED   Warning  "A host may not sanitize a volume, for snapshots would keep what it held.";
    417 KEY_LEFT_BEHIND    Warning  "Disks that were not there may hold the wrapped key of a volume that was erased by it.";
    418 LUN_HIDDEN         Info     "A host asked for a logical unit that it does not see.";
    419 HOST_CUT_OFF       Warning  "A host was cut off, because it did not answer or broke the protocol.";
    425 LUN_REPLACED       Warning  "A LUN was given to another volume than a host knew under it.";
    426 TARGET_NAME_TAKEN  Critical "Another array has registered a target name of this one with the iSNS server.";
    427 TARGET_NAME_FREE   Info     "No other array has registered a target name of this one any more.";

    501 WEB_UNUSABLE       Warning  "The console cannot be served at an address.";
    502 CERTIFICATE_ENDS   Warning  "The certificate of the console ends soon.";
    503 LOGINS_FAIL        Warning  "Logins to the console fail again and again; somebody may guess a password.";
    504 AUDIT_UNWRITABLE   Critical "What was changed could not be written down in the audit; changes are refused until it can.";
    505 RECEIVER_AWAY      Warning  "A receiver of alerts or of the audit cannot be told; it is tried again.";
    506 RECEIVER_BACK      Info     "A receiver of alerts or of the audit is told again.";
    507 WEB_OPENED         Info     "The console is served at an address where it could not be.";
    508 CERTIFICATE_WRONG  Warning  "The certificate of the console or its key cannot be used.";
    509 CERTIFICATE_RIGHT  Info     "The certificate of the console and its key can be used again.";
    511 AUDIT_DAMAGED      Critical "Records of the audit are damaged or missing.";
    512 AUDIT_READABLE     Info     "The audit can be read and written again; changes are taken.";

    901 NODE_STARTED       Info     "The daemon has started.";
    902 EVENTS_LOST        Warning  "More happened than could be written down.";
    903 CLOCK_STEPPED      Warning  "The system's clock was set, and locks and hours go by it.";
    904 CONFIG_APPLIED     Info     "A configuration was applied or restored.";
    905 CONFIG_TAKEN_BACK  Warning  "A configuration was taken back: an initiator that was asked for did not come back, or lost a volume.";
    911 MEMORY_SHORT       Warning  "Memory is short; the read cache has given some back.";
    912 MEMORY_ENOUGH      Info     "Memory is no longer short; the read cache has its size again.";
    913 MEMORY_REDUCED     Warning  "Configured memory does not fit into the memory limit; less is used.";
    914 ACKNOWLEDGED       Info     "An operator has taken note of what nothing else ends.";
    915 DESCRIPTORS_SHORT  Critical "Open files are short; new connections of hosts and browsers are refused.";
    916 DESCRIPTORS_ENOUGH Info     "Open files are no longer short; new connections are accepted.";
    921 STATE_OLDER        Critical "The latest state is damaged and an older version is served; changes are refused until it is accepted.";
    922 STATE_ACCEPTED     Warning  "An operator has accepted an older version of the state.";
    923 STATE_REPLACED     Critical "The state folder was deleted, moved or replaced while the daemon runs; changes are refused.";
    924 STATE_COPY_DAMAGED Warning  "A file of the state folder is damaged; nothing depends on it.";
}

crate::code::ascending!(CATALOGUE);

impl EventCode {
    /// Returns the severity. A number that this version does not know counts as a warning.
    #[must_use]
    pub fn severity(self) -> EventSeverity {
        CATALOGUE.iter().find(|entry| entry.code == self).map_or(EventSeverity::Warning, |entry| entry.severity)
    }
}

impl fmt::Display for EventCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("BY-E{:03}", self.0))
    }
}

/// Error: the text is not `BY-E` and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event's code is written as BY-E101")]
pub struct NotAnEventCode;

impl FromStr for EventCode {
    type Err = NotAnEventCode;
    fn from_str(text: &str) -> Result<Self, NotAnEventCode> {
        text.strip_prefix("BY-E").and_then(|number| number.parse().ok()).map(Self).ok_or(NotAnEventCode)
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
        assert_eq!("BY-1234".parse::<EventCode>(), Err(NotAnEventCode));
        assert_eq!(EventCode(999).severity(), EventSeverity::Warning);
    }
}

//! Catalogue of error codes. A number is never reused for another meaning.

use crate::Kind;
use crate::number::unsigned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Number of an error, shown as `BY-1234`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^BY-[0-9]{4}$"))]
pub struct Code(u16);

/// Entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number of the error.
    pub code: Code,
    /// Category of the error.
    pub kind: Kind,
    /// General meaning, as one sentence.
    pub title: &'static str,
}

macro_rules! catalogue {
    ($($number:literal $name:ident $kind:ident $title:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = Code($number);)*

        /// All errors of Blockyard.
        pub const CATALOGUE: &[Entry] = &[$(Entry { code: $name, kind: Kind::$kind, title: $title }),*];
    };
}

catalogue! {
    // The hundreds group the codes: 10 texts and requests, 11 unknown objects, 12 conflicts, 13 disks, 14 pools, 15
    // volumes, 16 hosts and targets, 17 portals, 18 the daemon and its users, 19 defects.
    1001 SIZE_INVALID          Invalid     "The text is not a size.";
    1002 NAME_INVALID          Invalid     "The text is not a name.";
    1003 IQN_INVALID           Invalid     "The text is not an iSCSI name.";
    1004 LEVEL_INVALID         Invalid     "The text is not a RAID level.";
    1005 SECRET_INVALID        Invalid     "The secret is too short or too long.";
    1006 ADDRESS_INVALID       Invalid     "The text is not an address or a network.";
    1007 REQUEST_INVALID       Invalid     "The request body is malformed.";
    1008 LUN_INVALID           Invalid     "The LUN is out of range.";
    1009 TIME_INVALID          Invalid     "The text is neither a time nor a time span.";
    1010 SETTING_INVALID       Invalid     "The setting is unknown, or its value is invalid.";
    1011 METHOD_UNKNOWN        Invalid     "The path does not support this method.";
    1012 MEDIA_TYPE            Invalid     "The request body is not JSON.";
    1013 REQUEST_TOO_LARGE     Invalid     "The request is too large.";
    1014 KEY_REUSED            Invalid     "The idempotency key cannot be used for this request.";
    1015 WORD_UNKNOWN          Invalid     "The word is not one of the permitted values.";
    1016 IDENTIFIER_INVALID    Invalid     "The text is not a valid identifier.";
    1017 NAMED_TWICE           Invalid     "An object is named more than once.";
    1018 OPTIONS_CONFLICT      Invalid     "The options cannot be combined.";
    1019 VALUE_MISSING         Invalid     "A required value is missing.";
    1020 PATH_INVALID          Invalid     "The path cannot be used.";
    1021 DOCUMENT_INVALID      Invalid     "The text is not a configuration document.";
    1022 DOCUMENT_CONFLICT     Invalid     "The document contradicts a property that it cannot change.";
    1023 PIN_INVALID           Invalid     "The text is not a key fingerprint.";
    1024 HEADER_INVALID        Invalid     "The request header cannot be used.";
    1025 AMBIGUOUS             Invalid     "The name is ambiguous.";
    1026 SUBJECT_INVALID       Invalid     "The text is neither the code of an event nor a subject.";
    1027 NUMBER_INVALID        Invalid     "The number is out of range.";
    1028 QUERY_INVALID         Invalid     "The query string is malformed.";
    1029 ELSEWHERE             Invalid     "The command works only on the machine of the array.";

    1101 DISK_UNKNOWN          NotFound    "No disk has this name.";
    1102 POOL_UNKNOWN          NotFound    "No pool has this name.";
    1103 VOLUME_UNKNOWN        NotFound    "No volume has this name.";
    1104 HOST_UNKNOWN          NotFound    "No host has this name.";
    1105 TARGET_UNKNOWN        NotFound    "No target has this name.";
    1106 PRESENTATION_UNKNOWN  NotFound    "The volume is not presented to this host and target.";
    1107 PORTAL_UNKNOWN        NotFound    "No portal has this address.";
    1108 ROUTE_UNKNOWN         NotFound    "The API has no such path.";
    1109 SCRUB_UNKNOWN         NotFound    "No scrub runs.";
    1110 SNAPSHOT_UNKNOWN      NotFound    "No snapshot has this name.";
    1111 PORTAL_GROUP_UNKNOWN  NotFound    "No portal belongs to this group.";
    1112 SESSION_UNKNOWN       NotFound    "No session has this number.";
    1113 CONNECTION_UNKNOWN    NotFound    "The session has no connection of this number.";
    1114 TRACE_UNKNOWN         NotFound    "The volume is not traced.";
    1115 OPERATION_UNKNOWN     NotFound    "No such operation is running.";

    1201 NAME_TAKEN            Refused     "The name is in use.";
    1202 IQN_TAKEN             Refused     "The initiator name belongs to another host.";
    1203 LUN_TAKEN             Refused     "The LUN of this host is mapped to another volume.";
    1204 PRESENTED_ALREADY     Refused     "The volume is already presented to the host.";
    1205 PORTAL_TAKEN          Refused     "The portal is already open.";
    1206 TRACED_ALREADY        Refused     "The volume is already traced.";
    1207 CHANGED_SINCE         Refused     "The object has changed since it was read.";
    1208 OPERATION_FIXED       Refused     "The operation cannot be cancelled.";
    1221 LUN_REMEMBERED        Refused     "The host has used this LUN for another volume.";
    1222 SESSIONS_DISRUPTED    Refused     "Sessions would end or lose access.";

    1301 DISK_UNREADABLE       Refused     "The disk cannot be opened.";
    1302 DISK_TOO_SMALL        Refused     "The disk is too small.";
    1303 DISK_IN_USE           Refused     "The disk is in use.";
    1304 DISK_FOREIGN          Refused     "The disk holds foreign data.";
    1305 DISK_FAILED_ALREADY   Refused     "The disk has already failed.";
    1306 DISK_HEALTHY          Refused     "The disk is healthy and does not need a replacement.";
    1307 DISK_WRONG_KIND       Refused     "The path is neither a block device nor a regular file.";
    1308 DISK_MISSING          Refused     "The disk cannot be found.";
    1309 DISK_KNOWN            Refused     "The disk is registered under another name.";
    1310 DISK_NOT_MEMBER       Refused     "The disk is not a pool member.";
    1311 DISK_NOT_SPARE        Refused     "The disk is not a hot spare.";
    1312 DISK_NO_LIGHT         Refused     "The disk has no locate light.";
    1313 DISK_UNMAKEABLE       Refused     "The disk file cannot be created.";
    1314 REMOTE_UNREACHABLE    Refused     "No path to the remote disk could log in.";
    1315 REMOTE_RESERVED       Refused     "Another initiator has reserved the remote disk.";
    1316 REMOTE_UNUSABLE       Refused     "The portals lead to different logical units, or to one that cannot be a disk.";

    1401 TOO_FEW_MEMBERS       Refused     "The group has too few disks for its level.";
    1402 TOO_MANY_MEMBERS      Refused     "The group has too many disks.";
    1403 POOL_IN_USE           Refused     "The pool has volumes.";
    1404 POOL_WOULD_FAIL       Refused     "Without this disk the pool would lose data.";
    1405 POOL_FULL             Refused     "The pool has too little free space.";
    1406 POOL_INCOMPLETE       Refused     "Too many disks of the pool are missing.";
    1407 POOL_FAILED           Refused     "The pool has lost more disks than its level tolerates.";
    1408 CHUNK_INVALID         Invalid     "The chunk size is not possible.";
    1409 POOL_BUSY             Refused     "The pool is busy with another operation.";
    1410 GROUPS_UNEQUAL        Invalid     "The disks cannot be divided into groups this way.";
    1411 MEMBER_SIZE_INVALID   Invalid     "The text is not a member size, or it is too small.";
    1412 LAYOUT_INVALID        Invalid     "The group does not allow this layout.";

    1421 POOL_OWNED            Refused     "Another node owns the pool.";
    1422 POOL_NOT_RELEASED     Refused     "The previous owner of the pool did not export it.";
    1423 POOL_FENCED           Unavailable "Another node has taken over the pool.";
    1424 LOG_KNOWN             Refused     "The pool already has a log device.";
    1425 LOG_UNKNOWN           NotFound    "The pool has no log device.";
    1426 LOG_IN_USE            Refused     "Volumes have data in the log of the pool.";
    1427 REDO_LOG_DAMAGED      Refused     "Part of the redo log of a group cannot be read on any disk.";
    1428 POOL_OUTDATED         Refused     "The pool continued without the disks that are attached.";
    1429 POOL_READ_ONLY        Refused     "The pool is open read-only.";
    1430 POOL_WAITING          Refused     "The pool waits for missing disks.";
    1431 POOL_SPLIT            Refused     "The pool is split: parts were written independently.";

    1501 VOLUME_SHRINK         Refused     "A volume cannot shrink.";
    1502 VOLUME_IN_USE         Refused     "The volume is presented to a host.";
    1503 VOLUME_TOO_LARGE      Refused     "The volume would be too large.";
    1504 VOLUME_SIZE           Invalid     "The volume size is invalid.";
    1505 BLOCK_SIZE_INVALID    Invalid     "The block size is neither 512 nor 4096 bytes.";
    1506 LIMIT_REACHED         Refused     "The limit on objects of this kind is reached.";
    1507 FILE_UNUSABLE         Refused     "The file cannot back a volume.";
    1508 VOLUME_NO_MAP         Refused     "The volume has no map, so it can have no snapshots.";
    1509 VOLUME_HAS_SNAPSHOTS  Refused     "The volume has snapshots.";
    1510 VOLUME_BUSY           Refused     "A session uses the volume.";
    1511 SNAPSHOT_LOCKED       Refused     "The snapshot is locked.";
    1512 SNAPSHOT_IN_USE       Refused     "A clone needs the snapshot.";
    1513 POLICY_IMPOSSIBLE     Refused     "The volume does not support this policy at the moment.";
    1514 VOLUME_SANITIZED      Refused     "The volume is being sanitized.";
    1515 GRANULE_INVALID       Invalid     "The granule size is not possible.";
    1516 POOLS_DIFFER          Invalid     "The volumes are not in the same pool.";
    1517 VOLUME_WITHOUT_POOL   Invalid     "The name of the volume names no pool.";
    1518 VOLUME_NOT_ENCRYPTED  Invalid     "The volume is not encrypted.";

    1520 LOG_NOT_LOST          Refused     "The log of the pool is not lost.";
    1521 VOLUME_HELD           Unavailable "The volume is offline: its last acknowledged writes are not on its disks, or its key is missing.";
    1522 LOG_AWAY              Refused     "The pool was opened without its log.";
    1530 GROUP_UNKNOWN         NotFound    "The pool has no group of this number.";
    1531 GROUP_FULL_SIZE       Refused     "The disks of the group have no unused space.";
    1532 GROUP_FIXED           Refused     "The group cannot be expanded this way.";
    1533 VOLUME_COPYING        Refused     "The volume is being copied.";
    1534 COPY_UNKNOWN          NotFound    "No copy to this volume is running.";

    1601 HOST_IN_USE           Refused     "Volumes are presented to the host.";
    1602 SECRETS_EQUAL         Invalid     "Both directions have the same secret.";
    1603 HOST_EMPTY            Invalid     "The host has no initiator name.";
    1604 TARGET_IN_USE         Refused     "Volumes are presented by the target.";
    1605 CHAP_INVALID          Invalid     "The CHAP settings contradict each other.";
    1606 NETWORKS_INVALID      Invalid     "The networks of the host cannot be changed this way.";

    1701 PORTAL_UNUSABLE       Refused     "The address cannot be used for a portal.";
    1702 PORTAL_CONFIGURED     Refused     "The portal is set in the configuration file.";
    1703 PORTAL_IN_USE         Refused     "Hosts are logged in at the portal.";
    1704 PORTAL_LAST           Refused     "No other portal would accept sessions.";
    1705 PORTAL_WILDCARD       Invalid     "Sessions cannot be redirected to a wildcard address.";

    1801 CONFIG_INVALID        Invalid     "The configuration file cannot be used.";
    1802 STATE_LOCKED          Refused     "Another daemon uses the state directory.";
    1803 STATE_DAMAGED         Unavailable "The state cannot be read.";
    1804 STATE_NEWER           Refused     "A newer version wrote the state.";
    1805 STATE_UNWRITABLE      Unavailable "The state cannot be written.";
    1806 ENGINE_GONE           Unavailable "The data plane does not respond.";
    1807 FORBIDDEN             Forbidden   "The caller lacks the permission.";
    1808 DAEMON_UNREACHABLE    Unavailable "No daemon responds.";
    1809 UNCONFIRMED           Refused     "A destructive command was not confirmed.";
    1810 IO_FAILED             Unavailable "The operating system returned an error.";
    1811 KEY_MISSING           Unavailable "The key for the stored secrets is missing.";
    1812 KEY_WRONG             Unavailable "The stored secrets are sealed with another key.";
    1813 KEY_UNUSABLE          Unavailable "The file of the key cannot be used.";
    1814 POOL_KEY_WRONG        Refused     "The key does not match the encrypted volumes of the pool.";
    1815 TIMED_OUT             Unavailable "The timeout expired.";
    1821 STATE_UNACCEPTED      Refused     "An older version of the state is active and was not accepted.";
    1822 STATE_REPLACED        Unavailable "The state folder is not the one that was opened.";
    1823 STATE_GONE            Refused     "The state is missing, and there are signs that it existed.";
    1824 AUDIT_UNUSABLE        Unavailable "The audit log cannot be read or written.";
    1829 STOP_INCOMPLETE       Unavailable "The daemon stopped before all work had finished.";
    1831 CERTIFICATE_UNUSABLE  Refused     "The certificate of the console cannot be used.";
    1832 WEB_CLOSED            Refused     "The console is disabled.";
    1833 HOST_NAME_UNKNOWN     Refused     "The array does not serve this host name.";
    1841 UNPROVEN              Unproven    "The caller is not authenticated.";
    1842 LOGIN_FAILED          Unproven    "The name or the password is wrong.";
    1843 SECOND_FACTOR_WANTED  Unproven    "A second factor is required.";
    1844 ASKED_TOO_OFTEN       TooOften    "Too many requests or failed logins.";
    1845 LINK_ENDED            Forbidden   "The one-time link is used or expired.";
    1846 PASSWORD_WEAK         Invalid     "The password is too weak.";
    1847 PASSWORD_WRONG        Forbidden   "The password or the code is wrong.";
    1848 LAST_ADMIN            Refused     "The last administrator cannot be removed.";
    1849 ROLE_TOO_HIGH         Forbidden   "The token would have more permissions than its creator.";
    1851 CHANGED_MEANWHILE     Refused     "The configuration has changed since it was read.";
    1852 CONFIG_UNKNOWN        NotFound    "The restore point does not exist.";
    1853 INITIATOR_AWAY        Refused     "An initiator would lose access.";
    1854 INITIATOR_LATE        Refused     "An initiator did not log in again in time.";
    1861 USER_UNKNOWN          NotFound    "No user has this name.";
    1862 LOGIN_UNKNOWN         NotFound    "No login has this name.";
    1863 TOKEN_UNKNOWN         NotFound    "No token has this name.";
    1871 RECEIVER_UNKNOWN      NotFound    "No receiver of alerts has this name.";
    1872 SILENCE_UNKNOWN       NotFound    "No such silence exists.";
    1873 RECEIVER_AWAY         Unavailable "The alert receiver cannot be reached.";
    1874 ALERT_UNKNOWN         NotFound    "No active alert has this number.";
    1875 ALERT_STANDS          Refused     "The alert clears by itself when its cause is gone.";
    1901 INTERNAL              Internal    "Internal error.";
}

/// Rejects duplicate numbers in a catalogue at compile time.
macro_rules! ascending {
    ($catalogue:ident) => {
        const _: () = {
            let mut line = 1;
            // `for` is not available in a constant.
            while line < $catalogue.len() {
                assert!($catalogue[line - 1].code.0 < $catalogue[line].code.0, "numbers ascend");
                line += 1;
            }
        };
    };
}

pub(crate) use ascending;

ascending!(CATALOGUE);

impl Code {
    /// Returns the category. A number that this version does not know counts as an internal error.
    #[must_use]
    pub fn kind(self) -> Kind {
        // Unknown codes come from a newer daemon. A client must not take them for an error of the request.
        CATALOGUE.iter().find(|entry| entry.code == self).map_or(Kind::Internal, |entry| entry.kind)
    }

    /// Returns the general meaning without the full stop.
    #[must_use]
    pub fn title(self) -> &'static str {
        CATALOGUE.iter().find(|entry| entry.code == self).map_or("unknown", |entry| entry.title).trim_end_matches('.')
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BY-{:04}", self.0)
    }
}

/// Error: the text is not `BY-` and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an error code; write BY- and four digits, such as BY-1234")]
pub struct NotACode;

impl FromStr for Code {
    type Err = NotACode;
    fn from_str(text: &str) -> Result<Self, NotACode> {
        text.strip_prefix("BY-").and_then(unsigned).map(Self).ok_or(NotACode)
    }
}

impl TryFrom<String> for Code {
    type Error = NotACode;
    fn try_from(text: String) -> Result<Self, NotACode> {
        text.parse()
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_code_is_in_the_manual() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/operate/errors.md");
        let page = std::fs::read_to_string(&path).expect("the page");
        let head = "| code | kind | meaning |\n|---|---|---|\n";
        let (before, table) = page.split_once(head).expect("the page has the table");
        let kind = |kind| match kind {
            Kind::Invalid => "invalid",
            Kind::NotFound => "not found",
            Kind::Refused => "refused",
            Kind::Unproven => "unproven",
            Kind::Forbidden => "forbidden",
            Kind::TooOften => "too often",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        };
        let line = |entry: &Entry| format!("| {} | {} | {} |\n", entry.code, kind(entry.kind), entry.title);
        let real: String = CATALOGUE.iter().map(line).collect();
        if std::env::var_os("BLOCKYARD_BLESS").is_some() {
            std::fs::write(&path, format!("{before}{head}{real}")).expect("the page is written");
            return;
        }
        assert_eq!(table, real, "BLOCKYARD_BLESS=1 writes the table anew");
    }

    #[test]
    fn code_round_trips_through_text() {
        for entry in CATALOGUE {
            assert_eq!(entry.code.to_string().parse(), Ok(entry.code));
        }
        for text in ["1234", "BY-+123"] {
            assert_eq!(text.parse::<Code>(), Err(NotACode));
        }
        assert_eq!(Code(9999).kind(), Kind::Internal);
    }
}

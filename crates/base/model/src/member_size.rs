//! Usable size of the members of a disk group.

use crate::{ParseRefusal, Refusal, Size, code};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Size to which a new group uses each of its disks.
///
/// Disks of one nominal size differ by a few sectors or megabytes, and a replacement that is smaller than the used size
/// is rejected. By default a group therefore leaves a part of its smallest disk unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberSize {
    /// Above 64 GiB: rounded down to a whole GiB with at least 128 MiB to spare. Else: 1 % less, rounded down to a
    /// whole MiB.
    #[default]
    Rounded,
    /// Full size of the smallest disk.
    Exact,
    /// Given size for every disk.
    Bytes(Size),
}

/// Size above which disks are used to a whole GiB; smaller ones to a whole MiB.
const WHOLE_GIB_ABOVE: u64 = 64 << 30;
/// Minimum unused space of a disk that is used to a whole GiB.
const SLACK_BYTES_MIN: u64 = 128 << 20;
/// Minimum size of a member.
const DISK_BYTES_MIN: u64 = 64 << 20;

impl MemberSize {
    /// Returns the used size for a group whose smallest disk has the size `smallest`; never more than that.
    ///
    /// *Errors*: an explicit size is larger than `smallest`, or smaller than the minimum of a member.
    pub fn of(self, smallest: Size) -> Result<Size, Refusal> {
        let bytes = smallest.bytes();
        match self {
            Self::Exact => Ok(smallest),
            // The shifts round down to a whole GiB.
            Self::Rounded if bytes > WHOLE_GIB_ABOVE => Ok(Size::new((bytes - SLACK_BYTES_MIN) >> 30 << 30)),
            Self::Rounded => {
                // One percent less, rounded down to a whole MiB.
                let whole = (bytes - bytes.div_ceil(100)) >> 20 << 20;
                // The smallest permitted disks have no room for a margin and are used completely.
                Ok(Size::new(whole.max(DISK_BYTES_MIN).min(bytes)))
            }
            Self::Bytes(size) if size.bytes() < DISK_BYTES_MIN => {
                let hint = format!("use at least {}", Size::new(DISK_BYTES_MIN).iec());
                Err(Refusal::new(code::MEMBER_SIZE_INVALID, format!("a member size of {size} is too small"), hint))
            }
            Self::Bytes(size) if size > smallest => {
                let message = format!("the member size is {size}, but the smallest disk has {smallest}");
                Err(Refusal::new(code::DISK_TOO_SMALL, message, "use larger disks, or a smaller member size"))
            }
            Self::Bytes(size) => Ok(size),
        }
    }
}

impl FromStr for MemberSize {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text {
            "rounded" => Ok(Self::Rounded),
            "exact" => Ok(Self::Exact),
            // The refusal of `Size` would not name the two words.
            size => size.parse().map(Self::Bytes).map_err(|_| {
                let message = format!("\"{}\" is not a member size", size.escape_debug());
                Refusal::new(code::MEMBER_SIZE_INVALID, message, "use rounded, exact or a size such as 3725GiB")
            }),
        }
    }
}

impl fmt::Display for MemberSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounded => f.write_str("rounded"),
            Self::Exact => f.write_str("exact"),
            // Exact, because the text is stored in configuration documents and read again.
            Self::Bytes(size) => f.write_str(&size.exact()),
        }
    }
}

impl Serialize for MemberSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemberSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A plain number is refused like on the command line, where its unit would be a guess.
        let text = String::deserialize(deserializer)?;
        // Errors of a deserializer are text. `ParseRefusal` puts the code into it.
        text.parse().map_err(|refusal: Refusal| serde::de::Error::custom(ParseRefusal::from(refusal)))
    }
}

impl JsonSchema for MemberSize {
    fn schema_name() -> Cow<'static, str> {
        "MemberSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Used size of each disk of a group: `rounded` (part of the smallest disk stays unused, so that another disk of the same nominal size can replace it), `exact` (the full size of the smallest disk), or a size with a unit, which applies to every disk.",
            "examples": ["rounded", "exact", "3725GiB"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(bytes: u64) -> u64 {
        MemberSize::Rounded.of(Size::new(bytes)).unwrap().bytes()
    }

    #[test]
    fn member_size_leaves_room_for_a_disk_that_is_a_little_smaller() {
        let sizes = [4_000_787_030_016, 1 << 40, 65 << 30, (64 << 30) + 512, 64 << 30, 10 << 30, 1 << 30, 128 << 20];
        for bytes in sizes {
            let used = rounded(bytes);
            assert!(used < bytes - 512, "{bytes}");
            assert!(bytes - used <= (1 << 30) + SLACK_BYTES_MIN || used * 100 >= bytes * 98, "{bytes}: {used} wastes");
            let smaller = MemberSize::Bytes(Size::new(used)).of(Size::new(bytes - 512));
            assert_eq!(smaller, Ok(Size::new(used)), "a disk with 512 bytes less is taken");
        }
        assert_eq!(rounded(4_000_787_030_016), 3725 << 30);
        assert_eq!(rounded(100 << 30), 99 << 30);
        assert_eq!(rounded(100 << 20), 99 << 20);
    }

    #[test]
    fn member_size_of_the_smallest_disks_is_theirs() {
        assert_eq!(rounded(64 << 20), 64 << 20);
        assert_eq!(rounded((64 << 20) + 4096), 64 << 20);
        assert_eq!(rounded(65 << 20), 64 << 20);
    }

    #[test]
    fn member_size_is_read_as_it_is_written_and_refused_when_it_does_not_fit() {
        for text in ["rounded", "exact", "3725GiB"] {
            assert_eq!(text.parse::<MemberSize>().unwrap().to_string(), text);
        }
        assert!("most".parse::<MemberSize>().is_err());
        assert!("68719476736".parse::<MemberSize>().is_err(), "a size wants a unit");
        let odd = MemberSize::Bytes(Size::new(67_109_377));
        assert_eq!(odd.to_string().parse(), Ok(odd), "what is exported is read");
        let disk = Size::gib(1);
        assert_eq!(MemberSize::Exact.of(disk), Ok(disk));
        assert_eq!(MemberSize::Bytes(Size::gib(2)).of(disk).unwrap_err().code, code::DISK_TOO_SMALL);
        assert_eq!(MemberSize::Bytes(Size::mib(63)).of(disk).unwrap_err().code, code::MEMBER_SIZE_INVALID);
    }
}

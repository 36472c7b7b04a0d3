//! Configured operational parameters that one side offers and accepts.

use super::key::{Key, Rule};

/// Operational parameters wanted by one side of a connection. Parameters that are not listed have a single supported
/// value: data in order, RFC 7143 without extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// HeaderDigest.
    pub header_digest: DigestOffer,
    /// DataDigest.
    pub data_digest: DigestOffer,
    /// InitialR2T: `true` forbids unsolicited Data-Out. Default `false`.
    pub initial_r2t: bool,
    /// ImmediateData: `false` forbids data in commands. Default `true`.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength to declare: 512 to 2^24 - 1; default 256 KiB.
    pub data_segment_bytes_max: u32,
    /// Maximum MaxBurstLength: 512 to 2^24 - 1; default 1 MiB.
    pub burst_bytes_max: u32,
    /// Maximum FirstBurstLength: 512 to `burst_bytes_max`; default 256 KiB.
    pub first_burst_bytes_max: u32,
    /// Minimum DefaultTime2Wait in seconds: at most 3,600; default 2.
    pub time2wait_s: u16,
    /// Maximum DefaultTime2Retain in seconds: at most 3,600; default 20.
    pub time2retain_s: u16,
    /// Maximum MaxOutstandingR2T: at least 1; default 4.
    pub outstanding_r2t_max: u16,
    /// Maximum MaxConnections: at least 1; default 1.
    pub connections_max: u16,
    /// Maximum ErrorRecoveryLevel: at most 2; default 0.
    pub error_recovery_level: u8,
}

/// Use of a CRC32C digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestOffer {
    /// Never.
    Never,
    /// If the peer prefers it.
    #[default]
    Accepted,
    /// Unless the peer does not support it.
    Preferred,
    /// Always: a login without it fails.
    Required,
}

/// Invalid offer, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// RFC 7143 §13.
    #[error("{key} is {value}, but lies between {least} and {most}")]
    OutOfRange {
        /// Name of the key.
        key: &'static str,
        /// Configured value.
        value: u32,
        /// Minimum of the key.
        least: u32,
        /// Maximum of the key.
        most: u32,
    },
    /// RFC 7143 §13.14.
    #[error("FirstBurstLength is {first}, but at most MaxBurstLength, which is {most}")]
    FirstBurst {
        /// Configured FirstBurstLength.
        first: u32,
        /// Configured MaxBurstLength.
        most: u32,
    },
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            header_digest: DigestOffer::default(),
            data_digest: DigestOffer::default(),
            initial_r2t: false,
            immediate_data: true,
            data_segment_bytes_max: 256 << 10,
            burst_bytes_max: 1 << 20,
            first_burst_bytes_max: 256 << 10,
            time2wait_s: 2,
            time2retain_s: 20,
            outstanding_r2t_max: 4,
            connections_max: 1,
            error_recovery_level: 0,
        }
    }
}

impl Offer {
    /// Checks that every value is in the range of its key.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn check(&self) -> Result<(), OfferError> {
        for row in &super::key::TABLE {
            let value = self.value(row.key);
            // Booleans and lists cannot be out of range.
            if let Rule::Least(range) | Rule::Greatest(range) | Rule::Declared(range) = &row.rule
                && !range.contains(&value)
            {
                let (least, most) = (*range.start(), *range.end());
                return Err(OfferError::OutOfRange { key: row.name, value, least, most });
            }
        }
        if self.first_burst_bytes_max > self.burst_bytes_max {
            return Err(OfferError::FirstBurst { first: self.first_burst_bytes_max, most: self.burst_bytes_max });
        }
        Ok(())
    }

    /// Returns our number for a key that is not a list.
    pub(super) fn value(&self, key: Key) -> u32 {
        match key {
            Key::InitialR2T => self.initial_r2t.into(),
            Key::ImmediateData => self.immediate_data.into(),
            Key::MaxRecvDataSegmentLength => self.data_segment_bytes_max,
            Key::MaxBurstLength => self.burst_bytes_max,
            Key::FirstBurstLength => self.first_burst_bytes_max,
            Key::DefaultTime2Wait => self.time2wait_s.into(),
            Key::DefaultTime2Retain => self.time2retain_s.into(),
            Key::MaxOutstandingR2T => self.outstanding_r2t_max.into(),
            Key::MaxConnections => self.connections_max.into(),
            Key::ErrorRecoveryLevel => self.error_recovery_level.into(),
            // All other keys have one supported value, which is their default.
            _ => key.row().default,
        }
    }

    /// Returns the acceptable values of a list key, as indexes into its row, in order of preference.
    pub(super) fn choices(&self, key: Key) -> &'static [u32] {
        let digest = match key {
            Key::HeaderDigest => self.header_digest,
            Key::DataDigest => self.data_digest,
            // TaskReporting is the only other list: of its values, RFC3720 is supported.
            _ => return &[0],
        };
        // Index 0 of `DIGESTS` is None, index 1 is CRC32C.
        match digest {
            DigestOffer::Never => &[0],
            DigestOffer::Accepted => &[0, 1],
            DigestOffer::Preferred => &[1, 0],
            DigestOffer::Required => &[1],
        }
    }

    /// True when `value` is acceptable for us.
    pub(super) fn allows(&self, key: Key, value: u32) -> bool {
        match key.row().rule {
            // A result of the minimum rule is at most our value, one of the maximum rule at least our value.
            Rule::Least(_) => value <= self.value(key),
            Rule::Greatest(_) => value >= self.value(key),
            Rule::And => value <= self.value(key),
            Rule::Or => value >= self.value(key),
            Rule::List(_) => self.choices(key).contains(&value),
            // A side states its own limit, and the other one has no say in it.
            Rule::Declared(_) => true,
        }
    }
}

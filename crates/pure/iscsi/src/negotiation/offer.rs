//! What we offer and accept, by configuration.

use super::key::{Key, Rule};

/// What one side of a connection wants of the operational parameters. What is not here has one value that
/// we speak: data in order, RFC 7143 without extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// HeaderDigest.
    pub header_digest: DigestOffer,
    /// DataDigest.
    pub data_digest: DigestOffer,
    /// InitialR2T: `true` forbids unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: `false` forbids data in commands.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that we declare: 512 to 2^24 - 1.
    pub data_segment_bytes_max: u32,
    /// The greatest MaxBurstLength: 512 to 2^24 - 1.
    pub burst_bytes_max: u32,
    /// The greatest FirstBurstLength: 512 to `burst_bytes_max`.
    pub first_burst_bytes_max: u32,
    /// The least DefaultTime2Wait: at most 3,600.
    pub time2wait_s: u16,
    /// The greatest DefaultTime2Retain: at most 3,600.
    pub time2retain_s: u16,
    /// The greatest MaxOutstandingR2T: at least 1.
    pub outstanding_r2t_max: u16,
    /// The greatest MaxConnections: at least 1.
    pub connections_max: u16,
    /// The greatest ErrorRecoveryLevel: at most 2.
    pub error_recovery_level: u8,
}

/// Whether PDUs carry a CRC32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestOffer {
    /// Never.
    Never,
    /// When the peer prefers it.
    #[default]
    Accepted,
    /// Unless the peer does not speak it.
    Preferred,
    /// Always: without it there is no login.
    Required,
}

/// Why an offer cannot be made, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// RFC 7143 §13.
    #[error("{key} is {value}, but lies between {least} and {most}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// What it was to be.
        value: u32,
        /// The least that it can be.
        least: u32,
        /// The most that it can be.
        most: u32,
    },
    /// RFC 7143 §13.14.
    #[error("FirstBurstLength is {first}, but at most MaxBurstLength, which is {most}")]
    FirstBurst {
        /// FirstBurstLength.
        first: u32,
        /// MaxBurstLength.
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
    /// Every value lies in its key's range.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn check(&self) -> Result<(), OfferError> {
        for row in &super::key::TABLE {
            let value = self.value(row.key);
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

    /// Our number for a key that is no list.
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
            _ => key.row().default,
        }
    }

    /// The values of a list that we take, as places in its row, the most preferred first.
    pub(super) fn choices(&self, key: Key) -> &'static [u32] {
        let digest = match key {
            Key::HeaderDigest => self.header_digest,
            Key::DataDigest => self.data_digest,
            _ => return &[0],
        };
        match digest {
            DigestOffer::Never => &[0],
            DigestOffer::Accepted => &[0, 1],
            DigestOffer::Preferred => &[1, 0],
            DigestOffer::Required => &[1],
        }
    }

    /// True when we can go on with `value`.
    pub(super) fn allows(&self, key: Key, value: u32) -> bool {
        match key.row().rule {
            Rule::Least(_) => value <= self.value(key),
            Rule::Greatest(_) => value >= self.value(key),
            Rule::And => value <= self.value(key),
            Rule::Or => value >= self.value(key),
            Rule::List(_) => self.choices(key).contains(&value),
            Rule::Declared(_) => true,
        }
    }
}

//! Parser of sense data of any target (SPC-4, sense data), for initiators and test tools.
#![warn(clippy::arithmetic_side_effects)]

use crate::sense::{AdditionalSense, FieldPointer};

const NO_SENSE: u8 = 0x0;
const NOT_READY: u8 = 0x2;
const ILLEGAL_REQUEST: u8 = 0x5;

/// Parsed sense data of either format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedSense {
    /// Sense key, four bits; possibly not one of [`crate::SenseKey`].
    pub key: u8,
    /// Additional sense code and qualifier.
    pub code: AdditionalSense,
    /// INFORMATION, where VALID is set.
    pub information: Option<u64>,
    /// Field pointer of an illegal request.
    pub field: Option<FieldPointer>,
    /// Progress indication in 65,536ths, for NO SENSE and NOT READY.
    pub progress: Option<u16>,
}

impl ParsedSense {
    /// Parses `sense`, current or deferred. Returns `None` without a sense key, or in a format that is neither fixed
    /// nor descriptor. A truncated code reads as zero; other truncated fields read as absent.
    ///
    /// *Source*: SPC-4, response codes 70h to 73h.
    #[must_use]
    pub fn parse(sense: &[u8]) -> Option<Self> {
        // Bit 7 is VALID in fixed format and reserved in descriptor format.
        match sense.first()? & 0x7F {
            0x70 | 0x71 => Self::of_fixed(sense),
            0x72 | 0x73 => Self::of_descriptors(sense),
            _ => None,
        }
    }

    /// Returns sense key, additional sense code and qualifier.
    #[must_use]
    pub const fn triple(&self) -> (u8, u8, u8) {
        let AdditionalSense(code, qualifier) = self.code;
        (self.key, code, qualifier)
    }

    fn of_fixed(sense: &[u8]) -> Option<Self> {
        // ADDITIONAL SENSE LENGTH is not consulted: transports cut sense data, so the bytes received are the bound.
        let mut sensed = Self::bare(*sense.get(2)?, sense.get(12), sense.get(13));
        if sense.first()? & 0x80 != 0 {
            let information = sense.get(3..).and_then(|rest| rest.first_chunk().copied());
            sensed.information = information.map(|bytes| u32::from_be_bytes(bytes).into());
        }
        sensed.specify(sense.get(15..18));
        Some(sensed)
    }

    fn of_descriptors(sense: &[u8]) -> Option<Self> {
        let mut sensed = Self::bare(*sense.get(1)?, sense.get(2), sense.get(3));
        let mut rest = sense.get(8..).unwrap_or_default();
        while let &[kind, len, ref behind @ ..] = rest {
            // A truncated descriptor is parsed as far as it goes.
            let (body, next) = behind.split_at(usize::from(len).min(behind.len()));
            match (kind, body) {
                (0x00, &[flags, _, ref number @ ..]) if flags & 0x80 != 0 => {
                    sensed.information = number.first_chunk().copied().map(u64::from_be_bytes);
                }
                // Two reserved bytes precede the field.
                (0x02, _) => sensed.specify(body.get(2..5)),
                _ => {}
            }
            rest = next;
        }
        Some(sensed)
    }

    fn bare(key: u8, code: Option<&u8>, qualifier: Option<&u8>) -> Self {
        let [code, qualifier] = [code, qualifier].map(|byte| byte.copied().unwrap_or(0));
        let code = AdditionalSense(code, qualifier);
        Self { key: key & 0x0F, code, information: None, field: None, progress: None }
    }

    /// Interprets SENSE KEY SPECIFIC, which means different things under different sense keys.
    fn specify(&mut self, specific: Option<&[u8]>) {
        let Some(&[flags, high, low]) = specific else { return };
        // SKSV is zero: the bytes are not valid.
        if flags & 0x80 == 0 {
            return;
        }
        let number = u16::from_be_bytes([high, low]);
        match self.key {
            ILLEGAL_REQUEST => {
                // C/D tells a CDB from a parameter list, and BPV whether the bit pointer is valid.
                let bit = (flags & 0x08 != 0).then_some(flags & 0x07);
                self.field = Some(FieldPointer { in_cdb: flags & 0x40 != 0, byte: number, bit });
            }
            NO_SENSE | NOT_READY => self.progress = Some(number),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::{Sense, SenseKey};
    use proptest::prelude::*;

    const POINTED: ParsedSense = ParsedSense {
        key: 5,
        code: AdditionalSense(0x24, 0x01),
        information: None,
        field: Some(FieldPointer { in_cdb: true, byte: 0x0102, bit: Some(2) }),
        progress: None,
    };

    #[test]
    fn sensed_says_the_same_of_both_formats() {
        let fixed = [0xF0, 0, 0x25, 0, 0, 1, 0, 10, 0, 0, 0, 0, 0x24, 1, 0, 0xCA, 1, 2];
        let descriptor =
            [0x72, 5, 0x24, 1, 0, 0, 0, 20, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 6, 0, 0, 0xCA, 1, 2, 0];
        let expected = ParsedSense { information: Some(0x100), ..POINTED };
        for (mut sense, deferred) in [(fixed.to_vec(), 0xF1), (descriptor.to_vec(), 0x73)] {
            assert_eq!(ParsedSense::parse(&sense), Some(expected));
            sense[0] = deferred;
            assert_eq!(ParsedSense::parse(&sense), Some(expected), "deferred");
        }
        assert_eq!(expected.triple(), (5, 0x24, 1));
    }

    #[test]
    fn sensed_keeps_keys_that_this_target_never_sends() {
        // RECOVERED ERROR with an actual retry count, in the bytes where an illegal request has a field pointer.
        let sense = [0x70, 0, 0x01, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x17, 1, 0, 0x80, 0, 3];
        let expected = ParsedSense { key: 1, code: AdditionalSense(0x17, 1), field: None, ..POINTED };
        assert_eq!(ParsedSense::parse(&sense), Some(expected));
    }

    #[test]
    fn sensed_of_what_is_cut_off_is_what_is_there() {
        let fixed = [0xF0, 0, 5, 0, 0, 1, 0, 10, 0, 0, 0, 0, 0x24, 1, 0, 0xCA, 1, 2];
        let parsed = |len: usize| ParsedSense::parse(&fixed[..len]).map(|sensed| (sensed.code, sensed.information));
        assert_eq!([0, 1, 2].map(parsed), [None; 3], "no key");
        assert_eq!(parsed(6), Some((AdditionalSense(0, 0), None)));
        assert_eq!(parsed(7), Some((AdditionalSense(0, 0), Some(256))));
        assert_eq!(parsed(13), Some((AdditionalSense(0x24, 0), Some(256))));
        assert_eq!(ParsedSense::parse(&fixed[..17]).map(|sensed| sensed.field), Some(None));

        let descriptor = [0x72, 5, 0x24, 1, 0, 0, 0, 8, 2, 6, 0, 0, 0xCA, 1, 2, 0];
        assert_eq!(ParsedSense::parse(&descriptor[..1]), None);
        for len in 4..15 {
            assert_eq!(ParsedSense::parse(&descriptor[..len]), Some(ParsedSense { field: None, ..POINTED }), "{len}");
        }
        assert_eq!(ParsedSense::parse(&descriptor[..15]), Some(POINTED));
        assert_eq!(ParsedSense::parse(&[0x7F, 5, 0x24, 1, 0, 0, 0, 0]), None, "vendor specific");
    }

    fn sense() -> impl Strategy<Value = Sense> {
        use SenseKey::{IllegalRequest, MediumError, Miscompare, NoSense, NotReady, UnitAttention};
        let key = prop::sample::select(vec![NoSense, NotReady, MediumError, IllegalRequest, UnitAttention, Miscompare]);
        let field = (any::<bool>(), any::<u16>(), prop::option::of(0..8_u8));
        let some = (prop::option::of(any::<u64>()), prop::option::of(field), prop::option::of(any::<u16>()));
        (key, any::<(u8, u8)>(), some, any::<bool>()).prop_map(|(key, code, some, descriptor_format)| {
            let (information, field, progress) = some;
            let field = field.map(|(in_cdb, byte, bit)| FieldPointer { in_cdb, byte, bit });
            Sense {
                key,
                code: AdditionalSense(code.0, code.1),
                information,
                field: field.filter(|_| key == IllegalRequest),
                progress: progress.filter(|_| matches!(key, NoSense | NotReady)),
                descriptor_format,
            }
        })
    }

    proptest! {
        #[test]
        fn sensed_is_what_was_emitted(sense in sense()) {
            let fits = |information: &u64| sense.descriptor_format || u32::try_from(*information).is_ok();
            let expected = ParsedSense {
                key: sense.key as u8,
                code: sense.code,
                information: sense.information.filter(fits),
                field: sense.field,
                progress: sense.progress,
            };
            prop_assert_eq!(ParsedSense::parse(&sense.emit()), Some(expected));
        }

        #[test]
        fn sensed_of_any_bytes_has_a_key_of_four_bits(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0x70..0x74_u8) {
            prop_assert!(ParsedSense::parse(&bytes).is_none_or(|sensed| sensed.key < 16));
            let understood = [&[code], &bytes[..]].concat();
            let key_at = if code < 0x72 { 2 } else { 1 };
            let key = understood.get(key_at).map(|key| key & 0x0F);
            prop_assert_eq!(ParsedSense::parse(&understood).map(|sensed| sensed.key), key);
        }
    }
}

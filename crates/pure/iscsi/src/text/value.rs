//! Forms of values: numbers, booleans, lists, ranges and binary constants.
//!
//! *Source*: RFC 7143 §6.1.

/// Maximum length of a decoded binary value in bytes (RFC 7143 §12.1.3).
pub const BINARY_BYTES_MAX: usize = 1024;

/// Parses a decimal or `0x` hexadecimal constant; `None` when it is neither or exceeds 64 bits.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match hexadecimal_digits(text) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// Parses `low~high`; `None` for any other form, or when `low` exceeds `high`.
#[must_use]
pub fn range(text: &str) -> Option<(u64, u64)> {
    let (low, high) = text.split_once('~')?;
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}

/// Parses `Yes` or `No`, the only forms of a boolean.
#[must_use]
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Splits a comma-separated list, in order of preference.
pub fn list(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(',')
}

/// Decodes a `0x` hexadecimal or a `0b` base64 constant.
///
/// `None` when it is neither, malformed, or decodes to more than [`BINARY_BYTES_MAX`] bytes. An odd number of
/// hexadecimal digits is read with a leading zero.
#[must_use]
pub fn binary(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = hexadecimal_digits(text) {
        return from_hexadecimal(digits);
    }
    from_base64(text.strip_prefix("0b").or_else(|| text.strip_prefix("0B"))?)
}

/// Encodes `bytes` as a `0x` constant.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a hexadecimal digit");
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    "0x".chars().chain(digits).collect()
}

/// Encodes `bytes` as a `0b` constant.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::from("0b");
    for chunk in bytes.chunks(3) {
        // Three bytes form a word of 24 bits; missing ones are zero.
        let word = chunk.iter().enumerate().fold(0, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for at in 0..4u32 {
            let sextet = (word >> (18 - 6 * at) & 63) as u8;
            // A chunk of n bytes needs n + 1 digits, and padding takes the place of the others.
            out.push(if (at as usize) <= chunk.len() { base64_char(sextet) } else { '=' });
        }
    }
    out
}

fn hexadecimal_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    // Checked before the allocation.
    if digits.is_empty() || digits.len() > 2 * BINARY_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    // With an odd number of digits, the first one is a byte of its own.
    let mut high = (digits.len() % 2 == 1).then_some(0);
    for digit in digits.chars() {
        let nibble = u8::try_from(digit.to_digit(16)?).ok()?;
        match high.take() {
            None => high = Some(nibble << 4),
            Some(high) => bytes.push(high | nibble),
        }
    }
    Some(bytes)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    // The subtraction cannot underflow: it follows the checks for four digits and two of padding.
    if text.is_empty()
        || !text.len().is_multiple_of(4)
        || padding > 2
        || text.len() / 4 * 3 - padding > BINARY_BYTES_MAX
    {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0);
    for digit in digits.bytes() {
        word = word << 6 | u32::from(base64_sextet(digit)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            // Only the bits of the incomplete byte remain, so the next shift cannot overflow.
            word &= (1 << bits) - 1;
        }
    }
    // Bits behind the last byte must be zero, so that each value has a single encoding.
    (word == 0).then_some(bytes)
}

fn base64_char(sextet: u8) -> char {
    char::from(match sextet {
        0..26 => b'A' + sextet,
        26..52 => b'a' + sextet - 26,
        52..62 => b'0' + sextet - 52,
        62 => b'+',
        _ => b'/',
    })
}

fn base64_sextet(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

//! Table of legitimate differences and their reasons.

use super::answer::{Answer, Aspect};
use super::stream::{BLOCKS, Request};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::ops::Range;

/// Explained difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub id: String,
    /// Prefixes of the names of the commands; empty for every command.
    #[serde(default)]
    commands: Vec<String>,
    aspect: Aspect,
    /// Conditions on the CDB: `byte&mask=value` or `byte&mask!=value`, with the byte in decimal or `last`, and the rest
    /// in hexadecimal.
    #[serde(default)]
    cdb: Vec<Bits>,
    /// Relation of the expected data transfer length to the length in the CDB.
    expects: Option<Expects>,
    /// Condition that fewer bytes are transferred, by the CDB or by the expected length.
    room_below: Option<u32>,
    /// Position of the blocks that the command names.
    blocks: Option<Blocks>,
    #[serde(default)]
    absent_lun: Option<bool>,
    /// Ends on both sides; each may end with `*`.
    #[serde(default)]
    ours: Vec<String>,
    #[serde(default)]
    theirs: Vec<String>,
    /// Bytes of the data that may differ, as `first..end`, either of which may be omitted.
    #[serde(default)]
    bytes: Vec<Bytes>,
    right: Right,
    source: String,
    why: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expects {
    Less,
    More,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Blocks {
    Inside,
    Beyond,
    None,
}

/// Side whose answer the standard permits. Where the standard does not permit Blockyard's answer, it is fixed instead
/// of explained.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Right {
    Ours,
    Both,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    against: String,
    difference: Vec<Row>,
}

/// Both answers to one command.
pub(crate) struct Case<'a> {
    pub request: &'a Request,
    pub ours: &'a Answer,
    pub theirs: &'a Answer,
}

/// Table of explained differences.
#[derive(Debug)]
pub(crate) struct Explained {
    pub rows: Vec<Row>,
}

impl Explained {
    /// Parses the table.
    ///
    /// *Errors*: a row without source or reason, a duplicate, or a malformed condition.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).context("the table is malformed")?;
        ensure!(!file.against.is_empty(), "the table does not say against whom");
        for (at, row) in file.difference.iter().enumerate() {
            row.check().with_context(|| format!("`{}`", row.id))?;
            ensure!(file.difference[..at].iter().all(|other| other.id != row.id), "`{}` is there twice", row.id);
        }
        Ok(Self { rows: file.difference })
    }

    /// Returns the first row that explains this difference.
    pub(crate) fn explain(&self, case: &Case<'_>, aspect: Aspect) -> Option<usize> {
        self.rows.iter().position(|row| row.aspect == aspect && row.fits(case))
    }
}

impl Row {
    fn check(&self) -> Result<()> {
        ensure!(!self.source.is_empty() && !self.why.is_empty(), "names no source or gives no reason");
        ensure!(
            self.aspect != Aspect::End || (!self.ours.is_empty() && !self.theirs.is_empty()),
            "a row about how commands end says how for both sides"
        );
        ensure!((self.aspect == Aspect::Data) != self.bytes.is_empty(), "a row about data, and no other, has `bytes`");
        // No answer is a defect of a side, never a legitimate behavior of both.
        ensure!(
            self.right == Right::Ours || !self.theirs.iter().any(|end| end.starts_with("none")),
            "no answer is never right"
        );
        Ok(())
    }

    fn fits(&self, case: &Case<'_>) -> bool {
        let Case { request, ours, theirs } = *case;
        let ended = |as_said: &[String], end: &str| {
            as_said.is_empty()
                || as_said.iter().any(|said| match said.strip_suffix('*') {
                    Some(beginning) => end.starts_with(beginning),
                    None => end == said,
                })
        };
        (self.commands.is_empty() || self.commands.iter().any(|name| request.name.starts_with(name.as_str())))
            && self.cdb.iter().all(|bits| bits.hold(&request.cdb))
            && self.expects.is_none_or(|expects| {
                expects == Expects::Less && request.expects() < request.moves
                    || expects == Expects::More && request.expects() > request.moves
            })
            && self.room_below.is_none_or(|bytes| request.expects().min(request.moves) < bytes)
            && self.blocks.is_none_or(|blocks| Some(blocks) == place_of(request))
            && self.absent_lun.is_none_or(|absent| absent == request.absent_lun.is_some())
            && ended(&self.ours, &ours.end)
            && ended(&self.theirs, &theirs.end)
            && (self.bytes.is_empty() || self.cover(&ours.differing_bytes(theirs)))
    }

    /// True when the row covers every one of these bytes.
    fn cover(&self, bytes: &[usize]) -> bool {
        bytes.iter().all(|byte| self.bytes.iter().any(|Bytes(range)| range.contains(byte)))
    }
}

fn place_of(request: &Request) -> Option<Blocks> {
    // An overflow of the sum is beyond the end as well.
    let is_beyond = |&(lba, blocks): &(u64, u64)| lba.checked_add(blocks).is_none_or(|end| end > BLOCKS);
    match &request.extents[..] {
        [] => None,
        extents if extents.iter().any(is_beyond) => Some(Blocks::Beyond),
        extents if extents.iter().all(|&(_, blocks)| blocks == 0) => Some(Blocks::None),
        _ => Some(Blocks::Inside),
    }
}

/// Condition on one byte of the CDB.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Bits {
    /// Offset of the byte; `None` for the last one.
    byte: Option<usize>,
    mask: u8,
    value: u8,
    equal: bool,
}

impl TryFrom<String> for Bits {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        let parts = || {
            let (byte, rest) = text.split_once('&')?;
            let (mask, value) = rest.split_once('=')?;
            let (mask, equal) = mask.strip_suffix('!').map_or((mask, true), |mask| (mask, false));
            let hex = |text| u8::from_str_radix(text, 16).ok();
            let byte = if byte == "last" { None } else { Some(byte.parse().ok()?) };
            Some(Self { byte, mask: hex(mask)?, value: hex(value)?, equal })
        };
        parts().with_context(|| format!("\"{text}\" is not like 1&e0=20 or 1&e0!=00"))
    }
}

impl Bits {
    fn hold(&self, cdb: &[u8]) -> bool {
        self.byte
            .map_or(cdb.last(), |at| cdb.get(at))
            .is_some_and(|byte| (byte & self.mask == self.value) == self.equal)
    }
}

/// Range of bytes in the data.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Bytes(Range<usize>);

impl TryFrom<String> for Bytes {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        let (first, behind) = text.split_once("..").with_context(|| format!("\"{text}\" is not like 4..8"))?;
        let number = |text: &str, otherwise| if text.is_empty() { Ok(otherwise) } else { text.parse() };
        Ok(Self(number(first, 0)?..number(behind, usize::MAX)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::stream::request;
    use iscsi::pdu::Residual;

    const ROW: &str = "id = \"a\"\naspect = \"end\"\nright = \"ours\"\nsource = \"SPC-4\"\nwhy = \"so\"\n";

    fn table(rows: &[&str]) -> Result<Explained> {
        Explained::parse(&format!("against = \"x\"\n[[difference]]\n{}", rows.join("\n[[difference]]\n")))
    }

    fn answer(end: &str, data: &[u8]) -> Answer {
        Answer { end: end.into(), pointer: None, residual: Residual::None, data: data.to_vec() }
    }

    #[test]
    fn row_fits_its_own_case_and_no_other() {
        let row = format!("{ROW}ours = [\"5/24/*\"]\ntheirs = [\"good\"]\ncdb = [\"0&ff=2f\", \"1&06=04\"]\n");
        let table = table(&[&row]).unwrap();
        let mut verify = request(1, 0);
        (verify.name, verify.cdb) = ("VERIFY (10)", vec![0x2F, 0x04, 0, 0, 0, 0, 0, 0, 1, 0]);
        let explain = |request: &Request, ours: &str, aspect| {
            let (ours, theirs) = (answer(ours, &[]), answer("good", &[]));
            table.explain(&Case { request, ours: &ours, theirs: &theirs }, aspect)
        };
        assert_eq!(explain(&verify, "5/24/00", Aspect::End), Some(0));
        assert_eq!(explain(&verify, "5/20/00", Aspect::End), None);
        assert_eq!(explain(&verify, "5/24/00", Aspect::Data), None);
        verify.cdb[1] = 0x06;
        assert_eq!(explain(&verify, "5/24/00", Aspect::End), None);
    }

    #[test]
    fn row_about_data_covers_only_the_bytes_that_it_names() {
        let row = ROW.replace("\"end\"", "\"data\"") + "bytes = [\"1..2\", \"4..\"]\n";
        let table = table(&[&row]).unwrap();
        let request = request(1, 0);
        let explain = |ours: &[u8], theirs: &[u8]| {
            let (ours, theirs) = (answer("good", ours), answer("good", theirs));
            table.explain(&Case { request: &request, ours: &ours, theirs: &theirs }, Aspect::Data)
        };
        assert_eq!(explain(&[0, 1, 0, 0, 9], &[0, 2, 0, 0]), Some(0));
        assert_eq!(explain(&[0, 1, 0, 0], &[0, 2, 1, 0]), None);
    }

    #[test]
    fn row_that_says_too_little_or_twice_is_refused() {
        let whole = format!("{ROW}ours = [\"good\"]\ntheirs = [\"busy\"]\n");
        assert!(table(&[&whole]).is_ok());
        assert!(table(&[ROW]).is_err());
        assert!(table(&[&whole, &whole]).is_err());
        assert!(table(&[&whole.replace("\"so\"", "\"\"")]).is_err());
        for malformed in ["cdb = [\"1=2\"]", "cdb = [\"x&ff=00\"]"] {
            let error = format!("{:#}", table(&[&format!("{whole}{malformed}\n")]).unwrap_err());
            assert!(error.contains("is not like 1&e0=20"), "{error}");
        }
        let data = ROW.replace("\"end\"", "\"data\"");
        assert!(table(&[&format!("{data}bytes = [\"4..8\"]\n")]).is_ok());
        assert!(table(&[&format!("{data}bytes = [\"4-8\"]\n")]).is_err());
    }
}

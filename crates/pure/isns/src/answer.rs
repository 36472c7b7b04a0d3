//! What an iSNS server answers.

use crate::Violation;
use crate::attribute::{Attributes, Tag};
use crate::pdu::{Function, Joiner};
use std::fmt;
use std::time::Duration;

/// How a request went. *Source*: RFC 4171 §5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it answers.
    pub function: Function,
    /// The number of the request.
    pub transaction: u16,
    /// How it went.
    pub status: Status,
    attributes: Vec<u8>,
}

/// Takes what comes from the server, in pieces of any length.
#[derive(Debug, Default)]
pub struct Answers(Joiner);

impl Answers {
    /// The server has sent this.
    pub fn handle(&mut self, bytes: &[u8]) {
        self.0.handle(bytes);
    }

    /// The next answer, when all of it has come.
    ///
    /// *Errors*: any [`Violation`]; nothing more can be read then.
    pub fn poll(&mut self) -> Result<Option<Answer>, Violation> {
        let Some(message) = self.0.poll()? else { return Ok(None) };
        let (status, attributes) = message.payload.split_first_chunk::<4>().ok_or(Violation::StatusMissing)?;
        let (status, attributes) = (Status(u32::from_be_bytes(*status)), attributes.to_vec());
        Ok(Some(Answer { function: message.function, transaction: message.transaction, status, attributes }))
    }
}

impl Answer {
    /// Its attributes, those of the message's key first.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.attributes)
    }

    /// True when an object of the answer has this attribute: behind the delimiter, and not as what was asked for.
    ///
    /// *Errors*: [`Violation::AttributeCut`].
    pub fn tells(&self, wanted: Tag) -> Result<bool, Violation> {
        let mut behind = false;
        for attribute in self.attributes() {
            let (tag, value) = attribute?;
            if behind && tag == wanted && !value.is_empty() {
                return Ok(true);
            }
            behind |= tag == Tag::DELIMITER;
        }
        Ok(false)
    }

    /// The time in which the server wants to hear of us, where it says one.
    ///
    /// *Errors*: [`Violation::AttributeCut`].
    pub fn period(&self) -> Result<Option<Duration>, Violation> {
        for attribute in self.attributes() {
            if let (Tag::REGISTRATION_PERIOD, value) = attribute?
                && let Some(seconds) = value.first_chunk()
            {
                return Ok(Some(Duration::from_secs(u32::from_be_bytes(*seconds).into())));
            }
        }
        Ok(None)
    }
}

impl Status {
    /// It was done.
    pub const SUCCESSFUL: Self = Self(0);
    /// There is no such thing.
    pub const NO_SUCH_ENTRY: Self = Self(9);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            0 => "successful",
            1 => "unknown error",
            2 => "message format error",
            3 => "invalid registration",
            5 => "invalid query",
            6 => "source unknown",
            7 => "source absent",
            8 => "source unauthorized",
            9 => "no such entry",
            10 => "version not supported",
            11 => "internal error",
            12 => "busy",
            13 => "option not understood",
            14 => "invalid update",
            15 => "message not supported",
            18 => "attribute not implemented",
            21 => "ESI not available",
            22 => "invalid deregistration",
            23 => "registration feature not supported",
            _ => "another error",
        };
        write!(f, "{text} ({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Writer;
    use crate::pdu::emit;
    use crate::{Entity, Portal, Request, Target};

    fn entity() -> Entity {
        let target = |name: &str, tags: &[u16]| Target { name: name.to_owned(), tags: tags.to_vec() };
        Entity {
            identifier: "array1".to_owned(),
            period: Duration::from_secs(600),
            portals: vec![
                Portal { address: "10.0.0.1:3260".parse().expect("an address"), tag: 1 },
                Portal { address: "[fd00::1]:3261".parse().expect("an address"), tag: 2 },
            ],
            targets: vec![target("iqn.a", &[1, 2]), target("iqn.b", &[2])],
        }
    }

    /// The attributes of a request, as tags and values.
    fn told(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        Attributes(&bytes[12..]).map(|it| it.expect("whole")).map(|(tag, value)| (tag.0, value.to_vec())).collect()
    }

    #[test]
    fn registration_names_entity_portals_targets_and_what_is_reached_through_what() {
        let bytes = Request::Register(&entity()).emit(5);
        assert_eq!(bytes[..12], [0, 1, 0, 1, bytes[4], bytes[5], 0x9c, 0, 0, 5, 0, 0]);
        let told = told(&bytes);
        let tags: Vec<u32> = told.iter().map(|(tag, _)| *tag).collect();
        let groups = [48, 49, 50, 51].repeat(4);
        assert_eq!(tags, [&[32, 1, 0, 1, 2, 6, 16, 17, 16, 17, 32, 33, 32, 33][..], &groups].concat());
        assert_eq!((told[0].1.as_slice(), told[1].1.as_slice()), (&b"iqn.a\0\0\0"[..], &b"array1\0\0"[..]));
        assert_eq!(told[6].1, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((&told[5].1[..], &told[7].1[..]), (&[0, 0, 2, 0x58][..], &[0, 0, 0x0c, 0xbc][..]));
        let tags = told.iter().filter(|(tag, _)| *tag == 51).map(|(_, value)| value.last().copied());
        assert_eq!(tags.collect::<Vec<_>>(), [Some(1), Some(2), None, Some(2)], "null: not through this portal");
    }

    #[test]
    fn query_and_deregistration_name_the_entity() {
        let tags = |request: Request<'_>| told(&request.emit(1)).into_iter().map(|(tag, _)| tag).collect::<Vec<_>>();
        assert_eq!(tags(Request::Query(&entity())), [32, 1, 0, 1]);
        assert_eq!(tags(Request::Deregister(&entity())), [32, 0, 1]);
    }

    fn answered(attributes: impl FnOnce(&mut Writer)) -> Answer {
        let mut payload = Writer(vec![0, 0, 0, 0]);
        attributes(&mut payload);
        let mut answers = Answers::default();
        answers.handle(&emit(Function::DEV_ATTR_QRY.answer(), 0, 3, &payload.0));
        answers.poll().expect("it is right").expect("it is whole")
    }

    #[test]
    fn answer_tells_of_what_was_found_and_not_of_what_was_asked() {
        let found = answered(|it| {
            it.text(Tag::ENTITY_IDENTIFIER, "array1");
            it.bytes(Tag::DELIMITER, &[]);
            it.text(Tag::ENTITY_IDENTIFIER, "array1");
            it.number(Tag::REGISTRATION_PERIOD, 90);
        });
        assert_eq!((found.status, found.transaction), (Status::SUCCESSFUL, 3));
        assert_eq!(found.tells(Tag::ENTITY_IDENTIFIER), Ok(true));
        assert_eq!(found.period(), Ok(Some(Duration::from_secs(90))));
        let nothing = answered(|it| {
            it.text(Tag::ENTITY_IDENTIFIER, "array1");
            it.bytes(Tag::DELIMITER, &[]);
        });
        assert_eq!((nothing.tells(Tag::ENTITY_IDENTIFIER), nothing.period()), (Ok(false), Ok(None)));
    }

    #[test]
    fn answer_of_every_shorter_prefix_is_waited_for_or_a_violation() {
        let mut payload = Writer(vec![0, 0, 0, 0]);
        payload.text(Tag::ENTITY_IDENTIFIER, "array1");
        payload.bytes(Tag::DELIMITER, &[]);
        payload.number(Tag::REGISTRATION_PERIOD, 90);
        let whole = emit(Function::DEV_ATTR_QRY.answer(), 0, 3, &payload.0);
        for end in 0..whole.len() {
            let mut answers = Answers::default();
            answers.handle(&whole[..end]);
            assert_eq!(answers.poll().map(|answer| answer.is_some()), Ok(false), "{end} bytes on the wire");
        }
        // The same, by a server that says that this is all.
        for end in 4..payload.0.len() {
            let cut = answered(|it| it.0.extend(&payload.0[4..end]));
            let read: Vec<_> = cut.attributes().collect();
            let borders = [4, 20, 28, 40];
            assert_eq!(read.iter().all(Result::is_ok), borders.contains(&end), "{end} bytes of attributes: {read:?}");
        }
    }

    #[test]
    fn answer_that_is_cut_short_is_a_violation() {
        let cut = answered(|it| it.0.extend([0, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4]));
        assert_eq!(cut.tells(Tag::ENTITY_IDENTIFIER), Err(Violation::AttributeCut));
        let odd = answered(|it| it.0.extend([0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4]));
        assert_eq!(odd.period(), Err(Violation::AttributeCut));
        let mut answers = Answers::default();
        answers.handle(&emit(Function(0x8001), 0, 1, &[]));
        assert_eq!(answers.poll(), Err(Violation::StatusMissing));
    }
}

//! Answers of an iSNS server.

use crate::Violation;
use crate::attribute::{Attributes, Tag, ip_of, number_of, text_of};
use crate::pdu::{Function, Reassembler};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Status of a request. *Source*: RFC 4171 §5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Function of the answer.
    pub function: Function,
    /// Transaction number of the request.
    pub transaction: u16,
    /// Status of the request.
    pub status: Status,
    attributes: Vec<u8>,
}

/// Target with a portal through which it is reachable, according to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachableTarget {
    /// iSCSI name of the target.
    pub target: String,
    /// Address of the portal.
    pub portal: SocketAddr,
}

/// Parser of the server's byte stream, which arrives in pieces of any length.
#[derive(Debug, Default)]
pub struct ResponseParser(Reassembler);

impl ResponseParser {
    /// Adds received bytes.
    pub fn handle(&mut self, bytes: &[u8]) {
        self.0.handle(bytes);
    }

    /// Returns the next answer once it is complete.
    ///
    /// *Errors*: any [`Violation`]; nothing more can be read after that.
    pub fn poll(&mut self) -> Result<Option<Response>, Violation> {
        // An answer begins with a four-byte status (RFC 4171 §5.7).
        let Some(message) = self.0.poll()? else { return Ok(None) };
        let (status, attributes) = message.payload.split_first_chunk::<4>().ok_or(Violation::StatusMissing)?;
        let (status, attributes) = (Status(u32::from_be_bytes(*status)), attributes.to_vec());
        Ok(Some(Response { function: message.function, transaction: message.transaction, status, attributes }))
    }
}

impl Response {
    /// Attributes of the answer, those of the message key first.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.attributes)
    }

    /// True when an object of the answer has this attribute, behind the delimiter and with a value; the echoed
    /// query does not count.
    ///
    /// *Errors*: [`Violation::AttributeCut`].
    pub fn has_attribute(&self, wanted: Tag) -> Result<bool, Violation> {
        Ok(self.found()?.into_iter().any(|(tag, value)| tag == wanted && !value.is_empty()))
    }

    /// Returns the entity in an answer to [`crate::Request::Locate`], where it names one.
    ///
    /// *Errors*: [`Violation::AttributeCut`].
    pub fn entity(&self) -> Result<Option<String>, Violation> {
        // The first one: a node belongs to a single entity.
        let found = self.found()?.into_iter().find(|(tag, _)| *tag == Tag::ENTITY_IDENTIFIER);
        Ok(found.map(|(_, value)| text_of(value)))
    }

    /// Returns each target of an answer to [`crate::Request::Locate`] with each portal through which it is
    /// reachable.
    ///
    /// Portal groups without a tag are not reachable (RFC 4171 §3.4); those without a name or an address are
    /// skipped. *Errors*: [`Violation::AttributeCut`].
    pub fn reachable_targets(&self) -> Result<Vec<ReachableTarget>, Violation> {
        let mut groups: Vec<Group> = Vec::new();
        for (tag, value) in self.found()? {
            // The attributes of an object are contiguous, its key first (RFC 4171 §5.6.5.2).
            if tag == Tag::PG_ISCSI_NAME {
                groups.push(Group { target: text_of(value), ..Group::default() });
            }
            let Some(group) = groups.last_mut() else { continue };
            match tag {
                // A value of another length leaves the group without an address, and it is skipped.
                Tag::PG_PORTAL_IP_ADDRESS => group.ip = ip_of(value),
                // The upper half tells whether the port is UDP (RFC 4171 §6.3.2).
                Tag::PG_PORTAL_PORT => group.port = number_of(value).map(|port| (port & 0xffff) as u16),
                // An attribute without a value is a null tag: not reachable through this portal (RFC 4171
                // §3.4).
                Tag::PORTAL_GROUP_TAG => group.has_tag = !value.is_empty(),
                _ => {}
            }
        }
        Ok(groups.into_iter().filter_map(Group::reachable_target).collect())
    }

    /// Attributes of the objects found, behind the delimiter.
    fn found(&self) -> Result<Vec<(Tag, &[u8])>, Violation> {
        // A violation anywhere makes the whole answer unusable.
        let all: Vec<(Tag, &[u8])> = self.attributes().collect::<Result<_, _>>()?;
        // The message key before the delimiter only repeats the query.
        Ok(all.into_iter().skip_while(|(tag, _)| *tag != Tag::DELIMITER).skip(1).collect())
    }

    /// Returns the registration period that the server demands, where it states one.
    ///
    /// *Errors*: [`Violation::AttributeCut`].
    pub fn period(&self) -> Result<Option<Duration>, Violation> {
        for attribute in self.attributes() {
            // Servers may return another period than the one requested.
            if let (Tag::REGISTRATION_PERIOD, value) = attribute?
                && let Some(seconds) = value.first_chunk()
            {
                // The first value counts, in the message key or behind the delimiter.
                return Ok(Some(Duration::from_secs(u32::from_be_bytes(*seconds).into())));
            }
        }
        Ok(None)
    }
}

/// Portal group, filled as its attributes arrive.
#[derive(Default)]
struct Group {
    target: String,
    ip: Option<IpAddr>,
    port: Option<u16>,
    has_tag: bool,
}

impl Group {
    fn reachable_target(self) -> Option<ReachableTarget> {
        // A group that the server describes in part cannot be reached.
        let portal = SocketAddr::new(self.ip?, self.port?);
        (self.has_tag && !self.target.is_empty()).then_some(ReachableTarget { target: self.target, portal })
    }
}

impl Status {
    /// Successful.
    pub const SUCCESSFUL: Self = Self(0);
    /// No such entry.
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
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

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

    /// Attributes of a request, as tags and values.
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

    fn answered(attributes: impl FnOnce(&mut Writer)) -> Response {
        let mut payload = Writer(vec![0, 0, 0, 0]);
        attributes(&mut payload);
        let mut answers = ResponseParser::default();
        answers.handle(&emit(Function::DEV_ATTR_QRY.response(), 0, 3, &payload.0));
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
        assert_eq!(found.has_attribute(Tag::ENTITY_IDENTIFIER), Ok(true));
        assert_eq!(found.period(), Ok(Some(Duration::from_secs(90))));
        let nothing = answered(|it| {
            it.text(Tag::ENTITY_IDENTIFIER, "array1");
            it.bytes(Tag::DELIMITER, &[]);
        });
        assert_eq!((nothing.has_attribute(Tag::ENTITY_IDENTIFIER), nothing.period()), (Ok(false), Ok(None)));
    }

    #[test]
    fn question_for_a_target_names_who_asks_and_what_is_wanted() {
        let bytes = Request::Locate { source: "iqn.a", name: "iqn.b" }.emit(9);
        assert_eq!(bytes[..12], [0, 1, 0, 2, 0, bytes[5], 0x8c, 0, 0, 9, 0, 0]);
        let told = told(&bytes);
        assert_eq!(told.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [32, 32, 0, 1, 48, 49, 50, 51]);
        assert_eq!((&told[0].1[..], &told[1].1[..]), (&b"iqn.a\0\0\0"[..], &b"iqn.b\0\0\0"[..]));
    }

    #[test]
    fn target_is_located_by_portals_with_a_tag_alone() {
        let portal = [Tag::PG_PORTAL_IP_ADDRESS, Tag::PG_PORTAL_PORT];
        let (v4, v6, other) = ("10.0.0.1:3260", "[fd00::1]:3261", "10.0.0.2:3260");
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let answer = answered(|it| {
            it.text(Tag::ISCSI_NAME, "iqn.b");
            it.bytes(Tag::DELIMITER, &[]);
            it.text(Tag::ENTITY_IDENTIFIER, "array1");
            for (at, tag) in [(v4, &[0, 0, 0, 1][..]), (other, &[]), (v6, &[0, 0, 0, 2])] {
                it.text(Tag::PG_ISCSI_NAME, "iqn.b");
                it.portal(portal, address(at));
                it.bytes(Tag::PORTAL_GROUP_TAG, tag);
            }
            // A portal group without an address.
            it.text(Tag::PG_ISCSI_NAME, "iqn.b");
            it.number(Tag::PORTAL_GROUP_TAG, 3);
        });
        let located = |at: &str| ReachableTarget { target: "iqn.b".to_owned(), portal: address(at) };
        assert_eq!(answer.reachable_targets(), Ok(vec![located(v4), located(v6)]));
        assert_eq!(answer.entity(), Ok(Some("array1".to_owned())));
        let nothing = answered(|it| it.text(Tag::PG_ISCSI_NAME, "iqn.b"));
        assert_eq!(
            (nothing.reachable_targets(), nothing.entity()),
            (Ok(vec![]), Ok(None)),
            "what was asked is no answer"
        );
    }

    proptest! {
        #[test]
        fn answer_of_any_attributes_is_read(parts in vec((select(vec![0, 1, 48, 49, 50, 51]), vec(any::<u8>(), 0..24)), 0..40)) {
            let answer = answered(|it| parts.iter().for_each(|(tag, value)| it.bytes(Tag(*tag), value)));
            let named = parts.iter().filter(|(tag, _)| *tag == 48).count();
            prop_assert!(answer.reachable_targets().expect("attributes are whole").len() <= named);
            prop_assert!(answer.entity().is_ok());
        }
    }

    #[test]
    fn answer_of_every_shorter_prefix_is_waited_for_or_a_violation() {
        let mut payload = Writer(vec![0, 0, 0, 0]);
        payload.text(Tag::ENTITY_IDENTIFIER, "array1");
        payload.bytes(Tag::DELIMITER, &[]);
        payload.number(Tag::REGISTRATION_PERIOD, 90);
        let whole = emit(Function::DEV_ATTR_QRY.response(), 0, 3, &payload.0);
        for end in 0..whole.len() {
            let mut answers = ResponseParser::default();
            answers.handle(&whole[..end]);
            assert_eq!(answers.poll().map(|answer| answer.is_some()), Ok(false), "{end} bytes on the wire");
        }
        // The same from a server that declares each truncated payload as complete.
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
        assert_eq!(cut.has_attribute(Tag::ENTITY_IDENTIFIER), Err(Violation::AttributeCut));
        let odd = answered(|it| it.0.extend([0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4]));
        assert_eq!(odd.period(), Err(Violation::AttributeCut));
        let mut answers = ResponseParser::default();
        answers.handle(&emit(Function(0x8001), 0, 1, &[]));
        assert_eq!(answers.poll(), Err(Violation::StatusMissing));
    }
}

//! What a target asks of an iSNS server.

use crate::attribute::{Tag, Writer};
use crate::pdu::{Function, REPLACE, emit};
use std::net::SocketAddr;
use std::time::Duration;

/// iSCSI. *Source*: RFC 4171 §6.2.2.
const PROTOCOL_ISCSI: u32 = 2;
/// The bit of a target. *Source*: RFC 4171 §6.4.2.
const NODE_TYPE_TARGET: u32 = 1;

/// Everything that stands behind one network entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Its identifier, at most 255 bytes.
    pub identifier: String,
    /// A server that hears nothing for so long forgets it, in whole seconds.
    pub period: Duration,
    /// Its portals.
    pub portals: Vec<Portal>,
    /// Its targets, at least one: requests are asked in the name of the first.
    pub targets: Vec<Target>,
}

/// A portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Where it listens, no wildcard.
    pub address: SocketAddr,
    /// Its target portal group tag.
    pub tag: u16,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// The portal group tags through which it shows something; not to be reached through others.
    pub tags: Vec<u16>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// This is the entity from now on, and what was registered of it before is not any more (DevAttrReg).
    Register(&'a Entity),
    /// Is the entity still known? To ask is a sign of life (DevAttrQry).
    Query(&'a Entity),
    /// The entity is no more (DevDereg).
    Deregister(&'a Entity),
    /// Through which portals is the target of this name reached, and which entity has it (DevAttrQry)?
    Locate {
        /// In whose name it is asked: a target of ours. A server answers those alone that it knows.
        asker: &'a str,
        /// The target's iSCSI name.
        name: &'a str,
    },
}

impl Request<'_> {
    /// What it is about.
    #[must_use]
    pub fn function(self) -> Function {
        match self {
            Self::Register(_) => Function::DEV_ATTR_REG,
            Self::Query(_) | Self::Locate { .. } => Function::DEV_ATTR_QRY,
            Self::Deregister(_) => Function::DEV_DEREG,
        }
    }

    /// The request as it is sent. Its answer has the same transaction number.
    ///
    /// *Panics*: when the entity has no target.
    ///
    /// *Source*: RFC 4171 §5.6.5.1, §5.6.5.2, §5.6.5.4.
    #[must_use]
    pub fn emit(self, transaction: u16) -> Vec<u8> {
        let mut payload = Writer::default();
        payload.text(Tag::ISCSI_NAME, self.asker());
        match self {
            Self::Register(entity) => {
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
                payload.bytes(Tag::DELIMITER, &[]);
                entity.emit(&mut payload);
            }
            Self::Query(entity) => {
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
                payload.bytes(Tag::DELIMITER, &[]);
                payload.bytes(Tag::ENTITY_IDENTIFIER, &[]);
            }
            Self::Deregister(entity) => {
                payload.bytes(Tag::DELIMITER, &[]);
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
            }
            Self::Locate { name, .. } => {
                payload.text(Tag::ISCSI_NAME, name);
                payload.bytes(Tag::DELIMITER, &[]);
                let group = [Tag::PG_ISCSI_NAME, Tag::PG_PORTAL_IP_ADDRESS, Tag::PG_PORTAL_PORT, Tag::PORTAL_GROUP_TAG];
                for wanted in [&[Tag::ENTITY_IDENTIFIER][..], &group].concat() {
                    payload.bytes(wanted, &[]);
                }
            }
        }
        let flags = if matches!(self, Self::Register(_)) { REPLACE } else { 0 };
        emit(self.function(), flags, transaction, &payload.0)
    }

    /// The source attribute: the iSCSI node that asks. *Source*: RFC 4171 §5.6.1.
    fn asker(&self) -> &str {
        match self {
            Self::Register(entity) | Self::Query(entity) | Self::Deregister(entity) => &entity.targets[0].name,
            Self::Locate { asker, .. } => asker,
        }
    }
}

impl Entity {
    /// The operating attributes: the entity, its portals, its targets, and through which portals they are to be reached.
    fn emit(&self, payload: &mut Writer) {
        payload.text(Tag::ENTITY_IDENTIFIER, &self.identifier);
        payload.number(Tag::ENTITY_PROTOCOL, PROTOCOL_ISCSI);
        payload.number(Tag::REGISTRATION_PERIOD, u32::try_from(self.period.as_secs()).unwrap_or(u32::MAX));
        for portal in &self.portals {
            payload.portal([Tag::PORTAL_IP_ADDRESS, Tag::PORTAL_PORT], portal.address);
        }
        for target in &self.targets {
            payload.text(Tag::ISCSI_NAME, &target.name);
            payload.number(Tag::ISCSI_NODE_TYPE, NODE_TYPE_TARGET);
        }
        for target in &self.targets {
            for portal in &self.portals {
                payload.text(Tag::PG_ISCSI_NAME, &target.name);
                payload.portal([Tag::PG_PORTAL_IP_ADDRESS, Tag::PG_PORTAL_PORT], portal.address);
                // A null tag: not through this portal (RFC 4171 §3.4).
                let tag = u32::from(portal.tag).to_be_bytes();
                let shows = target.tags.contains(&portal.tag);
                payload.bytes(Tag::PORTAL_GROUP_TAG, if shows { &tag } else { &[] });
            }
        }
    }
}

//! Requests of a target to an iSNS server.

use crate::attribute::{Tag, Writer};
use crate::pdu::{Function, REPLACE, emit};
use std::net::SocketAddr;
use std::time::Duration;

/// iSCSI entity protocol. *Source*: RFC 4171 §6.2.2.
const PROTOCOL_ISCSI: u32 = 2;
/// Node type bit of a target. *Source*: RFC 4171 §6.4.2.
const NODE_TYPE_TARGET: u32 = 1;

/// Network entity with its portals and targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Identifier of the entity, at most 255 bytes.
    pub identifier: String,
    /// Registration period in whole seconds: a server that receives nothing for so long removes the entity.
    pub period: Duration,
    /// Portals of the entity.
    pub portals: Vec<Portal>,
    /// Targets of the entity, at least one; requests are sent in the name of the first.
    pub targets: Vec<Target>,
}

/// Portal of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Address on which it listens; never a wildcard.
    pub address: SocketAddr,
    /// Target portal group tag.
    pub tag: u16,
}

/// Target of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// iSCSI name.
    pub name: String,
    /// Portal group tags through which the target is reachable; it is not reachable through others.
    pub tags: Vec<u16>,
}

/// Request to an iSNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Registers the entity, replacing what was registered of it before (`DevAttrReg`).
    Register(&'a Entity),
    /// Queries whether the entity is still registered, which also renews its registration (`DevAttrQry`).
    Query(&'a Entity),
    /// Deregisters the entity (`DevDereg`).
    Deregister(&'a Entity),
    /// Queries the portals through which a target is reachable, and its entity (`DevAttrQry`).
    Locate {
        /// Source node: one of our targets. A server answers only nodes that it knows.
        source: &'a str,
        /// iSCSI name of the target.
        name: &'a str,
    },
}

impl Request<'_> {
    /// Function of the request.
    #[must_use]
    pub fn function(self) -> Function {
        match self {
            Self::Register(_) => Function::DEV_ATTR_REG,
            Self::Query(_) | Self::Locate { .. } => Function::DEV_ATTR_QRY,
            Self::Deregister(_) => Function::DEV_DEREG,
        }
    }

    /// Encodes the request. Its answer has the same transaction number.
    ///
    /// *Panics*: when the entity has no target.
    ///
    /// *Source*: RFC 4171 §5.6.5.1, §5.6.5.2, §5.6.5.4.
    #[must_use]
    pub fn emit(self, transaction: u16) -> Vec<u8> {
        let mut payload = Writer::default();
        // Every request begins with the source attribute (RFC 4171 §5.6.1).
        payload.text(Tag::ISCSI_NAME, self.source());
        match self {
            Self::Register(entity) => {
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
                payload.bytes(Tag::DELIMITER, &[]);
                entity.emit(&mut payload);
            }
            // The message key selects the entity; empty attributes behind the delimiter are those asked for.
            Self::Query(entity) => {
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
                payload.bytes(Tag::DELIMITER, &[]);
                payload.bytes(Tag::ENTITY_IDENTIFIER, &[]);
            }
            // A deregistration has no message key: the object follows the delimiter.
            Self::Deregister(entity) => {
                payload.bytes(Tag::DELIMITER, &[]);
                payload.text(Tag::ENTITY_IDENTIFIER, &entity.identifier);
            }
            Self::Locate { name, .. } => {
                payload.text(Tag::ISCSI_NAME, name);
                payload.bytes(Tag::DELIMITER, &[]);
                let group = [Tag::PG_ISCSI_NAME, Tag::PG_PORTAL_IP_ADDRESS, Tag::PG_PORTAL_PORT, Tag::PORTAL_GROUP_TAG];
                // The entity identifies the other array where the name turns out to be a duplicate.
                for wanted in [&[Tag::ENTITY_IDENTIFIER][..], &group].concat() {
                    payload.bytes(wanted, &[]);
                }
            }
        }
        // Replacement removes what an earlier configuration registered.
        let flags = if matches!(self, Self::Register(_)) { REPLACE } else { 0 };
        emit(self.function(), flags, transaction, &payload.0)
    }

    /// Source attribute: the iSCSI node that sends the request. *Source*: RFC 4171 §5.6.1.
    fn source(&self) -> &str {
        match self {
            Self::Register(entity) | Self::Query(entity) | Self::Deregister(entity) => &entity.targets[0].name,
            Self::Locate { source: asker, .. } => asker,
        }
    }
}

impl Entity {
    /// Appends the operating attributes: entity, portals, targets, and the portals through which each target is
    /// reachable.
    fn emit(&self, payload: &mut Writer) {
        payload.text(Tag::ENTITY_IDENTIFIER, &self.identifier);
        payload.number(Tag::ENTITY_PROTOCOL, PROTOCOL_ISCSI);
        // The attribute has four bytes, in seconds.
        payload.number(Tag::REGISTRATION_PERIOD, u32::try_from(self.period.as_secs()).unwrap_or(u32::MAX));
        // An object follows its parent: portals and nodes after their entity.
        // A portal has no ESI port: the queries of this side renew the registration, so the server need not inquire.
        for portal in &self.portals {
            payload.portal([Tag::PORTAL_IP_ADDRESS, Tag::PORTAL_PORT], portal.address);
        }
        // A node has no SCN bitmap: a target has no use for notices about other nodes.
        for target in &self.targets {
            payload.text(Tag::ISCSI_NAME, &target.name);
            payload.number(Tag::ISCSI_NODE_TYPE, NODE_TYPE_TARGET);
        }
        for target in &self.targets {
            // Every pair, also one without access: for a missing pair the server makes a group with the tag 1.
            for portal in &self.portals {
                payload.text(Tag::PG_ISCSI_NAME, &target.name);
                payload.portal([Tag::PG_PORTAL_IP_ADDRESS, Tag::PG_PORTAL_PORT], portal.address);
                // Null tag: not reachable through this portal (RFC 4171 §3.4).
                let tag = u32::from(portal.tag).to_be_bytes();
                let shows = target.tags.contains(&portal.tag);
                payload.bytes(Tag::PORTAL_GROUP_TAG, if shows { &tag } else { &[] });
            }
        }
    }
}

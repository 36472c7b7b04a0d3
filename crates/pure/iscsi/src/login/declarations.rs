//! Declarations of an initiator: its names, session type and target.

use super::failed::WrongKey;
use super::{LoginIdentity, LoginStatus};
use crate::IscsiName;
use crate::negotiation::SessionType;
use crate::pdu::LoginRequest;
use std::collections::BTreeMap;

/// Maximum length of an alias in bytes.
const ALIAS_BYTES_MAX: usize = 255;
/// Keys that an initiator declares.
const KEYS: [&str; 4] = ["InitiatorName", "InitiatorAlias", "SessionType", "TargetName"];

const SESSION_TYPE_UNKNOWN: WrongKey = WrongKey {
    status: LoginStatus::SessionTypeNotSupported,
    key: "SessionType",
    rule: "its value is neither Normal nor Discovery (RFC 7143 §13.21)",
};
const INITIATOR_NAME_MISSING: WrongKey = WrongKey {
    status: LoginStatus::MissingParameter,
    key: "InitiatorName",
    rule: "it did not come, and every login names its initiator (RFC 7143 §13.5)",
};
const TARGET_NAME_MISSING: WrongKey = WrongKey {
    status: LoginStatus::MissingParameter,
    key: "TargetName",
    rule: "it did not come, and a login that is not for discovery names its target (RFC 7143 §13.4)",
};
const INITIATOR_NAME_WRONG: WrongKey = WrongKey {
    status: LoginStatus::InitiatorError,
    key: "InitiatorName",
    rule: "its value is no iSCSI name (RFC 7143 §4.2.7.1)",
};
const TARGET_NAME_WRONG: WrongKey = WrongKey {
    status: LoginStatus::NotFound,
    key: "TargetName",
    rule: "its value is no iSCSI name (RFC 7143 §4.2.7.1)",
};

/// Declarations of one login. Some initiators repeat them in each stage; that is accepted as long as the values are
/// equal, since RFC 7143 §6.3 forbids changing them.
#[derive(Clone, Debug, Default)]
pub(super) struct Declarations(BTreeMap<&'static str, String>);

impl Declarations {
    /// Records `key` if it is a declaration; true when it is one.
    ///
    /// *Errors*: [`LoginStatus::InitiatorError`] when its value has changed.
    pub(super) fn handle(&mut self, key: &str, value: &str) -> Result<bool, WrongKey> {
        let Some(key) = KEYS.into_iter().find(|&known| known == key) else { return Ok(false) };
        // The first value is kept, and all later ones are compared with it.
        let kept = self.0.entry(key).or_insert_with(|| value.to_owned());
        let changed = "its value changed in the midst of the login (RFC 7143 §6.3)";
        // iSCSI names are compared without case (RFC 7143 §4.2.7).
        let is_same = kept.eq_ignore_ascii_case(value);
        is_same.then_some(true).ok_or(WrongKey { status: LoginStatus::InitiatorError, key, rule: changed })
    }

    /// Returns the login request in terms of initiator, target and session.
    ///
    /// *Errors*: [`LoginStatus::MissingParameter`] without a required name, [`LoginStatus::SessionTypeNotSupported`],
    /// [`LoginStatus::InitiatorError`] for an invalid initiator name, [`LoginStatus::NotFound`] for an invalid target
    /// name.
    pub(super) fn identity(&self, request: &LoginRequest) -> Result<LoginIdentity, WrongKey> {
        let session_type = match self.get("SessionType") {
            // SessionType is Normal by default (RFC 7143 §13.21).
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(_) => return Err(SESSION_TYPE_UNKNOWN),
        };
        let initiator_name = self.get("InitiatorName").ok_or(INITIATOR_NAME_MISSING)?;
        let target_name = self.get("TargetName");
        if session_type == SessionType::Normal && target_name.is_none() {
            return Err(TARGET_NAME_MISSING);
        }
        Ok(LoginIdentity {
            initiator_name: IscsiName::parse(initiator_name).map_err(|_| INITIATOR_NAME_WRONG)?,
            // An alias is for display only, so a login with one that is too long is not refused for it.
            initiator_alias: self
                .get("InitiatorAlias")
                .filter(|alias| alias.len() <= ALIAS_BYTES_MAX)
                .map(str::to_owned),
            session_type,
            // A name that no target can have is answered like one that no target has.
            target_name: target_name.map(IscsiName::parse).transpose().map_err(|_| TARGET_NAME_WRONG)?,
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
        })
    }

    /// Returns the names of initiator and target, as far as they were declared and are valid.
    pub(super) fn names(&self) -> (Option<IscsiName>, Option<IscsiName>) {
        // Parsed again, because a login may fail before `identity` has checked the names.
        let name = |key| self.get(key).and_then(|text| IscsiName::parse(text).ok());
        (name("InitiatorName"), name("TargetName"))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

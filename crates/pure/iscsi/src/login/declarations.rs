//! What an initiator says of itself: its names, and what it wants.

use super::{LoginQuestion, LoginStatus};
use crate::IscsiName;
use crate::negotiation::SessionType;
use crate::pdu::LoginRequest;
use std::collections::BTreeMap;

/// The most bytes of an alias.
const ALIAS_BYTES_MAX: usize = 255;
/// The declarations of an initiator.
const KEYS: [&str; 4] = ["InitiatorName", "InitiatorAlias", "SessionType", "TargetName"];

/// The declarations of one login. Some initiators repeat them with each stage; that is taken as long as they
/// say the same, for RFC 7143 §6.3 forbids to change them.
#[derive(Clone, Debug, Default)]
pub(super) struct Declarations(BTreeMap<&'static str, String>);

impl Declarations {
    /// True when `key` is a declaration, which is kept.
    ///
    /// *Errors*: [`LoginStatus::InitiatorError`] when it said something else before.
    pub(super) fn handle(&mut self, key: &str, value: &str) -> Result<bool, LoginStatus> {
        let Some(key) = KEYS.into_iter().find(|&known| known == key) else { return Ok(false) };
        let kept = self.0.entry(key).or_insert_with(|| value.to_owned());
        if kept.eq_ignore_ascii_case(value) { Ok(true) } else { Err(LoginStatus::InitiatorError) }
    }

    /// Who asks for what.
    ///
    /// *Errors*: [`LoginStatus::MissingParameter`] without a name that is due, [`LoginStatus::SessionTypeNotSupported`],
    /// [`LoginStatus::InitiatorError`] for a name that is none, [`LoginStatus::NotFound`] for a target name that is none.
    pub(super) fn question(&self, request: &LoginRequest) -> Result<LoginQuestion, LoginStatus> {
        let session_type = match self.get("SessionType") {
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(_) => return Err(LoginStatus::SessionTypeNotSupported),
        };
        let initiator_name = self.get("InitiatorName").ok_or(LoginStatus::MissingParameter)?;
        let target_name = self.get("TargetName");
        if session_type == SessionType::Normal && target_name.is_none() {
            return Err(LoginStatus::MissingParameter);
        }
        Ok(LoginQuestion {
            initiator_name: IscsiName::parse(initiator_name).map_err(|_| LoginStatus::InitiatorError)?,
            initiator_alias: self
                .get("InitiatorAlias")
                .filter(|alias| alias.len() <= ALIAS_BYTES_MAX)
                .map(str::to_owned),
            session_type,
            target_name: target_name.map(IscsiName::parse).transpose().map_err(|_| LoginStatus::NotFound)?,
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
        })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

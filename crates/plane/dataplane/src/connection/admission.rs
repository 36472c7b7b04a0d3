//! Who may come in, and what they may hear of.

use super::{Connection, TargetRecord};
use crate::access::{AccessView, Place};
use crate::registry::NexusName;
use crate::session::Session;
use crate::unit::{Done, Ran, Unit};
use iscsi::chap::{Algorithm, Auth, ChapPolicy, Credential, Mutual, Secret};
use iscsi::pdu::Tsih;
use iscsi::target::SendTargets;
use iscsi::{CloseReason, Grant, IscsiName, LoginQuestion, LoginStatus, Negotiated, NoSession, SessionType};
use model::{Chap, Host, RefusedLogin, RefusedWhy, Subject, SubjectKind, Timestamp, event};
use shard::World;
use std::future::Future;
use std::rc::Rc;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<Unit<W>>, Ran) -> F,
    F: Future<Output = Done>,
{
    pub(super) fn answer_login(&mut self, question: &LoginQuestion) {
        let now = self.seat.world.now();
        self.asker = Some(question.initiator_name.as_str().to_owned());
        self.asked_for = question.target_name.as_ref().map(|name| name.as_str().to_owned());
        match self.judge_login(question) {
            Ok(grant) => self.machine.grant(grant, now),
            Err(status) => {
                let (peer, initiator) = (self.ends.peer, question.initiator_name.as_str());
                let target = question.target_name.as_ref().map_or("discovery", IscsiName::as_str);
                tracing::warn!(%peer, initiator, target, %status, "login refused");
                self.machine.refuse(status, now);
            }
        }
    }

    /// Somebody was not let in, which may be a mistake that an operator can mend.
    pub(super) fn tell_of_refusal(&mut self, reason: CloseReason) {
        let CloseReason::LoginRefused(status) = reason else { return };
        if status == LoginStatus::TargetMovedTemporarily {
            return;
        }
        if matches!(self.why, Some(RefusedWhy::NotProven { .. })) && status != LoginStatus::AuthenticationFailure {
            self.why = None;
        }
        let address = self.ends.peer.ip().to_canonical();
        let asker = self.asker.clone().unwrap_or_else(|| address.to_string());
        let login = RefusedLogin {
            initiator: self.asker.clone(),
            address,
            target: self.asked_for.clone(),
            why: self.why.clone().unwrap_or(RefusedWhy::Other),
            status: status.to_string(),
            times: 1,
            last: Timestamp::from_unix(self.seat.world.unix_seconds()),
        };
        let sentence = match login.why {
            RefusedWhy::Other => format!("initiator {asker} at {address} was not let in: {status}"),
            _ => format!("initiator {asker} at {address} was not let in: {}; {status}", login.reason()),
        };
        self.seat.registry.refuse(login);
        self.seat.raise(event::LOGIN_REFUSED, Subject::new(SubjectKind::Host, &asker), sentence);
    }

    fn judge_login(&mut self, question: &LoginQuestion) -> Result<Grant, LoginStatus> {
        let view = self.seat.access.borrow().clone();
        let host = view.host_of(question.initiator_name.as_str(), self.ends.peer.ip());
        let host = host.ok_or_else(|| {
            let known = view.host_named(question.initiator_name.as_str());
            let why = known.map(|host| RefusedWhy::WrongAddress { host: host.name.clone() });
            self.why = Some(why.unwrap_or(RefusedWhy::UnknownInitiator));
            LoginStatus::AuthorizationFailure
        })?;
        if question.session_type == SessionType::Normal {
            let name = question.target_name.as_ref().ok_or(LoginStatus::MissingParameter)?.as_str();
            let target = view.target_of(name).ok_or_else(|| {
                self.why = Some(RefusedWhy::UnknownTarget);
                LoginStatus::NotFound
            })?;
            if !view.targets_of(host).contains(&target) {
                self.why = Some(RefusedWhy::NothingShown { host: host.name.clone() });
                return Err(LoginStatus::AuthorizationFailure);
            }
        }
        // What is refused from here on for want of a proof is this host's.
        self.why = host.chap.is_some().then(|| RefusedWhy::NotProven { host: host.name.clone() });
        let auth = auth_of(host).map_err(|why| {
            tracing::error!(host = %host.name, %why, "the host's CHAP settings cannot be used");
            LoginStatus::TargetError
        })?;
        let portal_group_tag = view.policy_at(self.ends.portal).tag;
        let session = match question.tsih {
            Tsih(0) => self.place(&view, question),
            tsih => self.find(&view, question, tsih).map_err(NoSession::from),
        };
        Ok(Grant { auth, session, portal_group_tag, target_alias: None })
    }

    /// The session that is asked for is there, is the asker's, and takes connections here.
    fn find(&mut self, view: &AccessView, question: &LoginQuestion, tsih: Tsih) -> Result<Tsih, LoginStatus> {
        let found = self.seat.registry.find(&nexus_of(question), tsih.0).ok_or(LoginStatus::SessionDoesNotExist)?;
        let (id, entry) = found;
        // All connections of a session are within one portal group (RFC 7143 §4.1.1).
        if view.policy_at(entry.portal).tag != view.policy_at(self.ends.portal).tag {
            return Err(LoginStatus::CannotIncludeInSession);
        }
        self.admitted = Some(id);
        Ok(tsih)
    }

    /// A new session here, or the portal that it belongs to.
    fn place(&mut self, view: &AccessView, question: &LoginQuestion) -> Result<Tsih, NoSession> {
        if question.session_type != SessionType::Normal {
            return self.admit();
        }
        let candidates = match view.place_for(self.ends.portal, self.ends.peer.ip()) {
            Place::Here => return self.admit(),
            Place::Nowhere => return Err(LoginStatus::ServiceUnavailable.into()),
            Place::OneOf(candidates) => candidates,
        };
        let nexus = nexus_of(question);
        let chosen = self.seat.registry.choose(&nexus, &candidates, view.access.balance, self.seat.world.now());
        let Some(portal) = chosen else { return self.admit() };
        tracing::info!(peer = %self.ends.peer, initiator = nexus.initiator, %portal, "sent to another portal");
        Err(NoSession::Elsewhere(portal.to_string()))
    }

    fn admit(&mut self) -> Result<Tsih, NoSession> {
        let (id, tsih) = self.seat.registry.admit().ok_or(LoginStatus::OutOfResources)?;
        self.admitted = Some(id);
        Ok(Tsih(tsih))
    }

    pub(super) fn enter_full_feature(&mut self, facts: &Negotiated) {
        self.place = None;
        if facts.identity.joins {
            return self.hand_over(facts);
        }
        let id = self.admitted.expect("nobody enters full feature phase without our grant");
        let (session, predecessors) = Session::enter(&self.seat, id, facts, self.ends, self.tell.clone());
        tracing::info!(peer = %self.ends.peer, initiator = facts.identity.initiator_name.as_str(), "logged in");
        self.session = Some(session);
        self.predecessors = predecessors;
    }

    /// What the asker may hear of: targets that show it something, at portals that it can reach.
    pub(super) fn targets(&self, which: &SendTargets) -> Vec<TargetRecord> {
        let Some(session) = &self.session else { return Vec::new() };
        let view = self.seat.access.borrow().clone();
        let Some(host) = view.host_of(session.initiator(), self.ends.peer.ip()) else { return Vec::new() };
        let portals = view.portals_for(self.ends.portal, self.ends.peer.ip());
        let asked = |name: &str| match which {
            SendTargets::All => true,
            SendTargets::Named(wanted) => wanted.eq_ignore_ascii_case(name),
        };
        view.targets_of(host)
            .into_iter()
            .filter(|target| asked(target.iqn.as_str()))
            .map(|target| {
                let shows = |tag| view.shows(target, host, tag);
                let portals = portals.iter().filter(|(_, policy)| shows(policy.tag));
                let portals = portals.map(|&(address, policy)| (address, policy.tag)).collect();
                TargetRecord { name: target.iqn.as_str().to_owned(), portals }
            })
            .collect()
    }
}

/// The nexus that the asker would have, or says that it has.
fn nexus_of(question: &LoginQuestion) -> NexusName {
    let named = question.target_name.as_ref().filter(|_| question.session_type == SessionType::Normal);
    NexusName {
        initiator: question.initiator_name.as_str().to_owned(),
        isid: question.isid.0,
        target: named.map(|name| name.as_str().to_owned()).unwrap_or_default(),
    }
}

fn auth_of(host: &Host) -> Result<Auth, String> {
    let Some(chap) = &host.chap else { return Ok(Auth::None) };
    let mutual = match &host.mutual_chap {
        Some(own) => Mutual::Offered(credential(own)?),
        None => Mutual::Never,
    };
    let policy = ChapPolicy::new(true, vec![credential(chap)?], mutual, Algorithm::Md5);
    Ok(Auth::Chap(Box::new(policy.map_err(|why| why.to_string())?)))
}

fn credential(chap: &Chap) -> Result<Credential, String> {
    let secret = Secret::new(chap.secret.expose()).map_err(|why| why.to_string())?;
    Ok(Credential { name: chap.user.clone(), secret })
}

//! Who may come in, and what they may hear of.

use super::{Connection, TargetRecord};
use crate::session::Session;
use crate::unit::{Done, Ran, Unit};
use iscsi::chap::{Algorithm, Auth, ChapPolicy, Credential, Mutual, Secret};
use iscsi::pdu::Tsih;
use iscsi::target::SendTargets;
use iscsi::{CloseReason, Grant, IscsiName, LoginQuestion, LoginStatus, Negotiated, SessionType};
use model::{Chap, Host, Subject, SubjectKind, TARGET_PORTAL_GROUP, event};
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
    pub(super) fn tell_of_refusal(&self, reason: CloseReason) {
        let CloseReason::LoginRefused(status) = reason else { return };
        let address = self.ends.peer.ip().to_canonical();
        let asker = self.asker.clone().unwrap_or_else(|| address.to_string());
        let sentence = format!("initiator {asker} at {address} was not let in: {status}");
        self.seat.raise(event::LOGIN_REFUSED, Subject::new(SubjectKind::Host, &asker), sentence);
    }

    fn judge_login(&mut self, question: &LoginQuestion) -> Result<Grant, LoginStatus> {
        let view = self.seat.access.borrow().clone();
        let host = view.host_of(question.initiator_name.as_str(), self.ends.peer.ip());
        let host = host.ok_or(LoginStatus::AuthorizationFailure)?;
        if question.session_type == SessionType::Normal {
            let name = question.target_name.as_ref().ok_or(LoginStatus::MissingParameter)?.as_str();
            let target = view.target_of(name).ok_or(LoginStatus::NotFound)?;
            if !view.targets_of(host).contains(&target) {
                return Err(LoginStatus::AuthorizationFailure);
            }
        }
        let auth = auth_of(host).map_err(|why| {
            tracing::error!(host = %host.name, %why, "the host's CHAP settings cannot be used");
            LoginStatus::TargetError
        })?;
        // One connection per session: a login into a session that is there asks for a second one.
        let session = match question.tsih {
            Tsih(0) => self.admit(),
            _ => Err(LoginStatus::SessionDoesNotExist),
        };
        Ok(Grant { auth, session, portal_group_tag: TARGET_PORTAL_GROUP, target_alias: None })
    }

    fn admit(&mut self) -> Result<Tsih, LoginStatus> {
        let (id, tsih) = self.seat.registry.admit().ok_or(LoginStatus::OutOfResources)?;
        self.admitted = Some(id);
        Ok(Tsih(tsih))
    }

    pub(super) fn enter_full_feature(&mut self, facts: &Negotiated) {
        self.place = None;
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
            .map(|target| TargetRecord { name: target.iqn.as_str().to_owned(), portals: portals.clone() })
            .collect()
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

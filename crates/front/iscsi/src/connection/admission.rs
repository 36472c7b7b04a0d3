//! Admission of logins: access control, authentication policy, session assignment, and the answer to SendTargets.

use super::{Connection, TargetRecord};
use crate::access::Placement;
use crate::nexus::NexusName;
use crate::scsi_unit::{Completed, PendingCommand, ScsiUnit};
use crate::session::Session;
use iscsi::chap::{Algorithm, Auth, ChapPolicy, Credential, Mutual, Secret};
use iscsi::pdu::Tsih;
use iscsi::target::SendTargets;
use iscsi::{Grant, LoginIdentity, LoginStatus, Negotiated, NoSession, SessionType};
use model::{Chap, ChapAlgorithm, ChapCredentials, Demand, RefusedWhy};
use shard::World;
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Answers the first request of a login: checks access and determines the authentication policy.
    pub(super) fn answer_login(&mut self, question: LoginIdentity) {
        let now = self.shard.world.now();
        // A login that has sent a request is evicted later than a silent one.
        if let Some(place) = &self.login_slot {
            place.asked();
        }
        // The identity is kept in any case: a denied login is reported with it.
        let judged = self.judge_login(&question);
        self.login_identity = Some(question);
        match judged {
            Ok(grant) => self.machine.grant(grant, now),
            Err(status) => self.machine.refuse(status, now),
        }
    }

    /// Answers a login whose authentication is complete: assigns a session, or redirects to another portal.
    pub(super) fn answer_authenticated(&mut self) {
        // The state machine asks for the session only after `answer_login`, which stores the identity.
        let question = self.login_identity.clone().expect("who is proven has asked");
        // Only a verified CHAP response clears the failure count of the initiator.
        if let Some(attempt) = self.attempt.take() {
            attempt.succeeded();
        }
        let session = match question.tsih {
            // TSIH 0 requests a new session, any other one joins an existing session (RFC 7143 §6.3.1).
            Tsih(0) => self.assign_or_redirect(&question),
            tsih => self.find(&question, tsih).map_err(NoSession::from),
        };
        if let Err(NoSession::Refused(status)) = session {
            self.why = self.why_without_session(status);
        }
        self.machine.assign_session(session, self.shard.world.now());
    }

    /// Checks whether the initiator may log in to the target, and returns its authentication policy.
    fn judge_login(&mut self, question: &LoginIdentity) -> Result<Grant, LoginStatus> {
        let view = self.shard.access.borrow().clone();
        let host = view.host_of(question.initiator_name.as_str(), self.ends.peer.ip());
        let host = host.ok_or_else(|| {
            // The name is known, but not from this address: the operator needs this distinction, the initiator gets the
            // same status.
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
            // A target without any mapping for the host is not accessible to it; discovery does not list it either.
            if !view.is_told_of(target, host) {
                let through = target.name.clone();
                self.why = Some(RefusedWhy::NoMapping { host: host.name.clone(), target: through });
                return Err(LoginStatus::AuthorizationFailure);
            }
        }
        let policy = &view.access.auth;
        // Discovery may have credentials of its own; without them, those of the host apply.
        let proof = match question.session_type {
            SessionType::Discovery => policy.discovery.as_ref().unwrap_or(&host.chap),
            SessionType::Normal => &host.chap,
        };
        // A configuration error must never admit a host without authentication.
        let auth = auth_of(proof, policy.weakest).map_err(|why| {
            tracing::error!(host = %host.name, %why, "invalid CHAP settings");
            LoginStatus::TargetError
        })?;
        if auth.chap().is_some() {
            let (initiator, address) = (question.initiator_name.as_str(), self.ends.peer.ip().to_canonical());
            // Bounds concurrent attempts and enforces the back-off, by initiator name and by address.
            self.attempt = self.shard.registry.begin_authentication(initiator, address, self.shard.world.now());
            if self.attempt.is_none() {
                self.why = Some(RefusedWhy::Throttled { host: host.name.clone() });
                return Err(LoginStatus::ServiceUnavailable);
            }
        }
        let portal_group_tag = view.policy_at(self.ends.portal).tag;
        Ok(Grant { auth, portal_group_tag, target_alias: None })
    }

    /// Finds the session that the initiator wants to join: it must exist, belong to the same nexus and permit
    /// connections through this portal group.
    fn find(&mut self, question: &LoginIdentity, tsih: Tsih) -> Result<Tsih, LoginStatus> {
        let view = self.shard.access.borrow().clone();
        // Nexus and TSIH together, so no initiator joins the session of another one.
        let found = self.shard.registry.find(&nexus_of(question), tsih.0).ok_or(LoginStatus::SessionDoesNotExist)?;
        let (id, entry) = found;
        // All connections of a session are within one portal group (RFC 7143 §4.1.1).
        if view.policy_at(entry.portal).tag != view.policy_at(self.ends.portal).tag {
            return Err(LoginStatus::CannotIncludeInSession);
        }
        self.admitted = Some(id);
        Ok(tsih)
    }

    /// Assigns a new session on this portal, or selects the portal to which the login is redirected.
    fn assign_or_redirect(&mut self, question: &LoginIdentity) -> Result<Tsih, NoSession> {
        let view = self.shard.access.borrow().clone();
        // Discovery sessions are short and are not balanced.
        if question.session_type != SessionType::Normal {
            return self.admit();
        }
        // A front portal redirects logins to the data portals, a drained one to those that remain.
        let candidates = match view.place_for(self.ends.portal, self.ends.peer.ip()) {
            Placement::Here => return self.admit(),
            Placement::Nowhere => return Err(LoginStatus::ServiceUnavailable.into()),
            Placement::OneOf(candidates) => candidates,
        };
        let nexus = nexus_of(question);
        let chosen = self.shard.registry.choose(&nexus, &candidates, view.access.balance, self.shard.world.now());
        // Without a better portal the session stays here.
        let Some(portal) = chosen else { return self.admit() };
        tracing::info!(peer = %self.ends.peer, initiator = nexus.initiator, %portal, "redirected to another portal");
        Err(NoSession::Redirected(view.policy_at(portal).for_hosts(portal)))
    }

    /// Assigns a session number and a TSIH.
    fn admit(&mut self) -> Result<Tsih, NoSession> {
        let admission = self.shard.registry.admit().ok_or(LoginStatus::OutOfResources)?;
        let tsih = Tsih(admission.tsih);
        (self.admitted, self.admission) = (Some(admission.id), Some(admission));
        Ok(tsih)
    }

    /// Starts full feature phase: transfers a joining connection to its session, or registers the new session.
    pub(super) fn enter_full_feature(&mut self, facts: &Negotiated) {
        // The login has ended, so its slot is free for others.
        self.login_slot = None;
        if facts.identity.joins {
            return self.hand_over(facts);
        }
        let id = self.admitted.expect("nobody enters full feature phase without our grant");
        let (session, predecessors) = Session::enter(&self.shard, id, facts, self.ends, self.tell.clone());
        // Only now: until the session is registered, nothing else keeps its TSIH from being assigned again.
        self.admission = None;
        tracing::info!(peer = %self.ends.peer, initiator = facts.identity.initiator_name.as_str(), "logged in");
        self.session = Some(session);
        self.note_connections();
        self.check_path_mtu();
        // From here on, no input is handled until all of them have ended.
        self.predecessors = predecessors;
        self.catch_up_with_notices();
    }

    /// Applies what other sessions were notified of while this one logged in. Behind the registration: a later change
    /// finds the session in the registry and notifies it.
    fn catch_up_with_notices(&mut self) {
        // The connection was recorded by address only if the capture was there when it was accepted.
        let session = self.session.as_ref().map(|session| session.id);
        for tape in self.shard.recordings.of(self.ends.peer.ip(), session) {
            self.record(&tape);
        }
        let is_permitted = self.session.as_mut().is_some_and(Session::see_access);
        if !is_permitted || !self.shard.registry.is_open(self.ends.portal) {
            tracing::info!(peer = %self.ends.peer, "the portal or the access was removed during the login; connection \
                 closed");
            self.close_session();
        }
    }

    /// Answers SendTargets: targets with a mapping for the host, with the portals that it can reach.
    pub(super) fn targets(&self, which: &SendTargets) -> Vec<TargetRecord> {
        let Some(session) = &self.session else { return Vec::new() };
        let view = self.shard.access.borrow().clone();
        let Some(host) = view.host_of(session.initiator(), self.ends.peer.ip()) else { return Vec::new() };
        // Only portals that this host can reach: an unreachable address costs an initiator a timeout at boot.
        let portals = view.portals_for(self.ends.portal, self.ends.peer.ip());
        let asked = |name: &str| match which {
            SendTargets::All => true,
            // Names of iSCSI nodes are compared without case (RFC 7143 §4.2.7).
            SendTargets::Named(wanted) => wanted.eq_ignore_ascii_case(name),
        };
        view.targets_of(host)
            .into_iter()
            .filter(|target| asked(target.iqn.as_str()))
            .map(|target| {
                let shows = |tag| view.shows(target, host, tag);
                let portals = portals.iter().filter(|(_, policy)| shows(policy.tag));
                let mut portals: Vec<_> = portals.map(|(at, policy)| (policy.for_hosts(*at), policy.tag)).collect();
                // Several portals may advertise one address to hosts.
                let mut told = BTreeSet::new();
                portals.retain(|portal| told.insert(portal.clone()));
                TargetRecord { name: target.iqn.as_str().to_owned(), portals }
            })
            .collect()
    }
}

/// Nexus that the login requests or claims to have.
fn nexus_of(question: &LoginIdentity) -> NexusName {
    let LoginIdentity { initiator_name, isid, session_type, target_name, .. } = question;
    NexusName::of(initiator_name, *isid, *session_type, target_name.as_ref())
}

/// Converts the CHAP settings of a host into an authentication policy. The error is a configuration error, not one of
/// the initiator.
fn auth_of(proof: &ChapCredentials, weakest: ChapAlgorithm) -> Result<Auth, String> {
    let Some(own) = &proof.own else { return Ok(Auth::None) };
    let mutual = match &proof.mutual {
        Some(ours) if ours.demand == Demand::Required => Mutual::Required(credential(ours)?),
        Some(ours) => Mutual::Offered(credential(ours)?),
        None => Mutual::Never,
    };
    let weakest = match weakest {
        ChapAlgorithm::Md5 => Algorithm::Md5,
        ChapAlgorithm::Sha1 => Algorithm::Sha1,
        ChapAlgorithm::Sha256 => Algorithm::Sha256,
        ChapAlgorithm::Sha3_256 => Algorithm::Sha3_256,
    };
    let required = own.demand == Demand::Required;
    let policy = ChapPolicy::new(required, vec![credential(own)?], mutual, weakest);
    Ok(Auth::Chap(Box::new(policy.map_err(|why| why.to_string())?)))
}

fn credential(chap: &Chap) -> Result<Credential, String> {
    let secret = Secret::try_from(chap.secret.bare()).map_err(|why| why.to_string())?;
    Ok(Credential { name: chap.user.clone(), secret })
}

//! Security stage of a target's login: authentication of both sides.
//!
//! A missing, wrong, short, empty or repeated value fails the authentication; there is no second attempt.

use crate::chap::{Algorithm, Auth, Authentication, Challenge, ChapPolicy, Mutual};
use crate::login::AuthFailure;
use crate::text::{self, TextWriter};

/// Keys of this stage that an initiator sends.
const KEYS: [&str; 6] = ["AuthMethod", "CHAP_A", "CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"];

/// State of the authentication.
#[derive(Debug)]
pub(super) struct Security {
    auth: Auth,
    random: [u8; 32],
    state: State,
}

#[derive(Debug)]
enum State {
    /// No method has been negotiated.
    Open,
    /// CHAP; the algorithms of the initiator are due.
    Algorithm,
    /// Challenged; the response of the initiator is due.
    Challenged(Challenge),
    /// Complete, with the result of CHAP if it was used.
    Done(Option<Authentication>),
}

/// Values of the security keys in one text.
#[derive(Clone, Copy, Debug, Default)]
struct SecurityKeys<'a>([Option<&'a str>; KEYS.len()]);

/// True for the keys of this stage.
pub(super) fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

impl Security {
    /// Creates the state before any authentication.
    pub(super) fn new(auth: Auth, random: [u8; 32]) -> Self {
        Self { auth, random, state: State::Open }
    }

    /// Handles the security keys among `pairs`; answers are queued in `answers`.
    ///
    /// *Errors*: the failure of the authentication.
    pub(super) fn handle(&mut self, pairs: &[(&str, &str)], answers: &mut TextWriter) -> Result<(), AuthFailure> {
        let said = SecurityKeys::parse(pairs)?;
        // The places of `said` are those of `KEYS`: AuthMethod, CHAP_A, CHAP_N, CHAP_R, CHAP_I, CHAP_C.
        let next = match (&self.state, said.0) {
            // A text without security keys neither starts nor advances an authentication.
            (State::Open | State::Done(_), [None, None, None, None, None, None]) => return Ok(()),
            // Each step must contain exactly its own keys: everything else is an attempt to skip or mix steps.
            (State::Open, [Some(methods), None, None, None, None, None]) => self.choose_method(methods, answers)?,
            (State::Algorithm, [None, Some(algorithms), None, None, None, None]) => {
                self.challenge(algorithms, answers)?
            }
            (State::Challenged(challenge), [None, None, Some(name), Some(response), identifier, theirs]) => {
                // Our own response is sent only to an initiator that has authenticated.
                let name = self.verify(challenge, name, response)?;
                let mutual = self.answer_challenge(challenge, identifier, theirs, answers)?;
                State::Done(Some(Authentication { name, algorithm: challenge.algorithm(), mutual }))
            }
            _ => return Err(AuthFailure::KeysMalformed),
        };
        self.state = next;
        Ok(())
    }

    /// True when no authentication is pending.
    pub(super) fn is_done(&self) -> bool {
        match self.state {
            State::Done(_) => true,
            // Without required authentication, an initiator may leave the stage without a method.
            State::Open => !self.auth.is_required(),
            State::Algorithm | State::Challenged(_) => false,
        }
    }

    /// Returns the result of CHAP.
    pub(super) fn authentication(&self) -> Option<Authentication> {
        match &self.state {
            State::Done(proven) => proven.clone(),
            _ => None,
        }
    }

    /// Checks that the initiator may ask to leave the stage: not before a method was negotiated where authentication is
    /// required.
    ///
    /// *Errors*: the failure of the authentication.
    pub(super) fn permit_transit(&self) -> Result<(), AuthFailure> {
        // During CHAP the request is merely early, and is answered without a transition.
        let nothing_said = matches!(self.state, State::Open);
        if nothing_said && !self.is_done() { Err(AuthFailure::NoMethod) } else { Ok(()) }
    }

    /// Checks that the operational stage may be entered: all required authentication is complete.
    ///
    /// *Errors*: the failure of an initiator that skipped this stage.
    pub(super) fn permit_operational(&self) -> Result<(), AuthFailure> {
        if self.is_done() { Ok(()) } else { Err(AuthFailure::NoMethod) }
    }

    /// Chooses the first listed method that the policy permits. Source: RFC 7143 §6.2.1, §12.1.
    fn choose_method(&self, methods: &str, answers: &mut TextWriter) -> Result<State, AuthFailure> {
        for method in text::list(methods) {
            let next = match method {
                "CHAP" if self.auth.chap().is_some() => State::Algorithm,
                // `None` is acceptable only where the policy does not require authentication.
                "None" if !self.auth.is_required() => State::Done(None),
                _ => continue,
            };
            answers.push("AuthMethod", method);
            return Ok(next);
        }
        Err(AuthFailure::NoMethod)
    }

    fn challenge(&self, algorithms: &str, answers: &mut TextWriter) -> Result<State, AuthFailure> {
        // Unknown algorithm numbers are skipped: the offer may contain newer ones.
        let offered = text::list(algorithms).filter_map(|number| Algorithm::of(text::number(number)?));
        let algorithm = Algorithm::choose(offered, self.policy()?.weakest()).ok_or(AuthFailure::NoAlgorithm)?;
        // The random bytes are used for a single challenge, because a login permits only one attempt.
        let challenge = Challenge::new(algorithm, &self.random);
        answers.push("CHAP_A", algorithm as u8);
        answers.push("CHAP_I", challenge.identifier());
        answers.push("CHAP_C", text::hexadecimal(challenge.bytes()));
        Ok(State::Challenged(challenge))
    }

    /// Returns the name that the response authenticates.
    fn verify(&self, challenge: &Challenge, name: &str, response: &str) -> Result<String, AuthFailure> {
        // An undecodable response gets the same status as a wrong one.
        let response = text::binary(response).ok_or(AuthFailure::WrongCredentials)?;
        let proven = challenge.verify(self.policy()?.accepted(), name, &response);
        proven.map(|credential| credential.name.clone()).ok_or(AuthFailure::WrongCredentials)
    }

    /// Answers the challenge of the initiator, if it issues one and a credential is configured. Where mutual CHAP is
    /// required, a challenge must be present. Returns true when there was one.
    fn answer_challenge(
        &self,
        ours: &Challenge,
        identifier: Option<&str>,
        challenge: Option<&str>,
        answers: &mut TextWriter,
    ) -> Result<bool, AuthFailure> {
        let policy = self.policy()?;
        let (identifier, challenge) = match (identifier, challenge) {
            (None, None) if matches!(policy.mutual(), Mutual::Required(_)) => {
                return Err(AuthFailure::NotMutual);
            }
            (None, None) => return Ok(false),
            (Some(identifier), Some(challenge)) => (text::number(identifier), text::binary(challenge)),
            _ => return Err(AuthFailure::KeysMalformed),
        };
        // The initiator wants mutual authentication, but no credential is configured for it.
        let own = policy.mutual().credential().ok_or(AuthFailure::MutualUnknown)?;
        // CHAP_I is one byte (RFC 7143 §12.1.3).
        let identifier = identifier.and_then(|number| u8::try_from(number).ok());
        let (Some(identifier), Some(challenge)) = (identifier, challenge) else {
            return Err(AuthFailure::KeysMalformed);
        };
        // RFC 7143 §9.2.1: a reflected challenge would let the initiator obtain our response to its own question.
        if ours.is_reflected_by(&challenge) {
            return Err(AuthFailure::Reflected);
        }
        // The initiator's challenge is answered with the algorithm that was negotiated for both directions.
        let response = ours.algorithm().respond(identifier, &own.secret, &challenge);
        answers.push("CHAP_N", &own.name);
        answers.push("CHAP_R", text::hexadecimal(&response));
        Ok(true)
    }

    fn policy(&self) -> Result<&ChapPolicy, AuthFailure> {
        // CHAP is chosen only where the policy has it, so no initiator ever sees this error.
        self.auth.chap().ok_or(AuthFailure::NoMethod)
    }
}

impl<'a> SecurityKeys<'a> {
    /// Collects the security keys.
    ///
    /// *Errors*: a key is repeated.
    fn parse(pairs: &[(&'a str, &'a str)]) -> Result<Self, AuthFailure> {
        let mut said = Self::default();
        for &(name, value) in pairs {
            let Some(slot) = KEYS.iter().zip(&mut said.0).find_map(|(key, slot)| (*key == name).then_some(slot)) else {
                continue;
            };
            // A repeated key must not replace the value that was checked.
            if slot.replace(value).is_some() {
                return Err(AuthFailure::KeysMalformed);
            }
        }
        Ok(said)
    }
}

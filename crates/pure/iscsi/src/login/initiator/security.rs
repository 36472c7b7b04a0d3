//! Security stage of an initiator's login: authentication of both sides.

use crate::Violation;
use crate::chap::{Algorithm, Authentication, Challenge, Credential, PolicyError};
use crate::text::{self, TextWriter};

/// Keys of this stage that a target sends.
const KEYS: [&str; 6] = ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"];

/// Authentication of an initiator.
#[derive(Clone, Debug, Default)]
pub enum InitiatorAuth {
    /// No authentication.
    #[default]
    None,
    /// CHAP; see [`InitiatorAuth::chap`].
    Chap(Box<InitiatorChap>),
}

/// Credentials of both directions.
#[derive(Clone, Debug)]
pub struct InitiatorChap {
    own: Credential,
    target: Option<Credential>,
    weakest: Algorithm,
}

/// State of the security stage.
#[derive(Debug)]
pub(super) struct Security {
    auth: InitiatorAuth,
    random: [u8; 32],
    state: State,
}

#[derive(Debug)]
enum State {
    /// AuthMethod was offered.
    Offered,
    /// CHAP was chosen, and the algorithms were offered.
    Algorithms,
    /// Our response was sent; that of the target is due if we challenged it.
    ResponseSent { algorithm: Algorithm, challenge: Option<Challenge> },
    /// Complete, with the result of CHAP if it was used.
    Done(Option<Authentication>),
}

impl InitiatorAuth {
    /// CHAP with `own`. With `target`, the target must authenticate as well. Algorithms weaker than `weakest` are not
    /// offered.
    ///
    /// Without `target`, the login also continues when the target requires no authentication.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn chap(own: Credential, target: Option<Credential>, weakest: Algorithm) -> Result<Self, PolicyError> {
        if !own.has_name() || target.as_ref().is_some_and(|target| !target.has_name()) {
            return Err(PolicyError::NameMalformed);
        }
        // RFC 7143 §9.2.1: equal secrets in both directions would permit reflection.
        if target.as_ref().is_some_and(|target| target.secret.equals(&own.secret)) {
            return Err(PolicyError::EqualSecrets);
        }
        Ok(Self::Chap(Box::new(InitiatorChap { own, target, weakest })))
    }

    /// Returns the offered methods.
    fn methods(&self) -> &'static str {
        match self {
            Self::None => "None",
            // `None` is offered only where the target need not authenticate.
            Self::Chap(chap) if chap.target.is_none() => "CHAP,None",
            Self::Chap(_) => "CHAP",
        }
    }
}

/// True for the keys of this stage.
pub(super) fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

impl Security {
    pub(super) fn new(auth: InitiatorAuth, random: [u8; 32]) -> Self {
        Self { auth, random, state: State::Offered }
    }

    /// Queues the offered methods in `offers`.
    pub(super) fn begin(&self, offers: &mut TextWriter) {
        offers.push("AuthMethod", self.auth.methods());
    }

    /// True when we have nothing left to send in this stage.
    pub(super) fn is_ready(&self) -> bool {
        match self.state {
            // Without CHAP there is nothing to wait for; with CHAP the choice of the target comes first.
            State::Offered => matches!(self.auth, InitiatorAuth::None),
            State::Algorithms => false,
            State::ResponseSent { .. } | State::Done(_) => true,
        }
    }

    /// True when all required authentication is complete.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// Returns the result of CHAP.
    pub(super) fn authentication(&self) -> Option<Authentication> {
        match &self.state {
            State::Done(proven) => proven.clone(),
            _ => None,
        }
    }

    /// Handles the security keys among `pairs`; resulting keys are queued in `answers`.
    ///
    /// *Errors*: [`Violation::AuthNotOffered`], [`Violation::ChapOutOfTurn`], [`Violation::ChallengeReflected`],
    /// [`Violation::TargetNotAuthenticated`].
    pub(super) fn handle(&mut self, pairs: &[(&str, &str)], answers: &mut TextWriter) -> Result<(), Violation> {
        let mut said = [None; KEYS.len()];
        for &(name, value) in pairs {
            if let Some(slot) = KEYS.iter().zip(&mut said).find_map(|(key, slot)| (*key == name).then_some(slot))
                && slot.replace(value).is_some()
            {
                // A repeated key must not replace the value that was checked.
                return Err(Violation::KeyRepeated);
            }
        }
        // The places of `said` are those of `KEYS`: AuthMethod, CHAP_A, CHAP_I, CHAP_C, CHAP_N, CHAP_R.
        let next = match (&self.state, said) {
            (State::Offered, [method, None, None, None, None, None]) => self.take_method(method, answers)?,
            (State::Algorithms, [None, Some(algorithm), Some(identifier), Some(challenge), None, None]) => {
                self.answer_challenge(algorithm, identifier, challenge, answers)?
            }
            (State::ResponseSent { algorithm, challenge }, [None, None, None, None, name, response]) => {
                self.verify(*algorithm, challenge.as_ref(), name, response)?
            }
            (State::Done(_), [None, None, None, None, None, None]) => return Ok(()),
            // Each step must contain exactly its own keys.
            _ => return Err(Violation::ChapOutOfTurn),
        };
        self.state = next;
        Ok(())
    }

    fn take_method(&self, method: Option<&str>, answers: &mut TextWriter) -> Result<State, Violation> {
        match (method, &self.auth) {
            // A target may omit AuthMethod when there is nothing to choose from.
            (None | Some("None"), InitiatorAuth::None) => Ok(State::Done(None)),
            (Some("None"), InitiatorAuth::Chap(chap)) if chap.target.is_none() => Ok(State::Done(None)),
            (Some("CHAP"), InitiatorAuth::Chap(chap)) => {
                let offered = Algorithm::ALL.into_iter().filter(|&algorithm| algorithm >= chap.weakest);
                let numbers: Vec<_> = offered.map(|algorithm| (algorithm as u8).to_string()).collect();
                answers.push("CHAP_A", numbers.join(","));
                Ok(State::Algorithms)
            }
            _ => Err(Violation::AuthNotOffered),
        }
    }

    /// Answers the target's challenge, and issues our own where mutual CHAP is configured.
    fn answer_challenge(
        &self,
        algorithm: &str,
        identifier: &str,
        challenge: &str,
        answers: &mut TextWriter,
    ) -> Result<State, Violation> {
        let InitiatorAuth::Chap(chap) = &self.auth else { return Err(Violation::ChapOutOfTurn) };
        // A target must not select an algorithm weaker than those offered.
        let algorithm = text::number(algorithm).and_then(Algorithm::of).filter(|&chosen| chosen >= chap.weakest);
        let algorithm = algorithm.ok_or(Violation::AuthNotOffered)?;
        let identifier = text::number(identifier).and_then(|number| u8::try_from(number).ok());
        let (Some(identifier), Some(theirs)) = (identifier, text::binary(challenge)) else {
            return Err(Violation::ChapOutOfTurn);
        };
        let response = algorithm.respond(identifier, &chap.own.secret, &theirs);
        answers.push("CHAP_N", &chap.own.name);
        answers.push("CHAP_R", text::hexadecimal(&response));
        // One-way CHAP: the target does not authenticate.
        let Some(_) = chap.target else { return Ok(State::ResponseSent { algorithm, challenge: None }) };
        let ours = Challenge::new(algorithm, &self.random);
        // RFC 7143 §9.2.1: a target that reflects our challenge would obtain the response from us.
        // The response queued above stays unsent, because the violation ends the login first.
        if ours.is_reflected_by(&theirs) {
            return Err(Violation::ChallengeReflected);
        }
        answers.push("CHAP_I", ours.identifier());
        answers.push("CHAP_C", text::hexadecimal(ours.bytes()));
        Ok(State::ResponseSent { algorithm, challenge: Some(ours) })
    }

    /// Verifies the authentication of the target.
    fn verify(
        &self,
        algorithm: Algorithm,
        challenge: Option<&Challenge>,
        name: Option<&str>,
        response: Option<&str>,
    ) -> Result<State, Violation> {
        let InitiatorAuth::Chap(chap) = &self.auth else { return Err(Violation::ChapOutOfTurn) };
        let proven = |mutual| State::Done(Some(Authentication { name: chap.own.name.clone(), algorithm, mutual }));
        // One-way CHAP ends here; the next stage may start.
        let (Some(challenge), Some(target)) = (challenge, &chap.target) else { return Ok(proven(false)) };
        // A target that does not answer our challenge has not authenticated.
        let (Some(name), Some(response)) = (name, response.and_then(text::binary)) else {
            return Err(Violation::TargetNotAuthenticated);
        };
        let verified = challenge.verify(std::slice::from_ref(target), name, &response);
        verified.map(|_| proven(true)).ok_or(Violation::TargetNotAuthenticated)
    }
}

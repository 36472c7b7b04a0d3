//! The security stage of an initiator's login: what we prove, and what the target must.

use crate::Violation;
use crate::chap::{Algorithm, Authentication, Challenge, Credential, PolicyError};
use crate::text::{self, TextWriter};

/// The keys of this stage that a target sends.
const KEYS: [&str; 6] = ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"];

/// How an initiator authenticates.
#[derive(Clone, Debug, Default)]
pub enum InitiatorAuth {
    /// Not at all.
    #[default]
    None,
    /// With CHAP; see [`InitiatorAuth::chap`].
    Chap(Box<InitiatorChap>),
}

/// The names and secrets of both directions.
#[derive(Clone, Debug)]
pub struct InitiatorChap {
    own: Credential,
    target: Option<Credential>,
    weakest: Algorithm,
}

/// How far the stage has come.
#[derive(Debug)]
pub(super) struct Security {
    auth: InitiatorAuth,
    random: [u8; 32],
    state: State,
}

#[derive(Debug)]
enum State {
    /// The methods are offered.
    Offered,
    /// CHAP was chosen, and the algorithms are offered.
    Algorithms,
    /// Our proof is given; the target's is due, when we have challenged it.
    Proven { algorithm: Algorithm, challenge: Option<Challenge> },
    /// Nothing is due any more; what was proven, if CHAP was spoken.
    Done(Option<Authentication>),
}

impl InitiatorAuth {
    /// CHAP with `own`; with a `target`, it must prove that, too. Algorithms below `weakest` are not offered.
    ///
    /// Without a `target` the login also goes on when the target asks for no proof.
    ///
    /// *Errors*: a sentence for the operator.
    pub fn chap(own: Credential, target: Option<Credential>, weakest: Algorithm) -> Result<Self, PolicyError> {
        if !own.has_name() || target.as_ref().is_some_and(|target| !target.has_name()) {
            return Err(PolicyError::NameMalformed);
        }
        if target.as_ref().is_some_and(|target| target.secret.equals(&own.secret)) {
            return Err(PolicyError::EqualSecrets);
        }
        Ok(Self::Chap(Box::new(InitiatorChap { own, target, weakest })))
    }

    /// The methods that are offered.
    fn methods(&self) -> &'static str {
        match self {
            Self::None => "None",
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

    /// The methods wait in `offers`.
    pub(super) fn begin(&self, offers: &mut TextWriter) {
        offers.push("AuthMethod", self.auth.methods());
    }

    /// True when we have nothing to say any more in this stage.
    pub(super) fn is_told(&self) -> bool {
        match self.state {
            State::Offered => matches!(self.auth, InitiatorAuth::None),
            State::Algorithms => false,
            State::Proven { .. } | State::Done(_) => true,
        }
    }

    /// True when everything due is proven.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// What CHAP has proven.
    pub(super) fn authentication(&self) -> Option<Authentication> {
        match &self.state {
            State::Done(proven) => proven.clone(),
            _ => None,
        }
    }

    /// The security keys among `pairs` are acted on; what follows from them waits in `answers`.
    ///
    /// *Errors*: [`Violation::AuthNotOffered`], [`Violation::ChapOutOfTurn`], [`Violation::ChallengeReflected`],
    /// [`Violation::TargetNotProven`].
    pub(super) fn handle(&mut self, pairs: &[(&str, &str)], answers: &mut TextWriter) -> Result<(), Violation> {
        let mut said = [None; KEYS.len()];
        for &(name, value) in pairs {
            if let Some(slot) = KEYS.iter().zip(&mut said).find_map(|(key, slot)| (*key == name).then_some(slot))
                && slot.replace(value).is_some()
            {
                return Err(Violation::KeyRepeated);
            }
        }
        let next = match (&self.state, said) {
            (State::Offered, [method, None, None, None, None, None]) => self.take_method(method, answers)?,
            (State::Algorithms, [None, Some(algorithm), Some(identifier), Some(challenge), None, None]) => {
                self.prove(algorithm, identifier, challenge, answers)?
            }
            (State::Proven { algorithm, challenge }, [None, None, None, None, name, response]) => {
                self.verify(*algorithm, challenge.as_ref(), name, response)?
            }
            (State::Done(_), [None, None, None, None, None, None]) => return Ok(()),
            _ => return Err(Violation::ChapOutOfTurn),
        };
        self.state = next;
        Ok(())
    }

    fn take_method(&self, method: Option<&str>, answers: &mut TextWriter) -> Result<State, Violation> {
        match (method, &self.auth) {
            // A target that has nothing to choose from may say nothing.
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

    /// The target's challenge is solved, and ours posed where one is due.
    fn prove(
        &self,
        algorithm: &str,
        identifier: &str,
        challenge: &str,
        answers: &mut TextWriter,
    ) -> Result<State, Violation> {
        let InitiatorAuth::Chap(chap) = &self.auth else { return Err(Violation::ChapOutOfTurn) };
        let algorithm = text::number(algorithm).and_then(Algorithm::of).filter(|&chosen| chosen >= chap.weakest);
        let algorithm = algorithm.ok_or(Violation::AuthNotOffered)?;
        let identifier = text::number(identifier).and_then(|number| u8::try_from(number).ok());
        let (Some(identifier), Some(theirs)) = (identifier, text::binary(challenge)) else {
            return Err(Violation::ChapOutOfTurn);
        };
        let response = algorithm.respond(identifier, &chap.own.secret, &theirs);
        answers.push("CHAP_N", &chap.own.name);
        answers.push("CHAP_R", text::hexadecimal(&response));
        let Some(_) = chap.target else { return Ok(State::Proven { algorithm, challenge: None }) };
        let ours = Challenge::new(algorithm, &self.random);
        if ours.is_reflected_by(&theirs) {
            return Err(Violation::ChallengeReflected);
        }
        answers.push("CHAP_I", ours.identifier());
        answers.push("CHAP_C", text::hexadecimal(ours.bytes()));
        Ok(State::Proven { algorithm, challenge: Some(ours) })
    }

    /// The target has proven what it had to.
    fn verify(
        &self,
        algorithm: Algorithm,
        challenge: Option<&Challenge>,
        name: Option<&str>,
        response: Option<&str>,
    ) -> Result<State, Violation> {
        let InitiatorAuth::Chap(chap) = &self.auth else { return Err(Violation::ChapOutOfTurn) };
        let proven = |mutual| State::Done(Some(Authentication { name: chap.own.name.clone(), algorithm, mutual }));
        let (Some(challenge), Some(target)) = (challenge, &chap.target) else { return Ok(proven(false)) };
        let (Some(name), Some(response)) = (name, response.and_then(text::binary)) else {
            return Err(Violation::TargetNotProven);
        };
        let verified = challenge.verify(std::slice::from_ref(target), name, &response);
        verified.map(|_| proven(true)).ok_or(Violation::TargetNotProven)
    }
}

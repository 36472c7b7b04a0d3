//! The security stage of a target's login: who must prove what, and whether it did.
//!
//! Whatever is missing, wrong, short, empty or repeated fails the authentication; there is no second try.

use crate::chap::{Algorithm, Auth, Authentication, Challenge, ChapPolicy, Mutual};
use crate::login::Unproven;
use crate::text::{self, TextWriter};

/// The keys of this stage that an initiator sends.
const KEYS: [&str; 6] = ["AuthMethod", "CHAP_A", "CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"];

/// What has been proven so far.
#[derive(Debug)]
pub(super) struct Security {
    auth: Auth,
    random: [u8; 32],
    state: State,
}

#[derive(Debug)]
enum State {
    /// No method is agreed on.
    Open,
    /// CHAP; the initiator names its algorithms next.
    Algorithm,
    /// The initiator solves this next.
    Challenged(Challenge),
    /// Nothing more has to be proven; what was, if CHAP was spoken.
    Done(Option<Authentication>),
}

/// The values of the keys in one text.
#[derive(Clone, Copy, Debug, Default)]
struct Said<'a>([Option<&'a str>; KEYS.len()]);

/// True for the keys of this stage.
pub(super) fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

impl Security {
    /// Nothing is proven.
    pub(super) fn new(auth: Auth, random: [u8; 32]) -> Self {
        Self { auth, random, state: State::Open }
    }

    /// The security keys among `pairs` are acted on; answers wait in `answers`.
    ///
    /// *Errors*: what is not proven.
    pub(super) fn handle(&mut self, pairs: &[(&str, &str)], answers: &mut TextWriter) -> Result<(), Unproven> {
        let said = Said::parse(pairs)?;
        let next = match (&self.state, said.0) {
            (State::Open | State::Done(_), [None, None, None, None, None, None]) => return Ok(()),
            (State::Open, [Some(methods), None, None, None, None, None]) => self.choose_method(methods, answers)?,
            (State::Algorithm, [None, Some(algorithms), None, None, None, None]) => {
                self.challenge(algorithms, answers)?
            }
            (State::Challenged(challenge), [None, None, Some(name), Some(response), identifier, theirs]) => {
                let name = self.verify(challenge, name, response)?;
                let mutual = self.prove_ourselves(challenge, identifier, theirs, answers)?;
                State::Done(Some(Authentication { name, algorithm: challenge.algorithm(), mutual }))
            }
            _ => return Err(Unproven::KeysMalformed),
        };
        self.state = next;
        Ok(())
    }

    /// True when nothing has to be proven any more.
    pub(super) fn is_done(&self) -> bool {
        match self.state {
            State::Done(_) => true,
            State::Open => !self.auth.is_required(),
            State::Algorithm | State::Challenged(_) => false,
        }
    }

    /// What CHAP has proven.
    pub(super) fn authentication(&self) -> Option<Authentication> {
        match &self.state {
            State::Done(proven) => proven.clone(),
            _ => None,
        }
    }

    /// Leaving the stage may be asked for: not before a method is agreed on when a proof is due.
    ///
    /// *Errors*: what is not proven.
    pub(super) fn permit_transit(&self) -> Result<(), Unproven> {
        // In the midst of CHAP the request is only early, and answered without transit.
        let nothing_said = matches!(self.state, State::Open);
        if nothing_said && !self.is_done() { Err(Unproven::NoMethod) } else { Ok(()) }
    }

    /// The operational stage may be entered: everything due is proven.
    ///
    /// *Errors*: what is not proven, for who skipped this stage.
    pub(super) fn permit_operational(&self) -> Result<(), Unproven> {
        if self.is_done() { Ok(()) } else { Err(Unproven::NoMethod) }
    }

    /// The first method of the list that we speak with this initiator. Source: RFC 7143 §6.2.1, §12.1.
    fn choose_method(&self, methods: &str, answers: &mut TextWriter) -> Result<State, Unproven> {
        for method in text::list(methods) {
            let next = match method {
                "CHAP" if self.auth.chap().is_some() => State::Algorithm,
                "None" if !self.auth.is_required() => State::Done(None),
                _ => continue,
            };
            answers.push("AuthMethod", method);
            return Ok(next);
        }
        Err(Unproven::NoMethod)
    }

    fn challenge(&self, algorithms: &str, answers: &mut TextWriter) -> Result<State, Unproven> {
        let offered = text::list(algorithms).filter_map(|number| Algorithm::of(text::number(number)?));
        let algorithm = Algorithm::choose(offered, self.policy()?.weakest()).ok_or(Unproven::NoAlgorithm)?;
        let challenge = Challenge::new(algorithm, &self.random);
        answers.push("CHAP_A", algorithm as u8);
        answers.push("CHAP_I", challenge.identifier());
        answers.push("CHAP_C", text::hexadecimal(challenge.bytes()));
        Ok(State::Challenged(challenge))
    }

    /// The name that the response proves.
    fn verify(&self, challenge: &Challenge, name: &str, response: &str) -> Result<String, Unproven> {
        let response = text::binary(response).ok_or(Unproven::WrongProof)?;
        let proven = challenge.verify(self.policy()?.accepted(), name, &response);
        proven.map(|credential| credential.name.clone()).ok_or(Unproven::WrongProof)
    }

    /// The initiator's own challenge is solved, if it poses one and we can; one that must pose one does.
    /// True when there was one.
    fn prove_ourselves(
        &self,
        ours: &Challenge,
        identifier: Option<&str>,
        challenge: Option<&str>,
        answers: &mut TextWriter,
    ) -> Result<bool, Unproven> {
        let policy = self.policy()?;
        let (identifier, challenge) = match (identifier, challenge) {
            (None, None) if matches!(policy.mutual(), Mutual::Required(_)) => {
                return Err(Unproven::NotMutual);
            }
            (None, None) => return Ok(false),
            (Some(identifier), Some(challenge)) => (text::number(identifier), text::binary(challenge)),
            _ => return Err(Unproven::KeysMalformed),
        };
        let own = policy.mutual().credential().ok_or(Unproven::MutualUnknown)?;
        let identifier = identifier.and_then(|number| u8::try_from(number).ok());
        let (Some(identifier), Some(challenge)) = (identifier, challenge) else { return Err(Unproven::KeysMalformed) };
        if ours.is_reflected_by(&challenge) {
            return Err(Unproven::Reflected);
        }
        let response = ours.algorithm().respond(identifier, &own.secret, &challenge);
        answers.push("CHAP_N", &own.name);
        answers.push("CHAP_R", text::hexadecimal(&response));
        Ok(true)
    }

    fn policy(&self) -> Result<&ChapPolicy, Unproven> {
        self.auth.chap().ok_or(Unproven::NoMethod)
    }
}

impl<'a> Said<'a> {
    /// *Errors*: a key comes twice.
    fn parse(pairs: &[(&'a str, &'a str)]) -> Result<Self, Unproven> {
        let mut said = Self::default();
        for &(name, value) in pairs {
            let Some(slot) = KEYS.iter().zip(&mut said.0).find_map(|(key, slot)| (*key == name).then_some(slot)) else {
                continue;
            };
            if slot.replace(value).is_some() {
                return Err(Unproven::KeysMalformed);
            }
        }
        Ok(said)
    }
}

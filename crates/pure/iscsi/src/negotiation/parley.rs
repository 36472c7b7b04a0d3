//! The negotiation itself: one state for each key, the same for both roles.

use super::key::{Key, Role, Row, Rule, TABLE};
use super::{IRRELEVANT, Identity, NOT_UNDERSTOOD, Negotiated, Offer, REJECT, SessionType};
use crate::Violation;
use crate::text::{self, TextWriter};

/// How far a key has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nobody has spoken of it: the default holds.
    #[default]
    Silent,
    /// We have offered, and wait for the answer; until it comes the default holds.
    Offered,
    /// Both have spoken, and the value holds.
    Settled(u32),
}

/// A negotiation of the operational parameters under way.
#[derive(Clone, Debug)]
pub(crate) struct Parley {
    role: Role,
    session_type: SessionType,
    /// The session is there, and what is the same for all its connections was agreed when it began.
    joins: bool,
    offer: Offer,
    states: [State; TABLE.len()],
    /// We have declared our MaxRecvDataSegmentLength.
    declared: bool,
}

impl Parley {
    /// Nobody has spoken: every default holds.
    pub(crate) fn new(role: Role, session_type: SessionType, offer: Offer) -> Self {
        Self { role, session_type, joins: false, offer, states: Default::default(), declared: false }
    }

    /// The same for one connection more of a session that is there, if so.
    pub(crate) fn joining(self, joins: bool) -> Self {
        Self { joins, ..self }
    }

    /// The peer's word on `key` is taken, and the answer, if one is due, waits in `answers`.
    ///
    /// *Errors*: [`Violation::KeyRepeated`], [`Violation::AnswerOutsideOffer`].
    pub(crate) fn handle(&mut self, key: Key, value: &str, answers: &mut TextWriter) -> Result<(), Violation> {
        let row = key.row();
        match self.states[key as usize] {
            State::Settled(_) => return Err(Violation::KeyRepeated),
            State::Offered => self.states[key as usize] = State::Settled(self.judge_answer(row, value)?),
            State::Silent if self.is_irrelevant(row) => {
                self.states[key as usize] = State::Settled(row.default);
                answers.push(row.name, IRRELEVANT);
            }
            State::Silent => {
                let settled = self.answer(row, value);
                self.states[key as usize] = State::Settled(settled.unwrap_or(row.default));
                match settled {
                    None => answers.push(row.name, REJECT),
                    // A declaration is heard, not answered.
                    Some(_) if matches!(row.rule, Rule::Declared(_)) => {}
                    Some(value) => answers.push(row.name, show(row, value)),
                }
            }
        }
        Ok(())
    }

    /// Everything that we may offer waits in `offers`, and our declaration too. For the initiator's first step.
    pub(crate) fn offer_all(&mut self, offers: &mut TextWriter) {
        self.declare(offers);
        for row in &TABLE {
            if !self.is_irrelevant(row) && !matches!(row.rule, Rule::Declared(_)) {
                self.offer_one(row, offers);
            }
        }
    }

    /// Keys of which the peer was silent, and whose defaults we cannot live with, wait in `offers`.
    pub(crate) fn offer_needed(&mut self, offers: &mut TextWriter) {
        for row in &TABLE {
            let silent = self.states[row.key as usize] == State::Silent;
            if silent && !self.is_irrelevant(row) && !self.offer.allows(row.key, row.default) {
                self.offer_one(row, offers);
            }
        }
    }

    /// Our MaxRecvDataSegmentLength waits in `offers`, once.
    pub(crate) fn declare(&mut self, offers: &mut TextWriter) {
        if !std::mem::replace(&mut self.declared, true) {
            offers.push(Key::MaxRecvDataSegmentLength.row().name, self.offer.data_segment_bytes_max);
        }
    }

    /// True while an offer of ours has no answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.states.contains(&State::Offered)
    }

    /// What all keys have come to.
    ///
    /// *Errors*: [`Violation::NothingInCommon`], [`Violation::FirstBurstBeyondMaxBurst`].
    pub(crate) fn finish(&self, identity: Identity) -> Result<Negotiated, Violation> {
        if self.unsuitable().is_some() {
            return Err(Violation::NothingInCommon);
        }
        let both_spoke = matches!(self.states[Key::FirstBurstLength as usize], State::Settled(_));
        let first_burst = self.value(Key::FirstBurstLength);
        if self.role == Role::Target && both_spoke && first_burst > self.value(Key::MaxBurstLength) {
            return Err(Violation::FirstBurstBeyondMaxBurst);
        }
        Ok(Negotiated::new(identity, self))
    }

    /// The name of the key for which [`Parley::finish`] fails.
    pub(crate) fn unsuitable_key(&self) -> Option<&'static str> {
        Some(self.unsuitable().unwrap_or(Key::FirstBurstLength.row()).name)
    }

    /// The first key whose value does not suit us.
    fn unsuitable(&self) -> Option<&'static Row> {
        let mut relevant = TABLE.iter().filter(|row| !self.is_irrelevant(row) && row.key != Key::FirstBurstLength);
        relevant.find(|row| !self.offer.allows(row.key, self.value(row.key)))
    }

    /// What `key` has come to. For MaxRecvDataSegmentLength: the peer's.
    pub(super) fn value(&self, key: Key) -> u32 {
        match self.states[key as usize] {
            State::Settled(value) => value,
            State::Silent | State::Offered => key.row().default,
        }
    }

    /// What the peer may send at once.
    pub(super) fn own_data_segment_bytes_max(&self) -> u32 {
        if self.declared { self.offer.data_segment_bytes_max } else { Key::MaxRecvDataSegmentLength.row().default }
    }

    fn is_irrelevant(&self, row: &Row) -> bool {
        (row.normal_only && self.session_type == SessionType::Discovery) || (self.joins && row.key.is_leading_only())
    }

    fn offer_one(&mut self, row: &Row, offers: &mut TextWriter) {
        self.states[row.key as usize] = State::Offered;
        match row.rule {
            Rule::List(names) => {
                let choices = self.offer.choices(row.key).iter().filter_map(|&at| names.get(at as usize).copied());
                offers.push(row.name, choices.collect::<Vec<_>>().join(","));
            }
            _ => offers.push(row.name, show(row, self.offer.value(row.key))),
        }
    }

    /// The value that follows from the peer's offer, or `None` when there is none to be had.
    fn answer(&self, row: &Row, value: &str) -> Option<u32> {
        if let Rule::List(names) = row.rule {
            let places = text::list(value).filter_map(|name| place(names, name));
            return places.into_iter().find(|&at| self.offer.allows(row.key, at));
        }
        let (theirs, ours) = (parse(row, value)?, self.offer.value(row.key));
        Some(match row.rule {
            // The caller hands out MaxBurstLength before, when both come at once.
            Rule::Least(_) if row.key == Key::FirstBurstLength => {
                theirs.min(ours).min(self.value(Key::MaxBurstLength)).min(self.offer.burst_bytes_max)
            }
            // With data in order, one at a time above level 0 (RFC 7143 §13.19); the caller hands out the level before.
            Rule::Least(_) if row.key == Key::MaxOutstandingR2T && self.value(Key::ErrorRecoveryLevel) > 0 => 1,
            Rule::Least(_) => theirs.min(ours),
            Rule::Greatest(_) => theirs.max(ours),
            Rule::And => theirs & ours,
            Rule::Or => theirs | ours,
            Rule::Declared(_) | Rule::List(_) => theirs,
        })
    }

    /// The value that the peer's answer to our offer says.
    fn judge_answer(&self, row: &Row, value: &str) -> Result<u32, Violation> {
        if [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(&value) {
            return Ok(row.default);
        }
        let value = match row.rule {
            Rule::List(names) => place(names, value),
            _ => parse(row, value),
        };
        value.filter(|&value| self.offer.allows(row.key, value)).ok_or(Violation::AnswerOutsideOffer)
    }
}

fn place(names: &[&str], name: &str) -> Option<u32> {
    names.iter().position(|known| *known == name).and_then(|at| u32::try_from(at).ok())
}

fn parse(row: &Row, value: &str) -> Option<u32> {
    match &row.rule {
        Rule::Least(range) | Rule::Greatest(range) | Rule::Declared(range) => {
            let number = u32::try_from(text::number(value)?).ok()?;
            range.contains(&number).then_some(number)
        }
        Rule::And | Rule::Or => text::boolean(value).map(u32::from),
        Rule::List(_) => None,
    }
}

fn show(row: &Row, value: u32) -> String {
    match row.rule {
        Rule::And | Rule::Or => if value == 1 { "Yes" } else { "No" }.to_owned(),
        Rule::List(names) => names.get(value as usize).copied().unwrap_or(REJECT).to_owned(),
        _ => value.to_string(),
    }
}

//! Negotiation state machine: one state per key, the same for both roles.

use super::key::{Key, Role, Row, Rule, TABLE};
use super::{IRRELEVANT, Identity, NOT_UNDERSTOOD, Negotiated, Offer, REJECT, SessionType};
use crate::Violation;
use crate::text::{self, TextWriter};

/// Negotiation state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not negotiated: the default is in effect.
    #[default]
    Silent,
    /// Offered by us and not answered; the default is in effect until then.
    Offered,
    /// Negotiated value.
    Settled(u32),
}

/// Negotiation of the operational parameters in progress.
#[derive(Clone, Debug)]
pub(crate) struct Negotiation {
    role: Role,
    session_type: SessionType,
    /// True when the session exists, and its session-wide parameters were negotiated by the leading connection.
    joins: bool,
    offer: Offer,
    states: [State; TABLE.len()],
    /// True when we have declared our MaxRecvDataSegmentLength.
    declared: bool,
}

impl Negotiation {
    /// Creates a negotiation with all defaults in effect.
    pub(crate) fn new(role: Role, session_type: SessionType, offer: Offer) -> Self {
        Self { role, session_type, joins: false, offer, states: Default::default(), declared: false }
    }

    /// Sets whether the connection joins an existing session.
    pub(crate) fn joining(self, joins: bool) -> Self {
        Self { joins, ..self }
    }

    /// Handles a key of the peer; an answer, if one is due, is queued in `answers`.
    ///
    /// *Errors*: [`Violation::KeyRepeated`], [`Violation::AnswerOutsideOffer`].
    pub(crate) fn handle(&mut self, key: Key, value: &str, answers: &mut TextWriter) -> Result<(), Violation> {
        let row = key.row();
        match self.states[key as usize] {
            State::Settled(_) => return Err(Violation::KeyRepeated),
            // The peer's value answers our offer, so it is not answered again.
            State::Offered => self.states[key as usize] = State::Settled(self.judge_answer(row, value)?),
            // RFC 7143 §6.2: keys without meaning for this session are answered with Irrelevant, and the default
            // remains.
            State::Silent if self.is_irrelevant(row) => {
                // Settled, so that a repetition of the key is recognized.
                self.states[key as usize] = State::Settled(row.default);
                answers.push(row.name, IRRELEVANT);
            }
            State::Silent => {
                let settled = self.answer(row, value);
                self.states[key as usize] = State::Settled(settled.unwrap_or(row.default));
                match settled {
                    // An unacceptable offer leaves the default in effect.
                    None => answers.push(row.name, REJECT),
                    // Declarations are not answered (RFC 7143 §6.2).
                    Some(_) if matches!(row.rule, Rule::Declared(_)) => {}
                    Some(value) => answers.push(row.name, show(row, value)),
                }
            }
        }
        Ok(())
    }

    /// Queues all our offers and our declaration in `offers`, for the initiator's first operational request.
    pub(crate) fn offer_all(&mut self, offers: &mut TextWriter) {
        self.declare(offers);
        for row in &TABLE {
            // Declarations are not offers and are queued separately.
            if !self.is_irrelevant(row) && !matches!(row.rule, Rule::Declared(_)) {
                self.offer_one(row, offers);
            }
        }
    }

    /// Queues offers for keys that the peer did not negotiate and whose defaults are unacceptable for us.
    pub(crate) fn offer_needed(&mut self, offers: &mut TextWriter) {
        for row in &TABLE {
            // A key that the peer has negotiated must not be offered again (RFC 7143 §6.3).
            let silent = self.states[row.key as usize] == State::Silent;
            if silent && !self.is_irrelevant(row) && !self.offer.allows(row.key, row.default) {
                self.offer_one(row, offers);
            }
        }
    }

    /// Queues our MaxRecvDataSegmentLength in `offers`, once.
    pub(crate) fn declare(&mut self, offers: &mut TextWriter) {
        // A declaration must not be repeated in one login (RFC 7143 §6.3).
        if !std::mem::replace(&mut self.declared, true) {
            offers.push(Key::MaxRecvDataSegmentLength.row().name, self.offer.data_segment_bytes_max);
        }
    }

    /// True while an offer of ours is unanswered.
    pub(crate) fn is_waiting(&self) -> bool {
        self.states.contains(&State::Offered)
    }

    /// Returns the negotiated parameters.
    ///
    /// *Errors*: [`Violation::NothingInCommon`], [`Violation::FirstBurstBeyondMaxBurst`].
    pub(crate) fn finish(&self, identity: Identity) -> Result<Negotiated, Violation> {
        if self.unsuitable().is_some() {
            return Err(Violation::NothingInCommon);
        }
        // Checked only when the initiator chose the value: a default above a smaller MaxBurstLength is clamped instead.
        let both_spoke = matches!(self.states[Key::FirstBurstLength as usize], State::Settled(_));
        let first_burst = self.value(Key::FirstBurstLength);
        if self.role == Role::Target && both_spoke && first_burst > self.value(Key::MaxBurstLength) {
            return Err(Violation::FirstBurstBeyondMaxBurst);
        }
        Ok(Negotiated::new(identity, self))
    }

    /// Returns the name of the key for which [`Negotiation::finish`] fails.
    pub(crate) fn unsuitable_key(&self) -> Option<&'static str> {
        Some(self.unsuitable().unwrap_or(Key::FirstBurstLength.row()).name)
    }

    /// Returns the first key whose value is unacceptable for us.
    fn unsuitable(&self) -> Option<&'static Row> {
        // FirstBurstLength is excluded: its upper bound depends on MaxBurstLength and is checked by the caller.
        let mut relevant = TABLE.iter().filter(|row| !self.is_irrelevant(row) && row.key != Key::FirstBurstLength);
        relevant.find(|row| !self.offer.allows(row.key, self.value(row.key)))
    }

    /// Returns the value of `key`. For MaxRecvDataSegmentLength: that of the peer.
    pub(super) fn value(&self, key: Key) -> u32 {
        match self.states[key as usize] {
            State::Settled(value) => value,
            // The default applies until an answer arrives.
            State::Silent | State::Offered => key.row().default,
        }
    }

    /// Returns the maximum data segment that the peer may send, in bytes.
    pub(super) fn own_data_segment_bytes_max(&self) -> u32 {
        // Before our declaration the peer may assume only the default of 8,192 bytes.
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

    /// Computes the value for an offer of the peer; `None` when it is unacceptable.
    fn answer(&self, row: &Row, value: &str) -> Option<u32> {
        if let Rule::List(names) = row.rule {
            // The first entry of the peer's list that we support is selected (RFC 7143 §6.2.1).
            let places = text::list(value).filter_map(|name| place(names, name));
            return places.into_iter().find(|&at| self.offer.allows(row.key, at));
        }
        let (theirs, ours) = (parse(row, value)?, self.offer.value(row.key));
        Some(match row.rule {
            // FirstBurstLength is bounded by MaxBurstLength (RFC 7143 §13.14); the caller handles MaxBurstLength first
            // when both arrive together.
            Rule::Least(_) if row.key == Key::FirstBurstLength => {
                // Our own maximum counts as well, because MaxBurstLength may still have its default here.
                theirs.min(ours).min(self.value(Key::MaxBurstLength)).min(self.offer.burst_bytes_max)
            }
            // With data in order, one R2T at a time above level 0 (RFC 7143 §13.19); the caller handles the level
            // first.
            Rule::Least(_) if row.key == Key::MaxOutstandingR2T && self.value(Key::ErrorRecoveryLevel) > 0 => 1,
            Rule::Least(_) => theirs.min(ours),
            Rule::Greatest(_) => theirs.max(ours),
            Rule::And => theirs & ours,
            Rule::Or => theirs | ours,
            Rule::Declared(_) | Rule::List(_) => theirs,
        })
    }

    /// Checks the peer's answer to our offer and returns its value.
    fn judge_answer(&self, row: &Row, value: &str) -> Result<u32, Violation> {
        // A refused key keeps its default; whether we can accept that is checked at the end.
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

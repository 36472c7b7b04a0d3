//! Text exchanges in full feature phase: SendTargets, and keys that may change while a session lives.
//!
//! One exchange is under way at a time; a new one ends the one before. Both its text and its answer are bounded. It ends
//! when the initiator says so, and what it declares holds from then on: of one that fails, nothing does.

use super::event::{Event, SendTargets, TargetRecord};
use super::full_feature::{FullFeature, Turn};
use super::link::Link;
use super::task::{Kind, Task, TextTask};
use crate::pdu::{SegmentLengths, TargetTransferTag, TextRequest, TextResponse};
use crate::session::TaskId;
use crate::text::{PAIRS_MAX, Pairs, TextCollector, TextPart, TextWriter, number};
use crate::{Negotiated, SessionType, Violation};
use shard::Time;
use std::collections::BTreeSet;

impl FullFeature {
    pub(crate) fn handle_text(&mut self, link: &mut Link, request: &TextRequest, data: &[u8]) -> Result<(), Violation> {
        if !self.in_window(request.immediate, request.cmd_sn) {
            return Ok(());
        }
        let id = self.find_text(link, request)?;
        self.take_turn(link, request.immediate, request.cmd_sn, Turn::Pass);
        let taken = self.take_text(link, id, request, data);
        if taken.is_err() {
            // RFC 7143 §7.11: the whole exchange ends, and with it what it would have changed.
            self.end_text(link, id);
        }
        taken
    }

    /// Adds what has come to the exchange, and answers it.
    fn take_text(&mut self, link: &mut Link, id: TaskId, request: &TextRequest, data: &[u8]) -> Result<(), Violation> {
        let segment_bytes_max = self.negotiated.own_data_segment_bytes_max as usize;
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
        let goes_on = !text.answer.is_empty();
        if goes_on && !data.is_empty() {
            return Err(Violation::TextWhileContinuing);
        }
        text.ends = request.is_final;
        let Some(asked) = text.request.handle_segment(data, request.continues, segment_bytes_max)? else {
            self.push_text(link, id, &TextPart::default());
            return Ok(());
        };
        if goes_on {
            self.send_text(link, id);
            return Ok(());
        }
        self.answer_text(link, id, &asked)
    }

    /// The driver's answer to SendTargets; without effect when the exchange was given up.
    pub(crate) fn respond_targets(&mut self, link: &mut Link, id: TaskId, targets: &[TargetRecord]) {
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return };
        if text.asked.take().is_none() {
            return;
        }
        for target in targets {
            text.answer.push("TargetName", &target.name);
            for (address, group) in &target.portals {
                text.answer.push("TargetAddress", format_args!("{address},{group}"));
            }
        }
        self.send_text(link, id);
    }

    /// The exchange that the request belongs to: a running one by its tags, or a new one.
    fn find_text(&mut self, link: &mut Link, request: &TextRequest) -> Result<TaskId, Violation> {
        if !request.target_transfer_tag.is_reserved() {
            let id = self.session.by_tag(request.initiator_task_tag).ok_or(Violation::TransferTagUnknown)?;
            return match self.session.find(id).filter(|task| task.slot == Some(link.slot)).map(|task| &task.kind) {
                Some(Kind::Text(text)) if text.is_continued_by(request) => Ok(id),
                _ => Err(Violation::TransferTagUnknown),
            };
        }
        if let Some(before) = link.text.take() {
            self.remove(before);
        }
        self.session.admit(request.initiator_task_tag, request.immediate)?;
        self.next_text_tag = self.next_text_tag.wrapping_add(1) & 0x7fff_ffff;
        let id = self.session.insert(Task {
            tag: request.initiator_task_tag,
            lun: request.lun,
            cmd_sn: request.cmd_sn,
            slot: Some(link.slot),
            immediate: request.immediate,
            // Nobody asks how long these have been here.
            since: Time::default(),
            doomed_by: None,
            kind: Kind::Text(TextTask::new(TargetTransferTag(self.next_text_tag))),
        });
        link.text = Some(id);
        Ok(id)
    }

    /// All text of the initiator has come, for this time.
    fn answer_text(&mut self, link: &mut Link, id: TaskId, asked: &[u8]) -> Result<(), Violation> {
        let mut answer = TextWriter::default();
        let mut which = None;
        for pair in Pairs::parse(asked) {
            let (key, value) = pair?;
            let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
            text.remember(key)?;
            match key {
                "SendTargets" => match judge_send_targets(&self.negotiated, value) {
                    Some(asked) => which = Some(asked),
                    None => answer.push(key, "Reject"),
                },
                // A declaration; it needs no answer.
                "MaxRecvDataSegmentLength" => match number(value).and_then(|bytes| u32::try_from(bytes).ok()) {
                    Some(bytes @ 512..=0x00ff_ffff) => text.declared_segment_bytes_max = Some(bytes),
                    _ => answer.push(key, "Reject"),
                },
                "InitiatorAlias" => {}
                _ if crate::is_login_key(key) => answer.push(key, "Reject"),
                _ => answer.push(key, "NotUnderstood"),
            }
        }
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
        text.answer = answer;
        match which {
            Some(which) => {
                text.asked = Some(which.clone());
                self.events.push_back(Event::SendTargets { task: id, which });
            }
            None => self.send_text(link, id),
        }
        Ok(())
    }

    /// Sends what is left of the answer, as much as the initiator takes at once.
    fn send_text(&mut self, link: &mut Link, id: TaskId) {
        let most = link.peer_data_segment_bytes_max as usize;
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return };
        let part = text.answer.take(most);
        self.push_text(link, id, &part);
    }

    /// Only who has asked for the end of the exchange is told of it; all others get a tag to go on with.
    ///
    /// Source: RFC 7143 §11.11.1.
    fn push_text(&mut self, link: &mut Link, id: TaskId, part: &TextPart) {
        let Some(task) = self.session.find(id) else { return };
        let (initiator_task_tag, lun) = (task.tag, task.lun);
        let Kind::Text(text) = &task.kind else { return };
        let (transfer_tag, last) = (text.transfer_tag, text.ends && !part.continues);
        if last {
            // What was negotiated holds once that is over (RFC 7143 §6.4).
            link.peer_data_segment_bytes_max =
                text.declared_segment_bytes_max.unwrap_or(link.peer_data_segment_bytes_max);
            self.end_text(link, id);
        }
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let response = TextResponse {
            is_final: last,
            continues: part.continues,
            lun,
            initiator_task_tag,
            target_transfer_tag: if last { TargetTransferTag::RESERVED } else { transfer_tag },
            stat_sn: link.take_stat_sn(),
            exp_cmd_sn,
            max_cmd_sn,
        };
        let mut header = [0; 48];
        response.emit(SegmentLengths::data(part.text.len()), &mut header);
        link.push_status(&header, &part.text);
    }

    /// Nothing is left of the exchange.
    fn end_text(&mut self, link: &mut Link, id: TaskId) {
        self.remove(id);
        link.text = None;
    }
}

/// In a normal session the initiator learns of its own target only. Source: RFC 7143 Appendix C.
fn judge_send_targets(negotiated: &Negotiated, value: &str) -> Option<SendTargets> {
    if negotiated.session_type == SessionType::Discovery {
        return match value {
            "All" => Some(SendTargets::All),
            "" => None,
            name => Some(SendTargets::Named(name.to_owned())),
        };
    }
    let own = negotiated.identity.target_name.as_ref()?.to_string();
    (value.is_empty() || value == own).then_some(SendTargets::Named(own))
}

impl TextTask {
    fn new(transfer_tag: TargetTransferTag) -> Self {
        Self {
            asked: None,
            transfer_tag,
            request: TextCollector::default(),
            answer: TextWriter::default(),
            ends: false,
            keys: BTreeSet::new(),
            declared_segment_bytes_max: None,
        }
    }

    /// The request goes on with the exchange: it has the tag, which nobody has while the answer is looked for.
    fn is_continued_by(&self, request: &TextRequest) -> bool {
        self.transfer_tag == request.target_transfer_tag && self.asked.is_none()
    }

    /// The key has come, and may not come again.
    ///
    /// Source: RFC 7143 §6.4.
    fn remember(&mut self, key: &str) -> Result<(), Violation> {
        if self.keys.len() == PAIRS_MAX {
            return Err(Violation::TooManyKeys);
        }
        if self.keys.insert(key.to_owned()) { Ok(()) } else { Err(Violation::KeyRepeated) }
    }
}

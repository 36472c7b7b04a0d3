//! Text exchanges in full feature phase: SendTargets, and keys that may change during a session.
//!
//! One exchange per connection is in progress at a time; a new one ends the previous one. Request text and response
//! text are bounded. The initiator ends the exchange, and its declarations take effect then; a failed exchange changes
//! nothing.

use super::event::{Event, SendTargets, TargetRecord};
use super::full_feature::{FullFeature, OrderedAction};
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
        // As for commands: outside the window a request is silently ignored (RFC 7143 §4.2.2.1).
        if !self.in_window(request.immediate, request.cmd_sn) {
            return Ok(());
        }
        let id = self.find_text(link, request)?;
        // The CmdSN counts as received even if the text is faulty; the exchange is bound by its tags, not by the order.
        self.run_in_cmdsn_order(link, request.immediate, request.cmd_sn, OrderedAction::Pass);
        let taken = self.take_text(link, id, request, data);
        if taken.is_err() {
            // RFC 7143 §7.11: the whole exchange ends, and with it the changes that it would have made.
            self.end_text(link, id);
        }
        taken
    }

    /// Adds received text to the exchange and answers it.
    ///
    /// *Errors*: the violated rule.
    fn take_text(&mut self, link: &mut Link, id: TaskId, request: &TextRequest, data: &[u8]) -> Result<(), Violation> {
        let segment_bytes_max = self.negotiated.own_data_segment_bytes_max as usize;
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
        let goes_on = !text.answer.is_empty();
        // While the response continues over several PDUs, the requests in between must be empty (RFC 7143 §6.2).
        if goes_on && !data.is_empty() {
            return Err(Violation::TextWhileContinuing);
        }
        // The exchange ends when both sides have set the F bit (RFC 7143 §11.11.1).
        text.ends = request.is_final;
        let Some(asked) = text.request.handle_segment(data, request.continues, segment_bytes_max)? else {
            // More request text follows: an empty response asks for it.
            self.push_text(link, id, &TextPart::default());
            return Ok(());
        };
        // The empty request asks for the next part of the response.
        if goes_on {
            self.send_text(link, id);
            return Ok(());
        }
        self.answer_text(link, id, &asked)
    }

    /// Accepts the driver's response to SendTargets; without effect when the exchange was abandoned.
    pub(crate) fn respond_targets(&mut self, link: &mut Link, id: TaskId, targets: &[TargetRecord]) {
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return };
        // The question is taken: a second answer of the driver has no effect.
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

    /// Finds the exchange of a request by its tags, or starts a new one.
    ///
    /// *Errors*: the violated rule.
    fn find_text(&mut self, link: &mut Link, request: &TextRequest) -> Result<TaskId, Violation> {
        if !request.target_transfer_tag.is_reserved() {
            let id = self.session.by_tag(request.initiator_task_tag).ok_or(Violation::TransferTagUnknown)?;
            // The tag must continue the exchange of this connection; any other one is an error of the initiator.
            return match self.session.find(id).filter(|task| task.slot == Some(link.slot)).map(|task| &task.kind) {
                Some(Kind::Text(text)) if text.is_continued_by(request) => Ok(id),
                _ => Err(Violation::TransferTagUnknown),
            };
        }
        // RFC 7143 §11.10.4: a request with the reserved tag starts a new exchange and ends the previous one.
        if let Some(before) = link.text.take() {
            self.remove(before);
        }
        self.session.admit(request.initiator_task_tag, request.immediate)?;
        // The most significant bit stays clear, so the tag is never the reserved one.
        self.next_text_tag = self.next_text_tag.wrapping_add(1) & 0x7fff_ffff;
        let id = self.session.insert(Task {
            tag: request.initiator_task_tag,
            lun: request.lun,
            cmd_sn: request.cmd_sn,
            slot: Some(link.slot),
            immediate: request.immediate,
            // The age of these tasks is never queried.
            since: Time::default(),
            affected_by: Vec::new(),
            kind: Kind::Text(TextTask::new(TargetTransferTag(self.next_text_tag))),
        });
        link.text = Some(id);
        Ok(id)
    }

    /// Answers the text of the initiator, which is complete for this turn.
    fn answer_text(&mut self, link: &mut Link, id: TaskId, asked: &[u8]) -> Result<(), Violation> {
        let mut answer = TextWriter::default();
        let mut which = None;
        for pair in Pairs::parse(asked) {
            let (key, value) = pair?;
            let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
            // Repetition of a key is checked across all requests of the exchange (RFC 7143 §6.3).
            text.remember(key)?;
            match key {
                "SendTargets" => match judge_send_targets(&self.negotiated, value) {
                    Some(asked) => which = Some(asked),
                    None => answer.push(key, "Reject"),
                },
                // A declaration, which needs no answer.
                "MaxRecvDataSegmentLength" => match number(value).and_then(|bytes| u32::try_from(bytes).ok()) {
                    // The range of MaxRecvDataSegmentLength (RFC 7143 §13.12).
                    Some(bytes @ 512..=0x00ff_ffff) => text.declared_segment_bytes_max = Some(bytes),
                    _ => answer.push(key, "Reject"),
                },
                // An alias is a declaration as well; it is not evaluated.
                "InitiatorAlias" => {}
                // A login-only key in full feature phase is rejected; an unknown key is answered with NotUnderstood
                // (RFC 7143 §6.2).
                _ if crate::is_login_key(key) => answer.push(key, "Reject"),
                _ => answer.push(key, "NotUnderstood"),
            }
        }
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return Ok(()) };
        text.answer = answer;
        // SendTargets needs the access table, so the driver answers it.
        match which {
            Some(which) => {
                text.asked = Some(which.clone());
                self.events.push_back(Event::SendTargets { task: id, which });
            }
            None => self.send_text(link, id),
        }
        Ok(())
    }

    /// Sends the next part of the response, up to the initiator's MaxRecvDataSegmentLength.
    fn send_text(&mut self, link: &mut Link, id: TaskId) {
        let most = link.peer_data_segment_bytes_max as usize;
        let Some(Task { kind: Kind::Text(text), .. }) = self.session.find_mut(id) else { return };
        let part = text.answer.take(most);
        self.push_text(link, id, &part);
    }

    /// Sends one Text Response. It is final only if the initiator requested the end; otherwise it carries a tag for the
    /// continuation.
    ///
    /// Source: RFC 7143 §11.11.1.
    fn push_text(&mut self, link: &mut Link, id: TaskId, part: &TextPart) {
        let Some(task) = self.session.find(id) else { return };
        let (initiator_task_tag, lun) = (task.tag, task.lun);
        let Kind::Text(text) = &task.kind else { return };
        let (transfer_tag, last) = (text.transfer_tag, text.ends && !part.continues);
        if last {
            // Declared values take effect at the end of the exchange (RFC 7143 §6.4).
            link.peer_data_segment_bytes_max =
                text.declared_segment_bytes_max.unwrap_or(link.peer_data_segment_bytes_max);
            // Ended before the response is built, so that its MaxCmdSN counts the place as free.
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

    /// Ends the exchange and removes its task.
    fn end_text(&mut self, link: &mut Link, id: TaskId) {
        self.remove(id);
        link.text = None;
    }
}

/// Returns the scope of a SendTargets query, or `None` to reject it: a normal session may query its own target only.
/// Source: RFC 7143 Appendix C.
fn judge_send_targets(negotiated: &Negotiated, value: &str) -> Option<SendTargets> {
    if negotiated.session_type == SessionType::Discovery {
        return match value {
            "All" => Some(SendTargets::All),
            // An empty value names the target of the session, which discovery does not have (RFC 7143 Appendix C).
            "" => None,
            name => Some(SendTargets::Named(name.to_owned())),
        };
    }
    let own = negotiated.identity.target_name.as_ref()?.to_string();
    // Names of iSCSI nodes are compared without case (RFC 7143 §4.2.7).
    (value.is_empty() || value.eq_ignore_ascii_case(&own)).then_some(SendTargets::Named(own))
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

    /// True when the request continues this exchange: it carries the tag, which the initiator cannot know while the
    /// driver still has the query.
    fn is_continued_by(&self, request: &TextRequest) -> bool {
        self.transfer_tag == request.target_transfer_tag && self.asked.is_none()
    }

    /// Records a received key.
    ///
    /// *Errors*: for a repeated key, or too many keys. Source: RFC 7143 §6.4.
    fn remember(&mut self, key: &str) -> Result<(), Violation> {
        // Bounds the memory of an exchange that the initiator never ends.
        if self.keys.len() == PAIRS_MAX {
            return Err(Violation::TooManyKeys);
        }
        if self.keys.insert(key.to_owned()) { Ok(()) } else { Err(Violation::KeyRepeated) }
    }
}

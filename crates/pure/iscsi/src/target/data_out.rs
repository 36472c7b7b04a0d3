//! State machine of the data-out of one command: immediate data, unsolicited Data-Out, then one sequence per R2T, in
//! order.
//!
//! DataPDUInOrder and DataSequenceInOrder are always Yes here, so every byte has a single place and turn. Above error
//! recovery level 0, lost data is requested again from the first missing byte.

use crate::Violation;
use smallvec::SmallVec;

/// Negotiated limits on data-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) first_burst_bytes_max: u32,
    pub(crate) burst_bytes_max: u32,
    pub(crate) outstanding_r2t_max: u32,
}

/// Progress of the data-out of one command.
#[derive(Debug, Default)]
pub(crate) struct DataOut {
    /// Bytes that the command accepts in all; R2Ts request no more.
    total_bytes: u32,
    /// Bytes received without a gap, which is the offset of the next byte.
    received_bytes: u32,
    /// Maximum end of announced unsolicited Data-Out, while more of it is expected.
    unsolicited_end: Option<u32>,
    /// End of the range that R2Ts have requested.
    solicited_to: u32,
    /// DataSN of the next Data-Out of the current sequence.
    data_sn: u32,
    /// R2TSN of the next R2T.
    r2t_sn: u32,
    /// R2Ts that have not been answered in full, the current one first.
    open: SmallVec<[Solicitation; 2]>,
    /// True when a part of the current sequence is lost: the rest is discarded, and requested again at its end.
    broken: bool,
}

/// Result of an acceptable Data-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// The data counts as received.
    Next,
    /// The data counts as received, but a PDU before it was lost.
    AfterGap,
    /// The data is discarded: a duplicate, or part of a sequence that will be requested again.
    Useless,
}

/// Properties of a Data-Out that the check of its sequence depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// True when it answers the R2T that [`DataOut::answering`] returns.
    pub(crate) solicited: bool,
    pub(crate) data_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) last: bool,
}

/// Data range of an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicitation {
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl DataOut {
    /// Starts the data-out of a command that accepts `total_bytes`, came with `immediate_bytes`, and announced more
    /// unsolicited data or not.
    pub(crate) fn start(total_bytes: u32, immediate_bytes: u32, announced: bool, limits: &Limits) -> Self {
        assert!(immediate_bytes <= total_bytes, "no more comes with a command than it moves");
        // Unsolicited data, including the immediate part, is limited to FirstBurstLength (RFC 7143 §13.14).
        let unsolicited_end = announced.then(|| limits.first_burst_bytes_max.min(total_bytes));
        Self {
            total_bytes,
            received_bytes: immediate_bytes,
            unsolicited_end,
            solicited_to: immediate_bytes,
            ..Self::default()
        }
    }

    /// Limits the solicited data to `bytes`. Returns the number of bytes that arrive nevertheless: data that has
    /// arrived or was announced cannot be recalled.
    ///
    /// Source: RFC 7143 §11.4.5.1.
    pub(crate) fn limit(&mut self, bytes: u32) -> u32 {
        self.total_bytes = self.total_bytes.min(bytes);
        // The buffer must take announced unsolicited data as well, although the command does not use it.
        self.total_bytes.max(self.unsolicited_end.unwrap_or(self.received_bytes))
    }

    /// Returns the bytes that the command accepts.
    pub(crate) fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// True when every byte has arrived and no more is announced.
    pub(crate) fn is_complete(&self) -> bool {
        self.unsolicited_end.is_none() && self.received_bytes >= self.total_bytes
    }

    /// True while Data-Out may arrive that cannot be recalled: announced without an R2T, or requested by one.
    pub(crate) fn is_owed(&self) -> bool {
        self.unsolicited_end.is_some() || !self.open.is_empty()
    }

    /// True while a sequence of this kind is expected: announced unsolicited data, or the answer to an R2T.
    pub(crate) fn runs(&self, solicited: bool) -> bool {
        self.sequence_end(solicited).is_ok()
    }

    /// Returns the R2TSN that the initiator is answering, or will answer next.
    pub(crate) fn answering(&self) -> u32 {
        // With no open R2T, the next one will have this number.
        self.open.first().map_or(self.r2t_sn, |solicitation| solicitation.r2t_sn)
    }

    /// Returns an R2T that has not been answered in full.
    pub(crate) fn open_r2t(&self, r2t_sn: u32) -> Option<Solicitation> {
        self.open.iter().copied().find(|solicitation| solicitation.r2t_sn == r2t_sn)
    }

    /// Returns the number of R2Ts sent.
    pub(crate) fn solicitations(&self) -> u32 {
        self.r2t_sn
    }

    /// Stops solicitation: the command has its response already, and announced data is discarded.
    pub(crate) fn stop_solicitation(&mut self) {
        // The total shrinks to what can still arrive, so that the sequence completes without further R2Ts.
        self.total_bytes = self.unsolicited_end.unwrap_or(0).max(self.solicited_to);
    }

    /// Checks a Data-Out and advances the sequence. `recovers` is set above error recovery level 0, where lost data is
    /// requested again.
    ///
    /// *Errors*: the violated rule. Source: RFC 7143 §7.9.
    pub(crate) fn admit(&mut self, arrived: Arrived, recovers: bool) -> Result<Admitted, Violation> {
        let Arrived { solicited, .. } = arrived;
        // Data outside of any expected sequence is a violation.
        let end = self.sequence_end(solicited)?;
        let in_order = arrived.data_sn == self.data_sn;
        // A gap or a jump is a lost PDU here, not a violation: the sequence is completed by another R2T.
        if recovers && (self.broken || !in_order || arrived.offset != self.received_bytes) {
            // A duplicate of data that was received changes nothing.
            let came_before = !self.broken && arrived.data_sn < self.data_sn;
            if !came_before {
                self.miss(solicited, arrived.last);
            }
            return Ok(Admitted::Useless);
        }
        // DataPDUInOrder=Yes: every PDU continues where the previous one ended.
        if arrived.offset != self.received_bytes {
            return Err(Violation::BufferOffsetWrong);
        }
        let reached = arrived.offset.checked_add(arrived.len).filter(|&reached| reached <= end);
        let reached = reached.ok_or(Violation::SequenceTooLong)?;
        // An R2T must be answered in full. Unsolicited data may end early; the rest is solicited.
        if (solicited && arrived.last != (reached == end)) || (!solicited && !arrived.last && reached == end) {
            return Err(Violation::FinalBitWrong);
        }
        self.received_bytes = reached;
        // Counting continues behind a gap, which the caller treats as an undetected digest error.
        self.data_sn = arrived.data_sn.wrapping_add(1);
        if arrived.last {
            self.end_sequence(solicited);
        }
        Ok(if in_order { Admitted::Next } else { Admitted::AfterGap })
    }

    /// Marks a part of the [current](Self::runs) sequence as lost. With its `last` PDU the sequence ends, and the
    /// missing data is due for an R2T.
    pub(crate) fn miss(&mut self, solicited: bool, last: bool) {
        // With the last PDU of the sequence the gap is final; before it, more data of the sequence follows and is
        // useless.
        self.broken = !last;
        if last {
            self.end_sequence(solicited);
            // One R2T is outstanding at a time above level 0, so nothing behind this sequence was requested yet.
            self.solicited_to = self.received_bytes;
        }
    }

    /// Marks the data received from `offset` on as invalid; `last` tells whether it ended its sequence.
    pub(crate) fn lose(&mut self, offset: u32, last: bool) {
        assert!(offset <= self.received_bytes, "what is lost had come");
        self.received_bytes = offset;
        // The rest of the sequence is useless, because it would follow a hole.
        self.broken = !last;
        // `admit` has ended the sequence with its last PDU, so only the next R2T has to begin earlier.
        if last {
            self.solicited_to = offset;
        }
    }

    /// Abandons all outstanding sequences, so that all missing data is due for R2Ts.
    pub(crate) fn restart(&mut self) {
        self.unsolicited_end = None;
        self.open.clear();
        // DataSN restarts with each sequence (RFC 7143 §11.7.5).
        (self.broken, self.data_sn, self.solicited_to) = (false, 0, self.received_bytes);
    }

    /// Returns the next R2T, when one is due.
    pub(crate) fn poll_solicitation(&mut self, limits: &Limits) -> Option<Solicitation> {
        // Unsolicited data comes first: until its sequence ends, the first byte to solicit is unknown.
        if self.unsolicited_end.is_some()
            || self.solicited_to >= self.total_bytes
            || self.open.len() >= limits.outstanding_r2t_max as usize
        {
            return None;
        }
        let (offset, r2t_sn) = (self.solicited_to, self.r2t_sn);
        // At least one byte: `solicited_to` is below `total_bytes` here.
        let len = limits.burst_bytes_max.min(self.total_bytes - offset);
        self.solicited_to += len;
        self.r2t_sn += 1;
        let solicitation = Solicitation { r2t_sn, offset, len };
        self.open.push(solicitation);
        assert!(self.open.len() <= limits.outstanding_r2t_max as usize, "no more R2Ts are open than were agreed");
        assert!(len > 0 && self.solicited_to <= self.total_bytes, "an R2T asks for data that the command moves");
        Some(solicitation)
    }

    fn sequence_end(&self, solicited: bool) -> Result<u32, Violation> {
        match (solicited, self.unsolicited_end) {
            (false, Some(end)) => Ok(end),
            // The command has announced no unsolicited data, or its sequence has ended.
            (false, None) => Err(Violation::UnexpectedUnsolicitedData),
            (true, None) => {
                let answered = self.open.first().ok_or(Violation::TransferTagUnknown)?;
                // No overflow: an R2T ends within `total_bytes`.
                Ok(answered.offset + answered.len)
            }
            // R2Ts are sent only after unsolicited data has ended, so this tag answers none.
            (true, Some(_)) => Err(Violation::TransferTagUnknown),
        }
    }

    fn end_sequence(&mut self, solicited: bool) {
        // DataSN counts per sequence (RFC 7143 §11.7.5).
        self.data_sn = 0;
        assert!(!solicited || !self.open.is_empty(), "a solicited sequence answers an R2T");
        if solicited {
            // R2Ts are answered in their order, so the first one is complete (DataSequenceInOrder is Yes).
            self.open.remove(0);
        } else {
            self.unsolicited_end = None;
            // Solicitation continues behind what actually arrived, which may be less than announced.
            self.solicited_to = self.received_bytes;
        }
    }
}

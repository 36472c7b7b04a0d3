//! What a command's data-out must look like: immediate, unsolicited, then one sequence for each R2T, in order.
//!
//! DataPDUInOrder and DataSequenceInOrder are always Yes with us, so every byte has one place and one turn; what is lost is
//! asked for again above error recovery level 0, from the first byte that is missing.

use crate::Violation;
use smallvec::SmallVec;

/// The negotiated limits on data-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) first_burst_bytes_max: u32,
    pub(crate) burst_bytes_max: u32,
    pub(crate) outstanding_r2t_max: u32,
}

/// How far the data-out of one command has come.
#[derive(Debug, Default)]
pub(crate) struct DataOut {
    /// What the command takes in all: what R2Ts ask for ends here.
    total_bytes: u32,
    /// What has come, without holes; the offset of the next byte.
    received_bytes: u32,
    /// Where unsolicited Data-Out must end at the latest, while more of it is announced.
    unsolicited_end: Option<u32>,
    /// Up to where R2Ts have asked.
    solicited_to: u32,
    /// DataSN of the next Data-Out of the running sequence.
    data_sn: u32,
    /// R2TSN of the next R2T.
    r2t_sn: u32,
    /// R2Ts that are not answered in full; the initiator answers the first one now.
    open: SmallVec<[Solicitation; 2]>,
    /// A part of the running sequence is lost: the rest is thrown away, and asked for again at its end.
    broken: bool,
}

/// What becomes of a Data-Out that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// Its data counts as received from now on.
    Next,
    /// Its data counts as received, but something before it was lost.
    BehindHole,
    /// It is thrown away: it came before, or belongs to what will be asked for again.
    Useless,
}

/// The facts of one Data-Out that its sequence decides on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// True when it answers the R2T that [`DataOut::answering`] names.
    pub(crate) solicited: bool,
    pub(crate) data_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) last: bool,
}

/// What an R2T asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicitation {
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl DataOut {
    /// The data-out of a command that takes `total_bytes`, brought `immediate_bytes` with it and announced
    /// more unsolicited data or not.
    pub(crate) fn start(total_bytes: u32, immediate_bytes: u32, announced: bool, limits: &Limits) -> Self {
        assert!(immediate_bytes <= total_bytes, "no more comes with a command than it moves");
        let unsolicited_end = announced.then(|| limits.first_burst_bytes_max.min(total_bytes));
        Self {
            total_bytes,
            received_bytes: immediate_bytes,
            unsolicited_end,
            solicited_to: immediate_bytes,
            ..Self::default()
        }
    }

    /// No more than `bytes` are asked for. How much comes all the same: what has come, and what is announced, is not called back.
    ///
    /// Source: RFC 7143 §11.4.5.1.
    pub(crate) fn limit(&mut self, bytes: u32) -> u32 {
        self.total_bytes = self.total_bytes.min(bytes);
        self.total_bytes.max(self.unsolicited_end.unwrap_or(self.received_bytes))
    }

    /// What the command takes of its data.
    pub(crate) fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// True when every byte has come and none is announced.
    pub(crate) fn is_complete(&self) -> bool {
        self.unsolicited_end.is_none() && self.received_bytes >= self.total_bytes
    }

    /// True while Data-Out may come that nobody can call back: announced without R2T, or asked for.
    pub(crate) fn is_owed(&self) -> bool {
        self.unsolicited_end.is_some() || !self.open.is_empty()
    }

    /// True while a sequence of this kind is what comes next: unsolicited data that is announced, or the answer to an R2T.
    pub(crate) fn runs(&self, solicited: bool) -> bool {
        self.sequence_end(solicited).is_ok()
    }

    /// The R2T that the initiator answers now, or will next.
    pub(crate) fn answering(&self) -> u32 {
        self.open.first().map_or(self.r2t_sn, |solicitation| solicitation.r2t_sn)
    }

    /// An R2T that is not answered in full.
    pub(crate) fn open_r2t(&self, r2t_sn: u32) -> Option<Solicitation> {
        self.open.iter().copied().find(|solicitation| solicitation.r2t_sn == r2t_sn)
    }

    /// How many R2Ts were sent.
    pub(crate) fn solicitations(&self) -> u32 {
        self.r2t_sn
    }

    /// No R2T follows: the command has its answer already, and what is announced is thrown away.
    pub(crate) fn forgo(&mut self) {
        self.total_bytes = self.unsolicited_end.unwrap_or(0).max(self.solicited_to);
    }

    /// The Data-Out fits. `recovers` above error recovery level 0, where what is lost is asked for again.
    ///
    /// Source: RFC 7143 §7.9.
    pub(crate) fn admit(&mut self, arrived: Arrived, recovers: bool) -> Result<Admitted, Violation> {
        let Arrived { solicited, .. } = arrived;
        let end = self.sequence_end(solicited)?;
        let in_order = arrived.data_sn == self.data_sn;
        if recovers && (self.broken || !in_order || arrived.offset != self.received_bytes) {
            let came_before = !self.broken && arrived.data_sn < self.data_sn;
            if !came_before {
                self.miss(solicited, arrived.last);
            }
            return Ok(Admitted::Useless);
        }
        if arrived.offset != self.received_bytes {
            return Err(Violation::BufferOffsetWrong);
        }
        let reached = arrived.offset.checked_add(arrived.len).filter(|&reached| reached <= end);
        let reached = reached.ok_or(Violation::SequenceTooLong)?;
        // An R2T is answered in full; unsolicited data may end early, and what is missing is asked for.
        if (solicited && arrived.last != (reached == end)) || (!solicited && !arrived.last && reached == end) {
            return Err(Violation::FinalBitWrong);
        }
        self.received_bytes = reached;
        self.data_sn = arrived.data_sn.wrapping_add(1);
        if arrived.last {
            self.end_sequence(solicited);
        }
        Ok(if in_order { Admitted::Next } else { Admitted::BehindHole })
    }

    /// A part of the sequence that [runs](Self::runs) is lost; with the `last` one the sequence is over and what is missing is due.
    pub(crate) fn miss(&mut self, solicited: bool, last: bool) {
        self.broken = !last;
        if last {
            self.end_sequence(solicited);
            self.solicited_to = self.received_bytes;
        }
    }

    /// What has come from `offset` on, with the `last` part of its sequence or not, is worth nothing.
    pub(crate) fn lose(&mut self, offset: u32, last: bool) {
        assert!(offset <= self.received_bytes, "what is lost had come");
        self.received_bytes = offset;
        self.broken = !last;
        if last {
            self.solicited_to = offset;
        }
    }

    /// Nothing of what was asked for or announced comes any more: all that is missing is due.
    pub(crate) fn restart(&mut self) {
        self.unsolicited_end = None;
        self.open.clear();
        (self.broken, self.data_sn, self.solicited_to) = (false, 0, self.received_bytes);
    }

    /// The next R2T, when one is due.
    pub(crate) fn poll_solicitation(&mut self, limits: &Limits) -> Option<Solicitation> {
        if self.unsolicited_end.is_some()
            || self.solicited_to >= self.total_bytes
            || self.open.len() >= limits.outstanding_r2t_max as usize
        {
            return None;
        }
        let (offset, r2t_sn) = (self.solicited_to, self.r2t_sn);
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
            (false, None) => Err(Violation::UnexpectedUnsolicitedData),
            (true, None) => {
                let answered = self.open.first().ok_or(Violation::TransferTagUnknown)?;
                Ok(answered.offset + answered.len)
            }
            (true, Some(_)) => Err(Violation::TransferTagUnknown),
        }
    }

    fn end_sequence(&mut self, solicited: bool) {
        self.data_sn = 0;
        assert!(!solicited || !self.open.is_empty(), "a solicited sequence answers an R2T");
        if solicited {
            self.open.remove(0);
        } else {
            self.unsolicited_end = None;
            self.solicited_to = self.received_bytes;
        }
    }
}

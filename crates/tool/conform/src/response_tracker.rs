//! Format rules of Data-In, R2T and SCSI Response PDUs, which apply to every command whatever a check tests.
//!
//! A [`Session`](crate::session::Session) passes every received PDU through it, in order of arrival.

use crate::wire::Pdu;
use crate::{CheckResult, ensure};
use iscsi::pdu::{DataIn, R2t, Residual, ScsiResponse, ServiceResponse, StatSn, TargetPdu};
use scsi::ParsedSense;
use std::collections::BTreeMap;

const FINAL: u8 = 0x80;
/// Reserved bits of byte 1.
const DATA_IN_RESERVED: u8 = 0x38;
const SCSI_RESPONSE_RESERVED: u8 = 0x61;
/// Bits O and U of a Data-In; valid only together with S.
const DATA_IN_RESIDUAL: u8 = 0x06;
const CHECK_CONDITION: u8 = 2;

/// Data-In and R2T PDUs received for each outstanding task, by initiator task tag.
#[derive(Debug, Default)]
pub(crate) struct ResponseTracker(BTreeMap<u32, Sent>);

/// Numbers of PDUs received for a task.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    data_in: u32,
    r2t: u32,
}

impl ResponseTracker {
    /// Checks a received PDU; `next` is the expected StatSN, `level` the ErrorRecoveryLevel of the session.
    pub(crate) fn judge(&mut self, parsed: &TargetPdu, pdu: &Pdu, next: StatSn, level: u8) -> CheckResult {
        match parsed {
            TargetPdu::DataIn(data_in) => self.data_in(data_in, pdu, level),
            TargetPdu::R2t(r2t) => self.r2t(r2t, pdu, next),
            TargetPdu::ScsiResponse(response) => self.response(response, pdu),
            _ => Ok(()),
        }
    }

    /// Checks a Data-In.
    ///
    /// *Source*: RFC 7143 §11.7.
    fn data_in(&mut self, data_in: &DataIn, pdu: &Pdu, level: u8) -> CheckResult {
        let tag = data_in.initiator_task_tag.0;
        let sent = self.0.entry(tag).or_default();
        // Data-In and R2T PDUs of a bidirectional task share one numbering (RFC 7143 §4.2.2.4).
        let due = sent.data_in + sent.r2t;
        ensure(data_in.data_sn.0 == due, || format!("DataSN {} came where {due} was due", data_in.data_sn.0))?;
        sent.data_in += 1;
        ensure(pdu.header[1] & DATA_IN_RESERVED == 0, || {
            format!("a Data-In has reserved bits in its byte 1, {:02x}h", pdu.header[1])
        })?;
        // RFC 7143 §11.7.2: at level 0 the initiator cannot acknowledge data, so the target must not request it.
        ensure(level > 0 || !data_in.acknowledge, || "it wants Data-In acknowledged at level 0 (A is 1)".to_owned())?;
        match &data_in.status {
            Some(status) => {
                // A Data-In with S ends the task: no SCSI Response follows.
                self.0.remove(&tag);
                ensure(status.status != CHECK_CONDITION, || {
                    "CHECK CONDITION came with a Data-In, which has no room for sense data".to_owned()
                })?;
                no_residual_is_zero(status.residual, pdu, 44)
            }
            None => ensure(pdu.header[1] & DATA_IN_RESIDUAL == 0 && pdu.header[3] == 0, || {
                "a Data-In without S has a status or a residual".to_owned()
            }),
        }
    }

    /// Checks an R2T.
    ///
    /// *Source*: RFC 7143 §11.8.
    fn r2t(&mut self, r2t: &R2t, pdu: &Pdu, next: StatSn) -> CheckResult {
        let sent = self.0.entry(r2t.initiator_task_tag.0).or_default();
        let due = sent.data_in + sent.r2t;
        ensure(r2t.r2t_sn.0 == due, || format!("R2TSN {} came where {due} was due", r2t.r2t_sn.0))?;
        sent.r2t += 1;
        // An R2T carries the next StatSN but does not consume it (RFC 7143 §11.8).
        ensure(r2t.stat_sn == next, || format!("an R2T has the StatSN {}, and {} is the next", r2t.stat_sn.0, next.0))?;
        ensure(pdu.header[1] == FINAL && pdu.data.is_empty(), || {
            format!("an R2T has {:02x}h in byte 1 and {} bytes of data", pdu.header[1], pdu.data.len())
        })
    }

    /// Checks a SCSI Response.
    ///
    /// *Source*: RFC 7143 §11.4.
    fn response(&mut self, response: &ScsiResponse, pdu: &Pdu) -> CheckResult {
        // A task without data phases has no entry.
        let sent = self.0.remove(&response.initiator_task_tag.0).unwrap_or_default();
        let flags = pdu.header[1];
        ensure(flags & FINAL != 0 && flags & SCSI_RESPONSE_RESERVED == 0, || {
            format!("a SCSI Response has {flags:02x}h in byte 1: F is one, and what is reserved zero")
        })?;
        ensure(response.response == ServiceResponse::Completed, || {
            format!("the response is {:02x}h, not Command Completed at Target", pdu.header[2])
        })?;
        // RFC 3720 §10.4.8 counts R2Ts in ExpDataSN as well; targets of both standards are accepted.
        let (read, all) = (sent.data_in, sent.data_in + sent.r2t);
        let told = response.exp_data_sn.0;
        ensure(told == read || told == all, || {
            format!("ExpDataSN is {told}, and {read} Data-In and {} R2Ts came", sent.r2t)
        })?;
        ensure(response.snack_tag == 0, || "it has a SNACK Tag, and there was no R-Data SNACK".to_owned())?;
        ensure(response.read_residual == Residual::None, || {
            "it has a bidirectional residual, and the command has one direction".to_owned()
        })?;
        no_residual_is_zero(response.residual, pdu, 44)?;
        no_residual_is_zero(response.read_residual, pdu, 40)?;
        if response.status == CHECK_CONDITION { sense_came(&pdu.data) } else { Ok(()) }
    }
}

/// Checks that Residual Count is zero where neither O nor U is set (RFC 7143 §11.4.5.1); `at` is the offset of the
/// count in the header.
fn no_residual_is_zero(residual: Residual, pdu: &Pdu, at: usize) -> CheckResult {
    let count = &pdu.header[at..at + 4];
    ensure(residual != Residual::None || count == [0; 4], || {
        format!("a residual of {count:02x?} is told, and neither overflow nor underflow")
    })
}

/// Checks that CHECK CONDITION carries sense data of the length in SenseLength (RFC 7143 §11.4.7).
fn sense_came(data: &[u8]) -> CheckResult {
    let told = data.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
    ensure(told > 0, || "CHECK CONDITION came without sense data".to_owned())?;
    let sense = data.get(2..2 + told);
    ensure(sense.is_some(), || format!("SenseLength is {told}, in a data segment of {} bytes", data.len()))?;
    ensure(sense.and_then(ParsedSense::parse).is_some(), || {
        format!("sense data begins with {:02x?}: no response code of 70h to 73h", data.get(2))
    })
}

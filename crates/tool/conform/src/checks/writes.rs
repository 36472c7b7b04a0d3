//! Checks of data that is written: immediate, unsolicited and solicited data, residuals, and lost or damaged PDUs.

use super::data::block_bytes;
use crate::session::{CommandResult, Session};
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::DigestOffer;
use iscsi::login::InitiatorConfig;
use iscsi::pdu::{
    DataOut, DataSn, InitiatorTaskTag, R2t, RejectReason, Residual, SegmentLengths, TargetPdu, TargetTransferTag,
};

/// Length of the writes: several PDUs in several bursts.
const WRITE_BYTES: u32 = 64 << 10;
const PDU_BYTES: u32 = 4096;

/// Fault that is injected into one PDU of a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DataFault {
    None,
    Lost,
    Damaged,
}

/// Logs in a session whose unit is ready, with bursts of 16 KiB.
fn writing(aim: &TestTarget, change: impl Fn(&mut InitiatorConfig)) -> CheckResult<Session> {
    let mut session = Session::login(aim, |config| {
        // A write needs several R2Ts, and its first burst covers only a part of it.
        config.offer.burst_bytes_max = 16 << 10;
        config.offer.first_burst_bytes_max = 8192;
        change(config);
    })?;
    session.ready()?;
    Ok(session)
}

/// Returns data that differs from the data of another `seed`.
fn content(seed: u8, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at / 512) as u8 ^ (at as u8).wrapping_mul(31) ^ seed).collect()
}

/// Builds a WRITE (10) or READ (10) of `bytes` from block 0 on.
pub(super) fn cdb(session: &mut Session, operation_code: u8, bytes: u32) -> CheckResult<[u8; 10]> {
    let blocks = bytes / block_bytes(session)?;
    let [high, low] = u16::try_from(blocks).unwrap_or(1).to_be_bytes();
    Ok([operation_code, 0, 0, 0, 0, 0, 0, high, low, 0])
}

/// Checks that the unit returns `data` from block 0 on.
fn holds(session: &mut Session, data: &[u8]) -> CheckResult {
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let cdb = cdb(session, 0x28, bytes)?;
    let done = session.read(&cdb, bytes)?;
    ensure(done.status == 0, || format!("READ (10) ended with status {}, sense {:x?}", done.status, done.sense))?;
    ensure(done.data == data, || "what is read is not what was written".to_owned())
}

fn good(done: &CommandResult) -> CheckResult {
    ensure(done.status == 0, || format!("WRITE (10) ended with status {}, sense {:x?}", done.status, done.sense))?;
    ensure(done.residual == Residual::None, || format!("all was written, and the residual is {:?}", done.residual))
}

/// Sends `data` as Data-Out PDUs at buffer offset `from`, with DataSN from 0 on; `harm` applies to the second PDU.
fn send_data(session: &mut Session, tag: u32, asked: Option<&R2t>, data: &[u8], from: u32, harm: DataFault) {
    // The limit of the target holds for every PDU, solicited or not (RFC 7143 §13.12).
    let piece_bytes = session.agreed.peer_data_segment_bytes_max.min(PDU_BYTES);
    let pieces = data.chunks(piece_bytes as usize).count();
    for (number, piece) in data.chunks(piece_bytes as usize).enumerate() {
        let data_out = DataOut {
            is_final: number + 1 == pieces,
            lun: session.lun,
            initiator_task_tag: InitiatorTaskTag(tag),
            target_transfer_tag: asked.map_or(TargetTransferTag::RESERVED, |asked| asked.target_transfer_tag),
            exp_stat_sn: session.stat_sn,
            data_sn: DataSn(number as u32),
            buffer_offset_bytes: from + number as u32 * piece_bytes,
        };
        let mut header = [0; 48];
        data_out.emit(SegmentLengths::data(piece.len()), &mut header);
        let mut bytes = session.wire.framed(&header, piece);
        // A lost PDU counts in DataSN and the offset, so the target can notice the gap.
        match harm {
            DataFault::Lost if number == 1 => continue,
            DataFault::Damaged if number == 1 => {
                // The last eight bytes of the PDU are four bytes of data and the digest.
                let at = bytes.len() - 8;
                bytes[at] ^= 1;
            }
            _ => {}
        }
        session.wire.send_bytes(&bytes);
    }
}

/// Sends the data that an R2T asks for.
pub(super) fn give(session: &mut Session, asked: &R2t, data: &[u8]) {
    let from = asked.buffer_offset_bytes as usize;
    let piece = data.get(from..from + asked.desired_data_transfer_bytes as usize).unwrap_or_default();
    send_data(session, asked.initiator_task_tag.0, Some(asked), piece, asked.buffer_offset_bytes, DataFault::None);
}

/// Expected R2TSN and buffer offset of the next R2T.
struct ExpectedR2t {
    next: u32,
    due: u32,
}

impl ExpectedR2t {
    fn behind(r2t: &R2t) -> Self {
        let due = r2t.buffer_offset_bytes.saturating_add(r2t.desired_data_transfer_bytes);
        Self { next: r2t.r2t_sn.0.saturating_add(1), due }
    }
}

/// Answers R2Ts for `data`, of which `sent` bytes were already sent, until the command ends; `harm` applies to one PDU
/// of the first answer.
pub(super) fn answer(
    session: &mut Session,
    tag: u32,
    data: &[u8],
    sent: u32,
    harm: DataFault,
) -> CheckResult<CommandResult> {
    answer_from(session, tag, data, ExpectedR2t { next: 0, due: sent }, harm)
}

fn answer_from(
    session: &mut Session,
    tag: u32,
    data: &[u8],
    asked: ExpectedR2t,
    mut harm: DataFault,
) -> CheckResult<CommandResult> {
    let most = session.agreed.burst_bytes_max;
    let ExpectedR2t { mut next, mut due } = asked;
    let is_harmed = harm != DataFault::None;
    loop {
        let (parsed, pdu) = session.receive()?;
        match parsed {
            TargetPdu::R2t(r2t) if r2t.initiator_task_tag.0 == tag => {
                let (from, len) = (r2t.buffer_offset_bytes, r2t.desired_data_transfer_bytes);
                ensure(r2t.r2t_sn.0 == next, || format!("R2TSN {} came where {next} was due", r2t.r2t_sn.0))?;
                ensure(r2t.lun == session.lun, || format!("an R2T names the LUN {:016x}", r2t.lun.0))?;
                ensure(len > 0 && len <= most, || format!("{len} bytes are asked for, and MaxBurstLength is {most}"))?;
                // A recovery R2T asks again for data that was lost.
                ensure(from == due || is_harmed, || format!("offset {from} is asked for where {due} was due"))?;
                let piece = data.get(from as usize..from.saturating_add(len) as usize);
                let piece =
                    piece.ok_or(Finding::Wrong(format!("{len} bytes at {from} are asked for of {}", data.len())))?;
                // The fault is injected once, so the recovery can succeed.
                send_data(session, tag, Some(&r2t), piece, from, std::mem::replace(&mut harm, DataFault::None));
                (next, due) = (next + 1, from + len);
            }
            TargetPdu::ScsiResponse(response) if response.initiator_task_tag.0 == tag => {
                return Ok(CommandResult::of(&response, &pdu));
            }
            // The Reject reports the damaged PDU, and the command continues.
            TargetPdu::Reject(reject) if is_harmed && reject.reason == RejectReason::DataDigestError => {}
            other => return Err(Finding::Wrong(format!("an R2T or a response was due, and it said {other:?}"))),
        }
    }
}

/// Returns the number of bytes that may come with a command as immediate data.
///
/// *Source*: RFC 7143 §13.12, §13.14.
fn immediate_bytes_max(session: &Session) -> u32 {
    session.agreed.first_burst_bytes_max.min(session.agreed.peer_data_segment_bytes_max)
}

/// Sends a command with all of its data: as immediate data when it fits, otherwise as R2Ts ask for it.
pub(crate) fn send_whole(session: &mut Session, cdb: &[u8], data: &[u8]) -> CheckResult<CommandResult> {
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let is_immediate = session.agreed.immediate_data && bytes <= immediate_bytes_max(session);
    let command = session.write_command(cdb, bytes, false);
    let tag = if is_immediate { session.send_with(&command, data) } else { session.send(&command) };
    answer(session, tag, data, if is_immediate { bytes } else { 0 }, DataFault::None)
}

pub(super) fn immediate(aim: &TestTarget) -> CheckResult {
    let mut session = writing(aim, |config| config.offer.immediate_data = true)?;
    if !session.agreed.immediate_data {
        return Err(Finding::Untried("immediate data was not agreed".to_owned()));
    }
    let cdb = cdb(&mut session, 0x2a, PDU_BYTES)?;
    let data = content(1, PDU_BYTES);
    let command = session.write_command(&cdb, PDU_BYTES, false);
    // The target asks for the rest where its limits are below the length of the write.
    let immediate = immediate_bytes_max(&session).min(PDU_BYTES);
    let tag = session.send_with(&command, &data[..immediate as usize]);
    let done = answer(&mut session, tag, &data, immediate, DataFault::None)?;
    good(&done)?;
    holds(&mut session, &data)
}

pub(super) fn unsolicited(aim: &TestTarget) -> CheckResult {
    let mut session = writing(aim, |config| {
        config.offer.initial_r2t = false;
        config.offer.immediate_data = true;
    })?;
    if session.agreed.initial_r2t {
        return Err(Finding::Untried("InitialR2T stays Yes".to_owned()));
    }
    let cdb = cdb(&mut session, 0x2a, WRITE_BYTES)?;
    let data = content(2, WRITE_BYTES);
    let command = session.write_command(&cdb, WRITE_BYTES, true);
    // Immediate and unsolicited data together fill at most the first burst (RFC 7143 §13.14).
    let first = session.agreed.first_burst_bytes_max.min(WRITE_BYTES);
    // Half of the burst at most: the command announces unsolicited Data-Out, so some of it must follow.
    let most = immediate_bytes_max(&session).min(PDU_BYTES).min(first / 2);
    let immediate = if session.agreed.immediate_data { most } else { 0 };
    let tag = session.send_with(&command, &data[..immediate as usize]);
    send_data(&mut session, tag, None, &data[immediate as usize..first as usize], immediate, DataFault::None);
    let done = answer(&mut session, tag, &data, first, DataFault::None)?;
    good(&done)?;
    holds(&mut session, &data)
}

/// Writes with solicited data only.
fn solicited_with(session: &mut Session, seed: u8, harm: DataFault) -> CheckResult<(CommandResult, Vec<u8>)> {
    let cdb = cdb(session, 0x2a, WRITE_BYTES)?;
    let data = content(seed, WRITE_BYTES);
    let command = session.write_command(&cdb, WRITE_BYTES, false);
    let tag = session.send(&command);
    Ok((answer(session, tag, &data, 0, harm)?, data))
}

pub(super) fn solicited(aim: &TestTarget) -> CheckResult {
    let mut session = writing(aim, |_| {})?;
    let (done, data) = solicited_with(&mut session, 3, DataFault::None)?;
    good(&done)?;
    holds(&mut session, &data)
}

/// Checks that an initiator which allows one outstanding R2T receives no second one before it answers the first.
pub(super) fn outstanding(aim: &TestTarget) -> CheckResult {
    let mut session = writing(aim, |config| config.offer.outstanding_r2t_max = 1)?;
    let cdb = cdb(&mut session, 0x2a, WRITE_BYTES)?;
    let data = content(7, WRITE_BYTES);
    let command = session.write_command(&cdb, WRITE_BYTES, false);
    let tag = session.send(&command);
    let (TargetPdu::R2t(asked), _) = session.receive()? else {
        return Err(Finding::Wrong("an R2T was due".to_owned()));
    };
    // No second R2T may come while the first one is unanswered.
    session.expect_silence()?;
    give(&mut session, &asked, &data);
    let done = answer_from(&mut session, tag, &data, ExpectedR2t::behind(&asked), DataFault::None)?;
    good(&done)?;
    holds(&mut session, &data)
}

/// Writes one block with an Expected Data Transfer Length of `bytes`.
fn offered(aim: &TestTarget, bytes: impl Fn(u32) -> u32) -> CheckResult<(Session, u32, CommandResult)> {
    let mut session = writing(aim, |_| {})?;
    let block = block_bytes(&mut session)?;
    let cdb = cdb(&mut session, 0x2a, block)?;
    let data = content(4, bytes(block));
    let command = session.write_command(&cdb, bytes(block), false);
    let tag = session.send(&command);
    let done = answer(&mut session, tag, &data, 0, DataFault::None)?;
    Ok((session, block, done))
}

pub(super) fn underflow(aim: &TestTarget) -> CheckResult {
    let (_, block, done) = offered(aim, |block| 2 * block)?;
    // The target may also refuse the command and take no data.
    let expected = [Residual::Underflow(block), Residual::Underflow(2 * block)];
    ensure(expected.contains(&done.residual), || format!("the residual is {:?}, not {:?}", done.residual, expected[0]))
}

pub(super) fn overflow(aim: &TestTarget) -> CheckResult {
    let (_, block, done) = offered(aim, |block| block / 2)?;
    let expected = Residual::Overflow(block - block / 2);
    ensure(done.residual == expected, || format!("the residual is {:?}, not {expected:?}", done.residual))
}

/// Sends a WRITE for which the initiator expects data and sends none.
pub(super) fn wrong_way(aim: &TestTarget) -> CheckResult {
    let mut session = writing(aim, |_| {})?;
    let block = block_bytes(&mut session)?;
    let cdb = cdb(&mut session, 0x2a, block)?;
    let done = session.read(&cdb, block)?;
    ensure(done.status != 0, || "it says GOOD, and has no data that it could have written".to_owned())?;
    ensure(done.residual == Residual::Underflow(block), || {
        format!("the residual is {:?}, not an underflow of {block}", done.residual)
    })
}

/// Checks a write at level 1 of which one PDU is lost or damaged: it ends complete, or it fails.
fn harmed(aim: &TestTarget, seed: u8, harm: DataFault) -> CheckResult {
    let mut session = writing(aim, |config| {
        config.offer.error_recovery_level = 1;
        config.offer.data_digest = DigestOffer::Preferred;
    })?;
    if session.agreed.error_recovery_level == 0 || (harm == DataFault::Damaged && !session.wire.data_digest) {
        return Err(Finding::Untried("level 1 and data digests were not agreed".to_owned()));
    }
    let (done, data) = solicited_with(&mut session, seed, harm)?;
    match done.status {
        0 => holds(&mut session, &data),
        // ABORTED COMMAND: the target gives up, and the initiator may retry.
        2 if done.sense_key() == Some(0xb) => Ok(()),
        status => Err(Finding::Wrong(format!("it ended with status {status}, sense {:x?}", done.sense))),
    }
}

pub(super) fn lost_data(aim: &TestTarget) -> CheckResult {
    harmed(aim, 5, DataFault::Lost)
}

pub(super) fn wrong_digest(aim: &TestTarget) -> CheckResult {
    harmed(aim, 6, DataFault::Damaged)
}

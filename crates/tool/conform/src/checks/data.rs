//! Checks of data that is read: Data-In sequences, residuals, digests.

use crate::session::{CommandResult, Session};
use crate::wire::SILENCE;
use crate::{CheckResult, Finding, TestTarget, ensure};
use iscsi::DigestOffer;
use iscsi::pdu::{InitiatorTaskTag, Residual, TargetPdu, TargetTransferTag};

/// Length of the reads: several PDUs, and more than one burst of the smallest size.
const READ_BYTES: u32 = 64 << 10;
/// Upper bound of a logical block: longer blocks do not fit the transfers of the checks.
pub(super) const BLOCK_BYTES_MAX: u32 = READ_BYTES;

/// Sends a READ (10) of `READ_BYTES` from block 0 on, and checks that all of it came.
pub(super) fn read(session: &mut Session) -> CheckResult<CommandResult> {
    let cdb = read_cdb(session)?;
    let done = session.read(&cdb, READ_BYTES)?;
    ensure(done.status == 0, || format!("READ (10) ended with status {}, sense {:x?}", done.status, done.sense))?;
    ensure(done.data.len() == READ_BYTES as usize, || format!("{} bytes came of {READ_BYTES}", done.data.len()))?;
    ensure(done.residual == Residual::None, || format!("all came, and the residual is {:?}", done.residual))?;
    Ok(done)
}

/// Builds a READ (10) of `READ_BYTES` from block 0 on.
pub(super) fn read_cdb(session: &mut Session) -> CheckResult<[u8; 10]> {
    let block_bytes = block_bytes(session)?;
    let [high, low] = u16::try_from(READ_BYTES / block_bytes).unwrap_or(1).to_be_bytes();
    Ok([0x28, 0, 0, 0, 0, 0, 0, high, low, 0])
}

pub(super) fn block_bytes(session: &mut Session) -> CheckResult<u32> {
    // READ CAPACITY (10): address of the last block, and block length.
    let capacity = session.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)?;
    let word =
        |at: usize| capacity.data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    match (word(0), word(4)) {
        (Some(last), Some(bytes))
            if bytes.is_power_of_two()
                && bytes <= BLOCK_BYTES_MAX
                && u64::from(last) * u64::from(bytes) >= u64::from(READ_BYTES) =>
        {
            Ok(bytes)
        }
        _ => Err(Finding::Untried("the unit is no disk of 64 KiB".to_owned())),
    }
}

/// Logs in a session with small data segments and bursts.
pub(super) fn small(aim: &TestTarget) -> CheckResult<Session> {
    let mut session = Session::login(aim, |config| {
        // A read of 64 KiB takes eight PDUs at least, in four bursts.
        config.offer.data_segment_bytes_max = 8192;
        config.offer.burst_bytes_max = 16 << 10;
        config.offer.first_burst_bytes_max = 8192;
    })?;
    session.ready()?;
    Ok(session)
}

pub(super) fn in_order(aim: &TestTarget) -> CheckResult {
    let mut session = small(aim)?;
    let done = read(&mut session)?;
    let mut offset = 0;
    for (number, (piece, len)) in (0..).zip(&done.pieces) {
        ensure(piece.data_sn.0 == number, || format!("DataSN {} came where {number} was due", piece.data_sn.0))?;
        ensure(piece.buffer_offset_bytes == offset, || {
            format!("offset {} came where {offset} was due", piece.buffer_offset_bytes)
        })?;
        ensure(*len <= 8192, || format!("{len} bytes came at once, and 8192 are taken"))?;
        offset += u32::try_from(*len).unwrap_or(u32::MAX);
    }
    Ok(())
}

pub(super) fn bursts(aim: &TestTarget) -> CheckResult {
    let mut session = small(aim)?;
    let most = session.agreed.burst_bytes_max as usize;
    let done = read(&mut session)?;
    let mut burst = 0;
    for (piece, len) in &done.pieces {
        burst += len;
        ensure(burst <= most, || format!("a sequence has {burst} bytes, and MaxBurstLength is {most}"))?;
        // F ends a sequence of Data-In PDUs (RFC 7143 §11.7.1); the limit applies to each sequence.
        if piece.is_final {
            burst = 0;
        }
    }
    ensure(burst == 0, || "the last Data-In has no F".to_owned())
}

pub(super) fn underflow(aim: &TestTarget) -> CheckResult {
    let mut session = small(aim)?;
    // INQUIRY with an allocation length of 36 bytes, below the expected transfer length.
    let done = session.read(&[0x12, 0, 0, 0, 36, 0], 255)?;
    // A target that fails may have sent more than was expected.
    let came = u32::try_from(done.data.len()).unwrap_or(u32::MAX);
    let expected = Residual::Underflow(255_u32.saturating_sub(came));
    ensure(done.status == 0 && done.data.len() <= 36, || {
        format!("INQUIRY of 36 bytes gave {} bytes", done.data.len())
    })?;
    ensure(done.residual == expected, || format!("the residual is {:?}, not {expected:?}", done.residual))
}

pub(super) fn overflow(aim: &TestTarget) -> CheckResult {
    let mut session = small(aim)?;
    // The CDB asks for more than the initiator has room for; the residual counts the rest (RFC 7143 §11.4.5.1).
    let done = session.read(&[0x12, 0, 0, 0, 36, 0], 16)?;
    ensure(done.data.len() <= 16, || format!("{} bytes came, and 16 were expected", done.data.len()))?;
    // 36 bytes of INQUIRY data, of which 16 were expected.
    ensure(done.residual == Residual::Overflow(20), || {
        format!("the residual is {:?}, not an overflow of 20", done.residual)
    })
}

/// Sends a READ for which the initiator offers data instead of a buffer.
pub(super) fn wrong_way(aim: &TestTarget) -> CheckResult {
    let mut session = small(aim)?;
    let block = block_bytes(&mut session)?;
    // READ (10) of one block, sent as a write: the target has nothing to receive, so all of it is residual.
    let command = session.write_command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], block, false);
    let tag = session.send(&command);
    let done = super::writes::answer(&mut session, tag, &vec![0; block as usize], 0, super::writes::DataFault::None)?;
    ensure(done.residual == Residual::Underflow(block), || {
        format!("status {}, and the residual is {:?}, not an underflow of {block}", done.status, done.residual)
    })
}

pub(super) fn header_digest(aim: &TestTarget) -> CheckResult {
    let session = Session::login(aim, |config| config.offer.header_digest = DigestOffer::Preferred)?;
    with_digests(session, |session| session.wire.header_digest)
}

pub(super) fn data_digest(aim: &TestTarget) -> CheckResult {
    let session = Session::login(aim, |config| config.offer.data_digest = DigestOffer::Preferred)?;
    with_digests(session, |session| session.wire.data_digest)
}

fn with_digests(mut session: Session, are_on: impl Fn(&Session) -> bool) -> CheckResult {
    if !are_on(&session) {
        return Err(Finding::Untried("the digest was not agreed".to_owned()));
    }
    session.ready()?;
    // A ping has data in both directions; a read has none from the initiator.
    session.ping()?;
    read(&mut session).map(drop)
}

pub(super) fn wrong_digest(aim: &TestTarget) -> CheckResult {
    let mut session = Session::login(aim, |config| config.offer.data_digest = DigestOffer::Preferred)?;
    if !session.wire.data_digest {
        return Err(Finding::Untried("the digest was not agreed".to_owned()));
    }
    // Rejecting the PDU, dropping it and closing the connection are all allowed; acting on it is not.
    send_damaged_ping(&mut session);
    // No answer is allowed, so ten times the usual silence replaces the response timeout.
    match session.wire.listen(SILENCE * 10)? {
        crate::wire::Received::Pdu(pdu) => match pdu.parse()? {
            TargetPdu::NopIn(nop_in) if !nop_in.initiator_task_tag.is_reserved() => {
                Err(Finding::Wrong("it answered a ping whose data digest is wrong".to_owned()))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Sends a ping whose data does not match its digest.
pub(super) fn send_damaged_ping(session: &mut Session) {
    let tag = session.next_tag();
    let (lun, cmd_sn, exp_stat_sn) = (iscsi::pdu::Lun(0), session.cmd_sn, session.stat_sn);
    let (initiator_task_tag, target_transfer_tag) = (InitiatorTaskTag(tag), TargetTransferTag::RESERVED);
    let nop_out =
        iscsi::pdu::NopOut { immediate: true, lun, initiator_task_tag, target_transfer_tag, cmd_sn, exp_stat_sn };
    let mut header = [0; 48];
    nop_out.emit(iscsi::pdu::SegmentLengths::data(8), &mut header);
    let mut bytes = session.wire.framed(&header, b"conform!");
    // The last eight bytes of the PDU are four bytes of data and the digest.
    let at = bytes.len() - 8;
    bytes[at] ^= 1;
    session.wire.send_bytes(&bytes);
}

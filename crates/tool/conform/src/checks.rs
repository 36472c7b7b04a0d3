//! Table of all checks.

mod blocks;
mod changes;
mod commands;
mod connections;
mod data;
mod login;
mod messages;
mod numbers;
mod recovery;
mod requests;
mod reservations;
mod resets;
mod writes;

pub(crate) use requests::text;
pub(crate) use writes::send_whole;

use crate::{CheckResult, TestTarget};

/// Check of one rule of a standard.
pub struct Check {
    /// Topic and rule, for example `login.plain`; stable identifier.
    pub name: &'static str,
    /// Section of RFC 7143, or the other standard with its section.
    pub section: &'static str,
    /// Rule in one sentence.
    pub rule: &'static str,
    /// True for checks that write to the unit, reset it or reserve it.
    pub destroys: bool,
    /// False for checks that run before a login succeeds and therefore need no access.
    pub logs_in: bool,
    pub(crate) play: fn(&TestTarget) -> CheckResult,
}

const fn check(
    name: &'static str,
    section: &'static str,
    rule: &'static str,
    play: fn(&TestTarget) -> CheckResult,
) -> Check {
    Check { name, section, rule, destroys: false, logs_in: true, play }
}

const fn without_login(
    name: &'static str,
    section: &'static str,
    rule: &'static str,
    play: fn(&TestTarget) -> CheckResult,
) -> Check {
    Check { name, section, rule, destroys: false, logs_in: false, play }
}

const fn destructive(
    name: &'static str,
    section: &'static str,
    rule: &'static str,
    play: fn(&TestTarget) -> CheckResult,
) -> Check {
    Check { name, section, rule, destroys: true, logs_in: true, play }
}

/// All checks, in order of execution.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    check("login.plain", "6.3", "a login with usual wishes succeeds", login::plain),
    check("login.all-keys", "13", "every key is answered within what was offered", login::all_keys),
    check("login.unknown-key", "6.2", "a key that nobody knows is answered NotUnderstood", login::unknown_key),
    check("login.portal-group", "13.9", "the first response names the target portal group", login::portal_group),
    check("login.declared-length", "13.12", "the MaxRecvDataSegmentLength that the target declares is in its range", login::declared_length),
    check("login.key-twice", "6.3", "a key that comes twice ends the login", login::key_twice),
    without_login("login.stage-skipped", "6.3", "a request to be in full feature phase already is refused", login::stage_skipped),
    check("login.version", "11.13.5", "a version that nobody speaks is refused with 0205", login::version),
    check("login.unknown-target", "11.13.5", "a target that is not there is refused with 0203, or a stranger with 0202", login::unknown_target),
    check("login.unknown-session", "11.13.5", "a session that is not there cannot be joined: 020a", login::unknown_session),
    without_login("login.command-first", "6.3", "nothing but a login is taken before a login", login::command_first),
    without_login("login.long-segment", "6.2", "a login PDU of 16 MiB is not waited for", login::long_segment),
    check("login.text-in-parts", "6.2", "text that continues in the next PDU is answered empty, then as one", login::text_in_parts),
    check("login.redirect", "11.13.5", "where a login is sent elsewhere, it goes on there", login::redirect),
    check("numbers.order", "4.2.2.1", "a command ahead of a hole waits for it", numbers::order),
    check("numbers.outside", "4.2.2.1", "a command outside the window is ignored in silence", numbers::outside),
    check("numbers.twice", "4.2.2.1", "a CmdSN that came already is ignored in silence", numbers::twice),
    check("numbers.immediate", "4.2.2.1", "an immediate command does not advance CmdSN", numbers::immediate),
    check("data.in-order", "11.7", "Data-In is numbered from zero, without holes, within what the initiator takes", data::in_order),
    check("data.bursts", "11.7.1", "Data-In ends a sequence with F, within MaxBurstLength", data::bursts),
    check("data.underflow", "11.4.5.1", "what was expected and not there is counted as underflow", data::underflow),
    check("data.overflow", "11.4.5.1", "what was there and not expected is counted as overflow, and not sent", data::overflow),
    check("data.wrong-way", "11.4.5.1", "data that is offered for a READ is not taken, and counted as underflow", data::wrong_way),
    check("data.header-digest", "13.1", "header digests are right both ways", data::header_digest),
    check("data.data-digest", "13.1", "data digests are right both ways", data::data_digest),
    check("data.wrong-digest", "7.8", "a PDU with a wrong data digest is not acted on", data::wrong_digest),
    check("requests.ping", "11.18", "a ping is answered with its data", requests::ping),
    check("requests.ping-unanswered", "11.18", "a NOP-Out without a tag gets no answer", requests::ping_unanswered),
    check("requests.send-targets", "C", "SendTargets in a session names its target", requests::send_targets),
    check("requests.text-key", "6.2", "a text key that nobody knows is answered NotUnderstood", requests::text_key),
    check("requests.text-goes-on", "11.11.1", "a text exchange ends when the initiator says so, and goes on until then", requests::text_goes_on),
    check("requests.absent-lun", "SAM", "a unit that is not there is told: 05/25/00", requests::absent_lun),
    check("requests.abort-absent", "11.6.1", "ABORT TASK of a task that is not there says so", requests::abort_absent),
    check("requests.unknown-function", "11.6.1", "a function that nobody knows is not done", requests::unknown_function),
    check("requests.unknown-opcode", "11.17", "an opcode that nobody knows is rejected", requests::unknown_opcode),
    check("requests.logout", "11.15", "a logout is answered, and the connection closed", requests::logout),
    check("requests.logout-other", "11.15.1", "a logout of a connection that is not there says so", requests::logout_other),
    check("commands.unknown", "SPC-4", "an operation code that nobody knows is refused: 05/20/00", commands::unknown),
    check("commands.allocation-length", "SPC-4, ALLOCATION LENGTH", "an answer is cut where the allocation length ends, and is the same up to there", commands::allocation_length),
    check("commands.pages", "SPC-4, vital product data", "every page that page 00h lists is there with its code and length, and no other", commands::pages),
    check("commands.report-luns", "SPC-4 REPORT LUNS", "the list is as long as it says, and has the unit that is read", commands::report_luns),
    check("blocks.capacity", "SBC-4 READ CAPACITY", "both READ CAPACITY tell the same, and the last block can be read", blocks::capacity),
    check("blocks.read-beyond", "SBC-4 READ (16)", "a read that passes the last block is refused: 05/21/00", blocks::read_beyond),
    check("blocks.verify", "SBC-4 VERIFY (16)", "blocks are verified, and none behind the last: 05/21/00", blocks::verify),
    check("blocks.verify-compares", "SBC-4 VERIFY (16)", "with BYTCHK other data is a miscompare: 0E/1D/00", blocks::verify_compares),
    check("blocks.lba-status", "SBC-4 GET LBA STATUS (16)", "descriptors begin at the block that is asked for and have no gaps; none is behind the last block: 05/21/00", blocks::lba_status),
    check("recovery.agreed", "13.20", "an ErrorRecoveryLevel is agreed", recovery::agreed),
    check("recovery.snack-at-0", "11.16", "a SNACK at level 0 is rejected", recovery::snack_at_0),
    check("recovery.data", "11.16", "Data-In is sent again as it was", recovery::data),
    check("recovery.status", "11.16", "a status is sent again with its number", recovery::status),
    check("recovery.acknowledged", "11.16", "what was acknowledged is not sent again", recovery::acknowledged),
    check("recovery.wrong-digest", "7.8", "above level 0 a wrong data digest does not cost the connection", recovery::wrong_digest),
    check("recovery.task-reassign", "11.5.6", "at level 2 an answer goes on over another connection", recovery::task_reassign),
    check("connections.join", "6.3.1", "a second connection joins the session", connections::join),
    check("connections.order", "4.2.2.1", "commands of two connections have one order", connections::order),
    check("connections.stranger", "6.3.1", "a session is not joined under another ISID", connections::stranger),
    check("connections.reinstated", "6.3.4", "a connection with the number of another takes its place", connections::reinstated),
    check("connections.session-reinstated", "6.3.5", "a login with the ISID of a session takes its place", connections::session_reinstated),
    check("messages.connection-lost", "7.14", "at level 2 a connection that is lost costs the session's others nothing", messages::connection_lost),
    check("messages.ping", "11.19", "whoever answers the target's pings may be idle", messages::ping),
    check("messages.logout-asked", "11.9.1", "who is asked to log out may end what was begun, log out, and come back", messages::logout_asked),
    check("messages.logout-overdue", "11.9.1", "who is asked to log out and does not is cut off, not before the time that was given", messages::logout_overdue),
    destructive("writes.immediate", "4.2.5.2", "data in the command is written", writes::immediate),
    destructive("writes.unsolicited", "4.2.5.2", "data that was not asked for is taken up to FirstBurstLength, the rest is asked for", writes::unsolicited),
    destructive("writes.solicited", "11.8", "R2Ts are numbered from zero, within MaxBurstLength, one after the other", writes::solicited),
    destructive("writes.underflow", "11.4.5.1", "what was offered and not wanted is counted as underflow", writes::underflow),
    destructive("writes.overflow", "11.4.5.1", "what was wanted and not offered is counted as overflow", writes::overflow),
    destructive("writes.wrong-way", "11.4.5.1", "a WRITE for which no data is sent but awaited does not end GOOD", writes::wrong_way),
    destructive("writes.lost-data", "7.2", "at level 1 lost Data-Out is asked for again, or the command fails: it is never made up", writes::lost_data),
    destructive("writes.wrong-digest", "7.8", "at level 1 Data-Out with a wrong digest is asked for again, or the command fails", writes::wrong_digest),
    destructive("writes.outstanding", "13.17", "no more R2Ts wait than MaxOutstandingR2T", writes::outstanding),
    destructive("blocks.write-beyond", "SBC-4 WRITE (16)", "a write that passes the last block is refused, and writes nothing: 05/21/00", changes::write_beyond),
    destructive("blocks.unmap", "SBC-4 UNMAP", "nothing but the blocks of the list is unmapped, and reads as LBPRZ says", changes::unmap),
    destructive("blocks.unmap-beyond", "SBC-4 UNMAP", "a list that passes the last block is refused, and unmaps nothing: 05/21/00", changes::unmap_beyond),
    destructive("blocks.unmap-list-length", "SBC-4 UNMAP", "a list without a whole header is refused: 05/1A/00", changes::unmap_list_length),
    destructive("blocks.compare-and-write", "SBC-4 COMPARE AND WRITE", "what is equal is overwritten, and nothing beside it", changes::compare_and_write),
    destructive("blocks.compare-and-write-miscompare", "SBC-4 COMPARE AND WRITE", "what is not equal stays, and the first byte that differs is told: 0E/1D/00", changes::compare_and_write_miscompare),
    destructive("blocks.compare-and-write-bounds", "SBC-4 COMPARE AND WRITE", "what passes the last block is refused, 05/21/00, and more blocks than page B0h allows, 05/24/00", changes::compare_and_write_bounds),
    destructive("blocks.write-same", "SBC-4 WRITE SAME (16)", "each block holds the one that was sent, and none beside them", changes::write_same),
    destructive("blocks.write-same-beyond", "SBC-4 WRITE SAME (16)", "blocks that pass the last one are refused, and nothing is written: 05/21/00", changes::write_same_beyond),
    destructive("resets.abort-task", "11.6.1", "a write that is aborted has no answer", resets::abort_task),
    destructive("resets.abort-task-set", "11.6.1", "ABORT TASK SET ends the session's own tasks", resets::abort_task_set),
    destructive("resets.unit", "11.6.1", "LOGICAL UNIT RESET is told to everybody: 06/29", resets::unit),
    destructive("resets.unit-ends-tasks", "SAM-5 5.6", "LOGICAL UNIT RESET ends others' tasks, which are answered as TAS says", resets::unit_ends_tasks),
    destructive("resets.clear-task-set", "11.6.1", "CLEAR TASK SET ends others' tasks, and tells them: TASK ABORTED where TAS is one, else 06/2F/00", resets::clear_task_set),
    destructive("reservations.register", "SPC-4 5.13", "only who is registered may reserve", reservations::register),
    destructive("reservations.write-exclusive", "SPC-4 5.13", "others read and do not write", reservations::write_exclusive),
    destructive("reservations.exclusive-access", "SPC-4 5.13", "others neither read nor write", reservations::exclusive_access),
    destructive("reservations.write-exclusive-registrants", "SPC-4 5.13", "who is registered writes, others read", reservations::write_exclusive_registrants),
    destructive("reservations.exclusive-access-registrants", "SPC-4 5.13", "who is registered has access, others have none", reservations::exclusive_access_registrants),
    destructive("reservations.write-exclusive-all", "SPC-4 5.13", "all who are registered hold it; others read", reservations::write_exclusive_all),
    destructive("reservations.exclusive-access-all", "SPC-4 5.13", "all who are registered hold it; others have no access", reservations::exclusive_access_all),
    destructive("reservations.preempt", "SPC-4 5.13.11.2", "who is preempted is told: 06/2A/05", reservations::preempt),
];

#[cfg(test)]
mod tests {
    use super::CHECKS;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
    }
}

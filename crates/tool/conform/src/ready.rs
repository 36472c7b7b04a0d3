//! Requirements of clusters, hypervisors and databases on a shared unit, checked on the running unit.
//!
//! Features that a target advertises are exercised where this does no harm. Nothing is written except to a scratch
//! block that the caller names, and that block is rewritten with its own content.

mod needs;
mod probes;
mod unit;

use crate::session::Session;
use crate::{CheckResult, Finding, TestTarget, Verdict, probe_login};
use unit::Unit;

/// Intended use of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Windows Server Failover Clustering, with cluster shared volumes.
    WindowsCluster,
    /// VMware ESXi, with VMFS.
    Vmware,
    /// Oracle RAC on ASM.
    OracleRac,
    /// Proxmox VE, with LVM on a shared unit.
    Proxmox,
    /// Pacemaker, with `fence_scsi` or `sbd`.
    LinuxHa,
}

use Purpose::{LinuxHa, OracleRac, Proxmox, Vmware, WindowsCluster};

/// Requirement on a unit.
pub struct Requirement {
    /// Topic and requirement, for example `unit.reads`; stable identifier.
    pub name: &'static str,
    /// Uses that have the requirement.
    pub purposes: &'static [Purpose],
    /// Requirement in one sentence.
    pub rule: &'static str,
    /// Advice when it is not met: for a unit of Blockyard, and for a unit of another target.
    fixes: [&'static str; 2],
    play: fn(&mut Unit) -> CheckResult,
}

const fn need(
    name: &'static str,
    purposes: &'static [Purpose],
    rule: &'static str,
    fix: &'static str,
    play: fn(&mut Unit) -> CheckResult,
) -> Requirement {
    Requirement { name, purposes, rule, fixes: [fix, fix], play }
}

/// Replaces the advice for units of Blockyard by a command of Blockyard.
const fn ours(mend: &'static str, need: Requirement) -> Requirement {
    Requirement { fixes: [mend, need.fixes[1]], ..need }
}

const ALL: &[Purpose] = &[WindowsCluster, Vmware, OracleRac, Proxmox, LinuxHa];
const FENCING: &[Purpose] = &[WindowsCluster, LinuxHa];

const NO_FIX: &str = "the target does not do it: use another one";

/// All requirements, in order of execution.
#[rustfmt::skip]
pub const NEEDS: &[Requirement] = &[
    ours("look at what happened: blockyard event list", need("unit.reads", ALL, "block 0 can be read", "look at the target's log", needs::reads)),
    ours("present the volume without --read-only, and let no host set software write protection", need("unit.writable", ALL, "the host may write", "let this host write, and let no host set software write protection", needs::writable)),
    ours("make the volume with --block-size 512", need("unit.blocks", &[Vmware], "blocks have 512 bytes (512n or 512e)", "make the unit with blocks of 512 bytes", needs::blocks_of_512)),
    need("unit.transfer", &[OracleRac, Vmware], "one command moves 1 MiB", "raise the target's longest transfer", needs::transfer),
    ours("blockyard volume set VOLUME --write-policy through, or back with a log device", need("unit.durable", &[OracleRac, LinuxHa], "a write that was answered survives power loss (WCE is 0)", "have the target write through, or keep its cache through a loss of power", needs::durable)),
    need("identity.designator", ALL, "page 83h names the unit by NAA, EUI-64 or UUID, the same through two sessions", NO_FIX, needs::designator),
    need("identity.serial", &[WindowsCluster, Vmware, OracleRac], "page 80h has a serial number", NO_FIX, needs::serial),
    need("identity.version", &[WindowsCluster], "the unit keeps SPC-3 or later", NO_FIX, needs::version),
    ours("blockyard portal group TAG access=optimized", need("paths.alua", &[WindowsCluster, Vmware, Proxmox, OracleRac], "target port groups are told (ALUA), and this path is active", "set the access state of this target port group to active/optimized", needs::alua)),
    need("paths.reset", &[WindowsCluster, Vmware], "LOGICAL UNIT RESET and ABORT TASK are supported", NO_FIX, needs::reset),
    need("reservations.actions", FENCING, "PERSISTENT RESERVE OUT registers, reserves, releases, clears, preempts and preempts and aborts", NO_FIX, probes::actions),
    need("reservations.type", FENCING, "the type Write Exclusive, Registrants Only is supported", NO_FIX, needs::kind),
    ours("keep the volume in a pool: what has no pool keeps no reservations", need("reservations.survive", FENCING, "reservations can survive power loss (PTPL_C)", "let the target keep reservations on disk (APTPL), if it can", needs::survive)),
    ours("blockyard volume reservations VOLUME --clear, when no cluster is using it", need("reservations.free", FENCING, "no other nexus has reserved the unit", "clear the reservation, when no cluster is using the unit: sg_persist", needs::free)),
    need("vmfs.ats", &[Vmware], "COMPARE AND WRITE of at least one block (ATS)", NO_FIX, probes::compare_and_write),
    need("vmfs.xcopy", &[Vmware], "EXTENDED COPY (full copy)", NO_FIX, probes::extended_copy),
    need("vmfs.write-same", &[Vmware], "WRITE SAME (16) (block zeroing)", NO_FIX, probes::write_same),
    ours("make the volume with --thin; file volumes cannot give blocks back", need("thin.unmap", &[Vmware, Proxmox], "UNMAP in granules of at most 1 MiB, which begin at block 0", "make the unit thin, with granules of at most 1 MiB", needs::unmap)),
    ours("make the volume with --thin", need("thin.zeros", &[Vmware, Proxmox], "unmapped blocks read as zeros", "make the unit thin, and let it tell that unmapped blocks read as zeros", needs::zeros)),
    ours("make the volume with --thin in a pool", need("thin.thresholds", &[Vmware], "thresholds are told before the pool is full, so that virtual machines are paused and not broken", "make the unit thin, with thresholds", needs::thresholds)),
];

/// Unit that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// True for a unit of a Blockyard target, by its INQUIRY vendor.
    pub is_ours: bool,
}

/// Logs in and waits until the unit is ready.
///
/// *Errors*: a sentence that says why it is not, and what to do.
pub fn reach(aim: &TestTarget) -> Result<Reached, String> {
    probe_login(aim).map_err(|shut| shut.to_string())?;
    let told = Session::login(aim, |_| {}).and_then(|mut session| {
        session.is_lenient = true;
        session.ready()?;
        Unit::of(session, aim, None).inquiry()
    });
    let inquiry = told.map_err(|why| why.to_string())?;
    // T10 VENDOR IDENTIFICATION is in bytes 8 to 15.
    Ok(Reached { is_ours: inquiry.0.get(8..16) == Some(b"BLOCKYRD") })
}

impl Requirement {
    /// Returns the advice when the requirement is not met.
    #[must_use]
    pub fn fix(&self, reached: Reached) -> &'static str {
        let [ours, others] = self.fixes;
        if reached.is_ours { ours } else { others }
    }

    /// Checks the requirement. `scratch` is a block that may be overwritten with its own content.
    #[must_use]
    pub fn ask(&self, aim: &TestTarget, scratch: Option<u64>) -> Verdict {
        let asked = Session::login(aim, |_| {}).and_then(|mut session| {
            session.is_lenient = true;
            session.ready()?;
            (self.play)(&mut Unit::of(session, aim, scratch))
        });
        match asked {
            Ok(()) => Verdict::Passed,
            Err(Finding::Wrong(how)) => Verdict::Failed(how),
            Err(Finding::Untried(why)) => Verdict::Skipped(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_to_do_with_a_unit_of_others_is_no_command_of_ours() {
        for need in NEEDS {
            let fix = need.fix(Reached { is_ours: false });
            assert!(!fix.contains("blockyard") && !fix.contains("--"), "{}: {fix}", need.name);
        }
        let durable = NEEDS.iter().find(|need| need.name == "unit.durable").expect("it is needed");
        assert!(durable.fix(Reached { is_ours: true }).contains("blockyard volume set"));
    }

    #[test]
    fn every_need_has_a_name_of_its_own_and_somebody_who_needs_it() {
        let names: BTreeSet<_> = NEEDS.iter().map(|need| need.name).collect();
        assert_eq!(names.len(), NEEDS.len());
        assert!(NEEDS.iter().all(|need| !need.purposes.is_empty() && need.fixes.iter().all(|fix| !fix.is_empty())));
        assert!(ALL.iter().all(|purpose| NEEDS.iter().any(|need| need.purposes.contains(purpose))));
    }
}

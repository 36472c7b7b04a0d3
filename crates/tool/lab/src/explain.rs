//! Bottleneck analysis of a point: limit, evidence and remedy (`blockyard lab explain`).
//!
//! Pure rules over the figures of a sample, in this order: a load that asks for no more; a saturated thread or core; a
//! saturated disk or link; a full window; then the depth, if nothing is near saturation. Missing figures are reported.

mod change;
mod figures;

use crate::point::Point;
use crate::run::{Machine, Measured, Sample};
use figures::{Figures, Use};
use serde::Serialize;
use std::fmt;

/// Utilization from which a thread or core counts as saturated.
const CPU_FULL: f64 = 0.9;
/// Utilization from which a disk or link counts as saturated.
const WAY_FULL: f64 = 0.85;
/// Utilization up to which nothing is near saturation.
const SLACK: f64 = 0.75;
/// Share of the time from which a full window counts as the bottleneck.
const WINDOW_FULL: f64 = 0.2;
/// Relative shortfall up to which the requested rate counts as achieved; with few commands, chance allows more.
const SHORT: f64 = 0.02;
/// Member operations per write above which they are due to parity: a mirror makes two.
const PARITY_OPERATIONS: f64 = 2.5;

/// Bottleneck of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Limit {
    /// The load asks for no more.
    Load,
    /// Too few commands in flight.
    Depth,
    /// Thread that generates the load.
    Initiator,
    /// Thread of the target.
    Thread {
        /// Name, with the daemon's number if there are several.
        name: String,
    },
    /// Core that threads queue for.
    Core {
        /// Number of the core.
        core: u32,
    },
    /// Programs outside of the measurement.
    Others,
    /// Disk.
    Disk {
        /// Name of the disk.
        name: String,
    },
    /// Cost of small writes in a parity array.
    Parity {
        /// Disk or thread that is saturated by it.
        of: String,
    },
    /// Network interface.
    Nic {
        /// Name of the interface.
        name: String,
    },
    /// Command window of the target (MaxCmdSN).
    CommandWindow,
    /// TCP receive window.
    ReceiveWindow {
        /// True if the target is the receiver.
        server: bool,
    },
    /// TCP send buffer.
    SendBuffer {
        /// True if the target is the sender.
        server: bool,
    },
    /// The evidence is insufficient.
    NotShown,
}

/// Bottleneck of a point, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Bottleneck.
    pub limit: Limit,
    /// Evidence, as sentences with figures.
    pub evidence: Vec<String>,
    /// Remedies.
    pub change: Vec<String>,
    /// Quantities that no meter covers, and that may be the bottleneck as well.
    pub unseen: Vec<String>,
    /// Number of rounds with the same bottleneck, and number of all rounds.
    pub rounds: (usize, usize),
}

/// Explains a point by its round of median speed; none if it was not measured.
#[must_use]
pub fn explain(measured: &Measured, machine: &Machine) -> Option<Explanation> {
    let mut rounds: Vec<&Sample> = measured.samples.iter().collect();
    rounds.sort_by(|one, other| one.iops().total_cmp(&other.iops()));
    // The median round: its figures belong together, unlike medians of single figures.
    let sample = *rounds.get(rounds.len().checked_sub(1)? / 2)?;
    let explanation = explain_one(&measured.point, sample, machine);
    let same = rounds
        .iter()
        .filter(|round| explain_one(&measured.point, round, machine).limit.is_like(&explanation.limit))
        .count();
    Some(Explanation { rounds: (same, rounds.len()), ..explanation })
}

fn explain_one(point: &Point, sample: &Sample, machine: &Machine) -> Explanation {
    let unseen = figures::unseen(point, sample);
    let Some(figures) = Figures::of(point, sample) else {
        let evidence = if sample.seen.is_none() {
            "the run was kept without what the meters saw; measure it again"
        } else {
            "no command ended well"
        };
        // A thread that got no core is the likely reason for a sample without figures.
        let evidence = [vec![evidence.to_owned()], figures::starved(sample)].concat();
        return Explanation { limit: Limit::NotShown, evidence, change: Vec::new(), unseen, rounds: (1, 1) };
    };
    let (limit, mut evidence) = limit(&figures);
    evidence.extend(figures.beside());
    // Stated for every limit, because failed commands are in no other figure.
    evidence.extend(figures.errors());
    evidence.extend(figures.stolen());
    // Other programs are then the limit itself, and named by it already.
    evidence.extend(figures.disturbed().filter(|_| limit != Limit::Others));
    let change = change::of(&limit, &figures, machine);
    Explanation { limit, evidence, change, unseen, rounds: (1, 1) }
}

/// Returns the first rule that holds, with its evidence.
fn limit(figures: &Figures<'_>) -> (Limit, Vec<String>) {
    // The order matters: a window that is full because a CPU behind it is saturated is an effect, not a cause.
    let rules = [all_that_is_asked, full_cpu, saturated_resource, full_window, too_few];
    rules.iter().find_map(|rule| rule(figures)).unwrap_or_else(|| {
        let mut evidence = figures.nearest();
        evidence.extend(figures.per_write());
        evidence.push("nothing that was metered is full".to_owned());
        (Limit::NotShown, evidence)
    })
}

/// Rule: the load is paced by due times or think time, and the target keeps up.
fn all_that_is_asked(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let asked = figures.asked?;
    // Three standard deviations of a Poisson count, relative to it.
    let chance = 3.0 / (asked * figures.sample.seconds).sqrt();
    if figures.iops < asked * (1.0 - SHORT.max(chance)) {
        return None;
    }
    let mut evidence = vec![format!("{:.0} commands a second were asked for, and {:.0} ended", asked, figures.iops)];
    evidence.extend(figures.nearest());
    Some((Limit::Load, evidence))
}

fn full_cpu(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let fullest = figures.fullest(Use::is_cpu).filter(|fullest| fullest.part >= CPU_FULL)?;
    let mut evidence = vec![fullest.fact.clone()];
    evidence.extend(figures.cost_of(&fullest.limit));
    Some(with_parity(figures, fullest, evidence))
}

fn saturated_resource(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let fullest = figures.fullest(|used| !used.is_cpu()).filter(|fullest| fullest.part >= WAY_FULL)?;
    let mut evidence = vec![fullest.fact.clone()];
    // The busiest CPU as well, which shows how far it is from its own limit.
    evidence.extend(figures.fullest(Use::is_cpu).map(|cpu| cpu.fact.clone()));
    Some(with_parity(figures, fullest, evidence))
}

/// Attributes saturation to parity if each write makes many operations.
fn with_parity(figures: &Figures<'_>, fullest: &Use, mut evidence: Vec<String>) -> (Limit, Vec<String>) {
    if figures.operations_per_write.is_none_or(|operations| operations < PARITY_OPERATIONS) {
        return (fullest.limit.clone(), evidence);
    }
    evidence.extend(figures.per_write());
    let of = match &fullest.limit {
        Limit::Disk { name } | Limit::Thread { name } => name.clone(),
        // Parity loads disks and threads of the target, and nothing else.
        other => return (other.clone(), evidence),
    };
    (Limit::Parity { of }, evidence)
}

fn full_window(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let end = |server: bool| if server { "target" } else { "initiator" };
    // Before the TCP windows: a command outside the window has not reached a socket yet.
    if figures.held >= WINDOW_FULL {
        let said =
            format!("sessions had a command and no place in the target's window {} of the time", percent(figures.held));
        return Some((Limit::CommandWindow, [vec![said], figures.nearest()].concat()));
    }
    figures.ends.iter().find_map(|side| {
        let (sender, receiver) = (end(side.server), end(!side.server));
        let (limit, said) = if side.window >= WINDOW_FULL {
            let said = format!(
                "the {sender}'s sockets waited {} of their busy time for room in the {receiver}'s receive window",
                percent(side.window)
            );
            (Limit::ReceiveWindow { server: !side.server }, said)
        } else if side.buffer >= WINDOW_FULL {
            let said = format!(
                "the {sender}'s sockets wanted a larger send buffer {} of their busy time",
                percent(side.buffer)
            );
            (Limit::SendBuffer { server: side.server }, said)
        } else {
            return None;
        };
        Some((limit, [vec![said], figures.nearest()].concat()))
    })
}

/// Rule: the depth limits. By Little's law commands in flight are rate times latency. If they reach the depth, and
/// nothing is near saturation, more depth gives more.
fn too_few(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let depth = figures.depth?;
    let busiest = figures.fullest(|_| true).map_or(0.0, |fullest| fullest.part);
    // 70 %: submission and completion take time in which a slot is empty.
    if busiest >= SLACK || figures.under_way < 0.7 * depth {
        return None;
    }
    let (latency, iops) = (figures::time(figures.latency), figures.iops);
    let mut evidence =
        vec![format!("{depth:.0} under way at once, {latency} each: {iops:.0} a second, and no more can be")];
    evidence.extend(figures.nearest());
    evidence.extend(figures.below());
    Some((Limit::Depth, evidence))
}

impl Limit {
    /// Returns true for the same kind of bottleneck.
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |server: bool| if server { "target" } else { "initiator" };
        match self {
            Self::Load => f.write_str("the load, which asks for no more"),
            Self::Depth => f.write_str("the depth: too few commands under way"),
            Self::Initiator => f.write_str("the initiator's CPU"),
            Self::Thread { name } => write!(f, "the target's CPU, in {name}"),
            Self::Core { core } => write!(f, "core {core}, for which threads queue"),
            Self::Others => f.write_str("other programs on this machine"),
            Self::Disk { name } => write!(f, "the disks, {name} first"),
            Self::Parity { of } => write!(f, "parity, which fills {of}"),
            Self::Nic { name } => write!(f, "the network interface {name}"),
            Self::CommandWindow => f.write_str("the command window of the target"),
            Self::ReceiveWindow { server } => write!(f, "the TCP receive window of the {}", end(*server)),
            Self::SendBuffer { server } => write!(f, "the TCP send buffer of the {}", end(*server)),
            Self::NotShown => f.write_str("not shown"),
        }
    }
}

#[cfg(test)]
mod tests;

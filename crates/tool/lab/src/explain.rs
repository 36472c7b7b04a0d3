//! What limits a point, how that is known, and what to change: `blockyard lab explain`.
//!
//! Rules over the figures of a sample, in this order: a load that asks for no more; a thread or a core that is full; a disk or a
//! line that is full; a window that is; then the depth, when nothing is near its end. What the figures do not show is said.

mod change;
mod figures;

use crate::point::Point;
use crate::run::{Machine, Measured, Sample};
use figures::{Figures, Use};
use serde::Serialize;
use std::fmt;

/// From here on a thread or a core is full.
const CPU_FULL: f64 = 0.9;
/// From here on a disk or a line is.
const WAY_FULL: f64 = 0.85;
/// Up to here nothing is near its end.
const SLACK: f64 = 0.75;
/// A window that was full so much of the time is what was waited for.
const WINDOW_FULL: f64 = 0.2;
/// So little less than what was asked for is all of it; of few commands chance takes more.
const SHORT: f64 = 0.02;
/// Operations of members for a write, above which parity is what they are for: a copy on two disks makes two.
const PARITY_OPERATIONS: f64 = 2.5;

/// What a point was limited by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Limit {
    /// The load asks for no more.
    Load,
    /// Too few commands are under way.
    Depth,
    /// The thread that makes the load.
    Initiator,
    /// A thread of the target.
    Thread {
        /// Its name, with the daemon's number where there are several.
        name: String,
    },
    /// A core for which threads queue.
    Core {
        /// Its number.
        core: u32,
    },
    /// Programs that are no part of the measurement.
    Others,
    /// A disk.
    Disk {
        /// Its name.
        name: String,
    },
    /// What a small write costs in a parity array.
    Parity {
        /// What that fills: a disk or a thread.
        of: String,
    },
    /// A network interface.
    Nic {
        /// Its name.
        name: String,
    },
    /// The commands that the target admits at once.
    CommandWindow,
    /// What a TCP receiver takes at once.
    ReceiveWindow {
        /// True when the target is the receiver.
        server: bool,
    },
    /// What a TCP sender keeps at once.
    SendBuffer {
        /// True when the target is the sender.
        server: bool,
    },
    /// The evidence does not suffice.
    NotShown,
}

/// The limit of a point, with what shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What it is.
    pub limit: Limit,
    /// Sentences with figures.
    pub evidence: Vec<String>,
    /// What would move it.
    pub change: Vec<String>,
    /// What no meter saw, and may be the limit as well.
    pub unseen: Vec<String>,
    /// In how many rounds it was the same, and of how many.
    pub rounds: (usize, usize),
}

/// What limited a point on this machine, as its round of median speed shows it; nothing where it was not measured.
#[must_use]
pub fn explain(measured: &Measured, machine: &Machine) -> Option<Explanation> {
    let mut rounds: Vec<&Sample> = measured.samples.iter().collect();
    rounds.sort_by(|one, other| one.iops().total_cmp(&other.iops()));
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
        let evidence = [vec![evidence.to_owned()], figures::starved(sample)].concat();
        return Explanation { limit: Limit::NotShown, evidence, change: Vec::new(), unseen, rounds: (1, 1) };
    };
    let (limit, mut evidence) = limit(&figures);
    evidence.extend(figures.beside());
    evidence.extend(figures.errors());
    evidence.extend(figures.stolen());
    evidence.extend(figures.disturbed().filter(|_| limit != Limit::Others));
    let change = change::of(&limit, &figures, machine);
    Explanation { limit, evidence, change, unseen, rounds: (1, 1) }
}

/// The first rule that holds, and what it is about.
fn limit(figures: &Figures<'_>) -> (Limit, Vec<String>) {
    let rules = [all_that_is_asked, full_cpu, full_way, full_window, too_few];
    rules.iter().find_map(|rule| rule(figures)).unwrap_or_else(|| {
        let mut evidence = figures.nearest();
        evidence.extend(figures.per_write());
        evidence.push("nothing that was metered is full".to_owned());
        (Limit::NotShown, evidence)
    })
}

/// Commands come when they are due, or slots think, and the target keeps up.
fn all_that_is_asked(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let asked = figures.asked?;
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

fn full_way(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let fullest = figures.fullest(|used| !used.is_cpu()).filter(|fullest| fullest.part >= WAY_FULL)?;
    let mut evidence = vec![fullest.fact.clone()];
    evidence.extend(figures.fullest(Use::is_cpu).map(|cpu| cpu.fact.clone()));
    Some(with_parity(figures, fullest, evidence))
}

/// What is full is full of parity where each write makes many operations.
fn with_parity(figures: &Figures<'_>, fullest: &Use, mut evidence: Vec<String>) -> (Limit, Vec<String>) {
    if figures.operations_per_write.is_none_or(|operations| operations < PARITY_OPERATIONS) {
        return (fullest.limit.clone(), evidence);
    }
    evidence.extend(figures.per_write());
    let of = match &fullest.limit {
        Limit::Disk { name } | Limit::Thread { name } => name.clone(),
        other => return (other.clone(), evidence),
    };
    (Limit::Parity { of }, evidence)
}

fn full_window(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let end = |server: bool| if server { "target" } else { "initiator" };
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

/// Little's law: commands under way are rate times latency. When they are all that may be, and nothing is near its end, more of
/// them would give more.
fn too_few(figures: &Figures<'_>) -> Option<(Limit, Vec<String>)> {
    let depth = figures.depth?;
    let busiest = figures.fullest(|_| true).map_or(0.0, |fullest| fullest.part);
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
    /// True for the same kind of limit.
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

//! Remedies for a bottleneck.

use super::Limit;
use super::figures::Figures;
use crate::point::{Backing, Pattern, Peer};
use crate::run::Machine;
use model::WritePolicy;

/// Returns the remedies, most promising first.
pub(super) fn of(limit: &Limit, figures: &Figures<'_>, machine: &Machine) -> Vec<String> {
    let point = figures.point;
    let mut change = Vec::new();
    let mut say = |sentence: &str| change.push(sentence.to_owned());
    match limit {
        Limit::Load => say("ask for more (rate, think) to find where the target ends"),
        Limit::Depth => {
            let more =
                figures.headroom().map(|times| format!(": up to about {times:.1} times as much, by what is fullest"));
            say(&format!("more depth, sessions or clients{}", more.unwrap_or_default()));
            if point.peer == Peer::Blockyard {
                say("--busy-poll shortens each command, for more CPU");
            }
            if machine.gives_idle_cores_back() {
                say(
                    "a virtual machine that keeps its idle cores for a moment (guest_halt_poll_ns, blockyard tune): to wake one takes as long as dozens of commands",
                );
            }
        }
        Limit::Initiator => {
            say("a second client: this figure is the client's and not the target's");
            say("larger commands, or fewer and deeper sessions, cost a client less for each byte");
        }
        Limit::Thread { .. } | Limit::Core { .. } => cpu(limit, figures, &mut say),
        Limit::Others => say("end them, and measure again"),
        Limit::Disk { name } => disk(name, figures, &mut say),
        Limit::Parity { .. } => {
            say("RAID-10: a write is two operations there");
            say("larger or sequential writes, which fill whole stripes and read nothing");
            // With write-back the log device gathers writes already.
            if point.write == WritePolicy::Through {
                say("write = \"back\" with a log device, which gathers writes before parity is made");
            }
        }
        Limit::Nic { .. } => say("a second or a faster interface, with sessions over both"),
        Limit::CommandWindow => {
            say("more sessions: each has a window of its own");
            say("less depth for each session: what is beyond the window only waits in the initiator");
        }
        Limit::ReceiveWindow { server } => {
            say("more for net.ipv4.tcp_rmem (and net.core.rmem_max) of the receiver, more sessions, or a shorter way");
            // A target receives data only from writes.
            if *server && figures.point.reads < 100 {
                say("a target that is slow to take data closes it, too: look at its CPU and disks");
            }
        }
        Limit::SendBuffer { .. } => say("more for net.ipv4.tcp_wmem (and net.core.wmem_max) of the sender"),
        Limit::NotShown => say("more rounds, a longer span, or another depth, to see what grows with it"),
    }
    change
}

fn cpu(limit: &Limit, figures: &Figures<'_>, say: &mut impl FnMut(&str)) {
    let point = figures.point;
    let sessions = point.all_sessions();
    if let Limit::Core { .. } = limit {
        say("a machine with more cores, or the client on another one: threads wait for each other here");
    } else if sessions <= point.cores {
        say("more sessions: each stays on one thread of the target");
    }
    say(&format!("more cores for the target (cores = {})", point.cores + 1));
    if point.beside.is_some() {
        say("a limit for the volumes of the load beside it (blockyard volume set VOLUME --iops N)");
    }
    if point.digests {
        say("no digests, where the network is trusted");
    }
    // Only sequential loads can use larger commands: random ones would read what they do not need.
    if point.largest() < 64 << 10 && point.pattern == Pattern::Sequential {
        say("larger commands: the cost of one does not grow with its bytes as fast");
    }
}

fn disk(name: &str, figures: &Figures<'_>, say: &mut impl FnMut(&str)) {
    let point = figures.point;
    // With one operation at a time the disk has no choice of order.
    if figures.at_once(name).is_some_and(|at_once| at_once < 1.5) {
        say("more depth or sessions: the disk has one operation at a time, and can order several");
    }
    say("more disks in the pool, or faster ones");
    if point.backing == Backing::Pool && !point.cache && point.reads > 0 {
        say("a cache, where hosts read the same again");
    }
    if point.write == WritePolicy::Through && point.reads < 100 && point.backing == Backing::Pool {
        say("write = \"back\" with a log device on fast disks");
    }
}

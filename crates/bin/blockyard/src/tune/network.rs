//! Settings of TCP, and of packet reception below it.

use super::tunables::{
    BUSY_READ, CONGESTION, CONGESTION_ALLOWED, MTU_PROBING, NETDEV_BACKLOG, NETDEV_BUDGET, RMEM_MAX, SACK, SLOW_START,
    SOMAXCONN, TCP_RMEM, TCP_WMEM, WMEM_MAX,
};
use super::{Advice, Root, Tunable, interfaces};

/// Congestion control that the daemon selects for its connections.
const CHOSEN: &str = "cubic";
/// Minimum and maximum of the recommended buffer limit, in bytes.
const WINDOW_BYTES: (u64, u64) = (4 << 20, 64 << 20);
/// Round-trip time in a building with its switches, in milliseconds.
const ROUND_TRIP_MS: u64 = 2;
const WAITING_LOGINS: u64 = 4096;
/// Largest MTU of Ethernet without jumbo frames.
const PLAIN_MTU: u64 = 1500;
const BUDGET: u64 = 600;
const BACKLOG: u64 = 4096;

pub(super) fn look(root: &Root, portals: &[String]) -> Vec<Advice> {
    let tcp = Tcp { root, portals };
    let all = [
        tcp.window(&TCP_RMEM),
        tcp.window(&TCP_WMEM),
        tcp.least(&RMEM_MAX),
        tcp.least(&WMEM_MAX),
        tcp.least(&CONGESTION),
        tcp.allowed(),
        tcp.exactly(&SLOW_START, "0"),
        tcp.probing(),
        tcp.exactly(&SACK, "1"),
        tcp.after(&NETDEV_BUDGET, 2, BUDGET),
        tcp.after(&NETDEV_BACKLOG, 1, BACKLOG),
        tcp.least(&BUSY_READ),
        tcp.at_least(&SOMAXCONN, WAITING_LOGINS),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the path of a sysctl.
pub(super) fn sysctl(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

struct Tcp<'a> {
    root: &'a Root,
    portals: &'a [String],
}

impl Tcp<'_> {
    /// Shows a sysctl without a recommendation.
    fn least(&self, knob: &'static Tunable) -> Option<Advice> {
        let now = self.root.text(&sysctl(knob.name))?;
        Some(Advice::kept(knob, "", now.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    fn exactly(&self, knob: &'static Tunable, wanted: &str) -> Option<Advice> {
        Some(self.least(knob)?.file(&sysctl(knob.name), wanted))
    }

    fn at_least(&self, knob: &'static Tunable, wanted: u64) -> Option<Advice> {
        let advice = self.least(knob)?;
        let now: u64 = advice.now.parse().ok()?;
        // A larger value of the administrator stays.
        Some(advice.file(&sysctl(knob.name), now.max(wanted).to_string()))
    }

    /// Recommends the buffer limit of a connection: twice the bandwidth-delay product of the fastest portal, since the
    /// kernel counts its overhead as well.
    fn window(&self, knob: &'static Tunable) -> Option<Advice> {
        let advice = self.least(knob)?;
        let [least, first, most] =
            // Minimum, default and maximum of one socket, in bytes (tcp(7)).
            <[u64; 3]>::try_from(advice.now.split(' ').filter_map(|number| number.parse().ok()).collect::<Vec<u64>>())
                .ok()?;
        let fastest = self.portals.iter().filter_map(|name| interfaces::megabits(self.root, name)).max().unwrap_or(0);
        let bytes = fastest * 1_000_000 / 8 * ROUND_TRIP_MS / 1000 * 2;
        // Never below the present value, which an administrator may have raised.
        let wanted = bytes.next_power_of_two().clamp(WINDOW_BYTES.0, WINDOW_BYTES.1).max(most);
        Some(advice.file(&sysctl(knob.name), format!("{least} {first} {wanted}")))
    }

    fn allowed(&self) -> Option<Advice> {
        let advice = self.least(&CONGESTION_ALLOWED)?;
        let has = |text: &str| text.split_whitespace().any(|word| word == CHOSEN);
        // Appended: the algorithms that are allowed now must stay so.
        if has(&advice.now) {
            return Some(advice);
        }
        let wanted = format!("{} {CHOSEN}", advice.now);
        let advice = advice.file(&sysctl(CONGESTION_ALLOWED.name), wanted);
        // An algorithm that is neither built in nor loaded is not listed as available.
        let known = self.root.text(&sysctl("net.ipv4.tcp_available_congestion_control")).unwrap_or_default();
        Some(if has(&known) { advice } else { advice.impossible("this kernel has no cubic; run modprobe tcp_cubic") })
    }

    /// Recommends MTU probing for jumbo frames only.
    fn probing(&self) -> Option<Advice> {
        let advice = self.least(&MTU_PROBING)?;
        let mtu = |name: &String| self.root.number(&format!("sys/class/net/{name}/mtu"));
        let large = self.portals.iter().filter_map(mtu).any(|mtu| mtu > PLAIN_MTU);
        // 1 and 2 are both on; the choice between them is the administrator's.
        Some(if large && advice.now == "0" { advice.file(&sysctl(MTU_PROBING.name), "1") } else { advice })
    }

    /// Recommends a larger limit only if a column of `softnet_stat` has counted an overflow on any core.
    fn after(&self, knob: &'static Tunable, column: usize, wanted: u64) -> Option<Advice> {
        let text = self.root.text("proc/net/softnet_stat").unwrap_or_default();
        // One line per core, in hexadecimal: packets, then drops, then exhausted budgets.
        let field = |line: &str, n: usize| u64::from_str_radix(line.split_whitespace().nth(n)?, 16).ok();
        let sum = |n: usize| text.lines().filter_map(|line| field(line, n)).sum::<u64>();
        let (packets, counted) = (sum(0), sum(column));
        // Less than once in ten thousand packets has no noticeable effect.
        if counted == 0 || counted * 10_000 < packets {
            return self.least(knob);
        }
        let note = format!("counted {counted} times in {packets} packets");
        Some(self.at_least(knob, wanted)?.saying(note))
    }
}

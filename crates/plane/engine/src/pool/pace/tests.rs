use super::*;
use model::{Size, Span};

const MIB: u64 = 1 << 20;

/// Model of a disk that does 100 MiB/s, and of hosts whose commands take longer the more of the disk a repair uses.
struct World {
    now: Time,
    host: HostLoad,
    pacer: Pacer,
    policy: RepairPolicy,
    left: u64,
    /// Commands of hosts per second.
    commands: u64,
    /// Latency of a command without a repair, and what a repair that uses all of the disk adds.
    alone: Duration,
    beside: Duration,
}

impl World {
    fn new(policy: RepairPolicy, commands: u64) -> Self {
        let (now, host) = (Time::default(), HostLoad::default());
        let (alone, beside) = (Duration::from_millis(2), Duration::from_millis(40));
        let pacer = Pacer::new(now, host);
        Self { now, host, pacer, policy, left: 100_000 * MIB, commands, alone, beside }
    }

    /// Runs for `seconds` and returns the rate of the repair in MiB/s.
    fn run(&mut self, seconds: u64) -> u64 {
        let (until, before) = (self.now + Duration::from_secs(seconds), self.left);
        while self.now < until && self.left > 0 {
            let took = Duration::from_millis(10);
            self.pass(took, 1.0);
            let bytes = MIB.min(self.left);
            self.left -= bytes;
            let step = Step { now: self.now, took, bytes, left_bytes: self.left, host: self.host };
            let wait = self.pacer.wait(&self.policy, step).min(until.since(self.now));
            self.pass(wait, 0.0);
        }
        (before - self.left) / MIB / seconds
    }

    /// Advances the time while the repair uses this share of the disk.
    fn pass(&mut self, span: Duration, share: f64) {
        let ended = (self.commands * span.as_millis() as u64).div_ceil(1000);
        self.now = self.now + span;
        if self.commands > 0 {
            self.host.begun += ended;
            self.host.ended += ended;
            self.host.took += (self.alone + self.beside.mul_f64(share)) * ended as u32;
        }
    }

    /// Runs for `seconds` and returns the mean latency of commands in milliseconds.
    fn latency(&mut self, seconds: u64) -> u128 {
        let before = self.host;
        self.run(seconds);
        ((self.host.took - before.took) / (self.host.ended - before.ended) as u32).as_millis()
    }
}

fn mode(mode: RepairMode) -> RepairPolicy {
    RepairPolicy { mode, ..RepairPolicy::default() }
}

#[test]
fn pace_takes_the_whole_disk_while_hosts_do_nothing() {
    for each in [RepairMode::Idle, RepairMode::Balanced, RepairMode::Fast] {
        assert_eq!(World::new(mode(each), 0).run(10), 100, "{each:?}");
    }
    let patient = RepairPolicy { latency: Some(Span::from_millis(20)), ..mode(RepairMode::Balanced) };
    assert_eq!(World::new(patient, 0).run(10), 100);
}

#[test]
fn pace_yields_to_hosts_as_the_mode_says() {
    assert_eq!(World::new(mode(RepairMode::Fast), 100).run(10), 100);
    assert!((30..=36).contains(&World::new(mode(RepairMode::Balanced), 100).run(10)));
    assert_eq!(World::new(mode(RepairMode::Idle), 100).run(10), 1);
}

#[test]
fn pace_is_taken_up_again_soon_after_hosts_are_done() {
    let mut world = World::new(mode(RepairMode::Idle), 100);
    world.run(10);
    world.commands = 0;
    world.run(2);
    assert_eq!(world.run(10), 100);
}

#[test]
fn pace_keeps_within_what_was_set() {
    let rate = |mib| Some(Size::mib(mib));
    let slow = RepairPolicy { max: rate(20), ..mode(RepairMode::Fast) };
    assert_eq!(World::new(slow, 0).run(10), 20);
    let steady = RepairPolicy { min: rate(50), ..mode(RepairMode::Idle) };
    assert_eq!(World::new(steady.clone(), 100).run(10), 50);
    assert_eq!(World::new(steady, 0).run(10), 100);
}

#[test]
fn pace_ends_in_time_where_that_was_promised() {
    let promised = RepairPolicy { done_by: Some(Span::from_millis(100_000)), ..mode(RepairMode::Idle) };
    let mut world = World::new(promised, 100);
    world.left = 5_000 * MIB;
    let rate = world.run(90);
    assert!(rate < 60, "no faster than it must, {rate} MiB/s");
    world.run(10);
    assert_eq!(world.left, 0);
    assert!(!world.pacer.is_late(world.now));
}

#[test]
fn pace_that_cannot_keep_its_promise_says_so_once() {
    let promised = RepairPolicy { done_by: Some(Span::from_millis(100_000)), ..mode(RepairMode::Balanced) };
    let mut world = World::new(promised, 100);
    world.left = 11_000 * MIB;
    assert_eq!(world.run(5), 100, "it does what it can");
    assert!(!world.pacer.is_late(world.now), "not at the first doubt");
    world.run(10);
    assert!(world.pacer.is_late(world.now));
    assert!(!world.pacer.is_late(world.now));
}

#[test]
fn pace_keeps_the_latency_of_hosts_below_what_was_promised() {
    for bound in [5, 10, 20] {
        let patient = RepairPolicy { latency: Some(Span::from_millis(bound)), ..mode(RepairMode::Balanced) };
        let mut world = World::new(patient, 500);
        world.run(20);
        let met = world.latency(20);
        assert!(met <= u128::from(bound) + 1, "{met} ms where {bound} ms were promised");
        let rate = world.run(20);
        assert!(rate >= 1, "and it goes on, {rate} MiB/s");
    }
    let lavish = RepairPolicy { latency: Some(Span::from_millis(100)), ..mode(RepairMode::Balanced) };
    assert_eq!(World::new(lavish, 500).run(20), 100, "what hosts do not notice is not held back");
}

#[test]
fn pace_backs_off_when_commands_do_not_end_at_all() {
    let patient = RepairPolicy { latency: Some(Span::from_millis(20)), ..mode(RepairMode::Fast) };
    let mut pacer = Pacer::new(Time::default(), HostLoad::default());
    let host = HostLoad { begun: 4, ..HostLoad::default() };
    let mut waits = Vec::new();
    let mut now = Time::default();
    for _ in 0..40 {
        now = now + Duration::from_millis(10);
        let step = Step { now, took: Duration::from_millis(10), bytes: MIB, left_bytes: MIB, host };
        waits.push(pacer.wait(&patient, step));
        now = now + waits[waits.len() - 1];
    }
    assert_eq!(waits[0], Duration::ZERO);
    assert!(waits[39] > Duration::from_millis(500), "{waits:?}");
}

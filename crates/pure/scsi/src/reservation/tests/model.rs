//! Random command streams of several nexuses against an oracle written from the text of the standard. Every APTPL bit
//! is one, so that all state survives power loss.

use super::persistence::restarted;
use super::*;
use proptest::prelude::*;

/// Oracle: the keys of each nexus and the holder, in the plainest form.
#[derive(Clone, Debug, Default)]
struct Oracle {
    keys: [Option<u64>; 3],
    holder: Option<usize>,
    kind: u8,
    generation: u32,
    pending: [Vec<(u8, u8)>; 3],
}

#[derive(Debug, PartialEq)]
enum ModelAnswer {
    Good,
    Conflict,
    Sense(u8, u8),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Out { who: usize, action: u8, kind: u8, key: u64, action_key: u64 },
    Read { who: usize },
    Write { who: usize },
    Login { who: usize },
    PowerLoss,
}

impl Oracle {
    fn is_held(&self) -> bool {
        self.kind != 0
    }

    fn all_hold(&self) -> bool {
        self.kind >= 7
    }

    fn holds(&self, who: usize) -> bool {
        self.is_held() && if self.all_hold() { self.keys[who].is_some() } else { self.holder == Some(who) }
    }

    fn tell(&mut self, whom: impl Fn(&Self, usize) -> bool, what: (u8, u8)) {
        for one in 0..3 {
            if whom(self, one) && !self.pending[one].contains(&what) {
                self.pending[one].push(what);
                self.pending[one].sort_unstable();
            }
        }
    }

    fn free(&mut self) {
        (self.kind, self.holder) = (0, None);
    }

    fn hold(&mut self, who: usize, kind: u8) {
        (self.kind, self.holder) = (kind, (kind < 7).then_some(who));
    }

    /// Access according to the table "commands that are allowed": read or write.
    fn may(&self, who: usize, writes: bool) -> bool {
        if !self.is_held() || self.holds(who) || (self.kind >= 5 && self.keys[who].is_some()) {
            return true;
        }
        matches!(self.kind, 1 | 5 | 7) && !writes
    }

    fn out(&mut self, who: usize, action: u8, kind: u8, key: u64, action_key: u64) -> ModelAnswer {
        let own = self.keys[who];
        if matches!(action, 0 | 6) {
            if action == 0 && own.unwrap_or(0) != key {
                return ModelAnswer::Conflict;
            }
            if own.is_none() && action_key == 0 {
                return ModelAnswer::Good;
            }
            self.generation += 1;
            if action_key != 0 {
                self.keys[who] = Some(action_key);
                return ModelAnswer::Good;
            }
            let was_holder = self.holds(who);
            self.keys[who] = None;
            if was_holder && (!self.all_hold() || self.keys.iter().all(Option::is_none)) {
                if matches!(self.kind, 5 | 6) {
                    self.tell(|oracle, one| oracle.keys[one].is_some(), (0x2A, 4));
                }
                self.free();
            }
            return ModelAnswer::Good;
        }
        if own != Some(key) {
            // SCOPE and TYPE are CDB fields and rank first where they are used.
            let looks = matches!(action, 1 | 2) && ReservationType::of(kind).is_none();
            return if looks { ModelAnswer::Sense(0x24, 0) } else { ModelAnswer::Conflict };
        }
        match action {
            1 if ReservationType::of(kind).is_none() => ModelAnswer::Sense(0x24, 0),
            1 if !self.is_held() => {
                self.hold(who, kind);
                ModelAnswer::Good
            }
            1 if self.holds(who) && self.kind == kind => ModelAnswer::Good,
            1 => ModelAnswer::Conflict,
            2 if ReservationType::of(kind).is_none() => ModelAnswer::Sense(0x24, 0),
            2 if !self.holds(who) => ModelAnswer::Good,
            2 if self.kind != kind => ModelAnswer::Sense(0x26, 4),
            2 => {
                if kind >= 5 {
                    self.tell(|oracle, one| one != who && oracle.keys[one].is_some(), (0x2A, 4));
                }
                self.free();
                ModelAnswer::Good
            }
            3 => {
                self.generation += 1;
                self.tell(|oracle, one| one != who && oracle.keys[one].is_some(), (0x2A, 3));
                self.keys = [None; 3];
                self.free();
                ModelAnswer::Good
            }
            _ => self.preempt(who, kind, action_key),
        }
    }

    fn preempt(&mut self, who: usize, kind: u8, victim: u64) -> ModelAnswer {
        let holder_key = self.holder.and_then(|holder| self.keys[holder]);
        let takes_over = self.is_held() && if self.all_hold() { victim == 0 } else { holder_key == Some(victim) };
        if takes_over {
            if ReservationType::of(kind).is_none() {
                return ModelAnswer::Sense(0x24, 0);
            }
            self.generation += 1;
            let is_lost =
                |one: usize, key: Option<u64>| one != who && key.is_some_and(|key| victim == 0 || key == victim);
            self.tell(|oracle, one| is_lost(one, oracle.keys[one]), (0x2A, 5));
            for (one, key) in self.keys.iter_mut().enumerate() {
                *key = key.filter(|&key| !is_lost(one, Some(key)));
            }
            if self.kind != kind {
                self.tell(|oracle, one| one != who && oracle.keys[one].is_some(), (0x2A, 4));
            }
            self.hold(who, kind);
            return ModelAnswer::Good;
        }
        if victim == 0 {
            return ModelAnswer::Sense(0x26, 0);
        }
        if !self.keys.contains(&Some(victim)) {
            return ModelAnswer::Conflict;
        }
        self.generation += 1;
        self.tell(|oracle, one| one != who && oracle.keys[one] == Some(victim), (0x2A, 5));
        for key in &mut self.keys {
            if *key == Some(victim) {
                *key = None;
            }
        }
        if self.keys.iter().all(Option::is_none) {
            self.free();
        }
        ModelAnswer::Good
    }
}

fn step() -> impl Strategy<Value = Step> {
    let out = (0_usize..3, 0_u8..7, 0_u8..10, 0_u64..4, 0_u64..4)
        .prop_map(|(who, action, kind, key, action_key)| Step::Out { who, action, kind, key, action_key });
    // The key of a nexus is often its number, so that many actions succeed.
    let own = (0_usize..3, 0_u8..7, prop::sample::select(vec![1_u8, 3, 5, 6, 7, 8]), 0_u64..4)
        .prop_map(|(who, action, kind, action_key)| Step::Out { who, action, kind, key: who as u64 + 1, action_key });
    let register =
        (0_usize..3).prop_map(|who| Step::Out { who, action: 6, kind: 0, key: 0, action_key: who as u64 + 1 });
    prop_oneof![
        3 => out,
        6 => own,
        3 => register,
        2 => (0_usize..3).prop_map(|who| Step::Read { who }),
        2 => (0_usize..3).prop_map(|who| Step::Write { who }),
        1 => (0_usize..3).prop_map(|who| Step::Login { who }),
        1 => Just(Step::PowerLoss),
    ]
}

fn nexus(who: usize) -> NexusId {
    NexusId(who as u64 + 1)
}

fn said(outcome: &Outcome) -> ModelAnswer {
    match outcome.status {
        Status::Good => ModelAnswer::Good,
        Status::ReservationConflict => ModelAnswer::Conflict,
        Status::CheckCondition => {
            let AdditionalSense(code, qualifier) =
                outcome.sense.as_deref().expect("CHECK CONDITION comes with sense").code;
            ModelAnswer::Sense(code, qualifier)
        }
        status => panic!("{status:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn streams_of_several_nexuses_end_as_the_standard_says(steps in prop::collection::vec(step(), 1..60)) {
        let (mut unit, shelf) = shared_unit();
        let mut oracle = Oracle::default();
        for step in steps {
            match step {
                Step::Out { who, action, kind, key, action_key } => {
                    prop_assert_eq!(told(&unit, nexus(who)), std::mem::take(&mut oracle.pending[who]));
                    let outcome = out_with(&unit, nexus(who), action, kind, &list_of(key, action_key, APTPL, &[]));
                    prop_assert_eq!(said(&outcome), oracle.out(who, action, kind, key, action_key), "{:?}", step);
                }
                Step::Read { who } | Step::Write { who } => {
                    prop_assert_eq!(told(&unit, nexus(who)), std::mem::take(&mut oracle.pending[who]));
                    let writes = matches!(step, Step::Write { .. });
                    let outcome = match writes {
                        true => run(&unit, nexus(who), &cdb10(0x2A, 0, 0, 1), &[0; BLOCK]),
                        false => run(&unit, nexus(who), &cdb10(0x28, 0, 0, 1), &[]),
                    };
                    let expected = if oracle.may(who, writes) { ModelAnswer::Good } else { ModelAnswer::Conflict };
                    prop_assert_eq!(said(&outcome), expected, "{:?}", step);
                }
                Step::Login { who } => {
                    unit.detach(nexus(who));
                    log_in(&unit, nexus(who));
                    oracle.pending[who].clear();
                }
                Step::PowerLoss => {
                    unit = restarted(&shelf);
                    (oracle.generation, oracle.pending) = (0, Default::default());
                }
            }
            oracle.pending[0] = check_against(&unit, &oracle)?;
        }
    }
}

/// Compares all readable state and returns the pending unit attentions of the first nexus, which must be none.
fn check_against(unit: &LogicalUnit<Bench>, oracle: &Oracle) -> Result<Vec<(u8, u8)>, TestCaseError> {
    prop_assert_eq!(told(unit, HOST), oracle.pending[0].clone());
    let registered: Vec<u64> = oracle.keys.iter().flatten().copied().collect();
    prop_assert_eq!(keys(unit), (oracle.generation, registered));
    let holder_key = oracle.holder.and_then(|holder| oracle.keys[holder]).unwrap_or(0);
    prop_assert_eq!(held(unit), oracle.is_held().then_some((holder_key, oracle.kind)));
    let holders: Vec<bool> = unit.reservations().registrations.iter().map(|one| one.is_holder).collect();
    let expected: Vec<bool> = (0..3).filter(|&who| oracle.keys[who].is_some()).map(|who| oracle.holds(who)).collect();
    prop_assert_eq!(holders, expected);
    Ok(Vec::new())
}

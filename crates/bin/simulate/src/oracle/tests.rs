use super::*;

const BLOCK: usize = 4096;

struct Bench(Oracle);

impl Bench {
    fn new() -> Self {
        Self(Oracle::new("v", BLOCK, 8, &Clock::default()))
    }

    fn begin(&mut self) -> (OpId, Value) {
        let value = self.0.fresh();
        (self.0.begin_write(std::slice::from_ref(&(3..4)), value), value)
    }

    fn write(&mut self) -> Value {
        let (op, value) = self.begin();
        self.0.end_write(op, WriteEffect::Good);
        value
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), String> {
        let op = self.0.begin();
        self.0.end_read(op, 3..4, bytes)
    }

    fn sees(&mut self, value: Value) -> bool {
        self.read(&bytes_of(value)).is_ok()
    }
}

fn bytes_of(value: Value) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    pattern::fill(value, 3, &mut bytes);
    bytes
}

#[test]
fn oracle_takes_the_last_acknowledged_value_and_no_other() {
    let mut bench = Bench::new();
    assert!(bench.sees(Value::ZERO));
    let (first, second) = (bench.write(), bench.write());
    assert!(!bench.sees(Value::ZERO));
    assert!(!bench.sees(first));
    assert!(bench.sees(second));
}

#[test]
fn oracle_lets_a_write_under_way_show_itself_and_its_predecessor() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (op, new) = bench.begin();
    assert!(bench.sees(new) && bench.sees(old) && bench.sees(new));
    bench.0.end_write(op, WriteEffect::Good);
    assert!(!bench.sees(old));
}

#[test]
fn oracle_lets_overlapping_writes_end_in_either_order() {
    let mut bench = Bench::new();
    let ((one, first), (two, second)) = (bench.begin(), bench.begin());
    bench.0.end_write(two, WriteEffect::Good);
    bench.0.end_write(one, WriteEffect::Good);
    assert!(bench.sees(second));
    assert!(!bench.sees(first), "nothing was under way when the second was read");
}

#[test]
fn oracle_decides_a_write_without_an_answer_by_the_first_quiet_read() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (op, new) = bench.begin();
    bench.0.end_write(op, WriteEffect::Maybe);
    assert!(bench.sees(old));
    assert!(!bench.sees(new), "it cannot land later");
}

#[test]
fn oracle_forbids_what_a_later_write_has_overtaken() {
    let mut bench = Bench::new();
    let (op, lost) = bench.begin();
    bench.0.end_write(op, WriteEffect::Maybe);
    let newer = bench.write();
    assert!(!bench.sees(lost));
    assert!(bench.sees(newer));
}

#[test]
fn oracle_keeps_a_write_open_that_is_not_over() {
    let mut bench = Bench::new();
    let (_op, ghost) = bench.begin();
    let newer = bench.write();
    assert!(bench.sees(newer) && bench.sees(ghost) && bench.sees(newer));
}

#[test]
fn oracle_expects_acknowledged_writes_after_a_power_cut() {
    let mut bench = Bench::new();
    let (old, new) = (bench.write(), bench.write());
    bench.0.crash(Torn::Mixed);
    assert!(!bench.sees(old));
    assert!(bench.sees(new));
}

#[test]
fn oracle_lets_a_power_cut_take_back_what_was_read_but_never_acknowledged() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (op, new) = bench.begin();
    bench.0.end_write(op, WriteEffect::Maybe);
    assert!(bench.sees(new));
    bench.0.crash(Torn::Whole);
    assert!(bench.sees(old));
    assert!(!bench.sees(new), "it was decided by the cut");
}

#[test]
fn oracle_holds_a_flush_to_its_word() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (op, new) = bench.begin();
    bench.0.end_write(op, WriteEffect::Maybe);
    let flush = bench.0.begin();
    bench.0.end_flush(flush);
    assert!(bench.sees(new));
    bench.0.crash(Torn::Whole);
    assert!(!bench.sees(old));
    assert!(bench.sees(new));
}

#[test]
fn oracle_takes_mixtures_of_what_was_under_way_at_a_power_cut_only() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (_op, new) = bench.begin();
    let mut mixed = bytes_of(old);
    mixed[512..2048].copy_from_slice(&bytes_of(new)[512..2048]);
    assert!(bench.read(&mixed).is_err(), "blocks are written whole while there is power");
    bench.0.crash(Torn::Mixed);
    let mut garbage = mixed.clone();
    garbage[0] ^= 1;
    assert!(bench.read(&garbage).is_err());
    assert!(bench.read(&mixed).is_ok());
    assert!(bench.read(&mixed).is_ok());
    assert!(!bench.sees(old) && !bench.sees(new), "the first look has decided it");
}

#[test]
fn oracle_takes_mixtures_of_an_older_mixture_and_a_write_atom_by_atom() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (_op, new) = bench.begin();
    let mut mixed = bytes_of(old);
    mixed[512..2048].copy_from_slice(&bytes_of(new)[512..2048]);
    bench.0.crash(Torn::Mixed);
    assert!(bench.read(&mixed).is_ok());
    let (_op, newest) = bench.begin();
    bench.0.crash(Torn::Mixed);
    let mut wrong = mixed.clone();
    wrong[..512].copy_from_slice(&bytes_of(new)[..512]);
    assert!(bench.read(&wrong).is_err(), "this atom was decided by the first look");
    mixed[1024..1536].copy_from_slice(&bytes_of(newest)[1024..1536]);
    assert!(bench.read(&mixed).is_ok());
}

#[test]
fn oracle_lets_only_one_compare_and_write_replace_a_value() {
    let mut bench = Bench::new();
    let old = bench.write();
    let ((one, _), (two, _)) = (bench.begin(), bench.begin());
    assert!(bench.0.end_compare_good(one, old).is_ok());
    assert!(bench.0.end_compare_good(two, old).is_err());
}

#[test]
fn oracle_refuses_a_miscompare_where_the_value_was_surely_there() {
    let mut bench = Bench::new();
    let old = bench.write();
    let (op, _) = bench.begin();
    assert!(bench.0.end_compare_missed(op, old).is_err());
    let (op, _) = bench.begin();
    let _racing = bench.begin();
    assert!(bench.0.end_compare_missed(op, old).is_ok());
}

#[test]
fn oracle_sees_data_of_another_block() {
    let mut bench = Bench::new();
    let value = bench.write();
    let mut bytes = vec![0; BLOCK];
    pattern::fill(value, 4, &mut bytes);
    assert!(bench.read(&bytes).is_err());
}

/// Creates a volume of two blocks that were written one after the other, and then the first one again.
fn two_blocks(clock: &Clock) -> (Oracle, [Value; 3]) {
    let mut oracle = Oracle::new("v", BLOCK, 8, clock);
    let mut values = [Value::ZERO; 3];
    for (value, lba) in values.iter_mut().zip([3, 4, 3]) {
        *value = oracle.fresh();
        let op = oracle.begin_write(std::slice::from_ref(&(lba..lba + 1)), *value);
        oracle.end_write(op, WriteEffect::Good);
    }
    (oracle, values)
}

/// Reads both blocks and judges these values.
fn look(oracle: &mut Oracle, first: Value, second: Value) -> Result<(), String> {
    for (lba, value) in [(3, first), (4, second)] {
        let mut bytes = vec![0; BLOCK];
        pattern::fill(value, lba, &mut bytes);
        let op = oracle.begin();
        oracle.end_read(op, lba..lba + 1, &bytes)?;
    }
    Ok(())
}

#[test]
fn oracle_of_a_snapshot_takes_values_of_one_instant_and_no_others() {
    let clock = Clock::default();
    let mut oracle = Oracle::new("v", BLOCK, 8, &clock);
    let asked = oracle.begin();
    let mut values = Vec::new();
    for lba in [3, 4] {
        let value = oracle.fresh();
        let op = oracle.begin_write(std::slice::from_ref(&(lba..lba + 1)), value);
        oracle.end_write(op, WriteEffect::Good);
        values.push(value);
    }
    let instant = oracle.instant(asked, false);
    // Either none, the first or both had been written at the snapshot, but never only the second.
    for (first, second, is_right) in [
        (Value::ZERO, Value::ZERO, true),
        (values[0], Value::ZERO, true),
        (values[0], values[1], true),
        (Value::ZERO, values[1], false),
    ] {
        let mut clone = oracle.of_instant("clone", 1, &instant);
        look(&mut clone, first, second).expect("each may be");
        assert_eq!(instant.clone().settle(&clone).is_ok(), is_right, "{first} {second}");
    }
}

#[test]
fn oracle_of_a_snapshot_forgets_what_was_replaced_before_and_never_sees_what_came_after() {
    let clock = Clock::default();
    let (mut oracle, [old, second, new]) = two_blocks(&clock);
    let asked = oracle.begin();
    let instant = oracle.instant(asked, false);
    let later = oracle.fresh();
    let op = oracle.begin_write(std::slice::from_ref(&(3..4)), later);
    oracle.end_write(op, WriteEffect::Good);
    let clone = || oracle.of_instant("clone", 1, &instant);
    assert!(look(&mut clone(), old, second).is_err() && look(&mut clone(), later, second).is_err());
    assert!(look(&mut clone(), new, second).is_ok());
    oracle.roll_back(&instant, false);
    assert!(look(&mut oracle, later, second).is_err() && look(&mut oracle, new, second).is_ok());
}

#[test]
fn oracle_lets_a_way_back_that_was_cut_off_be_whole_or_not_begun() {
    let clock = Clock::default();
    let (mut oracle, [_, second, new]) = two_blocks(&clock);
    let asked = oracle.begin();
    let mut instant = oracle.instant(asked, true);
    instant.crash(Torn::Whole);
    let later = oracle.fresh();
    let op = oracle.begin_write(std::slice::from_ref(&(3..4)), later);
    oracle.end_write(op, WriteEffect::Good);
    oracle.crash(Torn::Whole);
    oracle.roll_back(&instant, true);
    assert!(look(&mut oracle, later, second).is_ok());
    assert!(look(&mut oracle, new, second).is_err(), "the first look has decided it");
}

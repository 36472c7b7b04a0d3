use super::*;
use crate::geometry::{Role, bands};
use crate::plan::{Availability, Parity, Plan, choose};
use proptest::prelude::*;

const CHUNK: u64 = 16;

fn raid5(members: u16) -> Availability {
    Availability { columns: members - 1, lost: 0, p: Parity::Readable, q: Parity::Absent }
}

fn raid6(members: u16) -> Availability {
    Availability { columns: members - 2, lost: 0, p: Parity::Readable, q: Parity::Readable }
}

/// Plan kinds and member reads of a write of `len` blocks at `offset`, over its bands.
fn plan(availability: &Availability, offset: u64, len: u64) -> Option<(Vec<Kind>, usize)> {
    let plans: Option<Vec<Plan>> = bands(CHUNK, offset, len).iter().map(|band| choose(band, availability)).collect();
    let plans = plans?;
    Some((plans.iter().map(|plan| plan.kind).collect(), plans.iter().map(|plan| plan.reads.len()).sum()))
}

#[test]
fn plan_of_a_small_write_reads_data_and_parity() {
    assert_eq!(plan(&raid5(8), 5, 1), Some((vec![Kind::ReadModifyWrite], 2)));
    assert_eq!(plan(&raid6(8), 5, 1), Some((vec![Kind::ReadModifyWrite], 3)));
}

#[test]
fn plan_of_few_members_reads_the_other_columns() {
    assert_eq!(plan(&raid5(3), 5, 1), Some((vec![Kind::Reconstruct], 1)));
    assert_eq!(plan(&raid6(4), 5, 1), Some((vec![Kind::Reconstruct], 1)));
    assert_eq!(plan(&raid6(6), 5, 1), Some((vec![Kind::Reconstruct], 3)), "of equal ones, data is trusted");
}

#[test]
fn plan_of_a_full_stripe_reads_nothing() {
    assert_eq!(plan(&raid5(5), 0, 4 * CHUNK), Some((vec![Kind::FullStripe], 0)));
    assert_eq!(plan(&raid6(5), 0, 3 * CHUNK), Some((vec![Kind::FullStripe], 0)));
}

#[test]
fn plan_of_most_of_a_stripe_reads_the_rest() {
    assert_eq!(plan(&raid5(5), 0, 3 * CHUNK), Some((vec![Kind::Reconstruct], 1)));
    assert_eq!(plan(&raid5(5), 0, 3 * CHUNK + 1), Some((vec![Kind::Reconstruct], 1)));
}

#[test]
fn plan_over_a_chunk_border_keeps_the_bands_apart() {
    assert_eq!(plan(&raid5(8), CHUNK - 1, 2), Some((vec![Kind::ReadModifyWrite; 2], 4)));
}

#[test]
fn plan_without_parity_reads_nothing() {
    let availability = Availability { p: Parity::Absent, ..raid5(5) };
    assert_eq!(plan(&availability, 5, 1), Some((vec![Kind::Unprotected], 0)));
}

#[test]
fn plan_with_one_parity_of_two_keeps_the_other() {
    let availability = Availability { p: Parity::Absent, ..raid6(8) };
    assert_eq!(plan(&availability, 5, 1), Some((vec![Kind::ReadModifyWrite], 2)));
}

#[test]
fn plan_with_an_untouched_column_lost_changes_parity_by_the_difference() {
    let availability = Availability { lost: 0b1000, ..raid5(5) };
    assert_eq!(plan(&availability, 0, 1), Some((vec![Kind::ReadModifyWrite], 2)));
    assert_eq!(plan(&availability, 0, 3 * CHUNK), Some((vec![Kind::ReadModifyWrite], 4)));
}

#[test]
fn plan_with_the_touched_column_lost_reads_the_others() {
    let availability = Availability { lost: 0b0001, ..raid5(5) };
    assert_eq!(plan(&availability, 0, 1), Some((vec![Kind::Reconstruct], 3)));
    assert_eq!(plan(&availability, 8, 16), Some((vec![Kind::Restore], 4)), "half of the lost column is overwritten");
}

#[test]
fn plan_with_two_columns_lost_restores_them() {
    let availability = Availability { lost: 0b0011, ..raid6(6) };
    assert_eq!(plan(&availability, 0, 1), Some((vec![Kind::Restore], 4)));
    assert_eq!(plan(&availability, 2 * CHUNK, 1), Some((vec![Kind::ReadModifyWrite], 3)));
    let availability = Availability { p: Parity::WriteOnly, lost: 0b0001, ..raid6(6) };
    assert_eq!(plan(&availability, CHUNK, 1), Some((vec![Kind::Restore], 4)));
}

#[test]
fn plan_with_more_lost_than_parity_is_none() {
    let availability = Availability { lost: 0b0011, ..raid5(5) };
    assert_eq!(plan(&availability, 0, 1), None);
    assert_eq!(plan(&availability, 0, 4 * CHUNK), Some((vec![Kind::FullStripe], 0)), "nothing needs to be read");
}

proptest! {
    #[test]
    fn plan_never_reads_lost_columns_and_exists_within_tolerance(
        members in 4u16..10, lost in any::<u64>(), p in 0u8..3, q in 0u8..3, offset in any::<u64>(), len in any::<u64>(),
    ) {
        let parity = |n| [Parity::Absent, Parity::WriteOnly, Parity::Readable][usize::from(n)];
        let columns = members - 2;
        let availability = Availability { columns, lost: lost & lost.rotate_left(7) & ((1 << columns) - 1), p: parity(p), q: parity(q) };
        let blocks = u64::from(columns) * CHUNK;
        let offset = offset % blocks;
        let len = 1 + len % (blocks - offset);
        let readable = [availability.p, availability.q].iter().filter(|&&parity| parity == Parity::Readable).count();
        for band in bands(CHUNK, offset, len) {
            let Some(plan) = choose(&band, &availability) else {
                prop_assert!(availability.lost.count_ones() as usize > readable);
                continue;
            };
            for read in &plan.reads {
                prop_assert!(band.rows.contains(read.rows));
                match read.role {
                    Role::Data { column, .. } => prop_assert!(availability.is_readable(column)),
                    Role::P => prop_assert_eq!(availability.p, Parity::Readable),
                    Role::Q => prop_assert_eq!(availability.q, Parity::Readable),
                }
            }
            if plan.kind == Kind::FullStripe {
                prop_assert!(plan.reads.is_empty());
            }
        }
    }
}

use super::*;
use futures_util::FutureExt;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn claim(tag: u32, attribute: TaskAttribute) -> Claim {
    Claim { nexus: NexusId(1), tag: TaskTag(tag), attribute, extent: Extent::default(), alone: false, is_part: false }
}

fn has_begun(ticket: &TaskGuard<'_>) -> bool {
    poll_fn(|cx| ticket.poll_begun(cx)).now_or_never().is_some()
}

use TaskAttribute::{HeadOfQueue, Ordered, Simple};

#[test]
fn ordered_task_waits_for_earlier_ones_and_later_ones_wait_for_it() {
    let set = TaskSet::new(8);
    let first = set.enter(claim(1, Simple)).unwrap();
    let ordered = set.enter(claim(2, Ordered)).unwrap();
    let last = set.enter(claim(3, Simple)).unwrap();
    assert!(has_begun(&first) && !has_begun(&ordered) && !has_begun(&last));
    drop(first);
    assert!(has_begun(&ordered) && !has_begun(&last));
    drop(ordered);
    assert!(has_begun(&last));
}

#[test]
fn head_of_queue_task_begins_at_once_and_others_wait_for_it() {
    let set = TaskSet::new(8);
    let first = set.enter(claim(1, Simple)).unwrap();
    let ordered = set.enter(claim(2, Ordered)).unwrap();
    let head = set.enter(claim(3, HeadOfQueue)).unwrap();
    assert!(has_begun(&head) && !has_begun(&ordered));
    drop(first);
    assert!(!has_begun(&ordered), "head of queue goes first");
    drop(head);
    assert!(has_begun(&ordered));
}

#[test]
fn task_alone_on_its_blocks_keeps_out_all_that_touch_them() {
    let set = TaskSet::new(8);
    let on = |tag, start, alone| Claim { extent: Extent::new(start, 4), alone, ..claim(tag, Simple) };
    let reader = set.enter(on(1, 0, false)).unwrap();
    let alone = set.enter(on(2, 2, true)).unwrap();
    let late = set.enter(on(3, 5, false)).unwrap();
    let beside = set.enter(on(4, 8, false)).unwrap();
    assert!(!has_begun(&alone) && !has_begun(&late) && has_begun(&beside));
    let head = set.enter(Claim { attribute: HeadOfQueue, ..on(5, 2, false) }).unwrap();
    assert!(has_begun(&head), "it waits only for what has begun");
    drop(reader);
    assert!(!has_begun(&alone), "the head of queue is on its blocks");
    drop(head);
    assert!(has_begun(&alone) && !has_begun(&late));
    let head = set.enter(Claim { attribute: HeadOfQueue, ..on(6, 2, false) }).unwrap();
    assert!(!has_begun(&head), "not even it comes between");
    drop(alone);
    assert!(has_begun(&head));
    drop((head, late, beside));
}

#[test]
fn task_set_is_bounded_and_places_are_used_again() {
    let set = TaskSet::new(2);
    let first = set.enter(claim(1, Simple)).unwrap();
    let _second = set.enter(claim(2, Simple)).unwrap();
    assert_eq!(set.enter(claim(3, HeadOfQueue)).unwrap_err(), Status::TaskSetFull);
    drop(first);
    let _third = set.enter(claim(3, Simple)).unwrap();
    assert_eq!(set.tasks.borrow().places.len(), 2);
}

#[test]
fn task_aborted_while_it_waits_never_begins_and_frees_those_behind() {
    let set = TaskSet::new(8);
    let first = set.enter(claim(1, Simple)).unwrap();
    let ordered = set.enter(claim(2, Ordered)).unwrap();
    let last = set.enter(claim(3, Simple)).unwrap();
    assert!(set.abort(Affected::One(NexusId(1), TaskTag(2)), |_| Aborted::WithStatus));
    assert!(!set.abort(Affected::One(NexusId(2), TaskTag(2)), |_| Aborted::WithStatus));
    assert_eq!(poll_fn(|cx| ordered.poll_begun(cx)).now_or_never(), Some(Err(Aborted::WithStatus)));
    assert_eq!(ordered.check_live(), Err(Aborted::WithStatus));
    assert!(set.abort(Affected::OfNexus(NexusId(1)), |_| Aborted::Unanswered));
    assert!(set.abort(Affected::All, |_| Aborted::WithStatus));
    assert_eq!(ordered.check_live(), Err(Aborted::Unanswered), "its own initiator expects nothing any more");
    drop(ordered);
    assert!(has_begun(&last) && has_begun(&first));
}

/// Blocking rules in the wording of SAM-5, without optimization.
fn must_wait(all: &BTreeMap<u32, (Claim, bool)>, tag: u32) -> bool {
    let (own, _) = all[&tag];
    all.iter().filter(|&(&other, _)| other != tag).any(|(&other, (claim, begun))| {
        let earlier = other < tag;
        let by_attribute = own.attribute != HeadOfQueue
            && (claim.attribute == HeadOfQueue
                || (earlier && (own.attribute == Ordered || claim.attribute == Ordered)));
        let on_blocks = (own.alone || claim.alone) && own.extent.overlaps(claim.extent);
        by_attribute
            || (on_blocks && (*begun || (earlier && (own.attribute != HeadOfQueue || claim.attribute == HeadOfQueue))))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn task_set_begins_what_the_rules_allow_and_never_gets_stuck(
        steps in prop::collection::vec((any::<bool>(), 0u8..8, 0u64..8, 0u64..4, any::<bool>()), 1..60),
    ) {
        let set = TaskSet::new(64);
        let mut tickets = BTreeMap::new();
        let mut model: BTreeMap<u32, (Claim, bool)> = BTreeMap::new();
        for (tag, (enters, kind, start, len, alone)) in (0u32..).zip(steps) {
            if enters || tickets.is_empty() {
                let attribute = match kind { 0 => HeadOfQueue, 1 | 2 => Ordered, _ => Simple };
                let claim = Claim { extent: Extent::new(start, len), alone, ..claim(tag, attribute) };
                model.insert(tag, (claim, false));
                tickets.insert(tag, set.enter(claim).unwrap());
            } else {
                // Only tasks that have begun can end by themselves; there is always one.
                let begun: Vec<u32> = model.iter().filter(|(_, (_, begun))| *begun).map(|(&tag, _)| tag).collect();
                prop_assert!(!begun.is_empty(), "somebody always runs");
                let tag = begun[start as usize % begun.len()];
                model.remove(&tag);
                tickets.remove(&tag);
            }
            for tag in model.keys().copied().collect::<Vec<_>>() {
                let begins = model[&tag].1 || !must_wait(&model, tag);
                model.get_mut(&tag).expect("present").1 = begins;
            }
            for (tag, ticket) in &tickets {
                prop_assert_eq!(has_begun(ticket), model[tag].1, "task {}", tag);
            }
        }
    }
}

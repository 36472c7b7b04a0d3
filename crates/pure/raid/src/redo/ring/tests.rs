use super::*;
use crate::on_disk::batch::Records;
use crate::on_disk::entry::Entry;
use crate::redo::ring::{CommitState, Head, Reservation, Ring, Sealed};
use std::task::Waker;

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn records(image_blocks: usize) -> Option<Records> {
    let mut records = Records::default();
    let content = View::zeroed(image_blocks * 4096);
    records.image(0, 0, &vec![Entry::LOST; image_blocks], &content);
    Some(records)
}

/// Writes a batch of `image_blocks` blocks and one block of table, if there is room.
fn commit(ring: &Rc<Ring>, image_blocks: usize) -> Option<(Sealed, Reservation)> {
    let Poll::Ready(number) = ring.poll_join(&mut records(image_blocks), &cx()) else { panic!("it gathers") };
    assert!(matches!(ring.poll_commit(number, &cx()), Poll::Ready(CommitState::Lead)));
    let sealed = ring.seal([0; 16], false)?;
    ring.batch_written(sealed.number, Ok(()));
    let Poll::Ready(CommitState::Stable(reservation)) = ring.poll_commit(number, &cx()) else { panic!("it is stable") };
    Some((sealed, reservation))
}

#[test]
fn ring_batch_does_not_wrap_and_is_never_written_over_the_tail() {
    let ring = Ring::new(32, 1, Head { number: 1, at: 0 }, Rc::default());
    let batches: Vec<_> = (0..5).map(|_| commit(&ring, 5).expect("there is room")).collect();
    assert_eq!(batches.iter().map(|(sealed, _)| sealed.at).collect::<Vec<_>>(), [0, 6, 12, 18, 24]);
    assert!(ring.poll_join(&mut records(5), &cx()).is_ready());
    assert!(matches!(ring.poll_commit(6, &cx()), Poll::Ready(CommitState::Lead)));
    assert!(ring.seal([0; 16], false).is_none(), "two blocks are left, and the tail is at the beginning");
    ring.free(Head { number: 2, at: 6 });
    assert_eq!(ring.seal([0; 16], false).map(|sealed| (sealed.number, sealed.at)), Some((6, 0)));
}

#[test]
fn ring_is_settled_up_to_the_first_write_that_has_not_ended() {
    let ring = Ring::new(64, 1, Head { number: 1, at: 0 }, Rc::default());
    let (_, first) = commit(&ring, 1).expect("room");
    let (_, second) = commit(&ring, 1).expect("room");
    assert!(ring.is_settled(1) && !ring.is_settled(2));
    drop(second);
    assert!(!ring.is_settled(2));
    drop(first);
    assert!(ring.is_settled(3));
}

#[test]
fn ring_admits_records_that_fit_into_the_batch_and_queues_the_rest() {
    let ring = Ring::new(32, 1, Head { number: 1, at: 0 }, Rc::default());
    assert!(ring.poll_join(&mut records(4), &cx()).is_ready());
    let mut late = records(4);
    assert!(ring.poll_join(&mut late, &cx()).is_pending());
    assert!(matches!(ring.poll_commit(1, &cx()), Poll::Ready(CommitState::Lead)));
    let sealed = ring.seal([0; 16], false).expect("room");
    assert_eq!(ring.poll_join(&mut late, &cx()), Poll::Ready(2), "the next gathers while the first is written");
    assert!(ring.poll_commit(2, &cx()).is_pending(), "one batch is under way at a time");
    ring.batch_written(sealed.number, Ok(()));
    assert!(matches!(ring.poll_commit(2, &cx()), Poll::Ready(CommitState::Lead)));
}

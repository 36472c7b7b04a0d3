//! Rebuilds of replacements: filled during host I/O, in service only when all of it is durable.

use crate::bench::{Bench, Owner, noise};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Stable};
use raid::{Level, MemberState, Progress, RebuildError, RebuildOwner, Rebuilt};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const REDUNDANT: [(Level, usize); 4] = [(Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

/// Several times the number of stripes that a rebuild has in flight.
const STRIPES: u64 = 200;

/// Creates an array with data, of which member 1 was replaced by a used disk.
fn replaced(level: Level, members: usize) -> (Bench, Vec<u8>) {
    let bench = Bench::new(level, members, 4, STRIPES);
    let data = noise(1, bench.layout().blocks().0);
    let _ = bench.write(0, data.clone()).expect("healthy");
    let array = bench.array.clone();
    bench.run(async move { array.fail(1).await }).expect("spared");
    bench.replace(1);
    (bench, data.to_vec())
}

#[test]
fn rebuild_restores_the_member_and_puts_it_in_service() {
    for (level, members) in REDUNDANT {
        let (bench, data) = replaced(level, members);
        let rebuilt = bench.rebuild(1).expect("the others are well");
        assert_eq!(rebuilt, Rebuilt { stripes: STRIPES, ..Rebuilt::default() });
        assert_eq!(bench.state(1), MemberState::InService, "{level}");
        assert_eq!(bench.mismatches(), 0);
        assert!(bench.log.recorded.borrow().is_empty());
        // The rebuilt content is durable, and carries the data when another member fails.
        bench.disk(1).cut_power(|| false);
        let other = bench.array.clone();
        bench.run(async move { other.fail(0).await }).expect("spared");
        let all = Extent::new(0, bench.layout().blocks().0);
        assert!(bench.read(all).expect("degraded") == data, "{level}");
    }
}

#[test]
fn rebuild_of_both_lost_members_of_raid6() {
    let (bench, data) = replaced(Level::Raid6, 5);
    let array = bench.array.clone();
    bench.run(async move { array.fail(3).await }).expect("spared");
    bench.replace(3);
    let both = [1, 3].map(|member| {
        let (array, log) = (bench.array.clone(), bench.log.clone());
        bench.begin(async move { array.rebuild(member, &[0..STRIPES], &mut Owner(log)).await })
    });
    bench.settle();
    assert!(both.iter().all(|rebuild| rebuild.take().is_some_and(|rebuild| rebuild.is_ok())));
    assert_eq!(bench.mismatches(), 0);
    assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy") == data);
}

/// Owner that pauses the rebuild at every step until released.
#[derive(Clone, Default)]
struct Stepping {
    front: Rc<Cell<u64>>,
    go: Rc<Cell<bool>>,
    commits: Rc<Cell<bool>>,
    refuses: Rc<Cell<bool>>,
}

async fn granted(permit: Rc<Cell<bool>>) {
    std::future::poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        if permit.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

impl RebuildOwner for Stepping {
    async fn pace(&mut self, progress: Progress) {
        assert_eq!((progress.total, progress.done), (STRIPES, progress.front_stripe));
        self.front.set(progress.front_stripe);
        granted(self.go.clone()).await;
        self.go.set(false);
    }

    async fn commit(&mut self, _: u16, _: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        granted(self.commits.clone()).await;
        let refused = IoError::new(IoErrorKind::ReadOnly, Extent::default());
        if self.refuses.get() { Err(refused) } else { Ok(Stable::attest()) }
    }
}

fn turn(bench: &Bench) {
    (0..500).for_each(|_| bench.executor.run_ready());
}

#[test]
fn rebuild_keeps_writes_behind_and_ahead_of_its_front() {
    for (level, members) in REDUNDANT {
        let (bench, mut data) = replaced(level, members);
        let owner = Stepping::default();
        let (array, mut own) = (bench.array.clone(), owner.clone());
        let rebuild = bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut own).await });
        turn(&bench);
        let front = owner.front.get();
        assert!(front > 0 && front < STRIPES, "the rebuild is half-way");
        let border = front * bench.layout().stripe_blocks();
        for (seed, start) in [(2, 1), (3, border - 3), (4, border + 9)] {
            let array = bench.array.clone();
            let write = bench.begin(async move { array.write(Lba(start), noise(seed, 7)).await });
            turn(&bench);
            assert!(write.take().is_some_and(|write| write.is_ok()), "the host is served");
            data[start as usize * 4096..(start as usize + 7) * 4096].copy_from_slice(&noise(seed, 7));
        }
        owner.commits.set(true);
        while rebuild.take().is_none() {
            owner.go.set(true);
            bench.executor.run_ready();
        }
        assert_eq!(bench.mismatches(), 0, "{level}");
        assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy") == data, "{level}");
    }
}

#[test]
fn write_refused_by_the_last_full_mirror_is_not_read_from_the_replacement() {
    let (bench, data) = replaced(Level::Raid1, 2);
    let (array, mut own) = (bench.array.clone(), Stepping::default());
    bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut own).await });
    turn(&bench);
    bench.disk(0).stuck.borrow_mut().insert(1);
    let array = bench.array.clone();
    let write = bench.begin(async move { array.write(Lba(1), noise(2, 1)).await });
    turn(&bench);
    let error = write.take().expect("refused").expect_err("the only full copy keeps its old content");
    assert_eq!((error.kind, error.member), (IoErrorKind::Medium, Some(0)));
    assert_eq!(bench.state(0), MemberState::InService);
    for _ in 0..4 {
        let array = bench.array.clone();
        let read = bench.begin(async move { array.read(Extent::new(1, 1)).await });
        turn(&bench);
        let found = read.take().expect("served").expect("the first mirror is well");
        assert!(found == data[4096..8192], "all reads see the same content");
    }
}

#[test]
fn rebuilt_member_is_in_service_only_after_its_owner_has_committed() {
    for refuses in [false, true] {
        let (bench, _) = replaced(Level::Raid5, 4);
        let owner = Stepping::default();
        owner.refuses.set(refuses);
        let (array, mut own) = (bench.array.clone(), owner.clone());
        let rebuild = bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut own).await });
        for _ in 0..500 {
            owner.go.set(true);
            bench.executor.run_ready();
        }
        assert_eq!(bench.state(1), MemberState::Rebuilding { front_stripe: STRIPES });
        let array = bench.array.clone();
        let fail = bench.begin(async move { array.fail(0).await });
        turn(&bench);
        assert!(fail.take().is_some_and(|fail| fail.is_err()), "the replacement does not count yet");
        owner.commits.set(true);
        turn(&bench);
        let ended = rebuild.take().expect("committed or refused");
        assert_eq!(ended.is_err(), refuses);
        assert_eq!(bench.state(1) == MemberState::InService, !refuses);
    }
}

#[test]
fn rebuild_continues_past_unrecoverable_stripes_and_reports_them() {
    let (bench, data) = replaced(Level::Raid5, 4);
    // Stripe 2 has P on member 1, stripe 5 has it on member 2; there, member 1 holds data.
    bench.disk(0).bad.borrow_mut().extend([2 * 4 + 1, 5 * 4 + 2, 5 * 4 + 3]);
    let rebuilt = bench.rebuild(1).expect("the rest is well");
    assert_eq!(rebuilt.unreadable, [Extent::new(9, 1), Extent::new(22, 2)]);
    // Of stripe 2 the data of member 0, of stripe 5 that of member 0 and of member 1.
    let own = |lost: &&Extent| bench.home(lost.start.0).0 == 1;
    assert_eq!(
        rebuilt.lost.iter().map(|lost| (bench.home(lost.start.0), lost.len.0)).collect::<Vec<_>>(),
        [((0, 9), 1), ((0, 22), 2), ((1, 22), 2),]
    );
    let lost = *rebuilt.lost.iter().find(own).expect("one is");
    assert_eq!(bench.state(1), MemberState::InService);
    let error = bench.read(lost).expect_err("nobody knows");
    assert_eq!((error.kind, error.extent), (IoErrorKind::Medium, lost));
    assert_eq!(bench.status().members[1].unreadable_blocks, 3);
    let stripe = lost.start.0 / bench.layout().stripe_blocks() * bench.layout().stripe_blocks();
    let _ = bench.write(stripe, noise(5, bench.layout().stripe_blocks())).expect("a full stripe");
    assert_eq!(bench.read(lost).expect("written anew").len(), 2 * 4096);
    assert_eq!(bench.status().members[1].unreadable_blocks, 1);
    assert!(bench.read(Extent::new(24, 12)).is_err(), "block 1 of stripe 2 is bad on member 0 and its parity is lost");
    assert!(bench.read(Extent::new(72, 300)).expect("beside them") == data[72 * 4096..372 * 4096]);
}

#[test]
fn rebuild_ends_when_the_replacement_fails_and_may_begin_again() {
    let (bench, data) = replaced(Level::Raid6, 5);
    bench.disk(1).stuck.borrow_mut().insert(90);
    assert_eq!(bench.rebuild(1), Err(RebuildError::ReplacementLost(1)));
    assert_eq!(bench.state(1), MemberState::Failed);
    assert_eq!(bench.rebuild(1), Err(RebuildError::NotWaiting(1)));
    assert_eq!(bench.rebuild(9), Err(RebuildError::NoSuchMember(9)));
    bench.replace(1);
    bench.disk(1).flush_fails.set(true);
    assert_eq!(bench.rebuild(1), Err(RebuildError::ReplacementLost(1)), "what is not durable does not count");
    bench.replace(1);
    assert!(bench.rebuild(1).is_ok());
    assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy") == data);
}

#[test]
fn rebuild_that_was_dropped_goes_on_where_it_was() {
    let (bench, data) = replaced(Level::Raid5, 4);
    let owner = Stepping::default();
    let mut own = owner.clone();
    {
        let mut rebuild = Box::pin(bench.array.rebuild(1, &[0..STRIPES], &mut own));
        assert!(futures_util::FutureExt::now_or_never(&mut rebuild).is_none());
    }
    let MemberState::Rebuilding { front_stripe: front } = bench.state(1) else { panic!("it is not through") };
    assert!(front >= owner.front.get() && front < STRIPES);
    let (array, log) = (bench.array.clone(), bench.log.clone());
    bench.run(async move { array.rebuild(1, &[front..STRIPES], &mut Owner(log)).await }).expect("well");
    assert_eq!(bench.mismatches(), 0);
    assert!(bench.read(Extent::new(0, bench.layout().blocks().0)).expect("healthy") == data);
}

#[test]
fn rebuild_from_the_start_ignores_an_earlier_one() {
    let (bench, data) = replaced(Level::Raid1, 2);
    let mut own = Stepping::default();
    drop(futures_util::FutureExt::now_or_never(Box::pin(bench.array.rebuild(1, &[0..STRIPES], &mut own))));
    assert_ne!(bench.state(1), MemberState::Rebuilding { front_stripe: 0 });
    bench.disk(1).overwrite(Extent::new(0, 1), 0xdd);
    bench.disk(1).hold();
    let (array, log) = (bench.array.clone(), bench.log.clone());
    let rebuild = bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut Owner(log)).await });
    bench.settle();
    assert_eq!(bench.state(1), MemberState::Rebuilding { front_stripe: 0 });
    bench.disk(1).release();
    bench.settle();
    assert!(rebuild.take().is_some_and(|rebuild| rebuild.is_ok()));
    assert_eq!(bench.disk(1).bytes(Extent::new(0, 1)), data[..4096]);
}

#[test]
fn rebuild_ends_when_its_replacement_is_exchanged() {
    let (bench, _) = replaced(Level::Raid5, 4);
    let owner = Stepping::default();
    let (array, mut own) = (bench.array.clone(), owner.clone());
    let rebuild = bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut own).await });
    turn(&bench);
    let (array, log) = (bench.array.clone(), bench.log.clone());
    let second = bench.begin(async move { array.rebuild(1, &[0..STRIPES], &mut Owner(log)).await });
    turn(&bench);
    assert_eq!(second.take(), Some(Err(RebuildError::NotWaiting(1))), "one rebuild of a member at a time");
    let array = bench.array.clone();
    let fail = bench.begin(async move { array.fail(1).await });
    turn(&bench);
    assert_eq!(fail.take(), Some(Ok(())));
    bench.replace(1);
    for _ in 0..2 {
        // Steps in flight have ended meanwhile, and are reported first.
        owner.go.set(true);
        turn(&bench);
    }
    assert_eq!(rebuild.take(), Some(Err(RebuildError::ReplacementLost(1))));
    assert_eq!(bench.state(1), MemberState::Rebuilding { front_stripe: 0 });
    assert!(bench.rebuild(1).is_ok());
    assert_eq!(bench.mismatches(), 0);
}

#[test]
fn rebuild_of_some_stripes_keeps_full_stripe_writes_elsewhere() {
    let (bench, _) = replaced(Level::Raid5, 4);
    let fronts = Rc::new(RefCell::new(Vec::new()));
    struct Noting(Rc<RefCell<Vec<u64>>>);
    impl RebuildOwner for Noting {
        async fn pace(&mut self, progress: Progress) {
            self.0.borrow_mut().push(progress.done);
        }
        async fn commit(&mut self, _: u16, flushed: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
            Ok(flushed)
        }
    }
    let (array, mut own) = (bench.array.clone(), Noting(fronts.clone()));
    let rebuild = bench.begin(async move { array.rebuild(1, &[0..3, 8..11], &mut own).await });
    // A stripe that comes into use meanwhile is written whole, also on the replacement.
    let stripe = bench.layout().stripe_blocks();
    let array = bench.array.clone();
    bench.disk(1).hold();
    bench.settle();
    assert!(fronts.borrow().is_empty(), "the rebuild has begun and is not through");
    let write = bench.begin(async move { array.write(Lba(5 * stripe), noise(9, stripe)).await });
    bench.settle();
    bench.disk(1).release();
    bench.settle();
    assert!(write.take().is_some_and(|write| write.is_ok()));
    assert_eq!(rebuild.take().map(|rebuilt| rebuilt.map(|rebuilt| rebuilt.stripes)), Some(Ok(6)));
    assert_eq!(*fronts.borrow(), [3, 6]);
    let array = bench.array.clone();
    for stripes in [0..3, 5..6, 8..11] {
        let array = array.clone();
        let verified = bench.run(async move { array.scrub_check(stripes, async |_| {}).await }).expect("serving");
        assert_eq!(verified.mismatches, 0);
    }
    assert_eq!(bench.read(Extent::new(5 * stripe, stripe)).expect("healthy"), *noise(9, stripe));
}

//! What the node remembers of the members of pools, on its way between the shards and control.
//!
//! Disks that were given up do not know it: started alone they show what they held then as if it were current. So control keeps
//! for each pool which members were current at the last change of that, and a pool all of whose disks are older is not opened.
//! A change is kept before a write is answered that a member has missed, but not for longer than [`KEPT_WITHIN`] waited for.

use model::{DiskId, MemberDisk, PoolId, PoolMembership, Refusal, code};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long commands wait for the node's state: a state disk that does not answer stops no pool.
pub(crate) const KEPT_WITHIN: Duration = Duration::from_secs(2);

/// The memberships of all pools that the node knows. Touched when members come and go, never by a command.
#[derive(Clone, Default)]
pub struct Memberships(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    known: BTreeMap<PoolId, PoolMembership>,
    /// The pools of which control has not heard the latest.
    news: BTreeSet<PoolId>,
    /// True once control has asked: without it nothing is kept, and nobody waits.
    is_kept: bool,
    /// The generations that are kept, by pool.
    kept: BTreeMap<PoolId, u64>,
    waiting: Vec<Waker>,
}

/// What was found of a pool.
pub(crate) struct FoundState<'a> {
    /// Its newest commit.
    pub(crate) generation: u64,
    /// True when it was opened without some members, and not written then: it has commits, and nothing that other disks lack.
    pub(crate) is_unwritten: bool,
    /// The disks that hold all that they should by that commit.
    pub(crate) current: &'a [DiskId],
}

impl FoundState<'_> {
    fn is_older_than(&self, known: &PoolMembership) -> bool {
        let has_current = known.current.iter().any(|disk| self.current.contains(&disk.id));
        self.generation < known.generation || (self.is_unwritten && !has_current && !known.current.is_empty())
    }
}

impl Memberships {
    /// The node was started, and remembers these.
    pub fn know(&self, known: Vec<PoolMembership>) {
        let mut table = self.table();
        table.kept = known.iter().map(|membership| (membership.pool, membership.generation)).collect();
        table.known = known.into_iter().map(|membership| (membership.pool, membership)).collect();
    }

    /// The members of a pool are so from now on.
    pub(crate) fn note(&self, membership: PoolMembership) {
        let mut table = self.table();
        if table.known.get(&membership.pool).is_some_and(|known| known.is_like(&membership)) {
            return;
        }
        table.news.insert(membership.pool);
        table.known.insert(membership.pool, membership);
        table.wake();
    }

    /// Ready once control has kept what is known of the pool, or nobody keeps anything.
    pub(crate) async fn until_kept(&self, pool: PoolId) {
        poll_fn(|cx| {
            let mut table = self.table();
            let known = table.known.get(&pool).map(|membership| membership.generation);
            if !table.is_kept || known.is_none() || known == table.kept.get(&pool).copied() {
                return Poll::Ready(());
            }
            table.wait(cx)
        })
        .await
    }

    /// All memberships, as soon as control has not heard of one of them.
    pub async fn next(&self) -> Vec<PoolMembership> {
        poll_fn(|cx| {
            let mut table = self.table();
            table.is_kept = true;
            if table.news.is_empty() {
                return table.wait(cx);
            }
            table.news.clear();
            Poll::Ready(table.known.values().cloned().collect())
        })
        .await
    }

    /// Control has kept these.
    pub fn kept(&self, generations: &[(PoolId, u64)]) {
        let mut table = self.table();
        table.kept.extend(generations.iter().copied());
        table.wake();
    }

    /// True where the node has had the pool.
    pub(crate) fn knows(&self, pool: PoolId) -> bool {
        self.table().known.contains_key(&pool)
    }

    /// Admits that the pool is opened as it was found.
    ///
    /// *Errors*: `POOL_OUTDATED` where the pool went on without all of the disks that were found.
    pub(crate) fn admit(&self, pool: PoolId, name: &str, found: &FoundState<'_>) -> Result<(), Refusal> {
        let table = self.table();
        let Some(known) = table.known.get(&pool).filter(|known| found.is_older_than(known)) else { return Ok(()) };
        let names = |disks: &[MemberDisk]| disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "the disks of pool {name} that are attached are out of date: on {} it continued without them, on {}",
            known.at,
            names(&known.current)
        );
        let hint = format!(
            "attach {}; to continue with the older content and lose all writes since {}, run blockyard pool import {name} --force",
            names(&known.current),
            known.at
        );
        Err(Refusal::new(code::POOL_OUTDATED, message, hint))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.waiting.retain(|waker| !waker.will_wake(cx.waker()));
        self.waiting.push(cx.waker().clone());
        Poll::Pending
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use model::Timestamp;

    fn membership(generation: u64) -> PoolMembership {
        let disk = |number: u8| MemberDisk { id: DiskId::from_bytes([number; 16]), name: format!("d{number}") };
        let at = Timestamp::from_unix(1_795_600_000);
        let (current, absent) = (vec![disk(1), disk(2)], vec![disk(3)]);
        PoolMembership { pool: PoolId::from_bytes([7; 16]), generation, at, current, absent }
    }

    #[test]
    fn change_of_members_is_waited_for_only_while_somebody_keeps_it() {
        let (memberships, pool) = (Memberships::default(), PoolId::from_bytes([7; 16]));
        memberships.note(membership(3));
        assert_eq!(memberships.until_kept(pool).now_or_never(), Some(()), "there is no control");
        assert_eq!(memberships.next().now_or_never(), Some(vec![membership(3)]));
        assert_eq!(memberships.next().now_or_never(), None, "it is told once");
        assert_eq!(memberships.until_kept(pool).now_or_never(), None);
        memberships.kept(&[(pool, 3)]);
        assert_eq!(memberships.until_kept(pool).now_or_never(), Some(()));
        memberships.note(membership(5));
        assert_eq!(memberships.until_kept(pool).now_or_never(), None);
        memberships.kept(&[(pool, 3)]);
        assert_eq!(memberships.until_kept(pool).now_or_never(), None, "that is the one before");
    }

    #[test]
    fn pool_is_opened_from_no_disks_that_are_older_than_what_the_node_remembers() {
        let (memberships, pool) = (Memberships::default(), PoolId::from_bytes([7; 16]));
        let disk = |number: u8| DiskId::from_bytes([number; 16]);
        let admit = |generation, is_unwritten, current: &[DiskId]| {
            memberships.admit(pool, "tank", &FoundState { generation, is_unwritten, current })
        };
        assert_eq!(admit(1, false, &[disk(3)]), Ok(()));
        memberships.know(vec![membership(5)]);
        assert_eq!((admit(5, false, &[disk(3)]), admit(6, true, &[disk(1)])), (Ok(()), Ok(())));
        let refusal = admit(9, true, &[disk(3)]).expect_err("it was only opened without the others");
        assert_eq!(refusal.code, code::POOL_OUTDATED);
        let refusal = admit(4, false, &[disk(1)]).expect_err("it is older");
        assert_eq!(refusal.code, code::POOL_OUTDATED);
        assert!(refusal.message.contains("on d1, d2") && refusal.hint.contains("attach d1, d2"), "{refusal}");
        assert_eq!(memberships.until_kept(pool).now_or_never(), Some(()), "what is known from a start is kept");
    }
}

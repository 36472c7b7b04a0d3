//! Membership table: the current members of each pool as the node remembers them, shared by the shards and the control
//! plane.
//!
//! A disk that was given up does not know it: started alone it shows its old content as if it were current. So the
//! control plane stores, for each pool, which members were current at the last change of membership, and a pool all of
//! whose disks are older is not opened (`docs/adr/0027-what-a-node-remembers-of-members.md`). A change is stored before
//! a write that a member has missed is answered, but a write waits no longer than [`KEPT_WITHIN`] for it.

use model::{DiskId, MemberDisk, PoolId, PoolMembership, Refusal, code};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Longest wait of commands for the node's state. A state disk that does not answer must not stop a pool.
pub(crate) const KEPT_WITHIN: Duration = Duration::from_secs(2);

/// Memberships of all pools that the node knows. Touched when members change, never by a command.
#[derive(Clone, Default)]
pub struct Memberships(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    known: BTreeMap<PoolId, PoolMembership>,
    /// Pools whose latest change the control plane has not fetched.
    news: BTreeSet<PoolId>,
    /// True once the control plane has asked; without it nothing is stored and nobody waits.
    is_kept: bool,
    /// Generations that are stored durably, by pool.
    kept: BTreeMap<PoolId, u64>,
    waiting: Vec<Waker>,
}

/// State of a pool as found on its disks.
pub(crate) struct FoundState<'a> {
    /// Generation of its newest commit.
    pub(crate) generation: u64,
    /// True if it was opened without some members and not written since: it has commits, but no data that other disks
    /// lack.
    pub(crate) is_unwritten: bool,
    /// Disks that are current according to that commit.
    pub(crate) current: &'a [DiskId],
}

impl FoundState<'_> {
    fn is_older_than(&self, known: &PoolMembership) -> bool {
        // One current disk is enough: commits go to every member that takes part.
        let has_current = known.current.iter().any(|disk| self.current.contains(&disk.id));
        // Without writes a higher generation proves nothing, so such a part is judged by its disks (ADR 27).
        self.generation < known.generation || (self.is_unwritten && !has_current && !known.current.is_empty())
    }
}

impl Memberships {
    /// Loads the rows that the node has stored, at its start.
    pub fn know(&self, known: Vec<PoolMembership>) {
        let mut table = self.table();
        // Rows of the stored state are durable already.
        table.kept = known.iter().map(|membership| (membership.pool, membership.generation)).collect();
        table.known = known.into_iter().map(|membership| (membership.pool, membership)).collect();
    }

    /// Notes the membership of a pool, to be stored by the control plane.
    pub(crate) fn note(&self, membership: PoolMembership) {
        let mut table = self.table();
        // A row that says the same is not stored again: commits that change no member cost the state nothing.
        if table.known.get(&membership.pool).is_some_and(|known| known.is_like(&membership)) {
            return;
        }
        table.news.insert(membership.pool);
        table.known.insert(membership.pool, membership);
        table.wake();
    }

    /// Waits until the noted membership of the pool is durable. Ready at once if nobody stores memberships.
    pub(crate) async fn until_durable(&self, pool: PoolId) {
        poll_fn(|cx| {
            let mut table = self.table();
            let known = table.known.get(&pool).map(|membership| membership.generation);
            // A newer row than the stored one keeps its waiters: what they wait for is not durable yet.
            if !table.is_kept || known.is_none() || known == table.kept.get(&pool).copied() {
                return Poll::Ready(());
            }
            table.wait(cx)
        })
        .await
    }

    /// Waits until a membership was noted, and returns all of them. Called by the control plane.
    pub async fn next(&self) -> Vec<PoolMembership> {
        poll_fn(|cx| {
            let mut table = self.table();
            // From now on commands wait for the rows that they cause.
            table.is_kept = true;
            if table.news.is_empty() {
                return table.wait(cx);
            }
            // All rows are returned, so one call delivers all news.
            table.news.clear();
            Poll::Ready(table.known.values().cloned().collect())
        })
        .await
    }

    /// Marks these generations as durably stored.
    pub fn kept(&self, generations: &[(PoolId, u64)]) {
        let mut table = self.table();
        table.kept.extend(generations.iter().copied());
        table.wake();
    }

    /// True if the node has a row for the pool.
    pub(crate) fn knows(&self, pool: PoolId) -> bool {
        self.table().known.contains_key(&pool)
    }

    /// Admits opening the pool as found.
    ///
    /// *Errors*: `POOL_OUTDATED` if the pool continued without all of the disks that were found.
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
        // A thread that panicked leaves the table valid: no change of it stops half way.
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
        assert_eq!(memberships.until_durable(pool).now_or_never(), Some(()), "there is no control");
        assert_eq!(memberships.next().now_or_never(), Some(vec![membership(3)]));
        assert_eq!(memberships.next().now_or_never(), None, "it is told once");
        assert_eq!(memberships.until_durable(pool).now_or_never(), None);
        memberships.kept(&[(pool, 3)]);
        assert_eq!(memberships.until_durable(pool).now_or_never(), Some(()));
        memberships.note(membership(5));
        assert_eq!(memberships.until_durable(pool).now_or_never(), None);
        memberships.kept(&[(pool, 3)]);
        assert_eq!(memberships.until_durable(pool).now_or_never(), None, "that is the one before");
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
        assert_eq!(memberships.until_durable(pool).now_or_never(), Some(()), "what is known from a start is kept");
    }
}

//! Change of existing blocks: logged first, then written in place, then recorded in the pages.

use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{Role, Span};
use crate::members::{Change as Content, MemberState, Op, Ops, ReadWait};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::{Entry, guards};
use crate::protected::Protected;
use crate::redo::ring::Reservation;
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use smallvec::SmallVec;
use std::rc::Rc;

/// Method by which a change survives a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogForm {
    /// The new content is logged; a crash replays it.
    Image,
    /// Only the new entries are logged, and the copies are written one after the other; a crash leaves at most one
    /// copy torn.
    ChecksumOnly,
}

/// Change of the entries of a run of blocks.
struct Update {
    member: u16,
    block: u64,
    old: Entries,
    new: Entries,
}

type Entries = SmallVec<[Entry; 4]>;

/// Upper bound of blocks of a write without parity that is logged by image, so that it can be acknowledged from the
/// log.
const SMALL_BLOCKS: u64 = 4;
/// Upper bound of acknowledged changes that are not in place yet.
const PENDING_MAX: u32 = 128;

/// Change that is in the log; its records stay there as long as this lives.
struct Logged {
    change: LoggedChange,
    reservation: Reservation,
}

/// Records, member writes and page updates of one change.
pub(crate) struct LoggedChange {
    extent: Extent,
    form: LogForm,
    records: Records,
    /// Writes in place, on usable members only.
    ops: Ops,
    updates: SmallVec<[Update; 4]>,
}

impl LoggedChange {
    /// Prepares the change made by `ops`; `unknown` is parity of absent members that was not computed.
    ///
    /// The pages of all of these blocks are pinned.
    pub(crate) fn new<D: BlockDevice + 'static>(
        array: &Protected<D>,
        part: &Span,
        mut ops: Ops,
        unknown: Vec<(u16, Extent)>,
    ) -> Self {
        let form = array.form(&ops);
        let (mut records, mut updates) = (Records::default(), SmallVec::new());
        let mut last: Option<(*const u8, SmallVec<[u32; 4]>)> = None;
        for op in &ops {
            let Content::Write(content) = &op.change else { continue };
            if last.as_ref().is_none_or(|(of, known)| *of != content.as_ptr() || known.len() != blocks(content)) {
                // Mirrors share the buffer, so each checksum is computed once.
                last = Some((content.as_ptr(), guards(content).collect()));
            }
            let guards = last.as_ref().map_or(&[][..], |(_, guards)| guards);
            let update = update_of(array, op, guards);
            assert_eq!(update.new.len() as u64, op.extent().len.0, "every block that is written has an entry");
            array.log_op(&mut records, form, op, &update, content);
            updates.push(update);
        }
        // Parity that is not computed has no entry that could prove it after a rebuild.
        for (member, extent) in unknown {
            let new: Entries = (0..extent.len.0).map(|_| Entry::UNKNOWN).collect();
            records.entries(member, extent.start.0, &new);
            updates.push(Update { member, block: extent.start.0, old: new.clone(), new });
        }
        // After logging: absent members get records, but no writes.
        ops.retain(|op| array.writes(op));
        Self { extent: part.extent, form, records, ops, updates }
    }
}

fn blocks(content: &View) -> usize {
    content.len() / BLOCK_BYTES as usize
}

fn update_of<D: BlockDevice + 'static>(array: &Protected<D>, op: &Op, guards: &[u32]) -> Update {
    let block = op.start.0;
    let old: Entries = (block..).take(guards.len()).map(|block| array.checksums.entry(op.member, block)).collect();
    let new = (block..).zip(guards.iter().zip(&old));
    let new =
        new.map(|(block, (&guard, old))| old.next(array.checksums.pages.binding(op.member, block), guard)).collect();
    Update { member: op.member, block, old, new }
}

impl<D: BlockDevice + 'static> Protected<D> {
    /// Chooses checksum-only logging where no block can be torn and the second write of the content would cost more
    /// than writing the copies in sequence; otherwise logs images.
    fn form(&self, ops: &Ops) -> LogForm {
        let copies = self.layout.copies();
        let is_small = || ops.iter().map(|op| op.extent().len.0).sum::<u64>() <= SMALL_BLOCKS * u64::from(copies);
        // A small write by image can be acknowledged after one device operation instead of two or three.
        if !self.layout.has_parity() && self.commands.spawn.is_some() && is_small() {
            return LogForm::Image;
        }
        // Checksum-only logging relies on each block being old or new after a crash.
        let is_atomic = self.commands.blocks_are_atomic;
        let all_well = || {
            ops.iter().all(|op| {
                let place = self.members.place(op.member);
                // With a volatile cache each copy would need a flush of its own, so an image is cheaper.
                place.state() == MemberState::InService && !place.is_volatile()
            })
        };
        if !self.layout.has_parity() && is_atomic && all_well() { LogForm::ChecksumOnly } else { LogForm::Image }
    }

    /// True for a member that is written in this stripe; an absent one only gets an entry.
    fn writes(&self, op: &Op) -> bool {
        self.members.place(op.member).usable(op.start.0 / self.layout.chunk_blocks()).1
    }

    fn log_op(&self, records: &mut Records, form: LogForm, op: &Op, update: &Update, content: &View) {
        let (member, block) = (update.member, update.block);
        let is_parity = || {
            let role = self.layout.role_of(block / self.layout.chunk_blocks(), member);
            !matches!(role, Role::Data { .. })
        };
        // An absent member gets the entry alone: its content is rebuilt later, and verified against it.
        if !self.writes(op) || bug_injection::is_injected(InjectedBug::NoParityImage) && is_parity() {
            records.entries(member, block, &update.new);
        } else if form == LogForm::ChecksumOnly {
            records.checksum_only(member, block, &update.old, &update.new);
        } else {
            records.image(member, block, &update.new, content);
        }
    }

    /// Logs the change, writes it in place on every usable member, and updates the pages.
    ///
    /// *Errors*: as [`Stripes::execute`](crate::stripes::Stripes::execute).
    pub(crate) async fn commit_and_apply(self: &Rc<Self>, change: LoggedChange) -> Result<(), IoError> {
        let logged = self.log_change(change).await?;
        self.apply(logged).await
    }

    /// Carries out a change as [`Protected::commit_and_apply`], but returns as soon as it is logged where no later
    /// error would have to be returned: no member is absent, and few changes are pending. `held` is dropped when the
    /// change is in place.
    pub(crate) async fn commit_then_apply(
        self: &Rc<Self>,
        change: LoggedChange,
        held: impl Sized + 'static,
    ) -> Result<(), IoError> {
        let logged = self.log_change(change).await?;
        let Some(spawn) = self.commands.spawn.as_ref().filter(|_| self.may_answer(&logged)) else {
            return self.apply(logged).await;
        };
        // From here on a read of a block not in place yet mismatches and is repeated under the lock, which waits for
        // the change.
        if !bug_injection::is_injected(InjectedBug::AnsweredUnseen) {
            self.put_in_pages(&logged.change.updates);
        }
        // Bounded by `may_answer`: each of these changes keeps its locks, its pages and its log space.
        self.commands.pending_in_place.set(self.commands.pending_in_place.get() + 1);
        assert!(self.commands.pending_in_place.get() <= PENDING_MAX, "no more changes are behind than may be");
        let (own, held) = (self.clone(), (!bug_injection::is_injected(InjectedBug::AnsweredUnlocked)).then_some(held));
        spawn(Box::pin(async move {
            own.apply_later(logged).await;
            drop(held);
        }));
        Ok(())
    }

    fn may_answer(&self, logged: &Logged) -> bool {
        // Only an image can be replayed by itself; with a member absent, a later refusal might have to be returned.
        logged.change.form == LogForm::Image
            && self.commands.pending_in_place.get() < PENDING_MAX
            && self.members.stopped_by().is_none()
            && self.members.not_in_service().is_empty()
    }

    async fn log_change(self: &Rc<Self>, mut change: LoggedChange) -> Result<Logged, IoError> {
        let records = std::mem::take(&mut change.records);
        let reservation = self.log.commit(records).await.map_err(|error| error.at(change.extent))?;
        Ok(Logged { change, reservation })
    }

    async fn apply(self: &Rc<Self>, logged: Logged) -> Result<(), IoError> {
        let Logged { change, reservation } = logged;
        let (refused, result) = self.write_in_place(change.form, change.ops, change.extent).await;
        // In the pages whatever the result: the log says the same, and replay would, too.
        self.put_in_pages(&change.updates);
        // Only where no redundancy is left: otherwise the member has failed, and the write has succeeded on the
        // others.
        if result.is_err() {
            self.settle_refused(&refused, &change.updates).await;
        }
        drop(reservation);
        result
    }

    /// Writes in place after the acknowledgement: blocks that the last copy refuses are marked lost and reported.
    async fn apply_later(self: &Rc<Self>, logged: Logged) {
        let Logged { change, reservation } = logged;
        // Kept for retries; the copies share the content.
        let ops = change.ops.clone();
        let (refused, result) = self.write_in_place(change.form, change.ops, change.extent).await;
        let refused = match result {
            Err(error) if error.kind == IoErrorKind::Medium => {
                self.members.write_again(&ops, refused, change.extent).await
            }
            _ => refused,
        };
        match result {
            // A stopped array keeps the change in its log, and the next opening completes the write.
            _ if refused.is_empty() || self.members.stopped_by().is_some() => drop(reservation),
            Err(error) if error.kind != IoErrorKind::Medium => {
                // The member takes no writes at all. What was acknowledged is in the log, and the next opening
                // replays it.
                self.members.stop(error);
                drop(reservation);
            }
            _ => self.give_up_blocks(refused, reservation).await,
        }
        assert!(self.commands.pending_in_place.get() > 0, "every change that is behind ends once");
        self.commands.pending_in_place.set(self.commands.pending_in_place.get() - 1);
    }

    /// Marks blocks as lost that were acknowledged and that no member takes: reads fail from now on.
    ///
    /// The reservation is dropped before the loss is logged: with a full log the record waits for a checkpoint, and
    /// that would wait for this reservation. Until then the blocks do not match their entries, which is a read error
    /// as well.
    async fn give_up_blocks(self: &Rc<Self>, refused: Vec<(u16, Extent)>, reservation: Reservation) {
        let held = bug_injection::is_injected(InjectedBug::TicketHeldWhileLogging).then_some(reservation);
        for (member, extent) in refused {
            self.stripes.mark_lost(member, extent).await;
            if self.members.stopped_by().is_some() {
                break;
            }
            for block in extent.start.0..extent.end().0 {
                let finding = Finding::new(member, Extent::new(block, 1), FindingKind::Unreadable, Outcome::Lost);
                self.checksums.pages.report(finding.of_lost(self.stripes.layout.lba_on(member, block)));
            }
        }
        drop(held);
    }

    /// Writes in place; returns blocks refused by members that are still in service, and the result for the caller.
    async fn write_in_place(
        self: &Rc<Self>,
        form: LogForm,
        ops: Ops,
        extent: Extent,
    ) -> (Vec<(u16, Extent)>, Result<(), IoError>) {
        let mut result = Ok(());
        let mut refused: Vec<(u16, Extent)> = Vec::new();
        // The next copy is written even if this one failed: the change is logged and must be completed.
        for ops in self.in_turn(form, ops) {
            let ended = self.members.perform(ops).await;
            let judged = self.members.judge(&ended, extent);
            refused.extend(self.members.refused_of(&ended));
            result = result.and(judged);
        }
        (refused, result)
    }

    fn put_in_pages(&self, updates: &[Update]) {
        let mut cache = self.checksums.pages.cache.borrow_mut();
        for update in updates {
            assert_eq!(update.old.len(), update.new.len(), "each entry that changes follows one that was there");
            for (block, &entry) in (update.block..).zip(&update.new) {
                cache.set(update.member, block, entry);
            }
        }
    }

    /// Groups the writes: all at once, or for checksum-only changes one copy after the other.
    fn in_turn(&self, form: LogForm, ops: Ops) -> SmallVec<[Ops; 2]> {
        let copies = self.layout.copies();
        if form == LogForm::Image || copies == 1 || bug_injection::is_injected(InjectedBug::MirrorsAtOnce) {
            return SmallVec::from_buf_and_len([ops, Ops::new()], 1);
        }
        // One copy is always complete: the old one before its turn, the new one after it.
        let mut turns: SmallVec<[Ops; 2]> = (0..copies).map(|_| Ops::new()).collect();
        // Copies of a column are on adjacent members, so the remainder is the number of the copy.
        ops.into_iter().for_each(|op| turns[usize::from(op.member % copies)].push(op));
        turns
    }

    /// Restores the entries of blocks that the only copy refused, where the old content is still in place.
    async fn settle_refused(self: &Rc<Self>, refused: &[(u16, Extent)], updates: &[Update]) {
        for &(member, extent) in refused {
            let pair = |other: u16| other / self.layout.copies() == member / self.layout.copies();
            for update in updates.iter().filter(|update| pair(update.member)) {
                for (block, &old) in (update.block..).zip(&update.old) {
                    if !extent.contains(Extent::new(block, 1)) {
                        continue;
                    }
                    if update.member != member {
                        // The mirror may have taken what the only counted copy did not.
                        self.checksums.pages.cache.borrow_mut().set(update.member, block, Entry::UNKNOWN);
                        continue;
                    }
                    let found = self.members.read_data(member, Extent::new(block, 1), ReadWait::Unbounded).await;
                    let guard = found.ok().and_then(|rope| guards(&rope.into_view()).next());
                    // An unwritten block reads as zeros whatever the disk has, so its content need not match.
                    if guard.is_some_and(|guard| {
                        old.is_unwritten() || old.matches(self.checksums.pages.binding(member, block), guard)
                    }) {
                        self.checksums.pages.cache.borrow_mut().set(member, block, old);
                    }
                }
            }
        }
    }
}

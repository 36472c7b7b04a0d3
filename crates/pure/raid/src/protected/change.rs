//! A change of blocks that are there: logged first, then done in place, then in the pages.

use crate::bounds::BLOCK_BYTES;
use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::{Role, Span};
use crate::members::{Change as Content, MemberState, Op, Ops, Patience};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::{Entry, guards};
use crate::protected::Protected;
use crate::redo::ring::Ticket;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent, IoError, IoErrorKind, View};
use smallvec::SmallVec;
use std::rc::Rc;

/// How a change is made safe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The new content is in the log.
    Image,
    /// The new entries are in the log; one copy is written after the other.
    Sum,
}

/// The new entries of a run of blocks.
struct Update {
    member: u16,
    block: u64,
    old: Entries,
    new: Entries,
}

type Entries = SmallVec<[Entry; 4]>;

/// Writes up to here are logged whole also without parity, so that they can be answered from the log.
const SMALL_BLOCKS: u64 = 4;
/// Changes that may be answered and not in place at once.
const BEHIND_MAX: u32 = 128;

/// A change that is in the log; as long as this lives, it stays there.
struct Logged {
    change: LoggedChange,
    ticket: Ticket,
}

/// What is logged, what is written, and what the pages say in the end.
pub(crate) struct LoggedChange {
    extent: Extent,
    form: Form,
    records: Records,
    /// The writes in place, by members that are there.
    ops: Ops,
    updates: SmallVec<[Update; 4]>,
}

impl LoggedChange {
    /// The change that `ops` are; `unknown` is parity of absent members that nobody computed.
    ///
    /// The pages of all of these blocks are held.
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
                // Mirrors get the same bytes: their guards are computed once.
                last = Some((content.as_ptr(), guards(content).collect()));
            }
            let guards = last.as_ref().map_or(&[][..], |(_, guards)| guards);
            let update = update_of(array, op, guards);
            assert_eq!(update.new.len() as u64, op.extent().len.0, "every block that is written has an entry");
            array.log_op(&mut records, form, op, &update, content);
            updates.push(update);
        }
        for (member, extent) in unknown {
            let new: Entries = (0..extent.len.0).map(|_| Entry::UNKNOWN).collect();
            records.marks(member, extent.start.0, &new);
            updates.push(Update { member, block: extent.start.0, old: new.clone(), new });
        }
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
    let new = new.map(|(block, (&guard, old))| old.next(array.checksums.pages.tie(op.member, block), guard)).collect();
    Update { member: op.member, block, old, new }
}

impl<D: BlockDevice + 'static> Protected<D> {
    /// By sum where no block can be torn and the second writing would cost more than waiting for one copy after the other;
    /// else by image.
    fn form(&self, ops: &Ops) -> Form {
        let copies = self.layout.copies();
        let is_small = || ops.iter().map(|op| op.extent().len.0).sum::<u64>() <= SMALL_BLOCKS * u64::from(copies);
        if !self.layout.has_parity() && self.commands.spawn.is_some() && is_small() {
            return Form::Image;
        }
        let is_atomic = self.commands.blocks_are_atomic;
        let all_well = || {
            ops.iter().all(|op| {
                let place = self.members.place(op.member);
                place.state() == MemberState::InService && !place.is_volatile()
            })
        };
        if !self.layout.has_parity() && is_atomic && all_well() { Form::Sum } else { Form::Image }
    }

    /// True for a member that is written in this stripe, and does not only get an entry.
    fn writes(&self, op: &Op) -> bool {
        self.members.place(op.member).usable(op.start.0 / self.layout.chunk_blocks()).1
    }

    fn log_op(&self, records: &mut Records, form: Form, op: &Op, update: &Update, content: &View) {
        let (member, block) = (update.member, update.block);
        let is_parity = || {
            let role = self.layout.role_of(block / self.layout.chunk_blocks(), member);
            !matches!(role, Role::Data { .. })
        };
        if !self.writes(op) || sabotage::is(Bug::NoParityImage) && is_parity() {
            records.marks(member, block, &update.new);
        } else if form == Form::Sum {
            records.sums(member, block, &update.old, &update.new);
        } else {
            records.image(member, block, &update.new, content);
        }
    }

    /// The change is in the log, in place on every member that still counts, and in the pages.
    ///
    /// *Errors*: as [`Stripes::carry_out`](crate::stripes::Stripes::carry_out).
    pub(crate) async fn carry_out_logged(self: &Rc<Self>, change: LoggedChange) -> Result<(), IoError> {
        let logged = self.log_change(change).await?;
        self.put_in_place(logged).await
    }

    /// As [`Protected::carry_out_logged`], but answers as soon as the change is in the log, where nothing that can still happen would
    /// have to be told: nobody is absent, and not much is behind already. `held` ends with the change.
    pub(crate) async fn carry_out_behind(
        self: &Rc<Self>,
        change: LoggedChange,
        held: impl Sized + 'static,
    ) -> Result<(), IoError> {
        let logged = self.log_change(change).await?;
        let Some(spawn) = self.commands.spawn.as_ref().filter(|_| self.may_answer(&logged)) else {
            return self.put_in_place(logged).await;
        };
        // Who reads a block that is not in place yet finds that it does not match, and asks again under the lock.
        if !sabotage::is(Bug::AnsweredUnseen) {
            self.put_in_pages(&logged.change.updates);
        }
        self.commands.behind.set(self.commands.behind.get() + 1);
        assert!(self.commands.behind.get() <= BEHIND_MAX, "no more changes are behind than may be");
        let (own, held) = (self.clone(), (!sabotage::is(Bug::AnsweredUnlocked)).then_some(held));
        spawn(Box::pin(async move {
            own.put_in_place_behind(logged).await;
            drop(held);
        }));
        Ok(())
    }

    fn may_answer(&self, logged: &Logged) -> bool {
        logged.change.form == Form::Image
            && self.commands.behind.get() < BEHIND_MAX
            && self.members.stopped_by().is_none()
            && self.members.not_in_service().is_empty()
    }

    async fn log_change(self: &Rc<Self>, mut change: LoggedChange) -> Result<Logged, IoError> {
        let records = std::mem::take(&mut change.records);
        let ticket = self.log.commit(records).await.map_err(|error| error.at(change.extent))?;
        Ok(Logged { change, ticket })
    }

    async fn put_in_place(self: &Rc<Self>, logged: Logged) -> Result<(), IoError> {
        let Logged { change, ticket } = logged;
        let (refused, result) = self.write_in_place(change.form, change.ops, change.extent).await;
        self.put_in_pages(&change.updates);
        if result.is_err() {
            self.settle_refused(&refused, &change.updates).await;
        }
        drop(ticket);
        result
    }

    /// In place after it was answered: what the last copy refuses is lost, and says so.
    async fn put_in_place_behind(self: &Rc<Self>, logged: Logged) {
        let Logged { change, ticket } = logged;
        let ops = change.ops.clone();
        let (refused, result) = self.write_in_place(change.form, change.ops, change.extent).await;
        let refused = match result {
            Err(error) if error.kind == IoErrorKind::Medium => {
                self.members.write_again(&ops, refused, change.extent).await
            }
            _ => refused,
        };
        match result {
            _ if refused.is_empty() || self.members.stopped_by().is_some() => drop(ticket),
            Err(error) if error.kind != IoErrorKind::Medium => {
                // The member takes nothing at all. What was answered is in the log, and the next opening puts it in place.
                self.members.stop(error);
                drop(ticket);
            }
            _ => self.give_up_blocks(refused, ticket).await,
        }
        assert!(self.commands.behind.get() > 0, "every change that is behind ends once");
        self.commands.behind.set(self.commands.behind.get() - 1);
    }

    /// These blocks were answered, and no member takes them: reading them is an error from now on.
    ///
    /// Before anything is logged the ticket is dropped: the log may have room only once a checkpoint has passed it. Until the
    /// record is there, the blocks do not match their entries, which is an error as well.
    async fn give_up_blocks(self: &Rc<Self>, refused: Vec<(u16, Extent)>, ticket: Ticket) {
        let held = sabotage::is(Bug::TicketHeldWhileLogging).then_some(ticket);
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

    /// Blocks that members refused that are still in service, and what that means.
    async fn write_in_place(
        self: &Rc<Self>,
        form: Form,
        ops: Ops,
        extent: Extent,
    ) -> (Vec<(u16, Extent)>, Result<(), IoError>) {
        let mut result = Ok(());
        let mut refused: Vec<(u16, Extent)> = Vec::new();
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

    /// All at once; or, by sum, one copy after the other.
    fn in_turn(&self, form: Form, ops: Ops) -> SmallVec<[Ops; 2]> {
        let copies = self.layout.copies();
        if form == Form::Image || copies == 1 || sabotage::is(Bug::MirrorsAtOnce) {
            return SmallVec::from_buf_and_len([ops, Ops::new()], 1);
        }
        let mut turns: SmallVec<[Ops; 2]> = (0..copies).map(|_| Ops::new()).collect();
        ops.into_iter().for_each(|op| turns[usize::from(op.member % copies)].push(op));
        turns
    }

    /// Blocks that a member refused to write, and that have no other copy, keep the entry that they match.
    async fn settle_refused(self: &Rc<Self>, refused: &[(u16, Extent)], updates: &[Update]) {
        for &(member, extent) in refused {
            let pair = |other: u16| other / self.layout.copies() == member / self.layout.copies();
            for update in updates.iter().filter(|update| pair(update.member)) {
                for (block, &old) in (update.block..).zip(&update.old) {
                    if !extent.contains(Extent::new(block, 1)) {
                        continue;
                    }
                    if update.member != member {
                        // It may have taken what the only copy that counts did not.
                        self.checksums.pages.cache.borrow_mut().set(update.member, block, Entry::UNKNOWN);
                        continue;
                    }
                    let found = self.members.read_data(member, Extent::new(block, 1), Patience::Patient).await;
                    let guard = found.ok().and_then(|rope| guards(&rope.into_view()).next());
                    if guard.is_some_and(|guard| {
                        old.is_unwritten() || old.matches(self.checksums.pages.tie(member, block), guard)
                    }) {
                        self.checksums.pages.cache.borrow_mut().set(member, block, old);
                    }
                }
            }
        }
    }
}

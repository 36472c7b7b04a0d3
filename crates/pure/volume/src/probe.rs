//! Probing of one disk, and writing and wiping of its labels and other pool metadata.

use crate::catalog::{Catalog, CatalogError};
use crate::label::{Label, LabelError};
use crate::layout::{
    BLOCK_BYTES, DISK_BYTES_MIN, HEAD_AREA, HEAD_BLOCKS, HEAD_LABELS, OWNER_PLACES, SLOT_STARTS, TAIL_BLOCKS,
    tail_label,
};
use crate::owner::read_marks;
use crate::signature::{HEAD_BYTES, TAIL_BYTES, recognise};
use crate::slot::{Header, SlotError};
use block::frame::is_blank;
use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, View, Written, read_around};
use cluster::Claim;
use std::rc::Rc;
use uuid::Uuid;

/// Result of probing one disk.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Size of the disk in blocks of 4096 bytes.
    pub blocks: Blocks,
    /// Content found.
    pub contents: Contents,
    /// True when head or tail are not all zeros although nothing was recognized: a pool may be created on the
    /// disk, but its content may be of value.
    pub has_residue: bool,
}

/// Content of a disk.
#[derive(Clone, Debug)]
pub enum Contents {
    /// No recognizable content.
    Blank,
    /// Data of another system: a file system, a partition table, another product's label.
    Foreign(&'static str),
    /// Member of a pool that only a newer version can open.
    Newer {
        /// UUID of the pool.
        pool: Uuid,
        /// Reason, and the version that can open it.
        sentence: String,
    },
    /// Label with all of its copies damaged.
    Damaged,
    /// Current or former member of a pool.
    Member(Box<Member>),
    /// Unreadable disk.
    Unreadable(IoError),
}

/// Disk with a label.
#[derive(Clone, Debug)]
pub struct Member {
    /// Content of the label.
    pub label: Label,
    /// Intact copies of the label: two at the head, one at the end.
    pub copies: [bool; 3],
    /// Data of another system at the head or end of the disk, written over the member.
    pub overwritten: Option<&'static str>,
    /// Intact catalogs of the two slots that belong to this pool and disk, newest first.
    pub catalogs: Vec<FoundCatalog>,
    /// Newest owner mark on this disk.
    pub owner: Option<Claim>,
}

/// Intact catalog in a slot.
#[derive(Clone, Debug)]
pub struct FoundCatalog {
    /// Index of the slot.
    pub slot: usize,
    /// Generation of the commit.
    pub generation: u64,
    /// Checksum of its bytes; with the generation it identifies the commit.
    pub checksum: u32,
    /// Parsed catalog.
    pub catalog: Rc<Catalog>,
    pub(crate) body: View,
}

/// Probes `disk`. Writes nothing.
///
/// *Panics*: when the blocks of `disk` are not of 4096 bytes.
pub async fn probe<D: BlockDevice>(disk: &D) -> Probe {
    let geometry = disk.geometry();
    assert_eq!(geometry.block_bytes, BLOCK_BYTES, "members have blocks of 4096 bytes");
    let (contents, has_residue) = match probe_contents(disk, geometry.blocks).await {
        Ok(found) => found,
        Err(error) => (Contents::Unreadable(error), false),
    };
    Probe { blocks: geometry.blocks, contents, has_residue }
}

async fn probe_contents<D: BlockDevice>(disk: &D, blocks: Blocks) -> Result<(Contents, bool), IoError> {
    let head_blocks = blocks.0.min(HEAD_BYTES as u64 / u64::from(BLOCK_BYTES));
    let tail_blocks = blocks.0.min(TAIL_BYTES as u64 / u64::from(BLOCK_BYTES));
    // A bad block must not hide the rest of a member's head, so unreadable blocks are skipped.
    let (head, head_error) = read_around(disk, Extent::new(0, head_blocks), 1).await?;
    let (tail, tail_error) = read_around(disk, Extent::new(blocks.0 - tail_blocks, tail_blocks), 1).await?;
    let foreign = recognise(&head, &tail);
    // Too small for a member, so there can be no label.
    if blocks.bytes(BLOCK_BYTES) < DISK_BYTES_MIN {
        return Ok((foreign.map_or(Contents::Blank, Contents::Foreign), false));
    }
    let contents = find_label(disk, blocks, foreign).await?;
    // Unreadable blocks of a member are rewritten later; on any other disk their content is unknown, so it must
    // not pass for blank.
    if let (Some(error), Contents::Blank | Contents::Damaged) = (head_error.or(tail_error), &contents) {
        return Err(error);
    }
    // A torn label is what a power loss leaves of one that was being written.
    let is_torn = |block: &[u8]| Label::parse(block) == Err(LabelError::Damaged);
    let mut all = head.chunks(BLOCK_BYTES as usize).chain(tail.chunks(BLOCK_BYTES as usize));
    let has_residue = matches!(contents, Contents::Blank) && all.any(|block| !is_blank(block) && !is_torn(block));
    Ok((contents, has_residue))
}

async fn find_label<D: BlockDevice>(
    disk: &D,
    blocks: Blocks,
    foreign: Option<&'static str>,
) -> Result<Contents, IoError> {
    let [first, second] = HEAD_LABELS;
    let (first, first_error) = block_at(disk, first).await?;
    let (second, second_error) = block_at(disk, second).await?;
    let (last, last_error) = block_at(disk, tail_label(blocks)).await?;
    let found = [first, second, last];
    let copies = found.each_ref().map(|block| Label::parse(block));
    // A newer format in any copy decides: nothing else on the disk can be judged then.
    for copy in &copies {
        if let Err(newer @ LabelError::Newer { pool, .. }) = copy {
            return Ok(Contents::Newer { pool: *pool, sentence: newer.to_string() });
        }
    }
    // Any intact copy will do; the others are rewritten when the pool is opened.
    let Some(label) = copies.iter().find_map(|copy| copy.as_ref().ok()).cloned() else {
        // An unreadable label copy may be that of a member, so the disk must not pass for blank.
        if let Some(error) = first_error.or(second_error).or(last_error).filter(|_| foreign.is_none()) {
            return Err(error);
        }
        return Ok(foreign.map_or(without_label(&copies, &found), Contents::Foreign));
    };
    // A copy that differs from the chosen one counts as damaged.
    let copies = copies.map(|copy| copy.as_ref() == Ok(&label));
    let mut catalogs = Vec::with_capacity(2);
    for slot in 0..SLOT_STARTS.len() {
        match read_slot(disk, slot, &label).await? {
            SlotContents::Catalog(catalog) => catalogs.push(catalog),
            SlotContents::Newer(sentence) => return Ok(Contents::Newer { pool: label.pool, sentence }),
            SlotContents::Nothing => {}
        }
    }
    // The assembly takes the first one as the disk's state.
    catalogs.sort_by_key(|found| std::cmp::Reverse(found.generation));
    // Without readable marks here, the other members have theirs.
    let owner = read_marks(disk, label.pool, label.disk).await.ok();
    let owner = owner.and_then(|marks| marks.into_iter().max_by_key(Claim::age));
    Ok(Contents::Member(Box::new(Member { label, copies, overwritten: foreign, catalogs, owner })))
}

/// Classifies a disk without an intact label copy.
///
/// Copies are written and wiped one at a time, and a member is used only when it has all three. One torn copy
/// between zeros is therefore what a power loss leaves of a disk that was joining or leaving a pool: no data
/// can be lost on it.
fn without_label(copies: &[Result<Label, LabelError>], blocks: &[View]) -> Contents {
    let torn = copies.iter().filter(|copy| **copy == Err(LabelError::Damaged)).count();
    let zero = blocks.iter().filter(|block| is_blank(block)).count();
    if torn == 0 || (torn == 1 && zero == copies.len() - 1) { Contents::Blank } else { Contents::Damaged }
}

/// Reads one block of redundant metadata as [`read_around`] does.
async fn block_at<D: BlockDevice>(disk: &D, block: u64) -> Result<(View, Option<IoError>), IoError> {
    read_around(disk, Extent::new(block, 1), 1).await
}

enum SlotContents {
    Nothing,
    Newer(String),
    Catalog(FoundCatalog),
}

async fn read_slot<D: BlockDevice>(disk: &D, slot: usize, label: &Label) -> Result<SlotContents, IoError> {
    let start = SLOT_STARTS[slot];
    let (block, _) = block_at(disk, start).await?;
    let header = match Header::parse(&block) {
        // A slot of another pool or disk is left over from an earlier use.
        Ok(header) if header.pool == label.pool && header.disk == label.disk => header,
        Err(newer @ SlotError::Newer { .. }) => return Ok(SlotContents::Newer(newer.to_string())),
        Ok(_) | Err(SlotError::Torn) => return Ok(SlotContents::Nothing),
    };
    let body_blocks = header.body_bytes.div_ceil(BLOCK_BYTES as usize) as u64;
    let (body, _) = read_around(disk, Extent::new(start + 1, body_blocks), 1).await?;
    // Unreadable blocks are zeros here, which the checksum below rejects.
    let body = body.slice(..header.body_bytes.min(body.len()));
    if !header.matches(&body) {
        return Ok(SlotContents::Nothing);
    }
    Ok(match Catalog::parse(&body) {
        Ok(catalog) if catalog.pool == label.pool => SlotContents::Catalog(FoundCatalog {
            slot,
            generation: header.generation,
            checksum: header.body_checksum,
            catalog: Rc::new(catalog),
            body,
        }),
        // Only a newer version writes record types that this one does not know.
        Err(error @ CatalogError::UnknownType(_)) => SlotContents::Newer(error.to_string()),
        Ok(_) | Err(_) => SlotContents::Nothing,
    })
}

/// Wipes `disk` and reserves space for all of its metadata, so that a full file system below never refuses
/// metadata writes.
///
/// *Durability*: when it returns. *Errors*: `NoSpace` with nothing written, and others as of any write.
pub(crate) async fn prepare<D: BlockDevice>(disk: &D) -> Result<Stable, IoError> {
    // Space first: a full file system below is reported before anything is erased.
    reserve(disk).await?;
    wipe(disk).await
}

/// Reserves space for the metadata before and behind the data of a member.
pub(crate) async fn reserve<D: BlockDevice>(disk: &D) -> Result<(), IoError> {
    let blocks = disk.geometry().blocks.0;
    let (head, tail) = (HEAD_AREA.len.0.min(blocks), TAIL_BLOCKS.min(blocks));
    disk.reserve(Extent::new(0, head)).await?;
    disk.reserve(Extent::new(blocks - tail, tail)).await
}

/// Removes labels and owner marks, and foreign signatures at head and tail.
///
/// Label copies are wiped one at a time, and the catalogs last: a power loss leaves a label with all that it
/// refers to, or no label. *Durability*: when it returns.
pub async fn wipe<D: BlockDevice>(disk: &D) -> Result<Stable, IoError> {
    let blocks = disk.geometry().blocks;
    // Any disk can be wiped, also one that is too small for a member.
    let (head, tail) = (blocks.0.min(HEAD_BLOCKS), blocks.0.min(TAIL_BLOCKS));
    let zeros = View::zeroed(bytes(Blocks(head.max(tail))));
    let block = || zeros.slice(..BLOCK_BYTES as usize);
    // Copies 1, 2, 0: until the last one is gone, the disk is recognizable with all of its metadata.
    if HEAD_LABELS[1] < blocks.0 {
        let written = disk.write(Lba(HEAD_LABELS[1]), block()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    let written = disk.write(Lba(blocks.0 - tail), zeros.slice(..bytes(Blocks(tail)))).await?;
    let _: Stable = disk.flush(written).await?;
    let written = disk.write(Lba(0), zeros.slice(..bytes(Blocks(head)))).await?;
    let mut stable = disk.flush(written).await?;
    // An owner that finds a mark of another pool on a member fences itself, so no old mark may be left.
    if OWNER_PLACES.end().0 <= blocks.0 {
        let written = disk.write(OWNER_PLACES.start, zeros.slice(..bytes(OWNER_PLACES.len))).await?;
        stable = disk.flush(written).await?;
    }
    // Zeroing the header block invalidates a slot.
    for start in SLOT_STARTS.into_iter().filter(|&start| start < blocks.0) {
        let written = disk.write(Lba(start), block()).await?;
        stable = disk.flush(written).await?;
    }
    Ok(stable)
}

fn bytes(blocks: Blocks) -> usize {
    usize::try_from(blocks.bytes(BLOCK_BYTES)).expect("an area of a disk fits in memory")
}

/// Writes all copies of `label` to `disk`, each with its flush, copy 0 last.
///
/// *Durability*: when it returns.
pub(crate) async fn write_label<D: BlockDevice>(disk: &D, label: &Label) -> Result<(), IoError> {
    let tail = tail_label(disk.geometry().blocks);
    // Each copy has its own flush, so that a power loss tears one copy at most.
    for (copy, block) in [(1_u8, HEAD_LABELS[1]), (2, tail), (0, HEAD_LABELS[0])] {
        let written: Written = disk.write(Lba(block), Buf::copy_of(&label.emit(copy)).freeze()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    Ok(())
}

/// Rewrites the damaged copies of the label.
///
/// *Durability*: when it returns.
pub(crate) async fn restore_label<D: BlockDevice>(disk: &D, label: &Label, copies: [bool; 3]) -> Result<(), IoError> {
    let places = [HEAD_LABELS[0], HEAD_LABELS[1], tail_label(disk.geometry().blocks)];
    for ((copy, block), _) in (0_u8..).zip(places).zip(copies).filter(|(_, is_whole)| !is_whole) {
        // Flushed one by one, as in `write_label`: a power loss must not tear a second copy.
        let written: Written = disk.write(Lba(block), Buf::copy_of(&label.emit(copy)).freeze()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    Ok(())
}

impl Probe {
    /// Membership of the disk, if it has a label.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        match &self.contents {
            Contents::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Pool and disk UUID, if it has a label.
    #[must_use]
    pub fn identity(&self) -> Option<(Uuid, Uuid)> {
        self.member().map(|member| (member.label.pool, member.label.disk))
    }
}

impl FoundCatalog {
    /// True when it is of this commit (generation and checksum).
    pub(crate) fn is(&self, commit: (u64, u32)) -> bool {
        (self.generation, self.checksum) == commit
    }
}

impl Member {
    /// Newest catalog on the disk.
    #[must_use]
    pub fn newest(&self) -> Option<&FoundCatalog> {
        self.catalogs.first()
    }
}

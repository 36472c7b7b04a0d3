//! Looking at one disk, and making it forget that it was ours.

use crate::catalog::{Catalog, CatalogError};
use crate::label::{Label, NoLabel};
use crate::layout::{
    BLOCK_BYTES, DISK_BYTES_MIN, HEAD_AREA, HEAD_BLOCKS, HEAD_LABELS, OWNER_PLACES, SLOT_STARTS, TAIL_BLOCKS,
    tail_label,
};
use crate::owner::read_marks;
use crate::signature::{HEAD_BYTES, TAIL_BYTES, recognise};
use crate::slot::{Header, NoSlot};
use block::sealed::is_blank;
use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, View, Written, read_around};
use cluster::Claim;
use std::rc::Rc;
use uuid::Uuid;

/// What was found on one disk.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The size of the disk, in blocks of 4096 bytes.
    pub blocks: Blocks,
    /// What is on it.
    pub contents: Contents,
    /// True when its beginning or its end is not all zeros though nothing was recognised: a pool may be made of it, but
    /// somebody may miss what it holds.
    pub has_residue: bool,
}

/// What is on a disk.
#[derive(Clone, Debug)]
pub enum Contents {
    /// Nothing that anybody would miss, as far as we can tell.
    Blank,
    /// Something that is not ours: a file system, a partition table, another product's label.
    Foreign(&'static str),
    /// It is a member of a pool of ours that only a newer version can open.
    Newer {
        /// Which pool.
        pool: Uuid,
        /// What is new about it, and who can open it.
        sentence: String,
    },
    /// A label of ours, no copy of which is whole though it was.
    Damaged,
    /// It is or was a member of a pool of ours.
    Member(Box<Member>),
    /// It cannot be read.
    Unreadable(IoError),
}

/// A disk with a label.
#[derive(Clone, Debug)]
pub struct Member {
    /// What the label says.
    pub label: Label,
    /// Which copies of the label are whole: two at the head, one at the end.
    pub copies: [bool; 3],
    /// What somebody else has written over the head of the disk.
    pub overwritten: Option<&'static str>,
    /// The catalogs of the two slots, where they are whole and belong to this pool and disk; of two commits the newer first.
    pub catalogs: Vec<FoundCatalog>,
    /// Who had the pool last, as this disk tells it.
    pub owner: Option<Claim>,
}

/// A whole catalog in a slot.
#[derive(Clone, Debug)]
pub struct FoundCatalog {
    /// In which of the two slots it lies.
    pub slot: usize,
    /// Which commit it is.
    pub generation: u64,
    /// The checksum of its bytes: with the generation, which commit it is beyond doubt.
    pub checksum: u32,
    /// What it says.
    pub catalog: Rc<Catalog>,
    pub(crate) body: View,
}

/// What lies on `disk`. Nothing is written.
///
/// *Panics*: when the blocks of `disk` are not of 4096 bytes.
pub async fn probe<D: BlockDevice>(disk: &D) -> Probe {
    let geometry = disk.geometry();
    assert_eq!(geometry.block_bytes, BLOCK_BYTES, "members have blocks of 4096 bytes");
    let (contents, has_residue) = match look(disk, geometry.blocks).await {
        Ok(found) => found,
        Err(error) => (Contents::Unreadable(error), false),
    };
    Probe { blocks: geometry.blocks, contents, has_residue }
}

async fn look<D: BlockDevice>(disk: &D, blocks: Blocks) -> Result<(Contents, bool), IoError> {
    let head_blocks = blocks.0.min(HEAD_BYTES as u64 / u64::from(BLOCK_BYTES));
    let tail_blocks = blocks.0.min(TAIL_BYTES as u64 / u64::from(BLOCK_BYTES));
    let (head, head_error) = read_around(disk, Extent::new(0, head_blocks), 1).await?;
    let (tail, tail_error) = read_around(disk, Extent::new(blocks.0 - tail_blocks, tail_blocks), 1).await?;
    let foreign = recognise(&head, &tail);
    if blocks.bytes(BLOCK_BYTES) < DISK_BYTES_MIN {
        return Ok((foreign.map_or(Contents::Blank, Contents::Foreign), false));
    }
    let contents = look_for_label(disk, blocks, foreign).await?;
    // Blocks of a member that cannot be read are written again; of another disk nobody knows what they hold.
    if let (Some(error), Contents::Blank | Contents::Damaged) = (head_error.or(tail_error), &contents) {
        return Err(error);
    }
    // A torn label is what a power cut leaves of one that was being written.
    let is_torn = |block: &[u8]| Label::parse(block) == Err(NoLabel::Damaged);
    let mut all = head.chunks(BLOCK_BYTES as usize).chain(tail.chunks(BLOCK_BYTES as usize));
    let has_residue = matches!(contents, Contents::Blank) && all.any(|block| !is_blank(block) && !is_torn(block));
    Ok((contents, has_residue))
}

async fn look_for_label<D: BlockDevice>(
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
    for copy in &copies {
        if let Err(newer @ NoLabel::Newer { pool, .. }) = copy {
            return Ok(Contents::Newer { pool: *pool, sentence: newer.to_string() });
        }
    }
    let Some(label) = copies.iter().find_map(|copy| copy.as_ref().ok()).cloned() else {
        if let Some(error) = first_error.or(second_error).or(last_error).filter(|_| foreign.is_none()) {
            return Err(error);
        }
        return Ok(foreign.map_or(without_label(&copies, &found), Contents::Foreign));
    };
    let copies = copies.map(|copy| copy.as_ref() == Ok(&label));
    let mut catalogs = Vec::with_capacity(2);
    for slot in 0..SLOT_STARTS.len() {
        match read_slot(disk, slot, &label).await? {
            SlotContents::Catalog(catalog) => catalogs.push(catalog),
            SlotContents::Newer(sentence) => return Ok(Contents::Newer { pool: label.pool, sentence }),
            SlotContents::Nothing => {}
        }
    }
    catalogs.sort_by_key(|found| std::cmp::Reverse(found.generation));
    // Where no mark can be read, the other members have theirs.
    let owner = read_marks(disk, label.pool, label.disk).await.ok();
    let owner = owner.and_then(|marks| marks.into_iter().max_by_key(Claim::age));
    Ok(Contents::Member(Box::new(Member { label, copies, overwritten: foreign, catalogs, owner })))
}

/// What a disk is on which no copy of a label is whole.
///
/// Copies are written and wiped one at a time, and a member is used only when it has all three. So one torn
/// copy between zeros is what a power cut leaves of a disk that was becoming a member, or had stopped
/// being one: nobody has anything to lose on it.
fn without_label(copies: &[Result<Label, NoLabel>], blocks: &[View]) -> Contents {
    let torn = copies.iter().filter(|copy| **copy == Err(NoLabel::Damaged)).count();
    let zero = blocks.iter().filter(|block| is_blank(block)).count();
    if torn == 0 || (torn == 1 && zero == copies.len() - 1) { Contents::Blank } else { Contents::Damaged }
}

/// A block of which there are copies, as [`read_around`] has it.
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
        Ok(header) if header.pool == label.pool && header.disk == label.disk => header,
        Err(newer @ NoSlot::Newer { .. }) => return Ok(SlotContents::Newer(newer.to_string())),
        Ok(_) | Err(NoSlot::Torn) => return Ok(SlotContents::Nothing),
    };
    let body_blocks = header.body_bytes.div_ceil(BLOCK_BYTES as usize) as u64;
    let (body, _) = read_around(disk, Extent::new(start + 1, body_blocks), 1).await?;
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
        Err(error @ CatalogError::UnknownType(_)) => SlotContents::Newer(error.to_string()),
        Ok(_) | Err(_) => SlotContents::Nothing,
    })
}

/// `disk` is blank, and there is space for all metadata that it will have: a full file system below it never refuses that.
///
/// *Durability*: when it returns. *Errors*: `NoSpace` with nothing written, and others as of any write.
pub(crate) async fn prepare<D: BlockDevice>(disk: &D) -> Result<Stable, IoError> {
    reserve(disk).await?;
    wipe(disk).await
}

/// There is space for all metadata before and behind the data of a member.
pub(crate) async fn reserve<D: BlockDevice>(disk: &D) -> Result<(), IoError> {
    let blocks = disk.geometry().blocks.0;
    let (head, tail) = (HEAD_AREA.len.0.min(blocks), TAIL_BLOCKS.min(blocks));
    disk.reserve(Extent::new(0, head)).await?;
    disk.reserve(Extent::new(blocks - tail, tail)).await
}

/// `disk` bears no label and no owner's mark of ours, and nothing of others where we look for it.
///
/// One copy of the label at a time, and the catalogs last: a power cut leaves a label with all that it
/// stands for, or no label. *Durability*: when it returns.
pub async fn wipe<D: BlockDevice>(disk: &D) -> Result<Stable, IoError> {
    let blocks = disk.geometry().blocks;
    let (head, tail) = (blocks.0.min(HEAD_BLOCKS), blocks.0.min(TAIL_BLOCKS));
    let zeros = View::zeroed(bytes(Blocks(head.max(tail))));
    let block = || zeros.slice(..BLOCK_BYTES as usize);
    if HEAD_LABELS[1] < blocks.0 {
        let written = disk.write(Lba(HEAD_LABELS[1]), block()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    let written = disk.write(Lba(blocks.0 - tail), zeros.slice(..bytes(Blocks(tail)))).await?;
    let _: Stable = disk.flush(written).await?;
    let written = disk.write(Lba(0), zeros.slice(..bytes(Blocks(head)))).await?;
    let mut stable = disk.flush(written).await?;
    // An owner who finds a mark of another pool on a member stops using it.
    if OWNER_PLACES.end().0 <= blocks.0 {
        let written = disk.write(OWNER_PLACES.start, zeros.slice(..bytes(OWNER_PLACES.len))).await?;
        stable = disk.flush(written).await?;
    }
    for start in SLOT_STARTS.into_iter().filter(|&start| start < blocks.0) {
        let written = disk.write(Lba(start), block()).await?;
        stable = disk.flush(written).await?;
    }
    Ok(stable)
}

fn bytes(blocks: Blocks) -> usize {
    usize::try_from(blocks.bytes(BLOCK_BYTES)).expect("an area of a disk fits in memory")
}

/// All copies of `label` are on `disk`, the first one last: never two copies that were written over in one flush.
///
/// *Durability*: when it returns.
pub(crate) async fn write_label<D: BlockDevice>(disk: &D, label: &Label) -> Result<(), IoError> {
    let tail = tail_label(disk.geometry().blocks);
    for (copy, block) in [(1_u8, HEAD_LABELS[1]), (2, tail), (0, HEAD_LABELS[0])] {
        let written: Written = disk.write(Lba(block), Buf::copy_of(&label.emit(copy)).freeze()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    Ok(())
}

/// The copies of the label that are not whole are written again.
///
/// *Durability*: when it returns.
pub(crate) async fn restore_label<D: BlockDevice>(disk: &D, label: &Label, copies: [bool; 3]) -> Result<(), IoError> {
    let places = [HEAD_LABELS[0], HEAD_LABELS[1], tail_label(disk.geometry().blocks)];
    for ((copy, block), _) in (0_u8..).zip(places).zip(copies).filter(|(_, is_whole)| !is_whole) {
        let written: Written = disk.write(Lba(block), Buf::copy_of(&label.emit(copy)).freeze()).await?;
        let _: Stable = disk.flush(written).await?;
    }
    Ok(())
}

impl Probe {
    /// The disk's label, when it is ours.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        match &self.contents {
            Contents::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Which pool and disk it is, when it is ours.
    #[must_use]
    pub fn identity(&self) -> Option<(Uuid, Uuid)> {
        self.member().map(|member| (member.label.pool, member.label.disk))
    }
}

impl FoundCatalog {
    /// True when it is of this commit, which its generation and its checksum name.
    pub(crate) fn is(&self, commit: (u64, u32)) -> bool {
        (self.generation, self.checksum) == commit
    }
}

impl Member {
    /// The newest catalog on the disk.
    #[must_use]
    pub fn newest(&self) -> Option<&FoundCatalog> {
        self.catalogs.first()
    }
}

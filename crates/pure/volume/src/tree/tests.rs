use super::*;
use crate::tests::disk::block_on;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Pages in memory, with a record of which the newest tree contains.
#[derive(Default)]
struct Memory {
    pages: RefCell<BTreeMap<u64, Page>>,
    given_up: RefCell<BTreeSet<u64>>,
    stored: RefCell<u64>,
}

impl Pages for Memory {
    type Error = Damage;

    async fn load(&self, number: u64) -> Result<Page, Damage> {
        let page = self.pages.borrow().get(&number).cloned().ok_or(Damage("no such page"))?;
        Ok(parse_page(page.bytes().clone(), [7; 16], 1, number)?.0)
    }

    async fn store(&self, level: u8, entries: &[(Key, u64)]) -> Result<u64, Damage> {
        let number = self.stored.borrow().to_owned() + 1;
        *self.stored.borrow_mut() = number;
        let identity = PageIdentity { family: [7; 16], birth: 1, number, generation: 1 };
        self.pages.borrow_mut().insert(number, Page::emit(identity, level, entries));
        Ok(number)
    }

    fn release(&self, number: u64) {
        assert!(self.given_up.borrow_mut().insert(number), "page {number} is given up twice");
    }
}

impl Memory {
    /// Drops the pages that the newest tree does not contain.
    fn collect(&self) {
        for number in self.given_up.take() {
            assert!(self.pages.borrow_mut().remove(&number).is_some());
        }
    }
}

/// Entries of a tree and its pages, with a check that each page is full enough.
fn walk(pages: &Memory, number: u64, level: u8, fanout: usize, top: bool, seen: &mut BTreeSet<u64>) -> Vec<(Key, u64)> {
    let page = block_on(pages.load(number)).unwrap();
    assert!(seen.insert(number), "a page is in the tree twice");
    assert_eq!(page.level(), level);
    assert!(top || page.len() >= (fanout / 3).max(2), "{} entries at level {level}", page.len());
    assert!(page.len() <= fanout && (level == 0 || !top || page.len() > 1));
    if level == 0 {
        return page.iter().collect();
    }
    let below = |(first, value)| {
        let (child, count) = child_of(value);
        assert_eq!(block_on(pages.load(child)).unwrap().len(), count);
        let entries = walk(pages, child, level - 1, fanout, false, seen);
        assert_eq!(entries[0].0, first);
        entries
    };
    page.iter().flat_map(below).collect()
}

fn key(number: u16) -> Key {
    Key::version(u32::from(number % 3), u32::from(number / 3), 5)
}

fn change(kind: u8, value: u8) -> Change {
    match kind {
        0..=3 => Change::Put(u64::from(value)),
        4 => Change::Mask { set: u64::from(value), clear: 0 },
        5 => Change::Mask { set: 0, clear: u64::from(value) },
        _ => Change::Remove,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn tree_holds_what_a_plain_map_would(
        fanout in 6usize..14,
        batches in prop::collection::vec(
            (prop::collection::vec((0u16..400, 0u8..12, any::<u8>()), 0..160), any::<bool>(), 0u16..400), 1..10,
        ),
    ) {
        let pages = Memory::default();
        let (mut root, mut plain) = (None, BTreeMap::new());
        for (batch, sweep, from) in batches {
            let mut changes: BTreeMap<Key, Change> =
                batch.into_iter().map(|(number, kind, value)| (key(number), change(kind, value))).collect();
            if sweep {
                changes.extend((from..from + 200).filter(|number| number % 17 != 0).map(|n| (key(n), Change::Remove)));
            }
            let before = plain.len() as i64;
            for (&key, &change) in &changes {
                match change.of(plain.get(&key).copied()) {
                    Some(value) => plain.insert(key, value),
                    None => plain.remove(&key),
                };
            }
            let (next, grown) = block_on(apply(&pages, fanout, root, &changes)).unwrap();
            root = next;
            pages.collect();
            prop_assert_eq!(grown, plain.len() as i64 - before);
            let mut seen = BTreeSet::new();
            let entries = root.map_or(Vec::new(), |root| walk(&pages, root.page, root.level, fanout, true, &mut seen));
            prop_assert_eq!(&entries, &plain.iter().map(|(&key, &value)| (key, value)).collect::<Vec<_>>());
            let kept: BTreeSet<u64> = pages.pages.borrow().keys().copied().collect();
            prop_assert_eq!(&kept, &seen, "no page is lost, none is kept in vain");
            prop_assert!(seen.len() as u64 <= pages_max(plain.len() as u64, fanout));
        }
        for number in 0..410 {
            let found = block_on(last_at_most(&pages, root, key(number))).unwrap();
            prop_assert_eq!(found, plain.range(..=key(number)).next_back().map(|(&key, &value)| (key, value)));
            let leaf = block_on(leaf_at(&pages, root, key(number))).unwrap();
            if let Some((leaf, next)) = leaf {
                let here = leaf.iter().find(|(at, _)| *at == key(number)).map(|(_, value)| value);
                prop_assert_eq!(here, plain.get(&key(number)).copied());
                let last = leaf.entry(leaf.len() - 1).0;
                prop_assert_eq!(next, plain.range(last.next()..).next().map(|(&key, _)| key));
            }
        }
    }

    #[test]
    fn page_with_any_byte_changed_is_damaged(at in 0usize..4096, bit in 0u32..8) {
        let identity = PageIdentity { family: [7; 16], birth: 3, number: 12, generation: 4 };
        let page = Page::emit(identity, 1, &[(key(1), 5), (key(7), 6)]);
        let mut bytes = page.bytes().to_vec();
        prop_assert!(parse_page(block::Buf::copy_of(&bytes).freeze(), [7; 16], 3, 12).is_ok());
        bytes[at] ^= 1 << bit;
        prop_assert!(parse_page(block::Buf::copy_of(&bytes).freeze(), [7; 16], 3, 12).is_err());
    }
}

#[test]
fn page_of_another_family_time_or_place_is_refused() {
    let identity = PageIdentity { family: [7; 16], birth: 3, number: 12, generation: 4 };
    let page = Page::emit(identity, 0, &[(key(1), 5)]);
    let parse = |family: u8, birth, number| parse_page(page.bytes().clone(), [family; 16], birth, number).is_ok();
    assert!(parse(7, 3, 12) && !parse(8, 3, 12) && !parse(7, 4, 12) && !parse(7, 3, 13));
}

#[test]
fn keys_are_ordered_by_branch_granule_and_epoch() {
    let version = Key::version(3, 9, 4);
    assert!(version < Key::version(3, 9, 5) && version < Key::version(3, 10, 0) && version < Key::version(4, 0, 0));
    assert_eq!((version.tag(), version.branch(), version.middle(), version.low()), (Some(Tag::Version), 3, 9, 4));
    let place = GranuleAddress::new(GranuleAddress::slab_number(63, 0xff_fffe), 0xff_ffff);
    assert_eq!((place.group(), place.slab(), place.index()), (63, 63 << 24 | 0xff_fffe, 0xff_ffff));
    assert!(place.is_data() && place.0 < GranuleAddress::HOLE.0);
}

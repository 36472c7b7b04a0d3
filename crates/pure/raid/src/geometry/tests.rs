use super::*;
use crate::geometry::set::MemberSet;
use crate::geometry::{Layout, Role, StripePosition, capacity};
use crate::level::Level;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn layout(level: Level, members: usize) -> Layout {
    Layout::new(level, members, 4096, Blocks(1000)).expect("a valid shape")
}

/// Members' chunks of the first stripes, as docs/raid.md draws them.
fn drawn(level: Level, members: u16, stripes: u64) -> Vec<String> {
    let layout = layout(level, usize::from(members));
    let cell = |stripe, member| match layout.role_of(stripe, member) {
        Role::P => "P".to_owned(),
        Role::Q => "Q".to_owned(),
        Role::Data { column, .. } => layout.lba_of(StripePosition { stripe, column, row: 0 }).0.to_string(),
    };
    (0..stripes).map(|stripe| (0..members).map(|m| cell(stripe, m)).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn layout_rotates_as_the_left_symmetric_one_of_md() {
    assert_eq!(drawn(Level::Raid0, 3, 2), ["0 1 2", "3 4 5"]);
    assert_eq!(drawn(Level::Raid1, 3, 2), ["0 0 0", "1 1 1"]);
    assert_eq!(drawn(Level::Raid5, 4, 5), ["0 1 2 P", "4 5 P 3", "8 P 6 7", "P 9 10 11", "12 13 14 P"]);
    assert_eq!(drawn(Level::Raid6, 5, 5), ["Q 0 1 2 P", "3 4 5 P Q", "7 8 P Q 6", "11 P Q 9 10", "P Q 12 13 14"]);
    assert_eq!(drawn(Level::Raid10, 4, 2), ["0 0 1 1", "2 2 3 3"]);
}

#[test]
fn layout_rejects_invalid_shapes_with_a_sentence() {
    let text = |level, members, chunk, blocks| match Layout::new(level, members, chunk, Blocks(blocks)) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(text(Level::Raid0, 0, 4096, 9), "RAID-0 needs at least 1 members, not 0");
    assert_eq!(text(Level::Raid1, 1, 4096, 9), "RAID-1 needs at least 2 members, not 1");
    assert_eq!(text(Level::Raid5, 2, 4096, 9), "RAID-5 needs at least 3 members, not 2");
    assert_eq!(text(Level::Raid6, 3, 4096, 9), "RAID-6 needs at least 4 members, not 3");
    assert_eq!(text(Level::Raid10, 2, 4096, 9), "RAID-10 needs at least 4 members, not 2");
    assert_eq!(text(Level::Raid10, 5, 4096, 9), "RAID-10 needs an even number of members, not 5");
    assert_eq!(text(Level::Raid0, 65, 4096, 9), "an array has at most 64 members, not 65");
    for (chunk, said) in [(0, "0 bytes"), (2048, "2 KiB"), (12288, "12 KiB"), (4097, "4.1 KiB"), (2 << 20, "2 MiB")] {
        let sentence = format!("a chunk is a power of two from 4 KiB to 1 MiB, not {said}");
        assert_eq!(text(Level::Raid5, 3, chunk, 900), sentence);
    }
    let sentence = "the smallest member has 60 KiB; it must hold at least one chunk of 64 KiB";
    assert_eq!(text(Level::Raid5, 3, 65536, 15), sentence);
    assert_eq!(text(Level::Raid5, 3, 65536, 16), "accepted");
}

#[test]
fn capacity_is_of_whole_stripes_of_the_smallest_member() {
    assert_eq!(capacity(Level::Raid6, 6, 65536, Blocks(100)), Ok(Blocks(4 * 96)));
    assert_eq!(capacity(Level::Raid1, 3, 65536, Blocks(100)), Ok(Blocks(96)));
    assert_eq!(capacity(Level::Raid10, 6, 65536, Blocks(100)), Ok(Blocks(3 * 96)));
    assert_eq!(capacity(Level::Raid5, 3, 65536, Blocks(100)), Ok(Blocks(2 * 96)));
}

#[test]
fn survives_counts_members_or_pairs() {
    let lost = |members: &[u16]| members.iter().copied().collect::<MemberSet>();
    assert!(!layout(Level::Raid0, 3).survives(lost(&[1])));
    assert!(layout(Level::Raid1, 3).survives(lost(&[0, 2])) && !layout(Level::Raid1, 3).survives(lost(&[0, 1, 2])));
    assert!(layout(Level::Raid5, 3).survives(lost(&[1])) && !layout(Level::Raid5, 3).survives(lost(&[0, 1])));
    assert!(layout(Level::Raid6, 4).survives(lost(&[1, 3])) && !layout(Level::Raid6, 4).survives(lost(&[0, 1, 2])));
    assert!(layout(Level::Raid10, 6).survives(lost(&[0, 3, 4])) && !layout(Level::Raid10, 6).survives(lost(&[2, 3])));
}

fn any_layout() -> impl Strategy<Value = Layout> {
    (prop::sample::select(&Level::ALL[..]), 2usize..9, 0u32..4, 1u64..40).prop_map(|(level, half, chunk, stripes)| {
        let members = if level == Level::Raid1 { half } else { half * 2 };
        Layout::new(level, members, 4096 << chunk, Blocks(stripes << chunk)).expect("a valid shape")
    })
}

proptest! {
    #[test]
    fn locate_is_a_bijection_between_blocks_and_places(layout in any_layout()) {
        let mut seen = BTreeSet::new();
        for lba in (0..layout.blocks().0).map(Lba) {
            let place = layout.locate(lba);
            prop_assert_eq!(layout.lba_of(place), lba);
            prop_assert!(place.stripe < layout.stripes() && place.row < layout.chunk_blocks());
            prop_assert!(place.column < layout.columns());
            prop_assert!(seen.insert((place.stripe, place.column, place.row)));
        }
    }

    #[test]
    fn members_and_roles_of_a_stripe_are_a_bijection(layout in any_layout(), stripe in 0u64..1 << 40) {
        let mut roles: Vec<Role> = (0..layout.columns())
            .flat_map(|column| (0..layout.copies()).map(move |copy| Role::Data { column, copy }))
            .collect();
        roles.extend([Role::P, Role::Q].into_iter().take(usize::from(layout.level().parities())));
        prop_assert_eq!(roles.len(), usize::from(layout.members()));
        let members: BTreeSet<u16> = roles.iter().map(|&role| layout.member_of(stripe, role)).collect();
        prop_assert_eq!(members, (0..layout.members()).collect::<BTreeSet<_>>());
        for role in roles {
            prop_assert_eq!(layout.role_of(stripe, layout.member_of(stripe, role)), role);
        }
    }

    #[test]
    fn pieces_and_spans_cover_the_extent_once_in_order(layout in any_layout(), a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (a % layout.blocks().0, b % layout.blocks().0);
        let extent = Extent::new(a.min(b), a.abs_diff(b));
        let mut at = 0;
        for piece in layout.pieces(extent) {
            prop_assert_eq!(piece.at, at);
            prop_assert_eq!(layout.lba_of(piece.position), Lba(extent.start.0 + at));
            prop_assert!(layout.columns() == 1 || piece.position.row + piece.blocks <= layout.chunk_blocks());
            at += piece.blocks;
        }
        prop_assert_eq!(at, extent.len.0);
        let mut at = 0;
        for span in layout.spans(extent) {
            prop_assert_eq!((span.at, span.extent.start), (at, Lba(extent.start.0 + at)));
            prop_assert_eq!(span.stripes.start, layout.locate(span.extent.start).stripe);
            prop_assert_eq!(span.stripes.end, layout.locate(Lba(span.extent.end().0 - 1)).stripe + 1);
            at += span.extent.len.0;
        }
        prop_assert_eq!(at, extent.len.0);
    }
}

use super::*;
use crate::catalog::Column;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SLAB_BLOCKS: [u32; 3] = [64, 96, 100];

fn segment(first_slab: u32, rows: u32, rounds: u32, columns: &[(u16, u32)]) -> Segment {
    let column = |&(group, unit_blocks)| Column { group, first_slab, unit_blocks };
    let slabs = rows * columns.len() as u32;
    let columns = columns.iter().map(column).collect();
    Segment { rows, rounds, columns, initialised: SlabSet::none(slabs) }
}

fn example() -> Vec<Segment> {
    vec![
        segment(0, 3, 4, &[(0, 16), (1, 24), (2, 25)]),
        segment(7, 2, 1, &[(1, 96)]),
        segment(20, 1, 8, &[(2, 12), (0, 8)]),
    ]
}

/// Reference model of the map: block by block.
fn explain(segments: &[Segment]) -> Vec<(u16, u64)> {
    let mut blocks = Vec::new();
    for segment in segments {
        for row in 0..segment.rows {
            for round in 0..segment.rounds {
                for column in &segment.columns {
                    let slab = u64::from(column.first_slab + row) * u64::from(SLAB_BLOCKS[usize::from(column.group)]);
                    let turn = slab + u64::from(round) * u64::from(column.unit_blocks);
                    blocks.extend((turn..turn + u64::from(column.unit_blocks)).map(|block| (column.group, block)));
                }
            }
        }
    }
    blocks
}

#[test]
fn map_locates_every_block_where_its_explanation_says() {
    let segments = example();
    let explained = explain(&segments);
    let map = Map::of(&segments, &SLAB_BLOCKS);
    for (lba, &(group, block)) in explained.iter().enumerate() {
        let piece = map.locate(lba as u64, 1000);
        assert_eq!((piece.group, piece.extent.start.0), (group, block), "block {lba}");
        let (slab_group, slab) = map.slab(piece.slab);
        assert!(slab_group == group && slab.contains(piece.extent), "block {lba} lies outside its slab");
    }
    let distinct: BTreeSet<_> = explained.iter().collect();
    assert_eq!(distinct.len(), explained.len(), "two blocks of a volume lie in one place");
}

proptest! {
    #[test]
    fn map_pieces_are_an_extent_without_gaps(start in 0u64..900, len in 0u64..900) {
        let segments = example();
        let explained = explain(&segments);
        let len = len.min(explained.len() as u64 - start);
        let map = Map::of(&segments, &SLAB_BLOCKS);
        let listed: Vec<_> = map
            .pieces(Extent::new(start, len))
            .flat_map(|piece| (piece.extent.start.0..piece.extent.end().0).map(move |block| (piece.group, block)))
            .collect();
        prop_assert_eq!(&listed[..], &explained[start as usize..(start + len) as usize]);
    }
}

#[test]
fn map_that_grows_keeps_what_is_initialised_and_takes_nothing_from_the_catalog() {
    let mut segments = vec![segment(0, 2, 4, &[(0, 16)])];
    let mut map = Map::of(&segments, &SLAB_BLOCKS);
    map.set_initialised(SlabId { segment: 0, slab: 1 });
    segments[0].rows = 3;
    segments[0].initialised.extend_to(3);
    segments[0].initialised.insert(2);
    segments.push(segment(9, 1, 1, &[(1, 96)]));
    map.grow(&segments, &SLAB_BLOCKS);
    let initialised = [0, 64, 128, 192].map(|lba| map.locate(lba, 1).initialised);
    assert_eq!(initialised, [false, true, false, false], "what is not committed is not initialised");
    assert_eq!(map.initialised(), (1, 4));
    assert_eq!(map.groups()[..], [0, 1]);
}

use super::*;
use crate::catalog::{BranchRecord, DeadRange, LOCKED_PERMANENTLY, Parent, SlabRun, SnapshotRecord, VOLUME_BYTES_MAX};
use crate::catalog::{CopyRecord, LogState, LostRecord, ScrubPhase, ScrubPosition, ScrubRecord};
use crate::crypt::{KeyId, WrappedKey};
use crate::label::{ENCRYPTED, FAMILIES};
use block::Extent;
use proptest::prelude::*;

/// Catalog in which every kind of record occurs.
pub(crate) fn rich() -> Catalog {
    let id = Uuid::from_u128;
    let states = [
        MemberState::InService,
        MemberState::Rebuilding { front: Blocks(12_345) },
        MemberState::Failed,
        MemberState::Missing,
    ];
    let group = |number: u128, clean| GroupRecord {
        id: id(50 + number),
        role: GroupRole::Data,
        level: 6,
        clean,
        protected: false,
        chunk_bytes: 65536,
        member_blocks: Blocks(1 << 20),
        slab_blocks: 4112,
        slabs: 200,
        members: states
            .iter()
            .zip(0..)
            .map(|(&state, place)| MemberRecord { disk: id(100 + number * 10 + place), state, since: 7 })
            .collect(),
    };
    let mut scattered = SlabSet::none(140);
    (0..140).step_by(2).for_each(|slab| scattered.insert(slab));
    let mut head = SlabSet::none(3);
    head.insert(0);
    let column = |group, first_slab| Column { group, first_slab, unit_blocks: 514 };
    let segments = vec![
        Segment { rows: 70, rounds: 8, columns: vec![column(0, 10), column(1, 0)], initialised: scattered },
        Segment { rows: 3, rounds: 8, columns: vec![column(1, 100)], initialised: head },
    ];
    let volume = |number: u128, name: &str, segments: Vec<Segment>| VolumeRecord {
        id: id(1000 + number),
        name: name.into(),
        size_bytes: 512 * 4097,
        block_bytes: 512,
        stripe_unit_bytes: 0,
        created_at: 1_700_000_000,
        segments,
    };
    let small = Segment { rows: 1, rounds: 1, columns: vec![column(0, 199)], initialised: SlabSet::none(1) };
    let small = VolumeRecord { size_bytes: 4096, ..volume(2, "b", vec![small]) };
    Catalog {
        pool: id(1),
        name: "tank".into(),
        phase: PoolPhase::Live,
        owner_epoch: 3,
        slab_bytes: 16 << 20,
        groups: vec![
            group(0, true),
            group(1, false),
            GroupRecord { role: GroupRole::Log, slabs: 0, ..group(2, false) },
            GroupRecord { role: GroupRole::Removed, slabs: 0, members: Vec::new(), ..group(3, true) },
        ],
        volumes: vec![volume(1, "a", segments), small],
        families: vec![family()],
        log: Some(LogRecord { group: 2, id: id(77), state: LogState::Abandoned, volumes: vec![id(1001), id(2000)] }),
        reservations: [(id(1001), vec![1; 13]), (id(1002), vec![2; 400])].into(),
        lost: [(0, LostRecord { runs: vec![Extent::new(7, 2), Extent::new(9, 1), Extent::new(400, 64)], more: 3 })]
            .into(),
        copies: BTreeMap::new(),
        scrub: Some(scrub()),
        written: Some(7),
    }
}

fn copy(source: &str) -> CopyRecord {
    let (source_pool, snapshot) = (Uuid::from_u128(5), Uuid::from_u128(6));
    CopyRecord {
        source_pool,
        snapshot,
        made: true,
        source: source.into(),
        next: Blocks(1 << 33),
        copied_bytes: 1 << 40,
    }
}

fn scrub() -> ScrubRecord {
    ScrubRecord {
        phase: ScrubPhase::Running,
        started: 1_700_000_003,
        ended: 0,
        repairs: true,
        at: ScrubPosition { group: 1, stripe: 1 << 33, stripe_bytes: 1 << 18 },
        checked_bytes: 1 << 40,
        mismatches: 1,
        unreadable: 2,
        healed: 3,
    }
}

/// Volume with snapshots, a roll-back and a clone.
fn family() -> FamilyRecord {
    let id = Uuid::from_u128;
    let snapshot = |number: u128, epoch| SnapshotRecord {
        id: id(3000 + number),
        name: format!("daily {number}"),
        epoch,
        size_bytes: 1 << 30,
        mapped: 77,
        created_at: 1_700_000_002,
        locked_until: LOCKED_PERMANENTLY,
        set: id(9),
    };
    let branch = |number: u32| BranchRecord {
        id: id(2000 + u128::from(number)),
        name: format!("thin {number}"),
        number,
        size_bytes: 1 << 30,
        block_bytes: 512,
        thick: number == 0,
        zero_detection: number == 1,
        deleting: false,
        partial: false,
        created_at: 1_700_000_001,
        epoch: 9,
        mapped: 80,
        cleaning: 3,
        parent: None,
        dead: vec![DeadRange { after: 2, last: 6 }],
        snapshots: vec![snapshot(u128::from(number) * 10, 2), snapshot(u128::from(number) * 10 + 1, 7)],
    };
    FamilyRecord {
        id: id(2000),
        birth: 12,
        granule_bytes: 64 << 10,
        log_blocks: 1024,
        formatted: true,
        branches_made: 3,
        meta: vec![SlabRun { group: 1, first: 110, slabs: 1 }],
        data: vec![SlabRun { group: 0, first: 100, slabs: 10 }, SlabRun { group: 1, first: 120, slabs: 5 }],
        key: Some(WrappedKey { wrapped_with: KeyId([3; 8]), nonce: [4; 24], sealed: [5; 80] }),
        branches: vec![branch(0), BranchRecord { parent: Some(Parent { branch: 0, epoch: 7 }), ..branch(2) }],
    }
}

#[test]
fn catalog_parses_to_what_was_emitted() {
    let catalog = rich();
    let bytes = catalog.emit();
    assert_eq!(Catalog::parse(&bytes), Ok(catalog.clone()));
    assert!(bytes.len() <= catalog.emitted_bytes_max());
}

/// Regression: the depth of a clone was counted before the check that its origins form no circle, without an end.
#[test]
fn catalog_whose_clones_form_a_circle_is_refused() {
    let mut catalog = rich();
    let [first, origin] = &catalog.families[0].branches[..] else { panic!("two volumes") };
    let mut other = BranchRecord { id: Uuid::from_u128(2001), number: 1, name: "thin 1".to_owned(), ..origin.clone() };
    other.parent = Some(Parent { branch: 2, epoch: 7 });
    (0..).zip(&mut other.snapshots).for_each(|(at, snapshot)| snapshot.id = Uuid::from_u128(7000 + at));
    let origin = BranchRecord { parent: Some(Parent { branch: 1, epoch: 7 }), ..origin.clone() };
    catalog.families[0].branches = vec![first.clone(), origin, other];
    assert!(Catalog::parse(&catalog.emit()).is_err());
}

#[test]
fn catalog_cut_short_anywhere_is_refused() {
    let catalog = rich();
    let bytes = catalog.emit();
    for len in 0..bytes.len() {
        // Cut between two records, the catalog is valid and lacks what follows.
        let parsed = Catalog::parse(&bytes[..len]);
        assert!(parsed.is_err() || parsed.is_ok_and(|less| less != catalog && len % 8 == 0), "{len} bytes");
    }
}

#[test]
fn catalog_record_of_an_unknown_type_is_refused_unless_it_says_that_it_may_be_passed_over() {
    let mut bytes = rich().emit();
    let good = bytes.len();
    put(&mut bytes, &RecordHeader { kind: 77.into(), flags: FLAG_SKIPPABLE.into(), payload_bytes: 3.into() });
    bytes.extend([1, 2, 3, 0, 0, 0, 0, 0]);
    assert_eq!(Catalog::parse(&bytes), Ok(rich()));
    bytes[good + 2] = 0;
    assert_eq!(Catalog::parse(&bytes), Err(CatalogError::UnknownType(77)));
}

#[test]
fn catalog_asks_for_no_newer_program_than_it_needs() {
    let mut catalog = rich();
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | LOGS | RESERVATIONS | ENCRYPTED);
    catalog.families[0].key = None;
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | LOGS | RESERVATIONS);
    assert_eq!(Catalog::parse(&catalog.emit()), Ok(catalog.clone()));
    catalog.reservations.clear();
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | LOGS);
    catalog.log = None;
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | LOGS, "a group for a log is there");
    catalog.groups.remove(2);
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | LOGS, "a group was removed");
    catalog.groups.truncate(2);
    assert_eq!(needed_by(&catalog.emit()), FAMILIES);
    catalog.families[0].branches[1].partial = true;
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | crate::label::PARTIAL);
    let (copied, whole) = (catalog.families[0].branches[1].id, catalog.families[0].branches[0].id);
    catalog.copies.insert(copied, copy("tank/b@daily 3"));
    assert_eq!(Catalog::parse(&catalog.emit()), Ok(catalog.clone()));
    assert!(catalog.emit().len() <= catalog.emitted_bytes_max());
    catalog.copies.insert(whole, copy("a copy to a volume that is whole"));
    let parsed = Catalog::parse(&catalog.emit()).unwrap();
    assert_eq!(parsed.copies.into_keys().collect::<Vec<_>>(), [copied]);
    catalog.copies.clear();
    catalog.families[0].branches[1].partial = false;
    catalog.groups[1].protected = true;
    assert_eq!(needed_by(&catalog.emit()), FAMILIES | PROTECTED);
    assert_eq!(Catalog::parse(&catalog.emit()), Ok(catalog.clone()));
    catalog.groups[1].protected = false;
    catalog.families.clear();
    assert_eq!(needed_by(&catalog.emit()), 0);
}

#[test]
fn catalog_with_a_log_that_contradicts_it_is_refused() {
    let refused = |change: fn(&mut Catalog)| {
        let mut catalog = rich();
        change(&mut catalog);
        assert!(Catalog::parse(&catalog.emit()).is_err());
    };
    refused(|catalog| catalog.log.as_mut().unwrap().group = 1);
    refused(|catalog| catalog.log.as_mut().unwrap().volumes.push(Uuid::from_u128(1001)));
    refused(|catalog| catalog.groups[1].role = GroupRole::Log);
    refused(|catalog| catalog.groups[2].slabs = 1);
    refused(|catalog| catalog.groups[3].role = GroupRole::Data);
    refused(|catalog| catalog.groups[2].role = GroupRole::Removed);
}

#[test]
fn catalog_keeps_reservations_of_volumes_that_are_there_alone() {
    let mut catalog = rich();
    let whole = catalog.clone();
    catalog.reservations.insert(Uuid::from_u128(5), vec![5]);
    catalog.reservations.insert(Uuid::from_u128(2000), vec![6]);
    catalog.families[0].branches[0].deleting = true;
    let read = Catalog::parse(&catalog.emit()).map(|catalog| catalog.reservations);
    assert_eq!(read, Ok(whole.reservations.clone()), "one is not there, and one is being deleted");
    let mut record = Vec::new();
    super::super::reservations::emit(Uuid::from_u128(0x0102), &[7, 8, 9], &mut record);
    let volume = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    let expected = [&[8, 0, 0, 0, 27, 0, 0, 0][..], &volume, &[3, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9, 0, 0, 0, 0, 0]];
    assert_eq!(record, expected.concat(), "type 8 for ever");
    // Content that only another program can have written.
    let mut twice = whole.emit();
    super::super::reservations::emit(Uuid::from_u128(1001), &[1], &mut twice);
    let reserved = |bytes: &[u8], volume| {
        Catalog::parse(bytes).map(|found| found.reservations.get(&Uuid::from_u128(volume)).cloned())
    };
    assert_eq!(reserved(&twice, 1001), Ok(Some(vec![0xff])), "nobody knows which is right: that volume does not serve");
    let mut stranger = whole.emit();
    super::super::reservations::emit(Uuid::from_u128(5), &[1], &mut stranger);
    assert_eq!(Catalog::parse(&stranger), Ok(whole.clone()), "kept for nobody");
    // Wrong length inside a record of the right length.
    let mut wrong = Catalog { reservations: Default::default(), ..whole.clone() }.emit();
    let at = wrong.len() + 24;
    super::super::reservations::emit(Uuid::from_u128(1001), &[1; 8], &mut wrong);
    for length in [0, 3, 9, 200] {
        wrong[at] = length;
        assert_eq!(reserved(&wrong, 1001), Ok(Some(vec![0xff])), "{length} bytes");
    }
    let too_much = vec![1; super::super::RESERVATIONS_BYTES_MAX];
    let catalog = Catalog { reservations: [(Uuid::from_u128(1001), too_much)].into(), ..whole.clone() };
    assert!(Catalog::parse(&catalog.emit()).is_ok());
    let more = Catalog {
        reservations: whole
            .reservations
            .into_iter()
            .chain(catalog.reservations)
            .chain([(Uuid::from_u128(1002), vec![1])])
            .collect(),
        ..catalog
    };
    assert_eq!(Catalog::parse(&more.emit()), Err(CatalogError::Damaged("more is reserved than a pool keeps")));
}

#[test]
fn catalog_never_outgrows_what_was_reserved_for_it() {
    let mut catalog = rich();
    let most = catalog.emitted_bytes_max();
    for slab in (1..140).step_by(2) {
        catalog.volumes[0].segments[0].initialised.insert(slab);
        assert!(catalog.emit().len() <= most);
    }
    assert!(catalog.emit().len() + 16 <= most, "a full set is one run, not three words");
}

#[test]
fn catalog_that_contradicts_itself_is_refused() {
    type Change = fn(&mut Catalog);
    let changes: &[(&str, Change)] = &[
        ("a pool has no group", |catalog| catalog.groups.clear()),
        ("two groups have one identity", |catalog| catalog.groups[1].id = catalog.groups[0].id),
        ("one disk is in two places", |catalog| {
            catalog.groups[1].members[0].disk = catalog.groups[0].members[1].disk;
        }),
        ("two volumes have one identity", |catalog| catalog.volumes[1].id = catalog.volumes[0].id),
        ("two volumes have one name", |catalog| catalog.volumes[1].name = "a".into()),
        ("a name is empty, too long or has control characters", |catalog| catalog.volumes[1].name = "a\n".into()),
        ("a name is empty, too long or has control characters", |catalog| catalog.name = "x".repeat(64)),
        ("groups have more slabs than a pool can", |catalog| catalog.groups[0].slabs = SLABS_MAX),
        ("a group has more slabs than its members can hold", |catalog| {
            catalog.groups[0].member_blocks = Blocks(1);
        }),
        ("a slab has no blocks", |catalog| catalog.groups[0].slab_blocks = 0),
        ("a volume has blocks of an unknown size", |catalog| catalog.volumes[0].block_bytes = 1024),
        ("a volume has an impossible size", |catalog| catalog.volumes[0].size_bytes = 511),
        ("a volume has an impossible size", |catalog| catalog.volumes[0].size_bytes = VOLUME_BYTES_MAX + 512),
        ("a volume has too few slabs", |catalog| catalog.volumes[1].size_bytes = 515 * 4096),
        ("a volume lies on a group that is not there", |catalog| {
            catalog.volumes[1].segments[0].columns[0].group = 4;
        }),
        ("a volume lies behind the end of its group", |catalog| {
            catalog.volumes[1].segments[0].columns[0].first_slab = 200;
        }),
        ("a row does not fit in its slabs", |catalog| catalog.volumes[1].segments[0].rounds = 9),
        ("a row has two columns on one group", |catalog| {
            catalog.volumes[0].segments[0].columns[1] = Column { group: 0, first_slab: 100, unit_blocks: 514 };
        }),
        ("two families have one identity", |catalog| {
            let mut again = catalog.families[0].clone();
            let other = |id: &mut Uuid| *id = Uuid::from_u128(id.as_u128() + 50_000);
            for branch in &mut again.branches {
                other(&mut branch.id);
                branch.name.push('x');
                branch.snapshots.iter_mut().for_each(|snapshot| other(&mut snapshot.id));
            }
            catalog.families.push(again);
        }),
        ("two volumes have one name", |catalog| catalog.families[0].branches[0].name = "a".into()),
        ("two volumes have one identity", |catalog| {
            catalog.families[0].branches[0].snapshots[0].id = catalog.volumes[0].id;
        }),
        ("a family has impossible granules", |catalog| catalog.families[0].granule_bytes = 8192),
        ("a family has no map", |catalog| catalog.families[0].meta.clear()),
        ("a family lies behind its group", |catalog| catalog.families[0].data[0].slabs = 101),
        ("a family has no volume", |catalog| catalog.families[0].branches.clear()),
        ("two volumes have one number", |catalog| catalog.families[0].branches[1].number = 0),
        ("a volume has an impossible number", |catalog| catalog.families[0].branches_made = 2),
        ("the snapshots of a volume are out of order", |catalog| catalog.families[0].branches[0].epoch = 7),
        ("two snapshots have one name", |catalog| {
            catalog.families[0].branches[0].snapshots[1].name = "daily 0".into();
        }),
        ("the roll-backs of a volume are out of order", |catalog| catalog.families[0].branches[0].dead[0].last = 9),
        ("a clone has no origin", |catalog| {
            catalog.families[0].branches[0].snapshots.pop();
        }),
        ("a slab belongs to two volumes", |catalog| catalog.families[0].data[0].first = 79),
        ("a slab belongs to two volumes", |catalog| {
            catalog.volumes[1].segments[0].columns[0].first_slab = 79;
        }),
    ];
    for (what, change) in changes {
        let mut catalog = rich();
        change(&mut catalog);
        assert_eq!(Catalog::parse(&catalog.emit()), Err(CatalogError::Damaged(what)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn catalog_of_any_bytes_is_refused_or_means_what_it_says(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(catalog) = Catalog::parse(&bytes) {
            prop_assert_eq!(Catalog::parse(&catalog.emit()), Ok(catalog));
        }
    }

    #[test]
    fn catalog_with_some_bytes_changed_is_refused_or_means_what_it_says(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = rich().emit();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(catalog) = Catalog::parse(&bytes) {
            prop_assert_eq!(Catalog::parse(&catalog.emit()), Ok(catalog));
        }
    }
}

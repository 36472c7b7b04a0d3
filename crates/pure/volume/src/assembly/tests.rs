use super::*;
use crate::catalog::GroupRole;
use crate::label::Features;
use crate::layout::data_area;
use block::IoErrorKind;

const DISK_BLOCKS: Blocks = Blocks(20_000);
const SERVING: MemberState = MemberState::InService;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// Catalog of a pool with one group whose members are disks 100, 101, … in these states, each `since` a
/// generation.
fn catalog(phase: PoolPhase, members: &[(MemberState, u64)]) -> Catalog {
    let members =
        members.iter().zip(100..).map(|(&(state, since), disk)| MemberRecord { disk: id(disk), state, since });
    Catalog {
        pool: id(1),
        name: "tank".into(),
        phase,
        owner_epoch: 0,
        slab_bytes: 1 << 20,
        groups: vec![GroupRecord {
            id: id(50),
            role: GroupRole::Data,
            level: 1,
            clean: true,
            protected: false,
            chunk_bytes: 65536,
            member_blocks: Blocks(4096),
            slab_blocks: 256,
            slabs: 16,
            members: members.collect(),
        }],
        volumes: Vec::new(),
        families: Vec::new(),
        log: None,
        reservations: Default::default(),
        scrub: None,
        lost: Default::default(),
        copies: Default::default(),
        written: None,
    }
}

fn live(states: &[MemberState]) -> Catalog {
    catalog(PoolPhase::Live, &states.iter().map(|&state| (state, 1)).collect::<Vec<_>>())
}

fn commit(generation: u64, catalog: &Catalog) -> FoundCatalog {
    let body = block::Buf::copy_of(&catalog.emit()).freeze();
    FoundCatalog { slot: 0, generation, checksum: simd::crc32c::crc32c(&body), catalog: Rc::new(catalog.clone()), body }
}

/// Disk `disk` of pool `pool` with these commits, the newest first and in slot 0.
fn member(pool: u128, disk: u128, catalogs: &[FoundCatalog]) -> Probe {
    let label = Label {
        pool: id(pool),
        pool_name: "tank".into(),
        disk: id(disk),
        generation: 1,
        device_blocks: DISK_BLOCKS,
        data: data_area(DISK_BLOCKS).unwrap(),
        labelled_at: 0,
        created_by: "test".into(),
        features: Features::default(),
    };
    let catalogs = catalogs.iter().cloned().enumerate().map(|(slot, found)| FoundCatalog { slot, ..found }).collect();
    let member = Member { label, copies: [true; 3], overwritten: None, catalogs, owner: None };
    Probe { blocks: DISK_BLOCKS, contents: Contents::Member(Box::new(member)), has_residue: false }
}

fn standings(survey: &Assembly) -> Vec<DiskState> {
    survey.pools[0].groups[0].positions.iter().map(|position| position.state).collect()
}

/// Row of the decision table: content of disks 100 and 101 of a mirror, and the expected result.
struct Row {
    case: &'static str,
    disks: Vec<Probe>,
    standings: Vec<DiskState>,
    refused: Vec<(usize, DiskRefusal)>,
    refusal: Option<PoolRefusal>,
}

impl Row {
    fn new(case: &'static str, disks: Vec<Probe>, standings: &[DiskState]) -> Self {
        Self { case, disks, standings: standings.to_vec(), refused: Vec::new(), refusal: None }
    }

    fn refusing(self, refused: &[(usize, DiskRefusal)]) -> Self {
        Self { refused: refused.to_vec(), ..self }
    }

    fn refused(self, refusal: PoolRefusal) -> Self {
        Self { refusal: Some(refusal), ..self }
    }
}

fn changed(mut probe: Probe, change: impl FnOnce(&mut Member)) -> Probe {
    if let Contents::Member(member) = &mut probe.contents {
        change(member);
    }
    probe
}

/// Rows about the content of the disks of a live pool.
fn rows_of_disks() -> Vec<Row> {
    use DiskState::{Current, Failed, Missing, Overwritten, Shrunk, Stale};
    let both = live(&[SERVING, SERVING]);
    let (five, four, three) = (commit(5, &both), commit(4, &both), commit(3, &both));
    let whole = |disk| member(1, disk, &[five.clone(), four.clone()]);
    let alone = commit(6, &catalog(PoolPhase::Live, &[(SERVING, 1), (MemberState::Failed, 6)]));
    let gone = |disk| Probe { blocks: DISK_BLOCKS, contents: disk, has_residue: false };
    let name = || "tank".to_owned();
    let error = IoError::new(IoErrorKind::Gone, block::Extent::default());
    vec![
        Row::new("all are there", vec![whole(100), whole(101)], &[Current, Current]),
        Row::new("other order", vec![whole(101), whole(100)], &[Current, Current]),
        Row::new("one is not there", vec![whole(101)], &[Missing, Current]),
        Row::new(
            "a crash kept the last commit from one",
            vec![whole(100), member(1, 101, &[four.clone(), three.clone()])],
            &[Current, Current],
        ),
        Row::new(
            "a slot of the last commit is torn",
            vec![whole(100), member(1, 101, std::slice::from_ref(&four))],
            &[Current, Current],
        ),
        Row::new("one is two commits behind", vec![whole(100), member(1, 101, &[three])], &[Current, Stale]),
        Row::new("one has no whole catalog", vec![member(1, 100, &[]), whole(101)], &[Stale, Current]),
        Row::new(
            "one failed and is back as it was",
            vec![member(1, 100, &[alone.clone(), five.clone()]), whole(101)],
            &[Current, Failed],
        ),
        Row::new("one failed and is away", vec![member(1, 100, &[alone])], &[Current, Failed]),
        Row::new(
            "somebody wrote over the head of one",
            vec![whole(100), changed(whole(101), |member| member.overwritten = Some("a partition table (GPT)"))],
            &[Current, Overwritten],
        ),
        Row::new(
            "one has shrunk",
            vec![whole(100), Probe { blocks: Blocks(19_999), ..whole(101) }],
            &[Current, Shrunk],
        ),
        Row::new(
            "one has grown",
            vec![whole(100), Probe { blocks: Blocks(30_000), ..whole(101) }],
            &[Current, Current],
        ),
        Row::new(
            "an older copy of one is there, too",
            vec![whole(100), member(1, 101, std::slice::from_ref(&four)), whole(101)],
            &[Current, Current],
        )
        .refusing(&[(1, DiskRefusal::Duplicate(id(101)))]),
        Row::new("an equal copy of one is there, too", vec![whole(100), whole(101), whole(101)], &[Current, Missing])
            .refusing(&[(1, DiskRefusal::Duplicate(id(101))), (2, DiskRefusal::Duplicate(id(101)))])
            .refused(PoolRefusal::DuplicateDisk(id(101))),
        Row::new(
            "a newer version has begun to change the pool",
            vec![whole(100), gone(Contents::Newer { pool: id(1), sentence: "newer".into() })],
            &[Current, Missing],
        )
        .refusing(&[(1, DiskRefusal::Newer("newer".into()))])
        .refused(PoolRefusal::Newer("newer".into())),
        Row::new(
            "disks that are not ours",
            vec![
                gone(Contents::Blank),
                gone(Contents::Foreign("an XFS file system")),
                gone(Contents::Damaged),
                gone(Contents::Newer { pool: id(2), sentence: "newer".into() }),
                gone(Contents::Unreadable(error)),
                whole(100),
                member(1, 109, &[]),
                whole(101),
            ],
            &[Current, Current],
        )
        .refusing(&[
            (0, DiskRefusal::Blank),
            (1, DiskRefusal::Foreign("an XFS file system")),
            (2, DiskRefusal::Damaged),
            (3, DiskRefusal::Newer("newer".into())),
            (4, DiskRefusal::Unreadable(error)),
            (6, DiskRefusal::NotMember(name())),
        ]),
    ]
}

/// Rows about the state in which a crash or a split left the pool.
fn rows_of_pools() -> Vec<Row> {
    use DiskState::{Current, Failed, Rebuilding};
    let both = live(&[SERVING, SERVING]);
    let five = commit(5, &both);
    let front = Blocks(77);
    let filling = commit(6, &live(&[SERVING, MemberState::Rebuilding { front }]));
    let first_failed = commit(6, &catalog(PoolPhase::Live, &[(MemberState::Failed, 6), (SERVING, 1)]));
    let second_failed = commit(6, &catalog(PoolPhase::Live, &[(SERVING, 1), (MemberState::Failed, 6)]));
    let later = commit(9, &catalog(PoolPhase::Live, &[(SERVING, 1), (MemberState::Missing, 6)]));
    let seven = commit(7, &catalog(PoolPhase::Live, &[(SERVING, 1), (MemberState::Failed, 7)]));
    let split = |ours, theirs| PoolRefusal::Split { ours: id(ours), theirs: id(theirs) };
    let forming = commit(1, &Catalog { phase: PoolPhase::Forming, ..both.clone() });
    let destroyed = commit(6, &Catalog { phase: PoolPhase::Destroyed, ..both.clone() });
    let equal = |own: &FoundCatalog, other: &FoundCatalog| {
        vec![member(1, 100, &[own.clone(), five.clone()]), member(1, 101, &[other.clone(), five.clone()])]
    };
    let disagreeing = Catalog { owner_epoch: 9, ..both.clone() };
    vec![
        Row::new(
            "one is being rebuilt",
            vec![member(1, 100, std::slice::from_ref(&filling)), member(1, 101, std::slice::from_ref(&filling))],
            &[Current, Rebuilding { front }],
        ),
        Row::new(
            "the commit that fails one reached neither it nor an answer",
            vec![member(1, 100, &[second_failed.clone(), five.clone()]), member(1, 101, std::slice::from_ref(&five))],
            &[Current, Failed],
        ),
        Row::new(
            "one failed in the commit after its last",
            vec![member(1, 100, &[seven, commit(6, &both)]), member(1, 101, &[commit(6, &both), five.clone()])],
            &[Current, Failed],
        ),
        Row::new(
            "each went on without the other, one longer",
            vec![member(1, 100, &[later]), member(1, 101, &[first_failed.clone(), five.clone()])],
            &[Current, Failed],
        )
        .refused(split(100, 101)),
        Row::new(
            "making was interrupted",
            vec![member(1, 100, std::slice::from_ref(&forming))],
            &[Current, DiskState::Missing],
        )
        .refused(PoolRefusal::Unfinished("tank".into())),
        Row::new(
            "making was over but for one disk",
            vec![member(1, 100, &[commit(2, &both), forming.clone()]), member(1, 101, &[forming])],
            &[Current, Current],
        ),
        Row::new(
            "destruction was interrupted",
            vec![member(1, 100, &[destroyed]), member(1, 101, std::slice::from_ref(&five))],
            &[Current, Current],
        )
        .refused(PoolRefusal::Destroyed("tank".into())),
        Row::new(
            "two commits of one number, neither acknowledged",
            equal(&commit(6, &both), &commit(6, &disagreeing)),
            &[Current, Current],
        ),
        Row::new(
            "two commits of one number, only one acknowledged",
            equal(&commit(6, &both), &first_failed),
            &[Failed, Current],
        ),
    ]
}

#[test]
fn assembly_follows_its_table() {
    for row in rows_of_disks().into_iter().chain(rows_of_pools()) {
        let survey = assemble(&row.disks);
        assert_eq!(survey.pools.len(), 1, "{}", row.case);
        assert_eq!(standings(&survey), row.standings, "{}", row.case);
        assert_eq!(survey.refused, row.refused, "{}", row.case);
        assert_eq!(survey.pools[0].refusal, row.refusal, "{}", row.case);
        for position in &survey.pools[0].groups[0].positions {
            let found = position.probe.map(|probe| row.disks[probe].identity().unwrap().1);
            assert!(found.is_none_or(|disk| disk == position.disk), "{}: a disk in another's place", row.case);
        }
    }
}

#[test]
fn assembly_does_not_depend_on_the_order_of_the_disks() {
    for row in rows_of_disks().into_iter().chain(rows_of_pools()) {
        let mut turned = row.disks.clone();
        turned.reverse();
        let survey = assemble(&turned);
        assert_eq!(standings(&survey), row.standings, "{}", row.case);
        assert_eq!(survey.pools[0].refusal, row.refusal, "{}", row.case);
        assert_eq!(survey.refused.len(), row.refused.len(), "{}", row.case);
    }
}

#[test]
fn assembly_of_two_parts_that_went_on_equally_long_is_refused() {
    let without = |disk: usize| {
        let mut states = [(SERVING, 1), (SERVING, 1)];
        states[disk] = (MemberState::Failed, 6);
        commit(6, &catalog(PoolPhase::Live, &states))
    };
    let survey = assemble(&[member(1, 100, &[without(1)]), member(1, 101, &[without(0)])]);
    assert!(matches!(survey.pools[0].refusal, Some(PoolRefusal::Split { .. })));
}

/// Part of a pool of two disks that was opened without `lost` in commit 6 and last written in commit `written`.
fn part(disk: u128, lost: usize, (newest, written): (u64, u64)) -> Probe {
    let mut states = [(SERVING, 1), (SERVING, 1)];
    states[lost] = (MemberState::Missing, 6);
    let opened = Catalog { written: Some(written), ..catalog(PoolPhase::Live, &states) };
    member(1, disk, &[commit(newest, &opened), commit(newest - 1, &opened)])
}

#[test]
fn part_that_was_opened_and_not_written_is_old_and_the_written_part_wins() {
    use DiskState::{Current, Failed};
    // Generations of the newest commit and of the last announcement of writes, of both parts; the current disk.
    let table = [
        ((9, 3), (7, 7), Some([Failed, Current])),
        ((7, 7), (9, 3), Some([Current, Failed])),
        ((9, 6), (7, 3), Some([Current, Failed])),
        ((9, 3), (7, 3), Some([Current, Failed])),
        ((9, 8), (7, 6), None),
    ];
    for (first, second, standing) in table {
        let disks = [part(100, 1, first), part(101, 0, second)];
        let survey = assemble(&disks);
        let found = &survey.pools[0];
        let case = format!("{first:?} {second:?}");
        match standing {
            Some(standing) => {
                assert_eq!((standings(&survey), &found.refusal), (standing.to_vec(), &None), "{case}");
                let generation = if standing[0] == Current { first.0 } else { second.0 };
                assert_eq!(found.generation, generation, "{case}");
                assert_eq!(found.overtake_to, (generation == 7).then_some(9), "{case}");
                assert!(found.parts.is_empty(), "{case}");
            }
            None => {
                assert!(matches!(found.refusal, Some(PoolRefusal::Split { .. })), "{case}");
                let parts: Vec<_> = found.parts.iter().map(|part| (part.generation, part.probes.clone())).collect();
                assert_eq!(parts, [(9, vec![0]), (7, vec![1])]);
            }
        }
    }
    // A part that is too far ahead is not overtaken by commits.
    let disks = [part(100, 1, (7 + OVERTAKE_MAX + 1, 3)), part(101, 0, (7, 7))];
    assert!(assemble(&disks).pools[0].refusal.is_some());
}

/// Assembled pool of these disks: generation, standings and damage.
fn damaged(disks: &[Probe]) -> (u64, Vec<DiskState>, Vec<(Uuid, Structure)>) {
    let survey = assemble(disks);
    let damage = survey.pools[0].damage().map(|damage| (damage.disk, damage.structure)).collect();
    (survey.pools[0].generation, standings(&survey), damage)
}

#[test]
fn assembly_believes_a_disk_of_a_protected_group_whose_catalogs_are_damaged() {
    use DiskState::{Current, Failed, Stale};
    let mut both = live(&[SERVING, SERVING]);
    let whole = |catalog: &Catalog| member(1, 100, &[commit(5, catalog), commit(4, catalog)]);
    assert_eq!(damaged(&[whole(&both), member(1, 101, &[])]), (5, vec![Current, Stale], vec![]));
    both.groups[0].protected = true;
    let found = damaged(&[whole(&both), member(1, 101, &[])]);
    assert_eq!(found, (5, vec![Current, Current], vec![(id(101), Structure::Catalog { copies: 2 })]));
    let survey = assemble(&[whole(&both), member(1, 101, &[])]);
    assert_eq!(survey.pools[0].behind[1..], [(id(101), &[0, 1][..])], "opening writes the catalog to it");
    // A member that the pool has given up is outdated, whatever it contains.
    both.groups[0].members[1].state = MemberState::Failed;
    assert_eq!(damaged(&[whole(&both), member(1, 101, &[])]), (5, vec![Current, Failed], vec![]));
}

#[test]
fn assembly_tells_which_labels_are_damaged() {
    let five = commit(5, &live(&[SERVING, SERVING]));
    let whole = |disk| member(1, disk, std::slice::from_ref(&five));
    let torn = |copies| changed(whole(101), |member| member.copies = copies);
    for (copies, structure) in [
        ([false, false, true], Structure::Label { copies: 2, is_head: true }),
        ([true, true, false], Structure::Label { copies: 1, is_head: false }),
    ] {
        let found = damaged(&[whole(100), torn(copies)]);
        assert_eq!(found, (5, vec![DiskState::Current; 2], vec![(id(101), structure)]));
    }
    assert_eq!(damaged(&[whole(100), whole(101)]).2, []);
}

#[test]
fn assembly_takes_a_generation_far_ahead_of_all_others_for_damage() {
    use DiskState::{Current, Stale};
    let both = live(&[SERVING, SERVING]);
    let (five, four) = (commit(5, &both), commit(4, &both));
    let whole = member(1, 100, &[five.clone(), four.clone()]);
    for (ahead, before) in [(7, 4), (12, 4), (6000, 5), (u64::MAX, 4), (9, 5)] {
        let disk = member(1, 101, &[commit(ahead, &both), commit(before, &both)]);
        let found = damaged(&[whole.clone(), disk]);
        assert_eq!(found, (5, vec![Current; 2], vec![(id(101), Structure::Generation(ahead))]), "{ahead}, {before}");
    }
    // One ahead is a commit that a crash interrupted; far ahead with the commit before it, the other disk is
    // outdated.
    let next = member(1, 101, &[commit(6, &both), five.clone()]);
    assert_eq!(damaged(&[whole.clone(), next]), (6, vec![Current; 2], vec![]));
    let later = member(1, 101, &[commit(9, &both), commit(8, &both)]);
    assert_eq!(damaged(&[whole, later]), (9, vec![Stale, Current], vec![]));
}

#[test]
fn assembly_keeps_two_pools_apart() {
    let ours = commit(5, &live(&[SERVING]));
    let theirs = commit(900, &Catalog { pool: id(2), name: "other".into(), ..live(&[SERVING]) });
    let survey = assemble(&[member(2, 100, &[theirs]), member(1, 100, &[ours])]);
    let found: Vec<_> = survey.pools.iter().map(|pool| (pool.catalog.pool, pool.generation)).collect();
    assert_eq!(found, [(id(1), 5), (id(2), 900)]);
    assert_eq!(survey.pools[0].groups[0].positions[0].probe, Some(1));
    assert!(survey.refused.is_empty());
}

#[test]
fn assembly_of_labels_without_any_catalog_is_no_pool() {
    let survey = assemble(&[member(1, 100, &[]), member(1, 101, &[])]);
    assert!(survey.pools.is_empty());
    assert_eq!(survey.unreadable, [UnreadablePool { pool: id(1), name: "tank".into(), disks: vec![0, 1] }]);
    assert_eq!(survey.refused, [0, 1].map(|index| (index, DiskRefusal::NoCatalog("tank".into()))));
}

#[test]
fn assembly_asks_the_level_whether_a_group_can_serve() {
    let five = commit(5, &live(&[SERVING, SERVING]));
    let survey = assemble(&[member(1, 101, &[five])]);
    let pool = &survey.pools[0];
    assert_eq!(pool.admit(|_, present| present == [false, true]), Ok(()));
    let refusal = pool.admit(|_, present| present.iter().all(|&present| present)).unwrap_err();
    assert_eq!(refusal, PoolRefusal::Incomplete { pool_name: "tank".into(), group: 0, present: 1, members: 2 });
    assert_eq!(refusal.to_string(), "group 0 of pool \"tank\" cannot serve: 1 of its 2 members can be believed");
    assert_eq!(pool.lost().map(|position| position.disk).collect::<Vec<_>>(), [id(100)]);
}

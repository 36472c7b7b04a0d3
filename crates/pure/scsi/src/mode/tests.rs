use crate::rig::*;
use crate::*;
use block::Blocks;
use std::rc::Rc;

fn sense6(control: u8, page: u8, disable_descriptor: bool) -> [u8; 6] {
    [0x1A, if disable_descriptor { 8 } else { 0 }, control << 6 | page, 0, 255, 0]
}

fn sense10(flags: u8, page: u8) -> [u8; 10] {
    [0x5A, flags, page, 0, 0, 0, 0, 1, 0, 0]
}

const CONTROL: [u8; 12] = [0x0A, 10, 0x02, 0x10, 0, 0x40, 0, 0, 0xFF, 0xFF, 0, 0];

/// Returns the control page with D_SENSE and SWP as given.
fn control(descriptor_sense: bool, write_protect: bool) -> [u8; 12] {
    let mut page = CONTROL;
    page[2] |= if descriptor_sense { 4 } else { 0 };
    page[4] |= if write_protect { 8 } else { 0 };
    page
}

fn select6(unit: &LogicalUnit<Bench>, parts: &[&[u8]]) -> Outcome {
    let list = parts.concat();
    run(unit, HOST, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list)
}

/// Additional sense code, qualifier, byte and bit.
type Pointed = (u8, u8, u16, Option<u8>);

fn pointer(outcome: &Outcome) -> Pointed {
    let field = outcome.sense.as_deref().and_then(|sense| sense.field).expect("the sense points at a field");
    let (_, code, qualifier) = sense(outcome);
    (code, qualifier, field.byte, field.bit)
}

#[test]
fn mode_sense_6_of_all_pages_has_header_descriptor_and_pages() {
    let data = ask(&unit(), &sense6(0, 0x3F, false));
    assert_eq!(data[..12], [67, 0, 0x10, 8, 0, 0, 1, 0, 0, 0, 2, 0]);
    assert_eq!(data[12..24], [0x01, 10, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[24..44], [0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[44..56], CONTROL);
    assert_eq!(data[56..], [0x1C, 10, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn mode_sense_10_carries_long_descriptors_only_when_asked() {
    let unit = unit();
    let short = ask(&unit, &sense10(0, 0x0A));
    assert_eq!(short[..16], [0, 26, 0, 0x10, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 2, 0]);
    let long = ask(&unit, &sense10(0x10, 0x0A));
    assert_eq!(long[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(long[8..24], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(ask(&unit, &sense10(0x18, 0x0A))[..8], [0, 18, 0, 0x10, 0, 0, 0, 0]);
    let mut geometry = unit.device().geometry.get();
    geometry.blocks = Blocks(1 << 33);
    unit.device().geometry.set(geometry);
    assert_eq!(ask(&unit, &sense6(0, 0x0A, false))[4..8], [0xFF; 4]);
    assert_eq!(ask(&unit, &sense10(0x10, 0x0A))[8..16], (1_u64 << 33).to_be_bytes());
}

#[test]
fn mode_sense_tells_current_changeable_and_default_apart() {
    let unit = unit();
    good(select6(&unit, &[&[0, 0, 0, 0], &control(true, true)]));
    assert_eq!(ask(&unit, &sense6(0, 0x0A, true))[4..], control(true, true));
    assert_eq!(ask(&unit, &sense6(1, 0x0A, true))[4..], [0x0A, 10, 4, 0, 8, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask(&unit, &sense6(2, 0x0A, true))[4..], CONTROL);
    assert_eq!(refused(&unit, &sense6(3, 0x0A, true), &[]), (5, 0x39, 0));
    assert_eq!(ask(&unit, &sense6(1, 0x08, true))[6..], [0; 18]);
}

#[test]
fn mode_sense_is_cut_and_refuses_pages_that_are_not_there() {
    let unit = unit();
    assert_eq!(ask(&unit, &[0x1A, 0, 0x3F, 0, 4, 0]), [67, 0, 0x10, 8]);
    assert_eq!(ask(&unit, &[0x1A, 0, 0x3F, 0xFF, 255, 0]).len(), 68);
    assert_eq!(pointed(&unit, &sense6(0, 0x1A, true), &[]), (2, Some(5)));
    assert_eq!(pointed(&unit, &[0x1A, 0, 0x0A, 1, 255, 0], &[]), (3, None));
}

#[test]
fn mode_select_of_swp_protects_and_clears_and_tells_others() {
    let unit = unit();
    good(select6(&unit, &[&[0, 0, 0, 0], &control(false, true)]));
    assert_eq!(refused(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]), (7, 0x27, 2));
    assert_eq!(ask(&unit, &cdb10(0x28, 0, 0, 1)), [0; BLOCK]);
    assert_eq!(ask(&unit, &sense6(0, 0x3F, false))[2], 0x90);
    assert_eq!(sense(&run(&unit, OTHER, &[0; 6], &[])), (6, 0x2A, 1));
    good(select6(&unit, &[&[0, 0, 0, 0], &control(false, false)]));
    tell(&unit, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
}

#[test]
fn mode_select_that_changes_nothing_tells_nobody() {
    let unit = unit();
    good(select6(&unit, &[&[0, 0, 0, 0], &CONTROL]));
    good(select6(&unit, &[]));
    good(run(&unit, OTHER, &[0; 6], &[]));
}

#[test]
fn mode_select_of_d_sense_changes_the_format_of_sense() {
    let unit = unit();
    good(select6(&unit, &[&[0, 0, 0, 0], &control(true, false)]));
    let outcome = run(&unit, HOST, &cdb16(0x88, 0, u64::MAX, 1), &[]);
    assert_eq!(outcome.sense.as_deref().expect("sense").emit()[..4], [0x72, 5, 0x21, 0]);
}

#[test]
fn mode_select_10_takes_what_mode_sense_10_gave() {
    let unit = unit();
    for flags in [0, 0x08, 0x10] {
        let list = ask(&unit, &sense10(flags, 0x3F));
        let [high, low] = (list.len() as u16).to_be_bytes();
        tell(&unit, &[0x55, 0x10, 0, 0, 0, 0, 0, high, low, 0], &list);
    }
    good(select6(&unit, &[&ask(&unit, &sense6(0, 0x3F, false))]));
}

#[test]
fn mode_select_list_is_refused_whole_with_a_pointer_to_what_is_wrong() {
    let unit = unit();
    let header = &[0, 0, 0, 0];
    let descriptor = |blocks: u32, bytes: u32| [blocks.to_be_bytes(), bytes.to_be_bytes()].concat();
    let mut ato = CONTROL;
    ato[5] |= 0x80;
    let mut cache = [0; 20];
    cache[..3].copy_from_slice(&[0x08, 18, 0x04]);
    let changed = control(true, true);
    let cases: [(Vec<u8>, Pointed); 9] = [
        ([header, &changed[..], &ato].concat(), (0x26, 0, 16 + 5, Some(7))),
        ([header, &changed[..], &cache].concat(), (0x26, 0, 16 + 2, Some(2))),
        ([header, &changed[..], &[0x19, 10]].concat(), (0x26, 0, 16, Some(5))),
        ([header, &changed[..], &[0x0A, 11]].concat(), (0x26, 0, 17, None)),
        ([&[0, 1, 0, 0], &changed[..]].concat(), (0x26, 0, 1, None)),
        ([&[0, 0, 0, 4], &[0; 4], &changed[..]].concat(), (0x26, 0, 3, None)),
        ([&[0, 0, 0, 8], &descriptor(255, 512)[..], &changed].concat(), (0x26, 0, 4, None)),
        ([&[0, 0, 0, 8], &descriptor(0, 4096)[..], &changed].concat(), (0x26, 0, 10, None)),
        // The subpage format of a page that has none.
        ([header, &changed[..], &[0x4A, 1, 0, 0]].concat(), (0x26, 0, 16, Some(5))),
    ];
    for (list, expected) in cases {
        assert_eq!(pointer(&select6(&unit, &[&list])), expected, "{list:02x?}");
        assert_eq!(ask(&unit, &sense6(0, 0x0A, true))[4..], CONTROL, "nothing of it was taken");
    }
}

#[test]
fn mode_select_list_that_is_cut_short_is_refused() {
    let unit = unit();
    let list = [&[0, 0, 0, 8][..], &[0; 8], &control(true, true)].concat();
    let mut list_with_size = list.clone();
    list_with_size[10..12].copy_from_slice(&[2, 0]);
    for length in (1..list.len()).filter(|&length| length != 12) {
        assert_eq!(sense(&select6(&unit, &[&list_with_size[..length]])), (5, 0x1A, 0), "{length} bytes");
    }
    good(select6(&unit, &[&list_with_size[..12]]));
    assert_eq!(refused(&unit, &[0x15, 0x10, 0, 0, 24, 0], &list[..12]), (5, 0x0E, 3));
    assert_eq!(ask(&unit, &sense6(0, 0x0A, true))[4..], CONTROL);
}

#[test]
fn mode_select_wants_the_page_format_and_saves_nothing_where_nothing_can_be_kept() {
    let unit = unit();
    let list = [&[0, 0, 0, 0][..], &CONTROL].concat();
    assert_eq!(pointed(&unit, &[0x15, 0x00, 0, 0, 16, 0], &list), (1, Some(4)));
    assert_eq!(pointed(&unit, &[0x15, 0x11, 0, 0, 16, 0], &list), (1, Some(0)));
}

/// Returns the control page with TAS zero and otherwise default values.
fn without_tas() -> [u8; 12] {
    let mut page = CONTROL;
    page[5] = 0;
    page
}

/// Creates a unit with a state store, as after power loss when `shelf` has stored state.
fn restarted(shelf: &Rc<MemoryStore>) -> LogicalUnit<Bench> {
    let unit = LogicalUnit::new(Bench::new(512, 256), identity(), Options::default()).with_state_store(shelf.clone());
    unit.restore(PersistentState::parse(&shelf.kept.borrow()).expect("it was kept"));
    for (nexus, number) in [(HOST, 1), (OTHER, 2)] {
        unit.attach(nexus, initiator(number), port(number));
        assert_eq!(sense(&run(&unit, nexus, &[0; 6], &[])), (6, 0x29, 0));
    }
    unit
}

#[test]
fn task_aborted_status_is_on_can_be_changed_and_saved_and_others_hear_of_it() {
    let shelf = Rc::new(MemoryStore::default());
    let unit = restarted(&shelf);
    let current = |unit: &LogicalUnit<Bench>| ask(unit, &sense6(0, 0x0A, true))[4..].to_vec();
    let saved = |unit: &LogicalUnit<Bench>| ask(unit, &sense6(3, 0x0A, true))[4..].to_vec();
    let with_ps = |page: [u8; 12]| [&[page[0] | 0x80], &page[1..]].concat();
    assert_eq!((current(&unit), saved(&unit)), (with_ps(CONTROL), with_ps(CONTROL)));
    let list = [&[0, 0, 0, 0][..], &without_tas()].concat();
    // Without SP the value lasts until a reset.
    tell(&unit, &[0x15, 0x10, 0, 0, 16, 0], &list);
    assert_eq!((current(&unit), saved(&unit)), (with_ps(without_tas()), with_ps(CONTROL)));
    assert_eq!(sense(&run(&unit, OTHER, &[0; 6], &[])), (6, 0x2A, 1));
    now(unit.manage(HOST, TaskManagement::LogicalUnitReset));
    let _ = run(&unit, HOST, &[0; 6], &[]);
    assert_eq!(current(&unit), with_ps(CONTROL));
    // A value that cannot be persisted does not take effect.
    shelf.refuses.set(Some(StoreError::Gone));
    assert_eq!(refused(&unit, &[0x15, 0x11, 0, 0, 16, 0], &list).0, 4);
    assert_eq!(current(&unit), with_ps(CONTROL));
    shelf.refuses.set(None);
    // With SP it survives resets, restarts, and stores of other state of the unit.
    tell(&unit, &[0x15, 0x11, 0, 0, 16, 0], &list);
    now(unit.manage(HOST, TaskManagement::LogicalUnitReset));
    let _ = run(&unit, HOST, &[0; 6], &[]);
    assert_eq!((current(&unit), saved(&unit)), (with_ps(without_tas()), with_ps(without_tas())));
    let mut register = [0; 24];
    (register[15], register[20]) = (7, 1);
    tell(&unit, &[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register);
    let again = restarted(&shelf);
    assert_eq!((current(&again), saved(&again)), (with_ps(without_tas()), with_ps(without_tas())));
    assert_eq!(again.reservations().registrations.len(), 1);
    for cut in 1..shelf.kept.borrow().len() {
        let _ = PersistentState::parse(&shelf.kept.borrow()[..cut]);
    }
}

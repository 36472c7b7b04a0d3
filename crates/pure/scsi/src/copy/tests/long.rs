//! EXTENDED COPY (LID4), its status reports, and COPY OPERATION ABORT.

use super::*;

fn long_list(id: u32, bits: u8, short: &[u8]) -> Vec<u8> {
    let (cscds, segments) = (&short[2..4], &short[10..12]);
    let mut list = vec![1, 0, 0, 0x20];
    list.resize(15, 0);
    list.extend([bits, 0xFF, 0, 0, 0]);
    list.extend(id.to_be_bytes());
    list.resize(42, 0);
    list.extend([cscds, segments, &[0, 0], &short[16..]].concat());
    list
}

fn long_cdb(list: &[u8]) -> [u8; 16] {
    cdb16(0x83, 1, 0, list.len() as u32)
}

fn status(unit: &TestUnit, nexus: NexusId, id: u32) -> Outcome {
    let mut cdb = cdb16(0x84, 5, 0, 255);
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    run(unit, nexus, &cdb, &[])
}

fn abort(unit: &TestUnit, nexus: NexusId, id: u32) -> [u8; 16] {
    let _ = (unit, nexus);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, 0x1C);
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    cdb
}

fn two_blocks(one: &TestUnit, two: &TestUnit) -> Vec<u8> {
    list(&[cscd(one, 3), cscd(two, 3)], &[segment((0, 1), 2, (0, 8))])
}

#[test]
fn long_list_copies_as_the_short_one_and_tells_its_end_by_a_long_number() {
    let [one, two, ..] = two_tenants();
    let list = long_list(0x1234_5678, 0, &two_blocks(&one, &two));
    good(run(&one, HOST, &long_cdb(&list), &list));
    assert_eq!(blocks(&two, 8, 2), [1; 2 * BLOCK]);
    let told = good(status(&one, HOST, 0x1234_5678));
    assert_eq!(told.len(), 32);
    assert_eq!(told[..6], [0, 0, 0, 28, 1, 1], "EXTENDED COPY (LID4), done");
    assert_eq!(told[8..16], [0xFF, 0xFF, 0xFF, 0xFE, 0, 0, 0, 1], "nothing more comes; KiB");
    assert_eq!((told[23], told[25]), (1, 1), "1 KiB, 1 segment");
    for (nexus, id) in [(HOST, 0x78), (OTHER, 0x1234_5678)] {
        assert_eq!(sense(&status(&one, nexus, id)), (5, 0x24, 0));
    }
}

#[test]
fn long_list_that_lies_is_refused_and_nothing_is_copied() {
    let [one, two, ..] = two_tenants();
    let list = long_list(1, 0, &two_blocks(&one, &two));
    let sent = |list: &[u8]| run(&one, HOST, &long_cdb(list), list);
    let with = |at: usize, byte: u8| {
        let mut list = list.clone();
        list[at] = byte;
        let refused = sent(&list);
        (sense(&refused), refused.sense.and_then(|sense| sense.field).map(|field| field.byte))
    };
    assert_eq!(with(0, 2), ((5, 0x26, 0), Some(0)));
    assert_eq!(with(3, 0x21), ((5, 0x26, 0), Some(2)));
    assert_eq!(with(15, 2), ((5, 0x26, 0), Some(15)), "G_SENSE");
    assert_eq!(with(16, 0xE4), ((5, 0x26, 0), Some(16)));
    assert_eq!(with(47, 1), ((5, 0x26, 0x0B), None));
    assert_eq!(with(45, 29).0, (5, 0x1A, 0));
    assert_eq!(with(48 + 5, 0x13), ((5, 0x26, 0), Some(53)), "fields are pointed at where they stand");
    for cut in [17, 47, list.len() - 1] {
        assert_eq!(sense(&sent(&list[..cut])), (5, 0x1A, 0), "{cut} bytes");
    }
    assert_eq!(blocks(&two, 8, 2), [2; 2 * BLOCK]);
}

#[test]
fn copy_that_is_not_waited_for_says_why_it_failed_when_it_is_asked() {
    let [one, two, three, _] = two_tenants();
    let list = long_list(5, 1, &two_blocks(&one, &three));
    good(run(&one, HOST, &long_cdb(&list), &list));
    let told = good(status(&one, HOST, 5));
    assert_eq!((told[5], told[12], told[13], told.len()), (2, 2, 18, 32 + 18));
    assert_eq!((told[32 + 2], told[32 + 12], told[32 + 13]), (0xA, 0x0D, 2));
    let list = long_list(6, 0, &two_blocks(&one, &three));
    assert_eq!(sense(&run(&one, HOST, &long_cdb(&list), &list)), (0xA, 0x0D, 2));
    assert_eq!(blocks(&two, 8, 2), [2; 2 * BLOCK]);
}

#[test]
fn copy_that_is_aborted_by_its_number_ends_as_aborted_and_writes_no_more() {
    let [one, two, ..] = two_tenants();
    assert_eq!(sense(&run(&one, HOST, &abort(&one, HOST, 9), &[])), (5, 0x24, 0));
    let list = long_list(9, 0, &two_blocks(&one, &two));
    one.device().permits.set(0);
    let mut copying = Box::pin(one.execute(HOST, Command { tag: TaskTag(7), ..command(&long_cdb(&list), &list) }));
    assert!(copying.as_mut().now_or_never().is_none());
    assert_eq!(good(status(&one, HOST, 9))[5], 0x10);
    assert_eq!(sense(&run(&one, OTHER, &abort(&one, OTHER, 9), &[])), (5, 0x24, 0), "it is another's");
    let mut aborting = Box::pin(one.execute(HOST, Command { tag: TaskTag(8), ..command(&abort(&one, HOST, 9), &[]) }));
    assert!(aborting.as_mut().now_or_never().is_none());
    one.device().permits.set(usize::MAX);
    assert_eq!(sense(&copying.now_or_never().expect("it ends")), (0xA, 0x2F, 2));
    good(aborting.now_or_never().expect("it has ended"));
    assert_eq!(good(status(&one, HOST, 9))[5], 0x60);
    assert_eq!(blocks(&two, 8, 2), [2; 2 * BLOCK]);
}

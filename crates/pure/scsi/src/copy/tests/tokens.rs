//! POPULATE TOKEN, WRITE USING TOKEN and RECEIVE ROD TOKEN INFORMATION.

use super::*;

const UNKNOWN: (u8, u8, u8) = (5, 0x23, 4);
const EXPIRED: (u8, u8, u8) = (5, 0x23, 7);
const CANCELLED: (u8, u8, u8) = (5, 0x23, 8);
const DELETED: (u8, u8, u8) = (5, 0x23, 9);

type Range = (u64, u32);

fn ranges(ranges: &[Range]) -> Vec<u8> {
    let mut list = Vec::new();
    for (lba, count) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(count.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn cdb(action: u8, id: u32, list: &[u8]) -> [u8; 16] {
    let mut cdb = cdb16(0x83, action, 0, list.len() as u32);
    cdb[6..10].copy_from_slice(&id.to_be_bytes());
    cdb
}

fn populate_list(bits: u8, inactivity_s: u32, of: &[Range]) -> Vec<u8> {
    let ranges = ranges(of);
    let mut list = (14 + ranges.len() as u16).to_be_bytes().to_vec();
    list.extend([bits, 0]);
    list.extend(inactivity_s.to_be_bytes());
    list.extend([0x00, 0x80, 0xFF, 0xFF, 0, 0]);
    list.extend((ranges.len() as u16).to_be_bytes());
    list.extend(ranges);
    list
}

fn write_list(bits: u8, offset: u64, token: &[u8], to: &[Range]) -> Vec<u8> {
    let ranges = ranges(to);
    let mut list = (534 + ranges.len() as u16).to_be_bytes().to_vec();
    list.extend([bits, 0, 0, 0, 0, 0]);
    list.extend(offset.to_be_bytes());
    list.extend(token);
    list.extend([0; 6]);
    list.extend((ranges.len() as u16).to_be_bytes());
    list.extend(ranges);
    list
}

/// Issues RECEIVE ROD TOKEN INFORMATION.
fn received(unit: &TestUnit, nexus: NexusId, id: u32) -> Outcome {
    let mut cdb = cdb16(0x84, 7, 0, 1024);
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    run(unit, nexus, &cdb, &[])
}

/// Creates a token for the ranges `of`.
fn token(unit: &TestUnit, nexus: NexusId, of: &[Range]) -> Vec<u8> {
    token_lasting(unit, nexus, of, 0)
}

fn token_lasting(unit: &TestUnit, nexus: NexusId, of: &[Range], inactivity_s: u32) -> Vec<u8> {
    let list = populate_list(0, inactivity_s, of);
    good(run(unit, nexus, &cdb(0x10, 1, &list), &list));
    let told = good(received(unit, nexus, 1));
    assert_eq!((told[4], told[5]), (0x10, 1), "POPULATE TOKEN, done");
    assert_eq!(told[32..38], [0, 0, 2, 2, 0, 0], "one token of 512 bytes");
    told[38..].to_vec()
}

fn write(unit: &TestUnit, nexus: NexusId, token: &[u8], to: &[Range]) -> Outcome {
    write_with(unit, nexus, 0, 0, token, to)
}

fn write_with(unit: &TestUnit, nexus: NexusId, bits: u8, offset: u64, token: &[u8], to: &[Range]) -> Outcome {
    let list = write_list(bits, offset, token, to);
    run(unit, nexus, &cdb(0x11, 2, &list), &list)
}

/// Returns the status of the last WRITE USING TOKEN, and the number of blocks that it wrote.
fn written(unit: &TestUnit, nexus: NexusId) -> (u8, u64) {
    let told = good(received(unit, nexus, 2));
    assert_eq!((told[4], told[15]), (0x11, 0xF1), "WRITE USING TOKEN, logical blocks");
    (told[5], u64::from_be_bytes(told[16..24].try_into().expect("eight")))
}

fn number(unit: &TestUnit, count: u64) {
    let bytes = (0..count).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>();
    unit.device().bytes.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
}

#[test]
fn token_carries_blocks_to_another_unit_in_the_order_of_its_ranges() {
    let [one, two, ..] = two_tenants();
    number(&one, 40);
    let token = token(&one, HOST, &[(10, 4), (30, 4)]);
    assert_eq!(token[..8], [0, 0x80, 0, 1, 0, 0, 1, 0xF8]);
    assert_eq!(token[48..64], 4096_u128.to_be_bytes(), "the bytes that it stands for");
    assert_eq!(good(received(&one, HOST, 1))[16..24], 8_u64.to_be_bytes());
    good(write(&two, HOST, &token, &[(100, 3), (0, 5)]));
    assert_eq!(written(&two, HOST), (1, 8));
    let found: Vec<u8> =
        [blocks(&two, 100, 3), blocks(&two, 0, 5)].concat().chunks(BLOCK).map(|block| block[0]).collect();
    assert_eq!(found, [10, 11, 12, 13, 30, 31, 32, 33]);
    assert_eq!(blocks(&two, 103, 1), [2; BLOCK]);
    // With an offset into the token, and within the source unit itself.
    good(write_with(&one, HOST, 0, 3, &token, &[(200, 2)]));
    assert_eq!((blocks(&one, 200, 1)[0], blocks(&one, 201, 1)[0]), (13, 30));
}

#[test]
fn token_that_holds_less_than_is_asked_for_writes_what_it_has() {
    let [one, two, ..] = two_tenants();
    let token = token(&one, HOST, &[(0, 4)]);
    good(write_with(&two, HOST, 0, 1, &token, &[(50, 8)]));
    assert_eq!(written(&two, HOST), (3, 3));
    assert_eq!((blocks(&two, 50, 3), blocks(&two, 53, 1)), (vec![1; 3 * BLOCK], vec![2; BLOCK]));
    let refused = write_with(&two, HOST, 0, 4, &token, &[(60, 1)]);
    assert_eq!(
        (sense(&refused), refused.sense.and_then(|sense| sense.field).map(|field| field.byte)),
        ((5, 0x26, 0), Some(8))
    );
}

#[test]
fn token_is_cancelled_by_every_change_of_what_it_stands_for_and_by_no_other() {
    let thin = |number: u8| {
        let street = Rc::new(TestEnvironment::default());
        let bench = Bench { thin: Some(Thin::new(8, 32)), ..Bench::new(BLOCK as u32, BLOCKS) };
        let unit = move_in_over(&street, number, bench, &[(HOST, false), (OTHER, false)]);
        tell(&unit, &cdb10(0x2A, 0, 0, 8), &[7; 8 * BLOCK]);
        unit
    };
    let changes: [(&str, Vec<u8>, Vec<u8>); 8] = [
        ("WRITE (10)", cdb10(0x2A, 0, 3, 1).to_vec(), vec![1; BLOCK]),
        ("WRITE (16)", cdb16(0x8A, 0, 2, 2).to_vec(), vec![1; 2 * BLOCK]),
        ("WRITE SAME", cdb10(0x41, 0, 3, 1).to_vec(), vec![1; BLOCK]),
        ("WRITE SAME with UNMAP", cdb10(0x41, 8, 0, 8).to_vec(), vec![0; BLOCK]),
        ("WRITE AND VERIFY", cdb10(0x2E, 0, 3, 1).to_vec(), vec![1; BLOCK]),
        ("ORWRITE", cdb16(0x8B, 0, 3, 1).to_vec(), vec![1; BLOCK]),
        (
            "COMPARE AND WRITE",
            {
                let mut cdb = cdb16(0x89, 0, 3, 0);
                cdb[13] = 1;
                cdb.to_vec()
            },
            [[7; BLOCK], [1; BLOCK]].concat(),
        ),
        (
            "UNMAP",
            cdb10(0x42, 0, 0, 24).to_vec(),
            [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &8_u32.to_be_bytes(), &[0; 4]].concat(),
        ),
    ];
    for (name, change, data) in changes {
        let unit = thin(1);
        let token = token(&unit, HOST, &[(3, 2)]);
        tell(&unit, &cdb10(0x2A, 0, 5, 1), &[9; BLOCK]);
        ask(&unit, &cdb10(0x28, 0, 3, 1));
        good(write(&unit, OTHER, &token, &[(100, 2)]));
        good(run(&unit, OTHER, &change, &data));
        assert_eq!(sense(&write(&unit, HOST, &token, &[(120, 2)])), CANCELLED, "{name}");
        assert_eq!(blocks(&unit, 120, 1), [1; BLOCK], "{name}");
    }
    let unit = thin(1);
    let token = token(&unit, HOST, &[(3, 2)]);
    unit.medium_may_have_changed();
    assert_eq!(sense(&run(&unit, HOST, &[0; 6], &[])), (6, 0x28, 0));
    assert_eq!(sense(&write(&unit, HOST, &token, &[(120, 2)])), CANCELLED);
}

#[test]
fn write_that_comes_between_reading_and_writing_of_a_token_lets_nothing_new_through() {
    let [one, two, ..] = two_tenants();
    let token = token(&one, HOST, &[(0, 4)]);
    one.device().permits.set(0);
    let list = write_list(0, 0, &token, &[(10, 4)]);
    let mut writing = Box::pin(two.execute(HOST, command(&cdb(0x11, 2, &list), &list)));
    assert!(writing.as_mut().now_or_never().is_none());
    let mut change = Box::pin(one.execute(HOST, command(&cdb10(0x2A, 0, 1, 1), &[0x55; BLOCK])));
    assert!(change.as_mut().now_or_never().is_none());
    one.device().permits.set(usize::MAX);
    good(change.now_or_never().expect("it may"));
    assert_eq!(sense(&writing.now_or_never().expect("it ends")), CANCELLED);
    assert_eq!(blocks(&two, 10, 4), [2; 4 * BLOCK]);
    assert_eq!(written(&two, HOST), (2, 0));
}

#[test]
fn token_waits_for_writes_that_have_begun() {
    let [one, two, ..] = two_tenants();
    one.device().permits.set(0);
    let mut change = Box::pin(one.execute(HOST, command(&cdb10(0x2A, 0, 1, 1), &[0x55; BLOCK])));
    assert!(change.as_mut().now_or_never().is_none());
    let list = populate_list(0, 0, &[(0, 4)]);
    let mut populate = Box::pin(one.execute(HOST, command(&cdb(0x10, 1, &list), &list)));
    assert!(populate.as_mut().now_or_never().is_none());
    one.device().permits.set(usize::MAX);
    good(change.now_or_never().expect("it may"));
    good(populate.now_or_never().expect("it is of after the write"));
    let token = good(received(&one, HOST, 1))[38..].to_vec();
    good(write(&two, HOST, &token, &[(0, 4)]));
    assert_eq!(blocks(&two, 1, 1), [0x55; BLOCK]);
}

#[test]
fn token_opens_nothing_that_its_user_does_not_see_or_may_not_read() {
    let [one, two, three, _] = two_tenants();
    let token = token(&one, HOST, &[(0, 4)]);
    assert_eq!(sense(&write(&three, OTHER, &token, &[(0, 4)])), UNKNOWN, "a stolen token");
    assert_eq!(sense(&received(&one, OTHER, 1)), (5, 0x24, 0), "another's token");
    assert_eq!(blocks(&three, 0, 4), [3; 4 * BLOCK]);
    for byte in [8, 15, 24, 50, 256, 511] {
        let mut forged = token.clone();
        forged[byte] ^= 1;
        assert_eq!(sense(&write(&two, HOST, &forged, &[(0, 4)])), UNKNOWN, "byte {byte}");
    }
    let with = |at: usize, byte: u8| {
        let mut other = token.clone();
        other[at] = byte;
        sense(&write(&two, HOST, &other, &[(0, 4)]))
    };
    assert_eq!((with(3, 2), with(7, 0xF0), with(23, 21)), ((5, 0x23, 1), (5, 0x23, 0x0A), (5, 0x23, 5)));
    // The source is reserved by another nexus: THIRD PARTY DEVICE FAILURE, as for any copy.
    good(run(&one, OTHER, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(sense(&write(&two, HOST, &token, &[(0, 4)])), (0xA, 0x0D, 1));
    assert_eq!(blocks(&two, 0, 4), [2; 4 * BLOCK]);
}

#[test]
fn token_that_is_not_used_expires_and_one_that_is_deleted_is_gone() {
    let street = Rc::new(TestEnvironment::default());
    let [one, two] = [1, 2].map(|number| move_in(&street, number, 512, &[(HOST, false)]));
    let brief = token_lasting(&one, HOST, &[(0, 1)], 5);
    let usual = token(&one, HOST, &[(0, 1)]);
    for _ in 0..3 {
        street.now.set(street.now.get() + Duration::from_secs(5));
        good(write(&two, HOST, &brief, &[(0, 1)]));
    }
    street.now.set(street.now.get() + Duration::from_secs(6));
    assert_eq!(sense(&write(&two, HOST, &brief, &[(0, 1)])), EXPIRED);
    good(write_with(&two, HOST, 2, 0, &usual, &[(0, 1)]));
    assert_eq!(sense(&write(&two, HOST, &usual, &[(0, 1)])), DELETED);
}

#[test]
fn tokens_are_bounded_and_those_that_ended_make_room() {
    let street = Rc::new(TestEnvironment::default());
    let one = move_in(&street, 1, 512, &[(HOST, false)]);
    let list = populate_list(0, 0, &[(0, 1)]);
    for _ in 0..256 {
        good(run(&one, HOST, &cdb(0x10, 1, &list), &list));
    }
    assert_eq!(refused(&one, &cdb(0x10, 1, &list), &list), (5, 0x55, 0x0D));
    tell(&one, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    for _ in 0..600 {
        good(run(&one, HOST, &cdb(0x10, 1, &list), &list));
        tell(&one, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    }
}

#[test]
fn zero_token_makes_zeros_where_nothing_is_to_be_read() {
    let [one, ..] = two_tenants();
    let mut zero = vec![0xFF, 0xFF, 0, 1, 0, 0, 1, 0xF8];
    zero.resize(512, 0);
    for discards in [true, false] {
        let geometry = one.device().geometry.get();
        one.device().geometry.set(block::Geometry { discard_zeroes: discards, ..geometry });
        one.device().bytes.borrow_mut().fill(1);
        good(write(&one, HOST, &zero, &[(3, 2), (9, 1)]));
        assert_eq!(written(&one, HOST), (1, 3));
        let found: Vec<u8> = blocks(&one, 2, 9).chunks(BLOCK).map(|block| block[0]).collect();
        assert_eq!(found, [1, 0, 0, 1, 1, 1, 1, 0, 1]);
    }
}

#[test]
fn lists_of_ranges_that_lie_are_refused() {
    let [one, ..] = two_tenants();
    let populate = |list: &[u8]| {
        let outcome = run(&one, HOST, &cdb(0x10, 1, list), list);
        (sense(&outcome), outcome.sense.and_then(|sense| sense.field).map(|field| field.byte))
    };
    let list = |of: &[Range]| populate_list(0, 0, of);
    let with = |at: usize, byte: u8| {
        let mut list = list(&[(0, 1)]);
        list[at] = byte;
        populate(&list)
    };
    assert_eq!(populate(&list(&[])), ((5, 0x26, 0), Some(0)));
    assert_eq!(with(15, 15), ((5, 0x26, 0), Some(14)));
    assert_eq!(with(4, 1), ((5, 0x26, 0), Some(4)), "longer than a token may last");
    let mut persistent = populate_list(2, 0, &[(0, 1)]);
    persistent[8..12].copy_from_slice(&[0, 0x80, 0, 2]);
    assert_eq!(populate(&persistent), ((5, 0x26, 0), Some(8)));
    assert_eq!(populate(&list(&[(0, 8), (7, 2)])), ((5, 0x26, 0), Some(32)), "a block twice");
    assert_eq!(populate(&list(&[(BLOCKS, 1)])), ((5, 0x21, 0), None));
    assert_eq!(populate(&list(&[(u64::MAX, 2)])), ((5, 0x21, 0), None));
    assert_eq!(populate(&list(&(0..65).map(|lba| (lba, 1)).collect::<Vec<_>>())), ((5, 0x26, 8), None));
    for bytes in [1, 15, 5000] {
        assert_eq!(populate(&vec![0; bytes]), ((5, 0x1A, 0), None), "{bytes} bytes");
    }
    // Of a truncated list only whole ranges count; an empty list does nothing.
    let cut = list(&[(0, 1), (1, 1)]);
    good(run(&one, HOST, &cdb(0x10, 1, &cut[..40]), &cut[..40]));
    assert_eq!(good(received(&one, HOST, 1))[23], 1);
    good(run(&one, HOST, &cdb(0x10, 3, &[]), &[]));
    good(run(&one, HOST, &cdb(0x11, 3, &[]), &[]));
    assert_eq!(sense(&received(&one, HOST, 3)), (5, 0x24, 0));
    let short = write_list(0, 0, &[0; 512], &[(0, 1)]);
    assert_eq!(refused(&one, &cdb(0x11, 2, &short[..535]), &short[..535]), (5, 0x1A, 0));
}

#[test]
fn write_that_is_not_waited_for_says_why_it_failed_when_it_is_asked() {
    let [one, two, ..] = two_tenants();
    let token = token(&one, HOST, &[(0, 4)]);
    tell(&one, &cdb10(0x2A, 0, 0, 1), &[1; BLOCK]);
    good(write_with(&two, HOST, 1, 0, &token, &[(0, 4)]));
    let told = good(received(&two, HOST, 2));
    assert_eq!((told[5], told[13], told[32 + 2], told[32 + 12], told[32 + 13]), (2, 18, 5, 0x23, 8));
}

#[test]
fn units_of_other_blocks_take_what_fits_theirs() {
    let street = Rc::new(TestEnvironment::default());
    let one = move_in(&street, 1, 512, &[(HOST, false)]);
    let two = move_in(&street, 2, 4096, &[(HOST, false)]);
    number(&one, 40);
    let token = token(&one, HOST, &[(0, 8), (16, 20)]);
    good(write(&two, HOST, &token, &[(1, 9)]));
    assert_eq!(written(&two, HOST), (3, 3), "28 blocks of 512 bytes fill three of 4096");
    assert_eq!((blocks(&two, 2, 1)[0], blocks(&two, 3, 1)[4095], blocks(&two, 4, 1)[0]), (16, 31, 2));
    let uneven = super::tokens::token(&one, HOST, &[(0, 4), (20, 4)]);
    assert_eq!(sense(&write(&two, HOST, &uneven, &[(1, 1)])), (0xA, 0x26, 0x0A));
}

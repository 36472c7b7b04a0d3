//! Reservations of both kinds, with few keys, so that commands conflict.

use super::{Changes, Request, allocation, flags};
use lab::random::Random;

const RESERVE_NAMES: [&str; 4] = ["RESERVE (6)", "RELEASE (6)", "RESERVE (10)", "RELEASE (10)"];
const IN_NAMES: [&str; 5] = [
    "PERSISTENT RESERVE IN, READ KEYS",
    "PERSISTENT RESERVE IN, READ RESERVATION",
    "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
    "PERSISTENT RESERVE IN, READ FULL STATUS",
    "PERSISTENT RESERVE IN, another",
];
const OUT_NAMES: [&str; 9] = [
    "PERSISTENT RESERVE OUT, REGISTER",
    "PERSISTENT RESERVE OUT, RESERVE",
    "PERSISTENT RESERVE OUT, RELEASE",
    "PERSISTENT RESERVE OUT, CLEAR",
    "PERSISTENT RESERVE OUT, PREEMPT",
    "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
    "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
    "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
    "PERSISTENT RESERVE OUT, another",
];
/// Service actions, weighted like their use by hosts.
const ACTIONS: [u8; 16] = [6, 6, 6, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 0x1F];
const TYPES: [u8; 10] = [1, 3, 5, 6, 7, 8, 0, 2, 4, 9];

pub(super) fn request(random: &mut Random) -> Request {
    match random.below(8) {
        0..=1 => reserve(random),
        2..=3 => persistent_in(random),
        _ => persistent_out(random),
    }
}

fn reserve(random: &mut Random) -> Request {
    // Three of four are releases, so that commands mostly find the unit free.
    let which = [1, 3, 1, 3, 1, 3, 0, 2][random.below(8) as usize];
    let mut cdb = vec![0; if which < 2 { 6 } else { 10 }];
    cdb[0] = [0x16, 0x17, 0x56, 0x57][which];
    cdb[1] = flags(random, &[0x10, 0x01]);
    Request::new(RESERVE_NAMES[which], &cdb).changing(Changes::State)
}

fn persistent_in(random: &mut Random) -> Request {
    let action = if random.one_in(16) { 0x1F } else { random.below(5) as u8 };
    let bytes = allocation(random, 255);
    let [high, low] = (bytes as u16).to_be_bytes();
    let cdb = [0x5E, action, 0, 0, 0, 0, 0, high, low, 0];
    // Service actions from 4 on are reserved, and share a name.
    Request::new(IN_NAMES[usize::from(action).min(4)], &cdb).reading(bytes)
}

fn persistent_out(random: &mut Random) -> Request {
    let action = ACTIONS[random.below(16) as usize];
    let scope_type = if random.one_in(24) { 0x10 } else { 0 } | TYPES[random.below(TYPES.len() as u64) as usize];
    let mut list = [0; 24];
    (list[7], list[15]) = (key(random), key(random));
    // SPEC_I_PT, ALL_TG_PT and APTPL, which need longer lists or persistent storage.
    list[20] = if random.one_in(16) { [0x01, 0x04, 0x08][random.below(3) as usize] } else { 0 };
    let mut list = list.to_vec();
    // PARAMETER LIST LENGTH must be 24 here (SPC-4 PERSISTENT RESERVE OUT).
    if random.one_in(16) {
        list.resize(random.below(40) as usize, 0);
    }
    let mut cdb = [0x5F, action, scope_type, 0, 0, 0, 0, 0, 0, 0];
    cdb[5..9].copy_from_slice(&(list.len() as u32).to_be_bytes());
    Request::new(OUT_NAMES[usize::from(action).min(8)], &cdb).writing(list).changing(Changes::State)
}

fn key(random: &mut Random) -> u8 {
    [0, 0xA, 0xA, 0xB][random.below(4) as usize]
}

//! Reservations as initiators observe them.

mod actions;
mod hostile;
mod matrix;
mod model;
mod persistence;
mod reserve;

use super::*;
use crate::rig::*;
use crate::sense::AdditionalSense;
use crate::{LogicalUnit, Options, Outcome, StoreError, TaskAttribute};

pub(super) const THIRD: NexusId = NexusId(3);

pub(super) const REGISTER: u8 = 0;
pub(super) const RESERVE: u8 = 1;
pub(super) const RELEASE: u8 = 2;
pub(super) const CLEAR: u8 = 3;
pub(super) const PREEMPT: u8 = 4;
pub(super) const PREEMPT_AND_ABORT: u8 = 5;
pub(super) const REGISTER_AND_IGNORE: u8 = 6;
pub(super) const MOVE: u8 = 7;

pub(super) const APTPL: u8 = 1;
pub(super) const ALL_TG_PT: u8 = 4;
pub(super) const SPEC_I_PT: u8 = 8;

/// Creates a unit with three nexuses and a store for its reservations.
pub(super) fn shared_unit() -> (LogicalUnit<Bench>, Rc<MemoryStore>) {
    shared_unit_over(Bench::new(BLOCK as u32, BLOCKS))
}

pub(super) fn shared_unit_over(bench: Bench) -> (LogicalUnit<Bench>, Rc<MemoryStore>) {
    let shelf = Rc::new(MemoryStore::default());
    let unit = LogicalUnit::new(bench, identity(), Options { removable: true, ..Options::default() });
    let unit = unit.with_state_store(shelf.clone()).with_sanitizer(Rc::new(Owner::with_key()));
    [HOST, OTHER, THIRD].into_iter().for_each(|nexus| log_in(&unit, nexus));
    (unit, shelf)
}

/// Logs in the nexus with this number, from an initiator of its own through a port of its own.
pub(super) fn log_in(unit: &LogicalUnit<Bench>, nexus: NexusId) {
    let number = u16::try_from(nexus.0).expect("a small number");
    unit.attach(nexus, initiator(number), port(number));
    assert_eq!(sense(&run(unit, nexus, &[0; 6], &[])), (6, 0x29, 0));
}

pub(super) fn cdb_of(action: u8, kind: u8, list_bytes: usize) -> [u8; 10] {
    let mut cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 0, 0];
    cdb[5..9].copy_from_slice(&(list_bytes as u32).to_be_bytes());
    cdb
}

pub(super) fn list_of(key: u64, action_key: u64, bits: u8, ids: &[Vec<u8>]) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    list.extend([0, 0, 0, 0, bits, 0, 0, 0]);
    if bits & SPEC_I_PT != 0 {
        list.extend((ids.concat().len() as u32).to_be_bytes());
        list.extend(ids.concat());
    }
    list
}

pub(super) fn move_list(key: u64, new_key: u64, bits: u8, relative_port: u16, id: &[u8]) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), new_key.to_be_bytes()].concat();
    list.extend([0, bits]);
    list.extend(relative_port.to_be_bytes());
    list.extend((id.len() as u32).to_be_bytes());
    list.extend(id);
    list
}

/// Issues PERSISTENT RESERVE OUT with the basic list.
pub(super) fn out(unit: &LogicalUnit<Bench>, nexus: NexusId, action: u8, kind: u8, keys: (u64, u64)) -> Outcome {
    out_with(unit, nexus, action, kind, &list_of(keys.0, keys.1, 0, &[]))
}

pub(super) fn out_with(unit: &LogicalUnit<Bench>, nexus: NexusId, action: u8, kind: u8, list: &[u8]) -> Outcome {
    run(unit, nexus, &cdb_of(action, kind, list.len()), list)
}

pub(super) fn register(unit: &LogicalUnit<Bench>, nexus: NexusId, key: u64) {
    done(&out(unit, nexus, REGISTER_AND_IGNORE, 0, (0, key)));
}

pub(super) fn done(outcome: &Outcome) {
    assert_eq!(outcome.status, Status::Good, "{:?}", outcome.sense);
}

pub(super) fn conflicts(outcome: &Outcome) {
    assert_eq!(outcome.status, Status::ReservationConflict, "{:?}", outcome.sense);
}

/// Issues PERSISTENT RESERVE IN from a nexus that is not registered.
pub(super) fn report(unit: &LogicalUnit<Bench>, action: u8, allocation: u16) -> Vec<u8> {
    let [high, low] = allocation.to_be_bytes();
    let bystander = NexusId(9);
    log_in(unit, bystander);
    let data = good(run(unit, bystander, &[0x5E, action, 0, 0, 0, 0, 0, high, low, 0], &[]));
    unit.detach(bystander);
    data
}

/// Returns PRGENERATION and the keys.
pub(super) fn keys(unit: &LogicalUnit<Bench>) -> (u32, Vec<u64>) {
    let data = report(unit, 0, 4096);
    let (head, list) = data.split_at(8);
    assert_eq!(head[4..], (list.len() as u32).to_be_bytes());
    let key = |chunk: &[u8]| u64::from_be_bytes(chunk.try_into().expect("eight bytes"));
    (u32::from_be_bytes([head[0], head[1], head[2], head[3]]), list.chunks_exact(8).map(key).collect())
}

/// Returns key and type of the reservation.
pub(super) fn held(unit: &LogicalUnit<Bench>) -> Option<(u64, u8)> {
    let data = report(unit, 1, 64);
    match data[4..8] {
        [0, 0, 0, 0] => None,
        [0, 0, 0, 16] => Some((u64::from_be_bytes(data[8..16].try_into().expect("eight bytes")), data[21])),
        _ => panic!("another length: {data:?}"),
    }
}

/// Takes all pending unit attentions of the nexus.
pub(super) fn told(unit: &LogicalUnit<Bench>, nexus: NexusId) -> Vec<(u8, u8)> {
    let mut told = Vec::new();
    loop {
        // REQUEST SENSE is executed under every reservation.
        let data = good(run(unit, nexus, &[0x03, 0, 0, 0, 18, 0], &[]));
        match data[2] {
            0 => return told,
            6 => told.push((data[12], data[13])),
            key => panic!("sense key {key}"),
        }
    }
}

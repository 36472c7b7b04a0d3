use super::*;
use crate::state::{DiskRecord, HostRecord, TargetRecord};
use std::os::unix::fs::MetadataExt;

fn state_with_disks(count: usize) -> State {
    let record = |n: usize| {
        (
            format!("d{n}").parse().expect("a name"),
            DiskRecord { path: format!("/disks/{n}"), id: None, spare: None, identity: Default::default() },
        )
    };
    State { disks: (0..count).map(record).collect(), ..State::default() }
}

#[test]
fn store_keeps_each_commit_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    for count in 1..8 {
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!(store.state().disks.len(), count - 1);
        store.commit(state_with_disks(count)).expect("commits");
        assert_eq!(store.version(), count as u64);
    }
}

#[test]
fn store_copied_at_any_commit_opens_as_that_commit() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    for count in 0..20 {
        store.commit(state_with_disks(count)).expect("commits");
        let copy = tempfile::tempdir().expect("a folder");
        fs::copy(dir.path().join(FILE), copy.path().join(FILE)).expect("copies");
        let reopened = Store::open(copy.path()).expect("a copy made between commits opens");
        assert_eq!(*reopened.state(), state_with_disks(count));
    }
}

#[test]
fn store_is_for_its_owner_alone_and_holds_the_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(fs::metadata(dir.path().join(FILE)).expect("is there").mode() & 0o777, 0o600);
    let refusal = Store::open(dir.path()).err().expect("taken");
    assert_eq!(refusal.code, code::STATE_LOCKED);
    drop(store);
    assert!(Store::open(dir.path()).is_ok());
}

#[test]
fn store_keeps_the_latest_versions_and_drops_older_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    for count in 1..=40 {
        store.commit(state_with_disks(count)).expect("commits");
    }
    assert_eq!(store.versions().expect("reads"), (9..=40).collect::<Vec<_>>());
    store.commit(state_with_disks(40)).expect("commits");
    assert_eq!(store.version(), 40, "a state that is already so is no new version");
}

#[test]
fn store_that_is_cut_short_or_foreign_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(dir.path()).expect("opens").commit(state_with_disks(3)).expect("commits");
    let whole = fs::read(dir.path().join(FILE)).expect("reads");
    for bad in [&whole[..whole.len() / 2], &whole[..100], b"not a database at all, but some text".as_slice()] {
        let other = tempfile::tempdir().expect("a folder");
        fs::write(other.path().join(FILE), bad).expect("writes");
        let refusal = Store::open(other.path()).err().expect("refused");
        assert_eq!(refusal.code, code::STATE_DAMAGED, "{refusal}");
        assert_eq!(fs::read(other.path().join(FILE)).expect("reads"), bad);
    }
}

#[test]
fn store_of_a_newer_form_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    let transaction = store.database.begin_write().expect("begins");
    transaction.open_table(META).expect("opens").insert("schema", SCHEMA + 1).expect("inserts");
    transaction.commit().expect("commits");
    drop(store);
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::STATE_NEWER);
}

#[test]
fn state_keeps_secrets_of_any_bytes() {
    let secret = model::Secret::new(vec![0, 1, 0xff, b'#', b' ', b'"', 7, 8, 9, 10, 11, 12]).expect("long enough");
    let chap = crate::state::ChapRecord { user: "web".to_owned(), secret };
    let host = HostRecord { any: true, initiators: vec![], networks: vec![], chap: Some(chap), mutual_chap: None };
    let target = TargetRecord { iqn: "iqn.2026-11.io.blockyard:a".parse().expect("a name") };
    let state = State {
        hosts: [("web".parse().expect("a name"), host)].into(),
        targets: [("default".parse().expect("a name"), target)].into(),
        ..State::default()
    };
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(dir.path()).expect("opens").commit(state.clone()).expect("commits");
    assert_eq!(*Store::open(dir.path()).expect("opens").state(), state);
}

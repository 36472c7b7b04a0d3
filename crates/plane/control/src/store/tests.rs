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
    let transaction = store.current().database.as_ref().expect("open").begin_write().expect("begins");
    transaction.open_table(META).expect("opens").insert("schema", SCHEMA + 1).expect("inserts");
    transaction.commit().expect("commits");
    drop(store);
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::STATE_NEWER);
}

/// A state with a host that proves `secret`.
fn state_with_secret(secret: &[u8]) -> State {
    let secret = model::Secret::new(secret.to_vec()).expect("long enough");
    let chap = crate::state::ChapRecord { user: "web".to_owned(), secret, demand: None };
    let proof = crate::state::ProofRecord { chap: Some(chap), mutual_chap: None };
    let host = HostRecord { any: true, initiators: vec![], networks: vec![], proof };
    State { hosts: [("secret".parse().expect("a name"), host)].into(), ..State::default() }
}

const PLAIN: &[u8] = b"a secret that is easy to find";

/// True when the file holds the secret, as it is or in hexadecimal.
fn tells(path: &Path) -> bool {
    let bytes = fs::read(path).expect("reads");
    let has = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    has(PLAIN) || has(crate::request::to_hex(PLAIN).as_bytes())
}

/// As version 0.1 wrote it: secrets in hexadecimal, form 1.
fn write_old_form(dir: &Path, states: &[State]) {
    let database = open_database(open_private(&dir.join(FILE)).expect("opens"), &dir.join(FILE)).expect("a database");
    for (version, state) in (1..).zip(states) {
        let transaction = database.begin_write().expect("begins");
        transaction.open_table(META).expect("opens").insert("schema", 1).expect("inserts");
        let json = serde_json::to_vec(state).expect("json");
        transaction.open_table(VERSIONS).expect("opens").insert(version, json.as_slice()).expect("inserts");
        transaction.open_table(EVENTS).expect("opens").insert(version, b"{}".as_slice()).expect("inserts");
        transaction.commit().expect("commits");
    }
}

#[test]
fn secrets_stand_in_no_byte_of_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = state_with_secret(PLAIN);
    Store::open(dir.path()).expect("opens").commit(state.clone()).expect("commits");
    assert!(!tells(&dir.path().join(FILE)));
    assert_eq!(fs::metadata(dir.path().join(KEY_FILE)).expect("is there").mode() & 0o777, 0o600);
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(*store.state(), state);
    assert!(!format!("{:?}", store.state()).contains("easy"));
}

#[test]
fn state_of_the_older_form_is_sealed_when_it_is_opened_with_all_its_versions() {
    let dir = tempfile::tempdir().expect("a folder");
    let states = [state_with_secret(PLAIN), state_with_disks(1), state_with_secret(PLAIN)];
    write_old_form(dir.path(), &states);
    assert!(tells(&dir.path().join(FILE)), "the test finds what is there");
    let mut old_file = File::open(dir.path().join(FILE)).expect("opens");
    // What a crash before the end has left.
    fs::write(dir.path().join("state.redb.new"), b"half").expect("writes");
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!((store.version(), &*store.state()), (3, &states[2]));
    assert_eq!(store.versions().expect("reads"), [1, 2, 3]);
    assert!(!tells(&dir.path().join(FILE)));
    let mut left = Vec::new();
    std::io::Read::read_to_end(&mut old_file, &mut left).expect("reads");
    assert!(left.iter().all(|&byte| byte == 0), "the old file's bytes are gone, too");
    assert!(!dir.path().join("state.redb.new").exists());
    drop(store);
    assert_eq!(*Store::open(dir.path()).expect("opens again").state(), states[2]);
}

#[test]
fn secrets_without_their_key_are_refused_and_can_be_forgotten() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = state_with_secret(PLAIN);
    Store::open(dir.path()).expect("opens").commit(state.clone()).expect("commits");
    let key = dir.path().join(KEY_FILE);
    let kept = fs::read(&key).expect("reads");
    fs::remove_file(&key).expect("removes");
    let missing = Store::open(dir.path()).err().expect("refused");
    assert_eq!(missing.code, code::KEY_MISSING, "{missing}");
    assert!(!key.exists(), "nothing is made that would hide what is missing");

    drop(Vault::make(&key).expect("another key"));
    let wrong = Store::open(dir.path()).err().expect("refused");
    assert_eq!(wrong.code, code::KEY_WRONG, "{wrong}");
    let open = fs::Permissions::from_mode(0o640);
    fs::set_permissions(&key, open).expect("sets");
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::KEY_UNUSABLE);
    fs::write(&key, &kept[..40]).expect("writes");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("sets");
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::KEY_UNUSABLE);
    fs::write(&key, &kept).expect("writes");
    assert_eq!(*Store::open(dir.path()).expect("the right key is back").state(), state);

    fs::remove_file(&key).expect("removes");
    let forget = KeyFile { path: None, forget: true };
    let store = Store::open_with(dir.path(), &forget).expect("opens");
    let host = store.state().hosts.values().next().cloned().expect("the host is there");
    let secret = host.proof.chap.expect("and has something to prove").secret;
    assert_ne!(secret.expose(), PLAIN, "which nobody knows");
    let now = store.state();
    drop(store);
    assert_eq!(Store::open(dir.path()).expect("opens as usual").state(), now);
}

#[test]
fn sealed_secret_is_of_its_place_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let vault = Vault::make(&dir.path().join("elsewhere.key")).expect("a key");
    let mut state = serde_json::json!({"hosts": {"a": {"chap": {"user": "u", "secret": "00ff"}}, "b": {"chap": {}}}});
    vault.seal(&mut state).expect("seals");
    let moved = state["hosts"]["a"]["chap"]["secret"].clone();
    let mut swapped = state.clone();
    swapped["hosts"]["b"]["chap"]["secret"] = moved;
    assert_eq!(vault.open(&mut swapped).expect_err("refused").code, code::KEY_WRONG);
    vault.open(&mut state).expect("opens");
    assert_eq!(state["hosts"]["a"]["chap"]["secret"], "00ff");
}

#[test]
fn state_keeps_secrets_of_any_bytes() {
    let secret = model::Secret::new(vec![0, 1, 0xff, b'#', b' ', b'"', 7, 8, 9, 10, 11, 12]).expect("long enough");
    let chap = crate::state::ChapRecord { user: "web".to_owned(), secret, demand: None };
    let proof = crate::state::ProofRecord { chap: Some(chap), mutual_chap: None };
    let host = HostRecord { any: true, initiators: vec![], networks: vec![], proof };
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

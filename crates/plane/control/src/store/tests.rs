mod damage;

use super::*;
use crate::state::{DiskRecord, HostRecord, TargetRecord};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn state_with_disks(count: usize) -> State {
    let record = |n: usize| {
        (
            format!("d{n}").parse().expect("a name"),
            DiskRecord {
                path: format!("/disks/{n}"),
                id: None,
                former: None,
                spare: None,
                identity: Default::default(),
                remote: None,
            },
        )
    };
    State { disks: (0..count).map(record).collect(), ..State::default() }
}

/// Copies the files of the store in `from` to `to`.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join(folder::VERSIONS)).expect("a folder");
    for entry in fs::read_dir(from.join(folder::VERSIONS)).expect("a folder") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(folder::VERSIONS).join(entry.file_name())).expect("copies");
    }
    fs::copy(from.join(KEY_FILE), to.join(KEY_FILE)).expect("copies");
}

/// Path of the file of a version of a document.
fn file(dir: &Path, name: &str, number: u64) -> PathBuf {
    dir.join(folder::VERSIONS).join(format!("{name}.{number:012}"))
}

fn flip(path: &Path, bit: usize) {
    let mut bytes = fs::read(path).expect("reads");
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, bytes).expect("writes");
}

#[test]
fn store_keeps_each_commit_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    for count in 1..8 {
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!(store.state().disks.len(), count - 1);
        store.commit(state_with_disks(count)).expect("commits");
        assert_eq!(store.version(), count as u64 + 1);
        assert_eq!(store.hold(), None);
    }
}

#[test]
fn store_copied_at_any_commit_opens_as_that_commit() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    for count in 0..20 {
        store.commit(state_with_disks(count)).expect("commits");
        let beside = tempfile::tempdir().expect("a folder");
        copy(dir.path(), beside.path());
        let reopened = Store::open(beside.path()).expect("a copy made between commits opens");
        assert_eq!(*reopened.state(), state_with_disks(count));
    }
}

#[test]
fn store_is_for_its_owner_alone_and_holds_the_directory() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    for path in [file(dir.path(), STATE, 1), dir.path().join("lock")] {
        assert_eq!(fs::metadata(path).expect("is there").mode() & 0o777, 0o600);
    }
    let refusal = Store::open(dir.path()).err().expect("taken");
    assert_eq!(refusal.code, code::STATE_LOCKED);
    drop(store);
    assert!(Store::open(dir.path()).is_ok());
}

#[test]
fn store_keeps_the_latest_versions_and_those_that_hosts_notice_and_drops_older_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    store.commit(state_with_secret(PLAIN)).expect("commits");
    let with_disks = |count| State { disks: state_with_disks(count).disks, ..state_with_secret(PLAIN) };
    for count in 1..=40 {
        store.commit(with_disks(count)).expect("commits");
    }
    let kept: Vec<u64> = [2].into_iter().chain(11..=42).collect();
    assert_eq!(store.versions(), kept);
    store.commit(with_disks(40)).expect("commits");
    assert_eq!(store.version(), 42, "a state that is already so is no new version");
    drop(store);
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(store.versions(), kept);
    let configs: Vec<u64> = store.restore_points().into_iter().map(|(number, _)| number).collect();
    assert_eq!(configs, [2]);
    assert_eq!(store.read_restore_point(2).expect("reads"), Some(state_with_secret(PLAIN)));
}

/// With any bit flipped in the latest version, the one before is served unchanged, and nothing is written until
/// that is accepted.
#[test]
fn any_flipped_bit_of_the_latest_version_gives_the_version_before_and_holds_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    store.commit(state_with_disks(3)).expect("commits");
    store.commit(state_with_secret(PLAIN)).expect("commits");
    drop(store);
    let bits = fs::metadata(file(dir.path(), STATE, 3)).expect("is there").len() as usize * 8;
    for bit in (0..bits).step_by(7) {
        let beside = tempfile::tempdir().expect("a folder");
        copy(dir.path(), beside.path());
        flip(&file(beside.path(), STATE, 3), bit);
        let store = Store::open(beside.path()).expect("the version before is whole");
        assert_eq!(*store.state(), state_with_disks(3), "bit {bit}");
        assert_eq!(store.hold().expect("held").code, code::STATE_UNACCEPTED, "bit {bit}");
        store.commit(state_with_disks(5)).expect("the daemon notes what it must");
        drop(store);
        let store = Store::open(beside.path()).expect("opens again");
        assert_eq!((&*store.state(), store.hold().is_some()), (&state_with_disks(3), true), "nothing was written");
    }
}

#[test]
fn older_version_that_is_accepted_is_the_state_with_all_that_was_noted_since() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    store.commit(state_with_disks(3)).expect("commits");
    store.commit(state_with_disks(4)).expect("commits");
    store.keep_document("people", "alice".into()).expect("kept");
    store.keep_document("people", "alice, bob".into()).expect("kept");
    drop(store);
    flip(&file(dir.path(), STATE, 3), 1000);
    flip(&file(dir.path(), "people", 2), 1000);
    let store = Store::open(dir.path()).expect("opens");
    let held = store.hold().expect("held").message;
    assert!(held.contains("version 3 of the state is damaged") && held.contains("the latest people"), "{held}");
    assert_eq!(store.document("people").expect("is there"), Some("alice".into()));
    store.commit(state_with_disks(7)).expect("noted");
    store.keep_document("people", "alice, carol".into()).expect("noted");
    store.accept().expect("accepted");
    assert_eq!((store.hold(), store.version()), (None, 4));
    drop(store);
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!((store.hold(), &*store.state()), (None, &state_with_disks(7)));
    assert_eq!(store.document("people").expect("is there"), Some("alice, carol".into()));
    assert!(
        dir.path().join("state/state.000000000003.damaged").exists(),
        "what was damaged stays for who wants to look"
    );
}

/// A deleted file fails no checksum; the headers of later files reveal it.
#[test]
fn latest_version_that_is_missing_is_noticed_by_what_was_written_after_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    store.commit(state_with_disks(3)).expect("commits");
    store.commit(state_with_disks(4)).expect("commits");
    store.keep_document("people", "alice".into()).expect("kept");
    drop(store);
    fs::remove_file(file(dir.path(), STATE, 3)).expect("removes");
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(*store.state(), state_with_disks(3));
    assert!(store.hold().expect("held").message.contains("version 3 of the state is missing"));
    store.accept().expect("accepted");
    assert_eq!(store.version(), 4, "a number that was given is not given again");
}

#[test]
fn damaged_version_that_is_not_the_latest_is_a_finding_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    (1..5).for_each(|count| store.commit(state_with_disks(count)).expect("commits"));
    drop(store);
    flip(&file(dir.path(), STATE, 3), 333);
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!((store.hold(), &*store.state()), (None, &state_with_disks(4)));
    assert_eq!(store.take_findings().len(), 1);
    assert_eq!(store.versions(), [1, 2, 4, 5]);
}

/// An older version under the file name of the latest has a valid checksum.
#[test]
fn version_under_the_name_of_another_is_damaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    (1..4).for_each(|count| store.commit(state_with_disks(count)).expect("commits"));
    store.keep_document("people", serde_json::json!({})).expect("kept");
    drop(store);
    fs::copy(file(dir.path(), STATE, 2), file(dir.path(), STATE, 4)).expect("copies");
    fs::copy(file(dir.path(), "people", 1), file(dir.path(), STATE, 3)).expect("copies");
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(*store.state(), state_with_disks(1));
    assert!(store.hold().expect("held").message.contains("it is version 2 of state"));
}

#[test]
fn store_without_a_whole_version_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(dir.path()).expect("opens").commit(state_with_disks(3)).expect("commits");
    for bad in [&[][..], b"no state at all, but some text"] {
        for number in [1, 2] {
            fs::write(file(dir.path(), STATE, number), bad).expect("writes");
        }
        let refusal = Store::open(dir.path()).err().expect("refused");
        assert_eq!(refusal.code, code::STATE_DAMAGED, "{refusal}");
        assert_eq!(fs::read(file(dir.path(), STATE, 2)).expect("reads"), bad);
    }
}

/// An array that starts anew by itself would take the disks away from its hosts.
#[test]
fn empty_state_beside_a_key_or_an_audit_is_begun_only_when_that_is_asked_for() {
    let new = StoreOptions { new: true, ..StoreOptions::default() };
    for left in ["node.key", "audit"] {
        let dir = tempfile::tempdir().expect("a folder");
        Store::open(dir.path()).expect("opens").commit(state_with_disks(3)).expect("commits");
        fs::remove_dir_all(dir.path().join(folder::VERSIONS)).expect("removes");
        if left == "audit" {
            fs::remove_file(dir.path().join(KEY_FILE)).expect("removes");
            fs::create_dir(dir.path().join("audit")).expect("a folder");
            fs::write(dir.path().join("audit/000000000001.jsonl"), "{}").expect("writes");
        }
        let refusal = Store::open(dir.path()).err().expect("refused");
        assert_eq!(refusal.code, code::STATE_GONE, "{refusal}");
        assert!(refusal.message.contains(left), "{refusal}");
        assert_eq!(*Store::open_with(dir.path(), &new).expect("opens").state(), State::default());
        assert!(Store::open(dir.path()).is_ok(), "it is asked for once");
    }
    assert!(Store::open(tempfile::tempdir().expect("a folder").path()).is_ok(), "a new folder is a new array");
}

#[test]
fn folder_that_was_deleted_moved_or_replaced_takes_no_change() {
    for how in ["deleted", "moved", "replaced", "versions deleted", "lock replaced"] {
        let dir = tempfile::tempdir().expect("a folder");
        let (here, away) = (dir.path().join("here"), dir.path().join("away"));
        let store = Store::open(&here).expect("opens");
        store.commit(state_with_disks(3)).expect("commits");
        match how {
            "deleted" => fs::remove_dir_all(&here).expect("removes"),
            "versions deleted" => fs::remove_dir_all(here.join(folder::VERSIONS)).expect("removes"),
            "lock replaced" => {
                fs::remove_file(here.join("lock")).expect("removes");
                fs::write(here.join("lock"), "").expect("writes");
            }
            _ => fs::rename(&here, &away).expect("moves"),
        }
        if how == "replaced" {
            copy(&away, &here);
            fs::write(here.join("lock"), "").expect("writes");
        }
        assert_eq!(store.hold().expect("held").code, code::STATE_REPLACED, "{how}");
        let refusal = store.commit(state_with_disks(4)).expect_err("refused");
        assert_eq!(refusal.code, code::STATE_REPLACED, "{how}: {refusal}");
        assert_eq!(*store.state(), state_with_disks(3), "{how}");
        assert_eq!(store.keep_document("people", "x".into()).expect_err("refused").code, code::STATE_REPLACED);
        if how == "moved" {
            fs::rename(&away, &here).expect("moves back");
            assert_eq!(store.hold(), None);
            store.commit(state_with_disks(4)).expect("commits again");
        }
    }
}

#[test]
fn store_of_a_newer_form_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(Store::open(dir.path()).expect("opens"));
    let bytes = fs::read(file(dir.path(), STATE, 1)).expect("reads");
    let (header, body) = file_format::parse(&bytes).expect("is whole");
    let newer = file_format::emit(&Header { format: FORMAT + 1, ..header }, body).expect("JSON");
    fs::write(file(dir.path(), STATE, 1), newer).expect("writes");
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::STATE_NEWER);
}

#[test]
fn audit_head_is_known_again_from_whatever_was_written_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path()).expect("opens");
    let head = AuditHead { number: 7, hash: "ab".to_owned() };
    store.note_audit_head(head.clone());
    store.keep_document("people", "alice".into()).expect("kept");
    drop(store);
    assert_eq!(Store::open(dir.path()).expect("opens").audit_head(), head);
}

/// A state with a host whose CHAP secret is `secret`.
fn state_with_secret(secret: &[u8]) -> State {
    let secret = model::Secret::new(secret.to_vec()).expect("long enough");
    let chap = crate::state::ChapRecord { user: "web".to_owned(), secret, demand: None };
    let proof = crate::state::CredentialsRecord { chap: Some(chap), mutual_chap: None };
    let host = HostRecord { any: true, initiators: vec![], networks: vec![], proof };
    State { hosts: [("secret".parse().expect("a name"), host)].into(), ..State::default() }
}

const PLAIN: &[u8] = b"a secret that is easy to find";

/// Returns true when a file of the state contains the secret, as bytes or in hexadecimal.
fn tells(dir: &Path) -> bool {
    let files =
        fs::read_dir(dir.join(folder::VERSIONS)).expect("a folder").map(|entry| entry.expect("an entry").path());
    let bytes: Vec<u8> = files.flat_map(|path| fs::read(path).expect("reads")).collect();
    let has = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    has(PLAIN) || has(crate::request::to_hex(PLAIN).as_bytes())
}

#[test]
fn secrets_stand_in_no_byte_of_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let state = state_with_secret(PLAIN);
    Store::open(dir.path()).expect("opens").commit(state.clone()).expect("commits");
    assert!(!tells(dir.path()));
    assert_eq!(fs::metadata(dir.path().join(KEY_FILE)).expect("is there").mode() & 0o777, 0o600);
    let store = Store::open(dir.path()).expect("opens");
    assert_eq!(*store.state(), state);
    assert!(!format!("{:?}", store.state()).contains("easy"));
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
    let id = std::str::from_utf8(&kept).expect("text").split(' ').nth(1).expect("an ID").to_owned();
    assert!(missing.message.contains(&id) && missing.message.contains("node.key"), "{missing}");
    assert!(!key.exists(), "nothing is made that would hide what is missing");

    drop(NodeKey::make(&key).expect("another key"));
    let wrong = Store::open(dir.path()).err().expect("refused");
    assert_eq!(wrong.code, code::KEY_WRONG, "{wrong}");
    let open = fs::Permissions::from_mode(0o640);
    fs::set_permissions(&key, open).expect("sets");
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::KEY_UNUSABLE);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("sets");
    for unusable in [&kept[..40], &kept[..0]] {
        fs::write(&key, unusable).expect("writes");
        let refusal = Store::open(dir.path()).err().expect("refused");
        assert!(refusal.code == code::KEY_UNUSABLE && refusal.message.contains(&id), "{refusal}");
    }
    fs::write(&key, &kept).expect("writes");
    assert_eq!(*Store::open(dir.path()).expect("the right key is back").state(), state);

    fs::remove_file(&key).expect("removes");
    let forget = StoreOptions { forget_secrets: true, ..StoreOptions::default() };
    let store = Store::open_with(dir.path(), &forget).expect("opens");
    let host = store.state().hosts.values().next().cloned().expect("the host is there");
    let secret = host.proof.chap.expect("and has something to prove").secret;
    assert_ne!(secret.expose(), PLAIN, "which nobody knows");
    let now = store.state();
    drop(store);
    assert_eq!(Store::open(dir.path()).expect("opens as usual").state(), now);
}

/// A state without secrets depends on the key as well, because pool keys are derived from it.
#[test]
fn state_that_knows_a_key_starts_with_no_other_and_makes_none() {
    let dir = tempfile::tempdir().expect("a folder");
    Store::open(dir.path()).expect("opens").commit(state_with_disks(1)).expect("commits");
    let key = dir.path().join(KEY_FILE);
    fs::remove_file(&key).expect("removes");
    let missing = Store::open(dir.path()).err().expect("refused");
    assert_eq!(missing.code, code::KEY_MISSING, "{missing}");
    assert!(!key.exists(), "no second key is made");
    drop(NodeKey::make(&key).expect("another key"));
    assert_eq!(Store::open(dir.path()).err().expect("refused").code, code::KEY_WRONG);
}

#[test]
fn sealed_secret_is_of_its_place_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let vault = NodeKey::make(&dir.path().join("elsewhere.key")).expect("a key");
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
    let proof = crate::state::CredentialsRecord { chap: Some(chap), mutual_chap: None };
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

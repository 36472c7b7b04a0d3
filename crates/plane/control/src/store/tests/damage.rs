//! Damages each file of a state folder in each way that a disk or an operator could, one at a time. The store
//! then opens what was written, or an older version under a hold, or refuses with the reason: never another
//! state, another key or an empty array.

use super::*;
use model::{Event, Raised, event};
use serde_json::json;
use std::collections::VecDeque;

/// Documents whose older version requires acceptance, and those whose older version is used without it.
const ASKED: [&str; 2] = ["people", "receivers"];

/// A state folder with everything that was ever written to it.
struct Array {
    dir: tempfile::TempDir,
    /// Committed states, from the first to the latest.
    states: Vec<State>,
    documents: BTreeMap<&'static str, Vec<Value>>,
    events: Vec<Event>,
    pools: Secret,
    /// Content of each file.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Array {
    /// Creates one whose hosts have secrets or not; without secrets only the file headers name the key.
    fn new(has_secrets: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(dir.path()).expect("opens");
        let (mut states, mut documents) = (vec![State::default()], BTreeMap::<_, Vec<Value>>::new());
        let mut keep = |name, document: Value| {
            store.keep_document(name, document.clone()).expect("kept");
            documents.entry(name).or_default().push(document);
        };
        for count in 1..4 {
            let state = State { disks: state_with_disks(count).disks, ..state_with_secret(PLAIN) };
            states.push(if has_secrets { state } else { state_with_disks(count) });
            store.commit(states[count].clone()).expect("commits");
            keep("people", json!({ "users": { "alice": count } }));
        }
        keep("receivers", json!({ "ops": "mail" }));
        keep("refused-logins", json!([]));
        keep("refused-logins", json!(["iqn.2001-01.org.example:x"]));
        let subject = model::Subject::new(model::SubjectKind::Node, &"n1");
        let raised = |sentence| Raised {
            time: Timestamp::from_unix(9),
            code: event::STATE_ACCEPTED,
            subject: subject.clone(),
            sentence,
        };
        let events: VecDeque<_> = (1..=200).map(|number| Event::first(number, raised(number.to_string()))).collect();
        store.keep_events(&events, &(1..=200).collect()).expect("kept");
        let pools = store.pool_secret();
        drop(store);
        let versions = fs::read_dir(dir.path().join(folder::VERSIONS)).expect("a folder");
        let paths = versions.map(|entry| entry.expect("an entry").path()).chain([dir.path().join(KEY_FILE)]);
        let files = paths.map(|path| (path.clone(), fs::read(path).expect("reads"))).collect();
        Self { dir, states, documents, events: events.into(), pools, files }
    }

    /// Opens the array with the damaged file `path`, judges the result, and restores the file.
    fn try_with(&self, path: &Path, harm: &str, content: Option<&[u8]>) {
        match content {
            Some(content) => fs::write(path, content).expect("writes"),
            None => fs::remove_file(path).expect("removes"),
        }
        if let Err(why) = self.judge(path) {
            panic!("{} {harm}: {why}", path.display());
        }
        fs::write(path, &self.files[path]).expect("writes");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, mode).expect("sets");
    }

    fn judge(&self, path: &Path) -> Result<(), String> {
        let store = match Store::open(self.dir.path()) {
            Ok(store) => store,
            Err(refusal) => return self.judge_refusal(path, &refusal),
        };
        let (state, hold) = (store.state(), store.hold());
        let latest = self.states.last().expect("there are some");
        if hold.is_none() && *state != *latest {
            return Err("an older state is taken for the latest".to_owned());
        }
        if !self.states.contains(&state) || *state == State::default() {
            return Err(format!("{state:?} was never there, or is empty"));
        }
        if store.pool_secret() != self.pools {
            return Err("another key is taken for the array's".to_owned());
        }
        for (name, all) in &self.documents {
            let found = store.document(name).map_err(|refusal| refusal.to_string())?;
            let is_latest = found.as_ref() == all.last();
            let is_older = found.as_ref().is_none_or(|found| all.contains(found));
            let may_be_older = hold.is_some() || !ASKED.contains(name);
            if !(is_latest || is_older && may_be_older) {
                return Err(format!("{name} are {found:?}, and changes are taken"));
            }
        }
        let (events, next) = store.events().map_err(|refusal| refusal.to_string())?;
        if !events.iter().all(|event| self.events.contains(event)) {
            return Err("an event is another one".to_owned());
        }
        let is_told = hold.is_some() || !store.take_findings().is_empty();
        let is_gone = events.len() < self.events.len();
        if is_gone && path.exists() && !(is_told && next > 200) {
            return Err("events are missing, and nobody is told".to_owned());
        }
        Ok(())
    }

    /// Checks that a refusal names the fault and the remedy, and changes nothing on disk.
    fn judge_refusal(&self, path: &Path, refusal: &Refusal) -> Result<(), String> {
        let is_key = path.ends_with(KEY_FILE);
        let allowed: &[model::Code] =
            if is_key { &[code::KEY_MISSING, code::KEY_UNUSABLE, code::KEY_WRONG] } else { &[code::STATE_DAMAGED] };
        let is_clear = !refusal.message.is_empty() && !refusal.hint.is_empty();
        if !allowed.contains(&refusal.code) || !is_clear {
            return Err(format!("it is refused with {refusal}"));
        }
        let is_left = self.files.iter().filter(|(other, _)| *other != path);
        let changed = is_left.into_iter().find(|(other, content)| fs::read(other).ok().as_ref() != Some(content));
        changed.map_or(Ok(()), |(other, _)| Err(format!("{} was changed by a start that is refused", other.display())))
    }
}

/// Some offsets into a file of `len` bytes: not too many, and not always the same part of a field.
fn places(len: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by((len / most).max(1))
}

#[test]
fn state_folder_with_any_damaged_file_is_what_was_written_or_says_that_it_is_not() {
    let mut tried = 0;
    for has_secrets in [false, true] {
        let array = Array::new(has_secrets);
        for (path, content) in &array.files {
            let mut harm = |what: &str, content: Option<&[u8]>| {
                array.try_with(path, what, content);
                tried += 1;
            };
            for at in places(content.len(), 60) {
                let mut changed = content.clone();
                changed[at] ^= 1 << (at % 8);
                harm(&format!("with a flipped bit in byte {at}"), Some(&changed));
            }
            for at in places(content.len(), 12) {
                harm(&format!("cut to {at} bytes"), Some(&content[..at]));
                let mut changed = content.clone();
                changed[at..].fill(0);
                harm(&format!("with zeros from byte {at} on"), Some(&changed));
            }
            harm("twice", Some(&[&content[..], &content[..]].concat()));
            harm("gone", None);
            for (other, content) in &array.files {
                harm(&format!("with the content of {}", other.display()), Some(content));
            }
        }
        let whole = Store::open(array.dir.path()).expect("everything is back");
        assert_eq!((&*whole.state(), whole.hold()), (array.states.last().expect("some"), None));
    }
    assert!(tried > 2000, "{tried}");
}

/// Otherwise, users that were removed could log in again.
#[test]
fn latest_version_of_a_document_that_is_missing_is_noticed_and_can_be_accepted() {
    for left in [0, 2] {
        let array = Array::new(false);
        let dir = array.dir.path();
        (left + 1..=3).for_each(|number| fs::remove_file(file(dir, "people", number)).expect("removes"));
        (1..=left.min(1)).for_each(|number| fs::remove_file(file(dir, "people", number)).expect("removes"));
        let store = Store::open(dir).expect("opens");
        let held = store.hold().expect("held").message;
        assert!(held.contains("version 3 of the people of the array is missing"), "{held}");
        store.accept().expect("accepted");
        drop(store);
        let store = Store::open(dir).expect("opens");
        let expected = (left > 0).then(|| array.documents["people"][left as usize - 1].clone());
        assert_eq!((store.hold(), store.document("people").expect("reads")), (None, expected));
        store.keep_document("people", json!("new")).expect("kept");
        drop(store);
        assert_eq!(Store::open(dir).expect("opens").document("people").expect("reads"), Some(json!("new")));
    }
}

/// Pool keys are derived from the node key: another one would open no encrypted volume, without any hint at the
/// cause.
#[test]
fn key_of_which_a_digit_has_changed_is_refused_also_where_no_secret_is_sealed() {
    let array = Array::new(false);
    let path = array.dir.path().join(KEY_FILE);
    let text = String::from_utf8(array.files[&path].clone()).expect("text");
    let (before, key) = text.trim_end().rsplit_once(' ').expect("three words");
    let other = if key.starts_with('0') { "1" } else { "0" };
    fs::write(&path, format!("{before} {other}{}\n", &key[1..])).expect("writes");
    let refusal = Store::open(array.dir.path()).err().expect("refused");
    assert_eq!(refusal.code, code::KEY_UNUSABLE);
    assert!(refusal.message.contains("some digits have changed"), "{refusal}");
}

/// Foreign files are ignored, whatever their numbers are.
#[test]
fn files_whose_names_are_not_ours_are_passed_over() {
    let array = Array::new(false);
    for name in
        ["state.9", "state.18446744073709551615", "events.+00000000001", "people.0000000000099", "state.x", "new"]
    {
        fs::write(array.dir.path().join(folder::VERSIONS).join(name), "anything").expect("writes");
    }
    let store = Store::open(array.dir.path()).expect("opens");
    assert_eq!((&*store.state(), store.hold()), (array.states.last().expect("some"), None));
    assert_eq!(store.events().expect("reads").0.len(), 200);
}

//! Invariants asserted by the fuzz targets for files and documents that only this crate reads. Built for
//! fuzzing alone.

use crate::config::{Document, access, export};
use crate::health::smart;
use crate::recover::Copy;
use crate::state::lun_history::LunIndex;
use crate::store::{file_format, node_key};
use crate::{Settings, State};
use model::{Timestamp, VolumeId};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Appends the matching checksum to the content.
#[must_use]
pub fn sealed(content: &[u8]) -> Vec<u8> {
    [content, b"\n", file_format::sum(&[content, b"\n"].concat()).as_bytes()].concat()
}

/// Checks that a file of the state folder round-trips, and that a state in it can be served.
pub fn state_file(bytes: &[u8]) {
    let Ok((header, body)) = file_format::parse(bytes) else { return };
    let again = file_format::emit(&header, body).expect("what was read can be written");
    assert_eq!(file_format::parse(&again), Ok((header, body)));
    if let Some(copy) = Copy::parse(bytes) {
        assert!(copy.differences(&copy).is_empty());
    }
    state(body);
}

/// Checks that a state round-trips, that its access rules are consistent, and that its exported document
/// changes nothing.
pub fn state(json: &[u8]) {
    let Ok(mut value) = serde_json::from_slice::<Value>(json) else { return };
    let vault = node_key::NodeKey::of("0badcafe".to_owned(), &[7; 32], Path::new("node.key")).expect("a key");
    if node_key::keys_of(&mut value).is_err() || vault.open(&mut value).is_err() {
        return;
    }
    let Ok(state) = serde_json::from_value::<State>(value) else { return };
    let mut written = serde_json::to_value(&state).expect("what was read can be written");
    vault.seal(&mut written).expect("there are random numbers");
    assert!(!has_plain_secret(&written), "a secret is written in plain");
    vault.open(&mut written).expect("it was sealed with this key");
    assert_eq!(serde_json::from_value::<State>(written).expect("what is written can be read"), state);
    // No presentation may refer to a host that the data plane does not have.
    let seen = state.access(&settings().portals);
    assert!(seen.presentations.iter().all(|one| seen.hosts.iter().any(|host| host.name == one.host)));
    assert_eq!(state.mapping_counts().values().sum::<usize>() > 0, !seen.presentations.is_empty());
    // Every presented LUN must be among those that its host knows.
    let known = LunIndex::of(&state);
    for record in &state.presentations {
        let Some(target) = state.targets.get(&record.target) else { continue };
        assert!(known.numbers_of(&record.host, &target.iqn, record.volume_id).contains(&record.lun));
    }
    let (mut next, before) = (state.clone(), State::default());
    if next.remember_luns(&before).is_ok() {
        let _ = next.admit_luns(&state);
    }
    document(&export::of_state(&state), &state);
}

/// Checks that a document that is applied twice changes nothing the second time.
pub fn documents(documents: impl IntoIterator<Item = Document>) {
    documents.into_iter().for_each(|one| document(&one, &State::default()));
}

fn document(document: &Document, before: &State) {
    let volumes = document.present.iter().map(|entry| (entry.volume.clone(), VolumeId::from_bytes([1; 16]))).collect();
    let settings = settings();
    for prune in [false, true] {
        let Ok(once) = access::after(before, document, &volumes, &settings, prune) else { continue };
        let twice = access::after(&once, document, &volumes, &settings, prune).expect("it was applied before");
        assert_eq!(twice, once, "applied twice, a document changes nothing");
    }
}

fn has_plain_secret(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.iter().any(|(key, inner)| match inner {
            Value::String(text) => key == "secret" && !text.starts_with("sealed:"),
            inner => has_plain_secret(inner),
        }),
        Value::Array(values) => values.iter().any(has_plain_secret),
        _ => false,
    }
}

fn settings() -> Settings {
    Settings {
        state_dir: PathBuf::from("/state"),
        socket: PathBuf::from("/socket"),
        node: "n1".parse().expect("a name"),
        target_base: "iqn.2026-11.io.blockyard".to_owned(),
        portals: vec![([127, 0, 0, 1], 3260).into()],
        disk_search: Vec::new(),
    }
}

/// Checks that texts from `smartctl` are short and printable, and that a failing disk is reported.
pub fn smart(json: &[u8]) {
    let (why, _) = (smart::why(json), smart::is_asleep(json));
    assert!(!why.chars().any(|letter| letter.is_control() && letter != '\n'));
    let Ok(health) = smart::parse(json, Timestamp::default()) else { return };
    assert!(health.passed != Some(false) || health.is_failing() && !health.complaints().is_empty());
    assert!(health.complaints().iter().all(|complaint| complaint.len() < 200));
}

/// Checks that the text of a key file is a key or is rejected.
pub fn key(text: &str) {
    if let Some(vault) = node_key::NodeKey::parse(text, Path::new("node.key")) {
        assert!(text.contains(vault.id()));
    }
}

//! Fuzz target: files and documents of arbitrary bytes: states, keys, documents of operators, answers of smartctl, and
//! the audit log. The first byte selects the kind.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    let text = || std::str::from_utf8(bytes).ok();
    match kind % 8 {
        0 => control::fuzzing::state_file(bytes),
        1 => control::fuzzing::state_file(&control::fuzzing::sealed(bytes)),
        2 => control::fuzzing::state(bytes),
        3 => control::fuzzing::smart(bytes),
        4 => text().into_iter().for_each(control::fuzzing::key),
        5 => control::fuzzing::documents(serde_json::from_slice(bytes)),
        6 => {
            let document = text().and_then(|text| toml::from_str(text).ok());
            control::fuzzing::documents(document);
        }
        _ => api::fuzzing::audit(bytes),
    }
});

//! Fuzz target: arbitrary bytes as a request to the privileged helper or as its answer. A message is accepted only if
//! it is emitted as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use privilege::{Answer, Request};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::parse(input) {
        assert!(request.has_valid_path());
        assert_eq!(request.emit(), input);
    }
    if let Ok(answer) = Answer::parse(input) {
        assert_eq!(answer.emit(), input);
    }
});

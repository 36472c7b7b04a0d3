//! Any bytes as a request to the privileged helper or as its answer: a message that is emitted as the same bytes, or a violation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use privilege::{Answer, Request};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::parse(input) {
        assert!(request.fits());
        assert_eq!(request.emit(), input);
    }
    if let Ok(answer) = Answer::parse(input) {
        assert_eq!(answer.emit(), input);
    }
});

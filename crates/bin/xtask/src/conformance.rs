//! libiscsi's test suite against a target: every test in its own process, judged by name and count.

pub mod expected;

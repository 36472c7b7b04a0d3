//! Rules of the house, over this repository. As a test of its own it has Cargo build `xtask` with the other tests.

use std::process::Command;

#[test]
fn repository_keeps_the_rules_of_the_house() {
    let tidied = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("tidy").output().expect("it starts");
    let findings = String::from_utf8_lossy(&tidied.stdout);
    assert!(tidied.status.success(), "{findings}{}", String::from_utf8_lossy(&tidied.stderr));
}

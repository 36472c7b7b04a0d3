//! Output of commands, verbatim: `golden/commands.txt` beside this file. `BLOCKYARD_BLESS=1` rewrites it.

use crate::lab::{Lab, without_speed};
use crate::rest::COMMANDS;
use crate::serve::wait_for;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Replaces words that differ between runs or machines by placeholders.
fn settled(text: &str, dir: &str) -> String {
    let is_delimiter = |c: char| c.is_whitespace() || "\"'()[]<>,;=".contains(c);
    let mut settled = String::new();
    let mut rest = text.replace(dir, "DIR");
    if let Some((before, after)) = rest.split_once(", up ") {
        // The uptime of the daemon.
        rest = format!("{before}, up AGE{}", after.find('\n').map_or("", |end| &after[end..]));
    }
    while !rest.is_empty() {
        let end = rest.find(is_delimiter).unwrap_or(rest.len());
        let after = rest[end..].chars().next().map_or(0, char::len_utf8);
        settled.push_str(stand_in(&rest[..end]).unwrap_or(&rest[..end]));
        settled.push_str(&rest[end..end + after]);
        rest.drain(..end + after);
    }
    settled
}

/// Returns the placeholder for a word of these kinds.
fn stand_in(word: &str) -> Option<&'static str> {
    let bytes = word.as_bytes();
    let shaped = |shape: &str| {
        word.len() == shape.len()
            && bytes.iter().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                b'f' => byte.is_ascii_hexdigit(),
                wanted => *byte == wanted,
            })
    };
    let is_random = word.len() >= 16
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-:/.+#".contains(byte))
        && word.split(['/', '.', ':', '#', '-', '_']).any(|part| {
            part.len() >= 12
                && part.bytes().any(|b| b.is_ascii_digit())
                && part.bytes().any(|b| b.is_ascii_alphabetic())
        });
    match () {
        () if shaped("0000-00-00T00:00:00Z") => Some("YYYY-MM-DDTHH:MM:SSZ"),
        () if shaped("ffffffff-ffff-ffff-ffff-ffffffffffff") => Some("UUID"),
        () if is_random && !word.contains("iqn.") => Some("RANDOM"),
        () => None,
    }
}

#[test]
fn commands_print_what_they_have_always_printed() {
    let lab = Lab::new();
    fs::write(lab.dir.path().join("array.toml"), lab.good(&["export"])).expect("writes");
    fs::write(lab.dir.path().join("password"), "correct horse battery staple\n").expect("writes");
    let dir = lab.dir.path().to_string_lossy().into_owned();
    let mut real = String::new();
    // Disks and limits depend on the machine, and the number of saved states on time.
    let of_the_machine = ["disk find", "config list", "state show", "state accept", "doctor"];
    for command in COMMANDS.lines().filter(|line| !line.is_empty() && !of_the_machine.contains(line)) {
        let words: Vec<&str> = command.split(' ').chain(["-o", "table"]).collect();
        // Waits until the work started by earlier commands has finished, on every machine.
        let until = |line, text: &str| drop(wait_for(lab.dir.path(), line, |said| said.contains(text)));
        match command {
            "pool scrub status tank" => until("pool scrub status tank -o table", " done "),
            "pool export tank" => until("pool show tank -o table", "pool tank: healthy"),
            _ => {}
        }
        let outcome = lab.run(&words);
        let text = |text: &str, before: &str| {
            without_speed(&settled(text, &dir))
                .lines()
                .map(|line| format!("{before}{line}").trim_end().to_owned() + "\n")
                .collect::<String>()
        };
        let (out, err) = (text(&outcome.stdout, "  "), text(&outcome.stderr, "! "));
        let code = if outcome.code == 0 { String::new() } else { format!("    (exit code {})", outcome.code) };
        writeln!(real, "$ blockyard {command}{code}\n{out}{err}").expect("a string takes all text");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden/commands.txt");
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        fs::write(&path, &real).expect("writes");
        return;
    }
    let kept = fs::read_to_string(&path).expect("it was kept");
    for (number, (kept, line)) in kept.lines().zip(real.lines()).enumerate() {
        let (at, more) = (path.display(), real.lines().skip(number).take(4).collect::<Vec<_>>().join("\n"));
        assert_eq!(line, kept, "line {} of {at}; BLOCKYARD_BLESS=1 writes it anew; from there on:\n{more}", number + 1);
    }
    assert_eq!(real.lines().count(), kept.lines().count(), "{}; BLOCKYARD_BLESS=1 writes it anew", path.display());
}

#[test]
fn only_what_differs_from_run_to_run_has_a_stand_in() {
    let said = "tank at 2026-11-24T04:00:00Z of 0f6b1c2d-0a0b-4c4d-8e8f-001122334455 in DIR/d0.img is iqn.2026-11.io.blockyard:test0123456789ab";
    assert_eq!(
        settled(said, "/tmp/x"),
        "tank at YYYY-MM-DDTHH:MM:SSZ of UUID in DIR/d0.img is iqn.2026-11.io.blockyard:test0123456789ab"
    );
    assert_eq!(settled("token: by_3fA9c0Kq27LmZx81TbQ", "/tmp/x"), "token: RANDOM");
    assert_eq!(settled("pool-create degraded 1,250,000", "/tmp/x"), "pool-create degraded 1,250,000");
}

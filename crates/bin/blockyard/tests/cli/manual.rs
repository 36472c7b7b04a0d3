//! The commands of the manual, run in order: each prints what the manual shows.

use crate::lab::{Lab, without_speed};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the console blocks of `text` in `lab`, and returns the text with the real output.
fn rewritten(lab: &Lab, text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ => {}
        }
        match (inside, line.strip_prefix("$ blockyard ")) {
            (true, Some(command)) => out += &run(lab, command),
            (true, None) if line != "```console" => {}
            _ => writeln!(out, "{line}").expect("a string takes all text"),
        }
    }
    out
}

/// Runs a command, and returns it with its output, including stderr, and its exit code unless that is 0.
fn run(lab: &Lab, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let outcome = lab.run(&words);
    let code = if outcome.code == 0 { String::new() } else { format!("(exit code {})\n", outcome.code) };
    let printed = format!("{}{}{code}", outcome.stdout, outcome.stderr);
    let folder = lab.dir.path().to_string_lossy().into_owned();
    // The folder differs between runs, and so do unpredictable values.
    let printed = without_speed(&printed.replace(&folder, "/srv"));
    // Whether space is still being freed depends on how soon the command comes.
    let lines = printed.lines().filter(|line| !line.starts_with("  freeing "));
    let lines = lines.map(|line| mask(line) + "\n").collect::<String>();
    format!("$ blockyard {command}\n{lines}")
}

/// Masks identities and times of a line.
fn mask(line: &str) -> String {
    let line = &mask_times(line);
    match line.split_once("\"id\": \"") {
        Some((before, after)) => format!("{before}\"id\": \"…{}", after.get(36..).unwrap_or("")),
        None => line.to_owned(),
    }
}

/// Replaces every time of a line by `2026-11-21T10:19:59Z`.
fn mask_times(line: &str) -> String {
    let words = line.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':')));
    let masked = words.map(|word| {
        let time = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        match time.parse::<model::Timestamp>() {
            Ok(_) => word.replace(time, "2026-11-21T10:19:59Z"),
            Err(_) => word.to_owned(),
        }
    });
    let masked: String = masked.collect();
    match masked.split_once(", up ") {
        Some((before, _)) if before.starts_with("node ") => format!("{before}, up 0 s"),
        _ => masked,
    }
}

#[test]
fn manual_shows_what_the_commands_print() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/operate/cli.md");
    let text = fs::read_to_string(&path).expect("the manual");
    let lab = Lab::new();
    fs::write(lab.dir.path().join("web.secret"), "a secret of this host\n").expect("writes");
    fs::write(lab.dir.path().join("alice.password"), "correct horse battery staple\n").expect("writes");
    let real = rewritten(&lab, &text);
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        fs::write(&path, &real).expect("writes");
        return;
    }
    for (number, (written, real)) in text.lines().zip(real.lines()).enumerate() {
        assert_eq!(written, real, "docs/operate/cli.md line {}; BLOCKYARD_BLESS=1 writes it anew", number + 1);
    }
    assert_eq!(text.lines().count(), real.lines().count());
}

/// Regression: `blockyard … --help | head -1`.
#[test]
fn help_that_nobody_reads_to_its_end_is_no_failure() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_blockyard")).args(arguments).stdout(writer).output().unwrap();
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

//! Checks of the content of a package.

use super::done;
use anyhow::{Context, Result};
use lab::child::run_within;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Files that a package must contain.
const NEEDED: [&str; 12] = [
    "./usr/bin/blockyard",
    "./etc/blockyard.toml",
    "./lib/systemd/system/blockyard.service",
    "./usr/share/man/man1/blockyard.1.gz",
    "./usr/share/man/man1/blockyard-volume-create.1.gz",
    "./usr/share/bash-completion/completions/blockyard",
    "./usr/share/zsh/vendor-completions/_blockyard",
    "./usr/share/fish/vendor_completions.d/blockyard.fish",
    "./usr/share/doc/blockyard/copyright",
    "./usr/share/doc/blockyard/changelog.gz",
    "./usr/share/blockyard/prometheus/blockyard.rules.yml",
    "./usr/share/blockyard/grafana/blockyard.json",
];

/// Returns the findings on the package, a sentence each; uses lintian if it is installed.
pub(super) fn judge(package: &Path) -> Result<Vec<String>> {
    let listed = done(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let mut findings = contents(&listed);
    let field = |name: &str| done(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    if !field("Depends")?.contains("libc6 (>=") {
        findings.push("no version of libc6 is asked for".to_owned());
    }
    findings.extend(lintian(package)?);
    Ok(findings)
}

/// Returns unexpected and missing entries in the output of `dpkg-deb --contents`.
fn contents(listed: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut there = Vec::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, _, _, _, path, ..] = words[..] else {
            findings.push(format!("\"{line}\" is no file"));
            continue;
        };
        let wanted = match path {
            _ if mode.starts_with('d') => "drwxr-xr-x",
            "./usr/bin/blockyard" => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        if mode != wanted || owner != "root/root" {
            findings.push(format!("{path} is {mode} of {owner}, not {wanted} of root/root"));
        }
        there.push(path);
    }
    findings.extend(NEEDED.iter().filter(|path| !there.contains(path)).map(|path| format!("{path} is missing")));
    findings
}

fn lintian(package: &Path) -> Result<Vec<String>> {
    if Command::new("lintian").arg("--version").output().is_err() {
        println!("lintian is not installed: the package is judged without it");
        return Ok(Vec::new());
    }
    let mut asked = Command::new("lintian");
    asked.args(["--allow-root", "--tag-display-limit=0", "--fail-on=warning,error"]).arg(package);
    let ended = run_within(&mut asked, Duration::from_secs(300))?;
    let status = ended.status.context("lintian does not end")?;
    let tags: Vec<String> = ended
        .said
        .lines()
        .filter(|line| ["E: ", "W: "].iter().any(|kind| line.starts_with(kind)))
        .map(str::to_owned)
        .collect();
    // A failure without tags is one of the program itself.
    if tags.is_empty() && !status.success() {
        return Ok(vec![format!("lintian fails: {}", ended.said.trim())]);
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_open_to_others_is_found() {
        let good: String = NEEDED
            .iter()
            .map(|path| {
                let mode = if *path == "./usr/bin/blockyard" { "-rwxr-xr-x" } else { "-rw-r--r--" };
                format!("{mode} root/root 1 2026-11-23 10:00 {path}\n")
            })
            .collect();
        assert_eq!(contents(&format!("drwxr-xr-x root/root 0 2026-11-23 10:00 ./\n{good}")), Vec::<String>::new());
        let open = good.replace("-rwxr-xr-x", "-rwsr-xrwx");
        assert!(contents(&open)[0].starts_with("./usr/bin/blockyard is -rwsr-xrwx"));
        let theirs = good.replacen("root/root", "build/build", 1);
        assert_eq!(contents(&theirs).len(), 1);
        let bare = good.replace("./etc/blockyard.toml", "./etc/other");
        assert_eq!(contents(&bare), ["./etc/blockyard.toml is missing"]);
    }
}

//! Shell scripts: they must parse, and shellcheck, if installed, must report nothing.

use super::Finding;
use super::tree::Tree;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `sh -n`, and shellcheck if installed, on every script that starts with `#!/bin/sh`.
pub(super) fn check(root: &Path, tree: &Tree) -> Result<Vec<Finding>> {
    let scripts: Vec<&str> =
        tree.files.iter().filter(|file| file.text.starts_with("#!/bin/sh")).map(|file| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for script in &scripts {
        findings.extend(verdict(root, script, "sh", &["-n"])?);
    }
    // A missing shellcheck is no finding, since not every machine has it.
    if installed("shellcheck") {
        for script in &scripts {
            findings.extend(verdict(
                root,
                script,
                "shellcheck",
                &["--format=gcc", "--shell=sh", "--severity=warning"],
            )?);
        }
    }
    Ok(findings)
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn verdict(root: &Path, script: &str, program: &str, flags: &[&str]) -> Result<Option<Finding>> {
    let out = Command::new(program)
        .args(flags)
        .arg(script)
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if out.status.success() {
        return Ok(None);
    }
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok(Some(Finding::new(script, format!("{program} says: {}", said.trim()))))
}

#[cfg(test)]
mod tests {
    use super::super::tree::TextFile;
    use super::*;

    #[test]
    fn script_that_does_not_parse_is_found() {
        let root = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        for (name, text) in [("good", "#!/bin/sh\necho hello\n"), ("bad", "#!/bin/sh\nif true; then\n")] {
            std::fs::write(root.path().join(name), text).unwrap();
            tree.files.push(TextFile { path: name.into(), text: text.into() });
        }
        let found = check(root.path(), &tree).unwrap();
        assert!(!found.is_empty() && found.iter().all(|finding| finding.place == "bad"), "{found:?}");
    }
}

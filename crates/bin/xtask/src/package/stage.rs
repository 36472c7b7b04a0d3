//! Files of the package at their final places.

use super::{Recipe, done, shipped};
use crate::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of the completions, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/blockyard"),
    ("zsh", "usr/share/zsh/vendor-completions/_blockyard"),
    ("fish", "usr/share/fish/vendor_completions.d/blockyard.fish"),
];

/// Files of `packaging/` that are shipped unchanged, and their paths.
const SHIPPED: [(&str, &str); 4] = [
    ("systemd/blockyard.service", "lib/systemd/system/blockyard.service"),
    ("debian/copyright", "usr/share/doc/blockyard/copyright"),
    ("prometheus/blockyard.rules.yml", "usr/share/blockyard/prometheus/blockyard.rules.yml"),
    ("grafana/blockyard.json", "usr/share/blockyard/grafana/blockyard.json"),
];

/// Configuration file; a conffile, which the administrator owns after the installation.
pub(super) const CONFIGURATION: &str = "etc/blockyard.toml";

/// Writes every file of the package to `tree`, with its mode.
pub(super) fn stage(recipe: &Recipe, tree: &Path) -> Result<()> {
    // An empty file first: `put` creates the folders and their modes, and strip replaces the content.
    let program = put(tree, "usr/bin/blockyard", b"")?;
    // Debian requires stripped programs; the line tables have a third of a gigabyte.
    let strip = ["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"];
    done(Command::new("strip").args(strip).arg("-o").arg(&program).arg(&recipe.program))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    for (shell, place) in COMPLETIONS {
        let script = done(Command::new(&program).args(["completion", shell]))?;
        put(tree, place, script.as_bytes())?;
    }
    let pages = put(tree, "usr/share/man/man1/blockyard.1", b"")?;
    let pages = pages.parent().context("a page lies in a folder")?;
    done(Command::new(&program).arg("manual").arg(pages))?;
    for page in fs::read_dir(pages)? {
        squeeze(&page?.path())?;
    }
    for (from, place) in SHIPPED {
        put(tree, place, shipped(from)?.as_bytes())?;
    }
    let manual = workspace::root().join("docs/operate/configuration.md");
    put(tree, CONFIGURATION, configuration(&fs::read_to_string(manual)?)?.as_bytes())?;
    let changes = put(tree, "usr/share/doc/blockyard/changelog", changelog(recipe)?.as_bytes())?;
    squeeze(&changes)
}

/// Writes a file to `place`; the file and its folders are world-readable.
fn put(tree: &Path, place: &str, bytes: &[u8]) -> Result<PathBuf> {
    // The umask of the caller must not decide the modes in a package.
    let path = tree.join(place);
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    let outer = folder.ancestors().take_while(|outer| outer.starts_with(tree));
    for folder in outer {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(path)
}

fn squeeze(path: &Path) -> Result<()> {
    // Without name and time in the header, so that equal files give equal bytes.
    done(Command::new("gzip").args(["-9n"]).arg(path))?;
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    Ok(fs::set_permissions(packed, fs::Permissions::from_mode(0o644))?)
}

/// Returns the configuration of the manual with every setting as a comment, so that the shipped file shows the settings
/// and changes none.
fn configuration(manual: &str) -> Result<String> {
    let (_, rest) = manual.split_once("```toml\n").context("docs/operate/configuration.md shows no file")?;
    let (file, _) = rest.split_once("```").context("the file in docs/operate/configuration.md has no end")?;
    let mut text = "# Settings of the daemon; each line shows the default or an example.\n\
                    # Everything else is changed with the command line while the array is online, see blockyard(1).\n\n"
        .to_owned();
    for line in file.lines() {
        let comment = if line.is_empty() || line.starts_with('#') { "" } else { "#" };
        text += &format!("{comment}{line}\n");
    }
    Ok(text)
}

/// Returns the changelog entry of this version in Debian's format.
///
/// *Source*: deb-changelog(5).
fn changelog(recipe: &Recipe) -> Result<String> {
    let date = done(Command::new("date").args(["--utc", "--rfc-email", &format!("--date=@{}", recipe.epoch)]))?;
    Ok(format!(
        "blockyard ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the project.\n\n \
         -- Blockyard <packages@blockyard.io>  {}\n",
        recipe.version,
        date.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_that_is_shipped_sets_nothing_and_has_every_setting() {
        let manual = fs::read_to_string(workspace::root().join("docs/operate/configuration.md")).expect("the manual");
        let shipped = configuration(&manual).expect("a file");
        assert!(toml::from_str::<toml::Table>(&shipped).expect("it is TOML").is_empty(), "{shipped}");
        let set: String = shipped
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
            .map(|line| format!("{line}\n"))
            .collect();
        let set: toml::Table = toml::from_str(&set).expect("it is TOML without its comment signs");
        for key in ["state_dir", "socket", "portal"] {
            assert!(set.contains_key(key), "{key} is missing");
        }
        assert!(configuration("no file").is_err());
    }
}

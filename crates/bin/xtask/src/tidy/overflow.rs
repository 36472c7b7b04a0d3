//! Overflow checks: release builds check arithmetic on numbers from outside, because a wrapped sum would address other
//! blocks than intended.

use super::Finding;
use super::tree::Tree;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const WORKSPACE: &str = "Cargo.toml";
/// Crates that handle numbers from peers, disks and operators, and the crate whose types represent them.
const CHECKED: [&str; 4] = ["crates/pure/", "crates/plane/", "crates/front/", "crates/base/block/"];

/// Finds crates whose release build does not check arithmetic.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let workspace = tree.files.iter().find(|file| file.path == WORKSPACE).context("the workspace has no Cargo.toml")?;
    let workspace: toml::Table = toml::from_str(&workspace.text).context(WORKSPACE)?;
    let packages = workspace.get("profile").and_then(|profile| profile.get("release")?.get("package"));
    let is_checked = |name: &str| {
        let checks = packages.and_then(|packages| packages.get(name)?.get("overflow-checks")?.as_bool());
        checks == Some(true)
    };
    let unchecked = manifests(tree).into_iter().filter(|(name, _)| !is_checked(name));
    let what = |name: &str| format!("[profile.release.package.{name}] does not say overflow-checks = true");
    Ok(unchecked.map(|(name, path)| Finding::new(path, what(name))).collect())
}

/// Returns the crates that must check arithmetic, with their manifests.
fn manifests(tree: &Tree) -> BTreeMap<&str, &str> {
    let concerned = tree.ending("/Cargo.toml").filter(|file| CHECKED.iter().any(|floor| file.path.starts_with(floor)));
    concerned.filter_map(|file| Some((file.path.split('/').nth(2)?, file.path.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::TextFile;
    use super::*;

    fn check_workspace(text: &str) -> Vec<Finding> {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let files = vec![
            file(WORKSPACE, text),
            file("crates/pure/raid/Cargo.toml", ""),
            file("crates/base/simd/Cargo.toml", ""),
        ];
        check(&Tree { files }).unwrap()
    }

    #[test]
    fn crate_that_checks_arithmetic_passes_and_one_of_another_floor_need_not() {
        assert_eq!(check_workspace("[profile.release.package.raid]\noverflow-checks = true\n"), []);
    }

    #[test]
    fn crate_that_wraps_in_release_is_found() {
        for text in ["", "[profile.release]\nlto = true\n", "[profile.release.package.raid]\noverflow-checks = false\n"]
        {
            let found = check_workspace(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].place, "crates/pure/raid/Cargo.toml");
        }
    }
}

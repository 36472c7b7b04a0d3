//! Lock files: they must name the public registries and no mirror.

use super::Finding;
use super::tree::Tree;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
const NPM: &str = "https://registry.npmjs.org/";

/// Finds registry addresses in lock files other than the public ones.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_lock(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(address) = strange_address(line) {
                let place = format!("{}:{}", file.path, number + 1);
                findings.push(Finding::new(place, format!("`{address}` is not the public registry")));
            }
        }
    }
    findings
}

fn is_lock(path: &str) -> bool {
    path.ends_with("Cargo.lock") || path.ends_with("package-lock.json")
}

fn strange_address(line: &str) -> Option<&str> {
    let line = line.trim();
    // Crates of the workspace have no source.
    if let Some(source) = line.strip_prefix("source = ") {
        let source = source.trim_matches('"');
        return (source != CRATES_IO).then_some(source);
    }
    let address = line.strip_prefix("\"resolved\": ")?.trim_end_matches(',').trim_matches('"');
    (!address.starts_with(NPM)).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::super::tree::TextFile;
    use super::*;

    fn check_one(path: &str, text: &str) -> usize {
        check(&Tree { files: vec![TextFile { path: path.into(), text: text.into() }] }).len()
    }

    #[test]
    fn public_registries_pass() {
        assert_eq!(check_one("Cargo.lock", &format!("source = \"{CRATES_IO}\"\n")), 0);
        assert_eq!(check_one("console/package-lock.json", &format!("  \"resolved\": \"{NPM}x/-/x-1.tgz\",\n")), 0);
    }

    #[test]
    fn address_of_a_mirror_or_a_repository_is_found() {
        assert_eq!(check_one("Cargo.lock", "source = \"sparse+https://mirror.example/index/\"\n"), 1);
        assert_eq!(check_one("fuzz/Cargo.lock", "source = \"git+https://example.org/x\"\n"), 1);
        assert_eq!(check_one("console/package-lock.json", "\"resolved\": \"https://mirror.example/x.tgz\",\n"), 1);
    }
}

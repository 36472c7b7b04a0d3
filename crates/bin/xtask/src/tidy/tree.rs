//! Text files of the checkout, without the output of builds and runs.

use super::Finding;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const LEFT_BEHIND: [&str; 4] = ["var", "node_modules", "corpus", "artifacts"];
/// Output folders of cargo; elsewhere a folder of this name contains sources.
const BUILT: [&str; 2] = ["target", "fuzz/target"];
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Text file: path relative to the root with forward slashes, and text.
#[derive(Debug)]
pub(super) struct TextFile {
    pub path: String,
    pub text: String,
}

/// Text files of the checkout, in path order.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub files: Vec<TextFile>,
}

impl Tree {
    /// Reads all text files below `root`; binary and very large files are skipped.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.descend(root, root)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn descend(&mut self, root: &Path, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // The type of the entry itself: a link could lead out of the checkout, or into a circle.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let path = entry.path();
                let is_built =
                    path.strip_prefix(root).is_ok_and(|path| BUILT.iter().any(|built| path == Path::new(built)));
                if !LEFT_BEHIND.contains(&&*name) && name != ".git" && !is_built {
                    self.descend(root, &entry.path())?;
                }
            } else if kind.is_file() && entry.metadata()?.len() <= FILE_BYTES_MAX {
                self.add(root, &entry.path());
            }
        }
        Ok(())
    }

    fn add(&mut self, root: &Path, path: &Path) {
        // Files that disappear meanwhile or are not UTF-8 are not source text.
        if let (Ok(text), Ok(relative)) = (fs::read_to_string(path), path.strip_prefix(root)) {
            self.files.push(TextFile { path: relative.to_string_lossy().into_owned(), text });
        }
    }

    /// Returns the files whose path ends with `suffix`.
    pub(super) fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = &'a TextFile> {
        self.files.iter().filter(move |file| file.path.ends_with(suffix))
    }
}

/// Finds marks of unfinished work.
pub(super) fn check_marks(tree: &Tree) -> Vec<Finding> {
    // Split, so that this file does not contain the mark.
    let mark = concat!("FIX", "ME");
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, _) in file.text.lines().enumerate().filter(|(_, line)| line.contains(mark)) {
            findings
                .push(Finding::new(format!("{}:{}", file.path, number + 1), format!("{mark} marks unfinished work")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_reads_text_and_passes_over_what_builds_leave_behind() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("target/debug")).unwrap();
        fs::write(root.path().join("target/debug/x.rs"), "fn x() {}").unwrap();
        fs::write(root.path().join("picture"), [0xff, 0xfe, 0x00]).unwrap();
        fs::write(root.path().join("a.rs"), "fn a() {}").unwrap();
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["a.rs"]);
    }

    #[test]
    fn mark_of_unfinished_work_is_found_with_its_line() {
        let text = concat!("one\ntwo FIX", "ME later\n").to_owned();
        let tree = Tree { files: vec![TextFile { path: "docs/x.md".into(), text }] };
        assert_eq!(check_marks(&tree)[0].place, "docs/x.md:2");
    }
}

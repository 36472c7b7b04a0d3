//! Manual pages, generated from the definitions of the command line.

use crate::args::Cli;
use crate::failure::Failure;
use anyhow::{Context, Result};
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::path::Path;

/// Heading of the examples in a help text.
const EXAMPLE: &str = "Example:";

/// Writes a page for each command to the folder: `blockyard.1`, `blockyard-volume.1`, `blockyard-volume-create.1`, …
///
/// The folder is created if it does not exist; other files in it stay as they are.
///
/// *Errors*: the folder or a page cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, page) in pages(Cli::command())? {
        let path = folder.join(name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the pages of all visible commands, with the names of their files.
fn pages(command: Command) -> Result<Vec<(String, Vec<u8>)>> {
    // Generated `help` subcommands would double the number of pages.
    let mut root = command.disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    let mut left = vec![(root, None::<String>)];
    while let Some((command, parent)) = left.pop() {
        let name = display_name(&command);
        pages.push((format!("{name}.1"), page(&command, parent.as_deref())?));
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        left.extend(below.map(|below| (below.clone(), Some(name.clone()))));
    }
    Ok(pages)
}

fn display_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, parent: Option<&str>) -> Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    // The examples get a section of their own below, without line filling.
    let bare = command.clone().after_help(Resettable::Reset);
    let source = concat!("Blockyard ", env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    Man::new(bare).source(source).manual("Blockyard").render(&mut page)?;
    let (example, notes) = parted(&after);
    let mut rest = Roff::default();
    for (title, text, fill) in [("NOTES", notes, true), ("EXAMPLES", example, false)] {
        if text.is_empty() {
            continue;
        }
        rest.control("SH", [title]);
        if !fill {
            // Examples keep their lines: `nf` ends the filling of lines and `fi` starts it again (man(7)).
            rest.control("nf", []);
        }
        for line in text {
            if line.is_empty() {
                rest.control("PP", [])
            } else {
                rest.text([roman(line)])
            };
        }
        if !fill {
            rest.control("fi", []);
        }
    }
    if let Some(parent) = parent {
        rest.control("SH", ["SEE ALSO"]).text([bold(parent), roman("(1)")]);
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// Splits a help text into the lines of its examples, and the other lines.
fn parted(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut example, mut notes) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in text.lines() {
        match line {
            EXAMPLE => inside = true,
            // A blank line ends the examples.
            "" => {
                inside = false;
                notes.push("");
            }
            line if inside => example.push(line),
            line => notes.push(line),
        }
    }
    // Blank lines at both ends would become empty paragraphs.
    let words = notes.iter().position(|line| !line.is_empty()).unwrap_or(notes.len());
    notes.drain(..words);
    while notes.last().is_some_and(|line| line.is_empty()) {
        notes.pop();
    }
    (example, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Collects the commands that a user can type, as the names of their pages.
    fn typed(command: &Command, before: &str, names: &mut BTreeSet<String>) {
        let name = format!("{before}{}", command.get_name());
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            typed(below, &format!("{name}-"), names);
        }
        names.insert(format!("{name}.1"));
    }

    #[test]
    fn command_has_its_page_and_no_page_is_left_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("man/man1");
        write(&folder).expect("writes");
        let pages: BTreeSet<String> = fs::read_dir(&folder)
            .expect("lists")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let mut commands = BTreeSet::new();
        typed(&Cli::command(), "", &mut commands);
        assert!(commands.contains("blockyard.1") && commands.contains("blockyard-volume-create.1"), "{commands:?}");
        assert_eq!(pages, commands);
    }

    #[test]
    fn page_has_what_the_help_says() {
        let all = pages(Cli::command()).expect("pages");
        let of = |name: &str| {
            let (_, page) = all.iter().find(|(file, _)| file == name).expect(name);
            String::from_utf8(page.clone()).expect("text")
        };
        let create = of("blockyard-volume-create.1");
        assert!(create.contains(".SH EXAMPLES\n.nf\n") && create.contains("blockyard volume create"), "{create}");
        assert!(create.contains("\\fBblockyard\\-volume\\fR(1)"), "{create}");
        assert!(!create.contains(EXAMPLE) && !create.contains(".SH EXTRA"), "{create}");
        let serve = of("blockyard-serve.1");
        assert!(!serve.contains("disks\\-like"), "what is hidden from the help is hidden here, too");
        assert!(of("blockyard.1").contains(".SH NOTES\nExit codes:"));
    }

    #[test]
    fn folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("writes");
        let Err(Failure::Failed(error)) = write(&file.join("man")) else { panic!("a file is no folder") };
        assert!(error.to_string().contains("file/man"), "{error:#}");
    }
}

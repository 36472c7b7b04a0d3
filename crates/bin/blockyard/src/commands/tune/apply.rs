//! Commands `blockyard tune apply` and `revert`.

use super::{array, chosen};
use crate::args::TuneApplyOptions;
use crate::commands::CommandContext;
use crate::confirm;
use crate::failure::Failure;
use crate::output::{Rows, put};
use crate::tune::{self, Entry, Record, Root, Step};
use model::{Refusal, code};
use serde_json::{Value, json};
use std::io;

pub(super) fn apply(desk: &CommandContext, options: &TuneApplyOptions) -> Result<(), Failure> {
    let root = Root::new(&options.which.root);
    let all = chosen(&root, &array(desk)?, &options.which)?;
    let plan = tune::plan(&all, &options.which.only);
    let entries = tune::entries(&root, &plan, !options.until_restart);
    if options.print {
        return print(&root, &entries);
    }
    if options.dry_run || entries.is_empty() {
        return tell(desk, &entries.iter().map(undone).collect::<Vec<_>>(), &[], "No changes.");
    }
    // Checked after the previews, which need no privilege.
    let_root(&root)?;
    if !options.yes {
        let steps: Vec<Step> = entries.iter().map(undone).collect();
        desk.out.lines(&rows(&steps))?;
        let message = format!("{} settings of this machine would change", entries.len());
        confirm::agreement("yes", Refusal::new(code::UNCONFIRMED, message, "repeat with --yes to confirm"))?;
    }
    let (steps, mut files) = tune::apply(&root, &entries).map_err(|error| unwritable(&root, &error))?;
    // Settings without a file that makes them persistent are listed, so that their loss at a restart is no surprise.
    let passing: Vec<&str> =
        entries.iter().filter(|entry| entry.kept.is_none()).map(|entry| entry.name.as_str()).collect();
    if !passing.is_empty() {
        files.push(format!("until the next reboot: {}", passing.join(", ")));
    }
    tell(desk, &steps, &files, "No changes.")
}

pub(super) fn revert(desk: &CommandContext, root: &Root) -> Result<(), Failure> {
    let_root(root)?;
    let (steps, files) = tune::revert(root).map_err(|error| unwritable(root, &error))?;
    tell(desk, &steps, &files, "No settings were applied by blockyard tune apply.")
}

/// Requires root for a real machine; a test root needs none.
fn let_root(root: &Root) -> Result<(), Failure> {
    if !root.is_real() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Refusal::new(code::FORBIDDEN, "only root can change system settings", "use sudo").into())
}

fn unwritable(root: &Root, error: &io::Error) -> Failure {
    let message = format!("the record of the changes cannot be written: {error}");
    let hint =
        format!("check {} and its free space; blockyard tune show prints the current values", Record::place(root));
    Refusal::new(code::IO_FAILED, message, hint).into()
}

/// Prints the files that would be written, each under its path.
fn print(root: &Root, entries: &[Entry]) -> Result<(), Failure> {
    // Together with the settings of earlier calls, since the files hold all of them.
    let mut record = Record::load(root).map_err(|error| unwritable(root, &error))?;
    entries.iter().cloned().for_each(|entry| record.add(entry));
    let files = tune::kept_files(&record).into_iter();
    let text: Vec<String> = files.filter_map(|(path, text)| Some(format!("### /{path}\n{}", text?))).collect();
    put(&text.join("\n"))
}

/// Converts a planned change to a step that is not done yet.
fn undone(entry: &Entry) -> Step {
    Step { name: entry.name.clone(), setting: entry.setting.clone(), before: entry.before.clone(), refused: None }
}

fn rows(steps: &[Step]) -> Rows {
    let row = |step: &Step| {
        let refused = step.refused.as_ref().map_or(String::new(), |why| format!("refused: {why}"));
        vec![step.name.clone(), step.before.clone(), step.setting.value().to_owned(), step.setting.place(), refused]
    };
    Rows { header: &["SETTING", "BEFORE", "AFTER", "LOCATION", ""], rows: steps.iter().map(row).collect() }
}

/// Prints the changes made; fails if one of them was refused.
fn tell(desk: &CommandContext, steps: &[Step], files: &[String], nothing: &str) -> Result<(), Failure> {
    let refused = steps.iter().filter(|step| step.refused.is_some()).count();
    if desk.out.is_json() {
        let step = |step: &Step| -> Value {
            json!({
                "knob": step.name, "was": step.before, "is": step.setting.value(), "where": step.setting.place(),
                "refused": step.refused,
            })
        };
        let steps: Vec<Value> = steps.iter().map(step).collect();
        put(&format!("{:#}\n", json!({ "schema": 1, "steps": steps, "notes": files })))?;
    } else if steps.is_empty() {
        desk.out.said(nothing)?;
    } else {
        desk.out.lines(&rows(steps))?;
    }
    for file in files {
        desk.out.said(file)?;
    }
    if refused == 0 {
        return Ok(());
    }
    // Printed here, so that the error adds no second sentence to the table.
    eprintln!("blockyard: {refused} of {} settings were refused; the others are applied", steps.len());
    Err(Failure::Said)
}

//! Debian package: staged from the release build and `packaging/`, built by dpkg-deb, checked by lintian.
//!
//! The same tree produces the same bytes.

mod alerts;
mod build;
mod judge;
mod stage;
mod trial;

use crate::workspace;
use anyhow::{Context, Result, ensure};
use clap::Args;
use lab::child::output_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::time::SystemTime;

const LIMIT: Duration = Duration::from_secs(600);

#[derive(Args)]
pub(crate) struct Options {
    /// Package this program [default: the release build]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Put the package into this folder [default: package in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Also install, use, upgrade, remove and purge it in a clean Debian
    #[arg(long = "try")]
    trial: bool,
    /// This process is already in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

/// Inputs of a package.
struct Recipe {
    program: PathBuf,
    version: String,
    /// Time of the last change of the tree, in seconds since 1970.
    epoch: u64,
}

/// Builds and checks the package; true when there are no findings.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.inside {
        return trial::run(&recipe(options)?, &folder(options));
    }
    if options.trial {
        trial::prepare()?;
    }
    let recipe = recipe(options)?;
    let package = build::pack(&recipe, &folder(options))?;
    let mut findings = judge::judge(&package)?;
    findings.extend(alerts::judge(&recipe.program)?);
    findings.iter().for_each(|finding| println!("{finding}"));
    let bytes = std::fs::metadata(&package)?.len();
    println!("package: {} ({:.1} MB), {} findings", package.display(), bytes as f64 / 1e6, findings.len());
    if !options.trial || !findings.is_empty() {
        return Ok(findings.is_empty());
    }
    // Restarted in a namespace of its own, so that the array in the package uses its usual port.
    lab::child::again_in_own_network()
}

fn folder(options: &Options) -> PathBuf {
    options.out.clone().unwrap_or_else(|| workspace::target_folder().join("package"))
}

fn recipe(options: &Options) -> Result<Recipe> {
    let program = options.program.clone().map_or_else(workspace::product, Ok)?;
    ensure!(program.is_file(), "there is no {}", program.display());
    Ok(Recipe { program, version: env!("CARGO_PKG_VERSION").to_owned(), epoch: epoch()? })
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the last commit; without a Git history, the modification time of the
/// changelog.
fn epoch() -> Result<u64> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH={epoch} is no number of seconds"));
    }
    let asked = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()).output();
    // Without Git there is no time either, which is no error.
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if let Ok(committed) = text.trim().parse() {
        return Ok(committed);
    }
    let changed = std::fs::metadata(workspace::root().join("CHANGELOG.md"))?.modified()?;
    Ok(changed.duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}

fn done(command: &mut Command) -> Result<String> {
    output_of(command, LIMIT)
}

/// Reads a file of `packaging/`.
fn shipped(name: &str) -> Result<String> {
    let path = workspace::root().join("packaging").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the path of the package in a folder.
fn place_of(recipe: &Recipe, folder: &Path) -> Result<PathBuf> {
    let architecture = done(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(folder.join(format!("blockyard_{}_{}.deb", recipe.version, architecture.trim())))
}

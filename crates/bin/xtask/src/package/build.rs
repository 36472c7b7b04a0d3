//! Creation of a package from staged files.

use super::stage::{CONFIGURATION, stage};
use super::{Recipe, done, place_of, shipped};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package of the recipe in `folder`.
pub(super) fn pack(recipe: &Recipe, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let scratch = tempfile::tempdir()?;
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree)?;
    stage(recipe, &tree)?;
    let architecture = done(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let control = tree.join("DEBIAN");
    fs::create_dir(&control)?;
    fs::set_permissions(&control, fs::Permissions::from_mode(0o755))?;
    fs::write(control.join("md5sums"), sums(&tree)?)?;
    let text = shipped("debian/control")?
        .replace("@VERSION@", &recipe.version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@LIBRARIES@", &libraries(&tree, scratch.path())?)
        .replace("@KIB@", &kib(&tree)?);
    fs::write(control.join("control"), text)?;
    fs::write(control.join("conffiles"), format!("/{CONFIGURATION}\n"))?;
    for script in SCRIPTS {
        let path = control.join(script);
        fs::write(&path, shipped(&format!("debian/{script}"))?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let package = place_of(recipe, folder)?;
    // With several threads the bytes would depend on their number; one is fast enough.
    let build = ["--root-owner-group", "-Zxz", "-z6", "--threads-max=1", "--build"];
    let mut command = Command::new("dpkg-deb");
    // This variable bounds the times of all files, so that equal trees give equal bytes.
    done(command.args(build).arg(&tree).arg(&package).env("SOURCE_DATE_EPOCH", recipe.epoch.to_string()))?;
    Ok(package)
}

/// Returns the dependencies for the libraries to which the program is linked.
fn libraries(tree: &Path, scratch: &Path) -> Result<String> {
    // The tool requires the folder layout of a source package.
    fs::create_dir(scratch.join("debian"))?;
    fs::write(scratch.join("debian/control"), "Source: blockyard\n\nPackage: blockyard\nArchitecture: any\n")?;
    let mut asked = Command::new("dpkg-shlibdeps");
    let said = done(asked.arg("-O").arg(tree.join("usr/bin/blockyard")).current_dir(scratch))?;
    let line = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.with_context(|| format!("dpkg-shlibdeps finds no library: {said}"))?.to_owned())
}

/// Returns the MD5 sums of all files, which dpkg --verify reads.
fn sums(tree: &Path) -> Result<String> {
    // Sorted by bytes: the order of a folder differs between file systems.
    let find =
        "find . -path ./DEBIAN -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | sed 's, \\./, ,'";
    done(Command::new("sh").args(["-c", find]).current_dir(tree))
}

fn kib(tree: &Path) -> Result<String> {
    let said = done(Command::new("du").args(["-sk", "--exclude=DEBIAN"]).arg(tree))?;
    Ok(said.split_whitespace().next().context("du says nothing")?.to_owned())
}

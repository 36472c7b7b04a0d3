//! Paths in the checkout.

use anyhow::{Result, ensure};
use lab::child::output_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// Returns the folder of the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable at run time; the path of the build may have moved since.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).expect("xtask lies three folders below the root").to_path_buf()
}

/// Returns the target folder of cargo.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(Path::new(&folder)))
}

/// Returns the release build of the product, up to date; `BLOCKYARD_BIN` selects another program.
pub(crate) fn product() -> Result<PathBuf> {
    static PRODUCT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = PRODUCT.get() {
        return Ok(path.clone());
    }
    let path = match std::env::var_os("BLOCKYARD_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let mut build = Command::new("cargo");
            build.args(["build", "--release", "--quiet", "--package", "blockyard"]).current_dir(root());
            output_of(&mut build, BUILD_LIMIT)?;
            target_folder().join("release/blockyard")
        }
    };
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(PRODUCT.get_or_init(|| path).clone())
}

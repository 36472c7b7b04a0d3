//! Where things are in the checkout.

use std::path::{Path, PathBuf};

/// The folder of the workspace's Cargo.toml.
pub fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).expect("xtask lies three folders below the root").to_path_buf()
}

/// Cargo's target folder.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(Path::new(&folder)))
}

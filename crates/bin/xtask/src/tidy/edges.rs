//! Dependency rules: permitted edges between the layers of crates, and their exceptions.

use super::Finding;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Layers that the crates of a layer may use; `base` is restricted by a table of edges.
const FLOORS: [(&str, &[&str]); 6] = [
    ("pure", &["base"]),
    ("world", &["base"]),
    ("plane", &["base", "pure"]),
    ("front", &["base", "pure", "plane"]),
    // Temporarily includes `world`, until the initiator, which both use, has a crate of its own.
    ("tool", &["base", "pure", "world", "plane"]),
    ("bin", &["base", "pure", "world", "plane", "front", "tool"]),
];

/// Additional layers for the tests of a layer: a tool is tested against Blockyard's own target, and users of the engine
/// are tested on the real engine (`tool/testbed`).
const TEST_FLOORS: [(&str, &[&str]); 3] = [("tool", &["front"]), ("plane", &["tool"]), ("front", &["tool"])];

/// Permitted edges between crates of `base`.
const BASE_EDGES: [(&str, &str); 4] =
    [("shard", "block"), ("block", "simd"), ("model", "bounded"), ("model", "secret")];

/// Permitted edges within one layer above `base`: the API manages the receivers of alerts, a pool checks its owner,
/// members of a pool may be disks of other arrays, and the testbed has the iSCSI front end.
const SIDEWAYS: [(&str, &str); 4] =
    [("api", "alert"), ("volume", "cluster"), ("engine", "initiator"), ("testbed", "iscsi-target")];

/// Additional edges for the tests of a single crate: the simulated world, for crates that depend on time and networks.
const TESTS: [(&str, &str); 1] = [("initiator", "sim")];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Crate of the workspace in the output of `cargo metadata`.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    path: Option<String>,
    /// `dev` for dependencies of tests.
    #[serde(default)]
    kind: Option<String>,
}

/// Reads the crates of the workspace from cargo and finds edges that are not permitted.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let out = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    ensure!(out.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Metadata = serde_json::from_slice(&out.stdout).context("cargo metadata is not as expected")?;
    Ok(judge(&metadata.packages))
}

/// Returns the folder under `crates/` that contains the crate.
fn floor_of(package: &Package) -> Option<&str> {
    let (_, inside) = package.manifest_path.rsplit_once("/crates/")?;
    inside.split_once('/').map(|(floor, _)| floor)
}

fn judge(packages: &[Package]) -> Vec<Finding> {
    let floors: BTreeMap<&str, &str> =
        packages.iter().filter_map(|package| Some((package.name.as_str(), floor_of(package)?))).collect();
    let mut findings = Vec::new();
    for package in packages {
        let Some(&floor) = floors.get(package.name.as_str()) else {
            findings.push(Finding::new(&package.manifest_path, "a crate lies on a floor: crates/<floor>/<name>"));
            continue;
        };
        // A crate whose tests enable one of its own features depends on itself.
        // Without a path the dependency is not a crate of the workspace.
        let others = package.dependencies.iter().filter(|used| used.path.is_some() && used.name != package.name);
        for used in others {
            let used_floor = floors.get(used.name.as_str()).copied().unwrap_or("nowhere");
            let allowed_in_tests =
                reaches(&TEST_FLOORS, floor, used_floor) || TESTS.contains(&(&package.name, &used.name));
            let in_tests = used.kind.as_deref() == Some("dev") && allowed_in_tests;
            if !in_tests && !allowed((&package.name, floor), (&used.name, used_floor)) {
                let what = format!("`{}` ({floor}) may not use `{}` ({used_floor})", package.name, used.name);
                findings.push(Finding::new(&package.manifest_path, what));
            }
        }
    }
    findings
}

fn allowed(user: (&str, &str), used: (&str, &str)) -> bool {
    // Crates of `base` may only follow the table, even within their own layer.
    if user.1 == "base" {
        return BASE_EDGES.contains(&(user.0, used.0));
    }
    reaches(&FLOORS, user.1, used.1) || SIDEWAYS.contains(&(user.0, used.0))
}

/// True when the table lets crates of layer `from` use crates of layer `to`.
fn reaches(table: &[(&str, &[&str])], from: &str, to: &str) -> bool {
    table.iter().any(|&(floor, below)| floor == from && below.contains(&to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(floor: &str, name: &str, uses: &[&str]) -> Package {
        let dependencies = uses
            .iter()
            .map(|&name| Dependency { name: name.into(), path: Some(format!("/r/{name}")), kind: None })
            .collect();
        Package { name: name.into(), manifest_path: format!("/r/crates/{floor}/{name}/Cargo.toml"), dependencies }
    }

    #[test]
    fn edges_of_the_house_are_allowed() {
        let packages = [
            package("base", "block", &[]),
            package("base", "shard", &["block"]),
            package("pure", "raid", &["block", "shard"]),
            package("world", "sim", &["block"]),
            package("plane", "engine", &["raid", "shard"]),
            package("front", "api", &["control", "raid", "alert"]),
            package("front", "alert", &["control"]),
            package("plane", "control", &[]),
            package("tool", "conform", &["raid"]),
            package("bin", "blockyard", &["engine", "sim", "raid", "block", "conform"]),
        ];
        assert_eq!(judge(&packages), []);
    }

    #[test]
    fn edge_that_leans_up_or_sideways_is_found() {
        let wrong = [
            ("base", "block", "shard"),
            ("pure", "raid", "scsi"),
            ("world", "sim", "raid"),
            ("plane", "control", "uring"),
            ("tool", "conform", "blockyard"),
            ("front", "alert", "uring"),
        ];
        for (floor, name, used) in wrong {
            let packages = [
                package(floor, name, &[used]),
                package("base", "shard", &[]),
                package("pure", if name == "raid" { "scsi" } else { "raid" }, &[]),
                package("world", "uring", &[]),
                package("bin", "blockyard", &[]),
            ];
            let found = judge(&packages);
            assert_eq!(found.len(), 1, "{name} uses {used}: {found:?}");
            assert!(found[0].what.contains(used));
        }
    }

    #[test]
    fn crate_outside_the_floors_is_found() {
        let mut stray = package("base", "stray", &[]);
        stray.manifest_path = "/r/stray/Cargo.toml".into();
        assert_eq!(judge(&[stray]).len(), 1);
    }
}

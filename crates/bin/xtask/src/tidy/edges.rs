//! Which crate may use which: the floors of the house, and the crates of others that we agreed on.

use super::Finding;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The floors of each floor's crates that a crate on it may use; `base` has the table below instead.
const FLOORS: [(&str, &[&str]); 6] = [
    ("pure", &["base"]),
    ("world", &["base"]),
    ("plane", &["base", "pure"]),
    ("front", &["base", "pure", "plane"]),
    // The world until the initiator that both drive has a room of its own.
    ("tool", &["base", "pure", "world", "plane"]),
    ("bin", &["base", "pure", "world", "plane", "front", "tool"]),
];

/// The floors that the tests of a floor's crates may use besides: a tool is tested against our own target, and what gives orders to the
/// engine is tested on the real one (`tool/testbed`).
const TEST_FLOORS: [(&str, &[&str]); 3] = [("tool", &["front"]), ("plane", &["tool"]), ("front", &["tool"])];

/// The only edges between crates of `base`.
const BASE_EDGES: [(&str, &str); 4] =
    [("shard", "block"), ("block", "simd"), ("model", "bounded"), ("model", "secret")];

/// The only edges between crates of one floor above: the API shows and changes the receivers of alerts, a pool asks whose it is,
/// members of pools may be disks of other arrays, and the array that tests run on has the iSCSI front end.
const SIDEWAYS: [(&str, &str); 4] =
    [("api", "alert"), ("volume", "cluster"), ("engine", "initiator"), ("testbed", "iscsi-target")];

/// What the tests of one crate may use besides: the simulated world, where a crate waits for time and networks.
const TESTS: [(&str, &str); 1] = [("initiator", "sim")];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// What `cargo metadata` says about one crate of ours.
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
    /// `dev` for what tests alone use.
    #[serde(default)]
    kind: Option<String>,
}

/// Asks cargo for the crates of the workspace and finds the edges that the house does not allow.
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

/// The name of the folder under `crates/` that holds the crate.
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
        // A crate whose tests ask for a feature of its own depends on itself.
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
    if user.1 == "base" {
        return BASE_EDGES.contains(&(user.0, used.0));
    }
    reaches(&FLOORS, user.1, used.1) || SIDEWAYS.contains(&(user.0, used.0))
}

/// True when the table lets crates of the floor `from` use those of the floor `to`.
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

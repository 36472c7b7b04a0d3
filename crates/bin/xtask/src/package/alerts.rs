//! Alert rules and metrics: promtool of Prometheus checks both and runs the tests of the rules.

use crate::vm::image::unpack;
use crate::workspace;
use anyhow::Result;
use lab::child::run_within;
use lab::target::free_portal;
use lab::target::product::{self, Launch, Product};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Provides promtool: unpacks the Debian package without installing its daemon.
pub(super) fn prepare() -> Result<()> {
    let folder = folder();
    if !folder.is_dir() {
        // Renamed when complete, so that an interrupted run leaves no partial folder.
        let unfinished = folder.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        unpack("prometheus", &unfinished)?;
        fs::rename(unfinished, folder)?;
    }
    Ok(())
}

fn folder() -> PathBuf {
    workspace::target_folder().join("package/prometheus")
}

/// Returns the findings of promtool on the rules and on the metrics of the program. Without promtool prints a note and
/// finds nothing.
pub(super) fn judge(program: &Path) -> Result<Vec<String>> {
    let Some(promtool) = promtool() else {
        println!("promtool is not installed and could not be had: alert rules are not played");
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (what, file) in [("check", "blockyard.rules.yml"), ("test", "blockyard.test.yml")] {
        let mut asked = Command::new(&promtool);
        asked.args([what, "rules", file]).current_dir(workspace::root().join("packaging/prometheus"));
        let ended = run_within(&mut asked, Duration::from_secs(60))?;
        if !ended.well() {
            findings.push(format!("promtool {what} rules {file}: {}", ended.said.trim()));
        }
    }
    let scratch = tempfile::tempdir()?;
    let told = scratch.path().join("metrics");
    fs::write(&told, metrics(program, scratch.path())?)?;
    // The command reads only its standard input.
    let mut asked = Command::new("sh");
    asked.args(["-c", "exec \"$1\" check metrics < \"$2\"", "sh"]).arg(&promtool).arg(&told);
    let ended = run_within(&mut asked, Duration::from_secs(60))?;
    // Remarks of promtool count as findings even where it succeeds.
    if !ended.well() || !ended.said.trim().is_empty() {
        findings.push(format!("promtool check metrics: {}", ended.said.trim()));
    }
    Ok(findings)
}

/// Returns promtool, installed or unpacked; unpacks it if necessary.
fn promtool() -> Option<PathBuf> {
    let answers = |program: &Path| Command::new(program).arg("--version").output().is_ok();
    let unpacked = folder().join("usr/bin/promtool");
    if !unpacked.is_file() && answers(Path::new("promtool")) {
        return Some("promtool".into());
    }
    prepare().is_ok().then_some(unpacked).filter(|unpacked| answers(unpacked))
}

/// Returns the metrics of a daemon with a pool, volumes and a host.
fn metrics(program: &Path, folder: &Path) -> Result<String> {
    let portals = vec![free_portal()?];
    let (build, folder) = (program.to_owned(), folder.to_owned());
    let socket = folder.join("blockyard.sock");
    let arguments = vec!["--no-web".to_owned()];
    let daemon = Product::launch(Launch { build, folder: folder.clone(), portals, arguments, ..Launch::default() })?;
    product::make_pool(&daemon, &folder, 4, "64MiB")?;
    daemon.command(&["volume", "create", "tank/v", "16MiB", "--thin"])?;
    daemon.command(&["volume", "create", "ram", "16MiB", "--ram"])?;
    daemon.command(&["host", "add", "web", "--initiator", "iqn.2001-04.com.example:web"])?;
    daemon.command(&["present", "tank/v", "web"])?;
    let body = String::from_utf8(http_client::get(&socket, "/metrics", Duration::from_secs(30))?)?;
    anyhow::ensure!(body.contains("blockyard_volume_"), "/metrics tells of no volume");
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns the metric names in the text, without the suffixes of histograms.
    fn names(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        let ours = words.filter(|word| word.starts_with("blockyard_") || word.starts_with("process_"));
        let plain = |word: &str| {
            let end =
                ["_bucket", "_count", "_sum"].into_iter().find(|end| word.contains("_seconds") && word.ends_with(end));
            word[..word.len() - end.map_or(0, str::len)].to_owned()
        };
        ours.map(plain).collect()
    }

    #[test]
    fn rules_and_dashboard_ask_only_for_what_the_daemon_tells() {
        let read = |path: &str| fs::read_to_string(workspace::root().join(path)).expect(path);
        let told = names(&read("crates/front/api/src/metrics.rs"));
        for file in ["prometheus/blockyard.rules.yml", "prometheus/blockyard.test.yml", "grafana/blockyard.json"] {
            let asked = names(&read(&format!("packaging/{file}")));
            assert!(asked.len() > 5, "{file} asks for {asked:?}");
            let unknown: Vec<&String> = asked.difference(&told).collect();
            assert!(unknown.is_empty(), "{file} asks for {unknown:?}, which the daemon does not tell");
        }
        assert_eq!(
            names("rate(blockyard_x_seconds_bucket[5m]) + blockyard_y_total{job=\"blockyard\"}"),
            ["blockyard_x_seconds".to_owned(), "blockyard_y_total".to_owned()].into()
        );
    }

    #[test]
    fn every_alert_is_tried() {
        let read =
            |file: &str| fs::read_to_string(workspace::root().join("packaging/prometheus").join(file)).expect(file);
        let (rules, tried) = (read("blockyard.rules.yml"), read("blockyard.test.yml"));
        let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.len() > 10);
        for alert in alerts {
            let fires =
                tried.split("alertname: ").any(|case| case.starts_with(&format!("{alert}\n        exp_alerts:\n")));
            let stays_quiet = tried.contains(&format!("alertname: {alert}}}"));
            assert!(fires && stays_quiet, "{alert} is not tried both ways");
        }
    }
}

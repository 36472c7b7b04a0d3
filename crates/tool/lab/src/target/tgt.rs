//! tgtd of Debian, with its own control socket and port.

use super::{Backing, Setup, Target, Unit, await_portal, pinned};
use crate::child::{Background, output_of};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Running tgtd.
pub(super) struct Tgt {
    daemon: Background,
    units: Vec<Unit>,
    /// Files outside the setup's folder that are removed with it.
    memory: Vec<PathBuf>,
}

impl Tgt {
    /// Starts tgtd, and creates one target for each unit of the setup.
    pub(super) fn start(setup: &Setup) -> Result<Self> {
        // The control port only names a socket below /run/tgtd; tgtd accepts numbers up to 32767.
        let control = (setup.portal.port() % 32_768).to_string();
        fs::create_dir_all("/run/tgtd").context("tgtd needs /run/tgtd (run as root)")?;
        let words = [pinned(&setup.cores), vec!["tgtd".to_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["-f", "-C", &control, "--iscsi", &format!("portal={}", setup.portal)]).args(&setup.arguments);
        let daemon = Background::start(&mut command, &setup.folder.join("tgtd.log"))?;
        let mut tgt = Self { daemon, units: Vec::new(), memory: Vec::new() };
        await_portal(setup.portal, Duration::from_secs(10))?;
        await_socket(&control)?;
        for (index, backing) in setup.units.iter().enumerate() {
            tgt.add(setup, &control, index, backing)?;
        }
        Ok(tgt)
    }

    fn add(&mut self, setup: &Setup, control: &str, index: usize, backing: &Backing) -> Result<()> {
        let tid = (index + 1).to_string();
        let iqn = format!("iqn.2026-01.example.tgt:unit{index}");
        admin(control, &["--op", "new", "--mode", "target", "--tid", &tid, "-T", &iqn])?;
        let block_bytes = setup.block_bytes.to_string();
        // LUN 0 of each target of tgtd is its controller.
        let unit = ["--op", "new", "--mode", "logicalunit", "--tid", &tid, "--lun", "1", "--blocksize", &block_bytes];
        match backing {
            Backing::Null => admin(control, &[&unit[..], &["--bstype", "null", "-b", "null"]].concat())?,
            Backing::Ram | Backing::File | Backing::Thin | Backing::Thick => {
                let folder =
                    if matches!(backing, Backing::Ram) { Path::new("/dev/shm") } else { setup.folder.as_path() };
                let file = folder.join(format!("xtask-tgt-{}-{index}", setup.portal.port()));
                fs::File::create(&file)?.set_len(setup.unit_bytes)?;
                // Noted before tgtd opens it, so that the file is removed even if tgtd refuses it.
                self.memory.push(file.clone());
                admin(control, &[&unit[..], &["-b", &file.to_string_lossy()]].concat())?;
                if matches!(backing, Backing::Thin) {
                    let update = ["--op", "update", "--mode", "logicalunit", "--tid", &tid, "--lun", "1"];
                    admin(control, &[&update[..], &["--params", "thin_provisioning=1"]].concat())?;
                }
            }
        }
        if let Some((one_way, mutual)) = &setup.chap {
            for (chap, outgoing) in std::iter::once((one_way, false)).chain(mutual.iter().map(|chap| (chap, true))) {
                let account = ["--mode", "account", "--user", &chap.user];
                // The account may exist from an earlier unit.
                let _ = admin(control, &[&["--op", "new"], &account[..], &["--password", &chap.secret]].concat());
                let bind = [&["--op", "bind", "--tid", &tid], &account[..]].concat();
                admin(control, &if outgoing { [&bind[..], &["--outgoing"]].concat() } else { bind })?;
            }
        }
        // tgtd accepts digests only if told so.
        for digest in ["HeaderDigest", "DataDigest"] {
            let update = ["--op", "update", "--mode", "target", "--tid", &tid];
            admin(control, &[&update[..], &["--name", digest, "--value", "CRC32C,None"]].concat())?;
        }
        admin(control, &["--op", "bind", "--mode", "target", "--tid", &tid, "-I", "ALL"])?;
        self.units.push(Unit { portal: setup.portal, iqn, lun: 1 });
        Ok(())
    }
}

fn admin(control: &str, arguments: &[&str]) -> Result<()> {
    output_of(Command::new("tgtadm").args(["-C", control, "--lld", "iscsi"]).args(arguments), Duration::from_secs(10))?;
    Ok(())
}

fn await_socket(control: &str) -> Result<()> {
    // The control socket may lag behind the portal.
    let mut answer = Ok(());
    for _ in 0..100 {
        answer = admin(control, &["--op", "show", "--mode", "sys"]);
        if answer.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    answer.context("tgtd does not answer on its control socket")
}

impl Target for Tgt {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn pid(&self) -> u32 {
        self.daemon.pid()
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        // tgtd ignores SIGTERM while a session is open; its data has no value.
        let _ = self.daemon.kill();
        for file in &self.memory {
            let _ = fs::remove_file(file);
        }
    }
}

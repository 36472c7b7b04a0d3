//! Array in the clean Debian, and a host outside of it.

use super::done;
use super::machine::Machine;
use anyhow::{Context, Result, ensure};
use std::process::Command;

const INITIATOR: &str = "iqn.2026-11.io.blockyard:trial";
const DISKS: usize = 4;
const BYTES: &str = "16M";

/// Volume on file-backed disks, accessed by a host outside.
pub(super) struct Array<'a> {
    machine: &'a Machine,
}

impl<'a> Array<'a> {
    /// Creates a pool of four files with a volume that is mapped to the host.
    pub(super) fn make(machine: &'a Machine) -> Result<Self> {
        // The folder that the unit permits exists only after an administrator creates it.
        machine.sh("install -d -o blockyard -g blockyard /srv/blockyard && systemctl restart blockyard")?;
        machine.await_active("blockyard")?;
        let array = Self { machine };
        array.add_disks("--create 128MiB")?;
        array.by("pool create tank --level raid6 d0 d1 d2 d3")?;
        array.by("volume create tank/v 64MiB")?;
        array.present()?;
        Ok(array)
    }

    /// Imports the pool of a purged array and maps its volume again.
    pub(super) fn import(&self) -> Result<()> {
        self.add_disks("")?;
        self.by("pool import tank --force")?;
        self.present()
    }

    fn by(&self, words: &str) -> Result<String> {
        self.machine.sh(&format!("blockyard -q {words}"))
    }

    fn add_disks(&self, how: &str) -> Result<()> {
        (0..DISKS).try_for_each(|n| self.by(&format!("disk add {how} --name d{n} /srv/blockyard/d{n}.img")).map(drop))
    }

    fn present(&self) -> Result<()> {
        self.by(&format!("host add outside --initiator {INITIATOR}"))?;
        self.by("present tank/v outside").map(drop)
    }

    /// Writes the byte to the first part of the volume.
    pub(super) fn write(&self, byte: u8) -> Result<()> {
        self.ask(&format!("write -P {byte} 0 {BYTES}")).map(drop)
    }

    /// Checks that the first part of the volume holds only the byte.
    pub(super) fn read(&self, byte: u8) -> Result<()> {
        let said = self.ask(&format!("read -P {byte} 0 {BYTES}"))?;
        ensure!(!said.contains("verification failed"), "the volume holds something else: {said}");
        Ok(())
    }

    fn ask(&self, command: &str) -> Result<String> {
        let listed = self.machine.sh("blockyard -o json target list")?;
        let (_, rest) = listed.split_once("\"iqn\": \"").context("there is a target")?;
        let iqn = rest.split('"').next().context("its name ends")?;
        let image = format!(
            "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal=127.0.0.1:3260,file.target={iqn},file.lun=0,\
             file.initiator-name={INITIATOR}"
        );
        done(Command::new("qemu-io").args(["--image-opts", &image, "-c", command]))
    }

    /// Returns a checksum of each disk.
    pub(super) fn sums(&self) -> Result<String> {
        self.machine.sh("sha256sum /srv/blockyard/*.img")
    }
}

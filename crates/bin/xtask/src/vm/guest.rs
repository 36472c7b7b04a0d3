//! Guest: its network, QEMU, and the share for the exchange of requests and answers.

use super::image::Image;
use anyhow::{Result, bail};
use lab::child::{Background, output_of};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Address of the host's end of the tap; `GUEST` is the address of the guest.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(super) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Further addresses of the host's end, for portals.
pub(super) const MORE: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 77, 0, 3),
    Ipv4Addr::new(10, 77, 0, 4),
    Ipv4Addr::new(10, 77, 0, 5),
    Ipv4Addr::new(10, 77, 0, 6),
];
/// Addresses of a second network, for a second path to the target of the guest: host and guest.
pub(super) const HOST_ASIDE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(super) const GUEST_ASIDE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const TAP: &str = "guest0";
const OUT: &str = "guest.out";
const CONSOLE: &str = "guest.console";
const QEMU_LOG: &str = "qemu.log";

/// Sets up the loopback interface and a tap in the current network namespace.
pub(super) fn make_network() -> Result<()> {
    let ip = |arguments: &[&str]| output_of(Command::new("ip").args(arguments), Duration::from_secs(10)).map(drop);
    ip(&["link", "set", "lo", "up"])?;
    ip(&["tuntap", "add", TAP, "mode", "tap"])?;
    for address in [HOST, HOST_ASIDE].into_iter().chain(MORE) {
        ip(&["address", "add", &format!("{address}/24"), "dev", TAP])?;
    }
    ip(&["link", "set", TAP, "up"])
}

/// Running guest with its share.
pub(super) struct Guest {
    qemu: Background,
    share: PathBuf,
    folder: PathBuf,
}

impl Guest {
    /// Boots the image; `share` becomes /share in the guest, which runs /share/main.
    pub(super) fn boot(image: &Image, share: &Path, folder: &Path) -> Result<Self> {
        for place in ["asks", "answers"] {
            fs::create_dir_all(share.join(place))?;
        }
        let out = folder.join(OUT);
        fs::File::create(&out)?;
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-no-reboot", "-display", "none", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        qemu.args(["-smp", "2", "-m", "1280", "-device", "virtio-rng-pci"]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        qemu.args(["-append", &format!("console=ttyS0 quiet panic=-1 guest={GUEST}/24")]);
        // Writes of the guest go to a temporary file, so that the cached root stays clean.
        qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,snapshot=on", image.root.display()));
        qemu.arg("-chardev").arg(format!("file,id=out,path={}", out.display()));
        qemu.args(["-device", "virtio-serial", "-device", "virtserialport,chardev=out,name=out"]);
        qemu.arg("-serial").arg(format!("file:{}", folder.join(CONSOLE).display()));
        qemu.arg("-virtfs").arg(format!("local,path={},mount_tag=share,security_model=none", share.display()));
        qemu.args(["-netdev", &format!("tap,id=n0,ifname={TAP},script=no,downscript=no")]);
        qemu.args(["-device", "virtio-net-pci,netdev=n0", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        let qemu = Background::start(&mut qemu, &folder.join(QEMU_LOG))?;
        Ok(Self { qemu, share: share.to_owned(), folder: folder.to_owned() })
    }

    /// Passes the requests of the guest to `answer` until it powers off; returns the exit status of its script.
    pub(super) fn run(
        mut self,
        limit: Duration,
        verbose: bool,
        mut answer: impl FnMut(&str) -> Result<String>,
    ) -> Result<(i32, String)> {
        let until = Instant::now() + limit;
        let mut printed = 0;
        while self.qemu.is_alive() {
            if Instant::now() > until {
                self.qemu.kill()?;
                bail!("the guest did not end within {limit:?}; {}", self.last_words());
            }
            for entry in fs::read_dir(self.share.join("asks"))? {
                let question = entry?.file_name().to_string_lossy().into_owned();
                // The guest deletes its request once it has the answer. A deletion here could make its open of the file
                // fail.
                let answered = self.share.join("answers").join(&question);
                // Renamed when complete, so that the guest never reads a part of the answer.
                if !answered.exists() {
                    let unfinished = self.share.join("told");
                    fs::write(&unfinished, answer(&question)?)?;
                    fs::rename(unfinished, answered)?;
                }
            }
            if verbose {
                let said = self.said();
                print!("{}", said.get(printed..).unwrap_or_default());
                printed = said.len();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let said = self.said();
        // A missing status means that the guest crashed before its script ended.
        match fs::read_to_string(self.share.join("status")) {
            Ok(status) => Ok((status.trim().parse()?, said)),
            Err(_) => bail!("the guest ended without a status; {}", self.last_words()),
        }
    }

    fn said(&self) -> String {
        self.text(OUT)
    }

    fn text(&self, file: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(file)).unwrap_or_default()).into_owned()
    }

    /// Returns the last output of the guest and of QEMU.
    fn last_words(&self) -> String {
        let words = [OUT, CONSOLE, QEMU_LOG].map(|file| format!("{file}:\n{}", last_lines(&self.text(file))));
        words.join("\n")
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

//! Disks that go away and come back: those of pool `tank`, which are files here, and those of pool `far`, which are volumes of a second daemon.
//!
//! Called for a script's `absent-…` asks.

use super::scenario::OPEN_HOST;
use crate::workspace;
use anyhow::{Context, Result, bail};
use lab::target::product::{self, Launch, Product};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where the second daemon listens.
const FAR_PORT: u16 = 3270;
/// Disks of pool `far`.
const FAR_DISKS: u16 = 4;
/// The folder of the files of pool `tank` while they are away, in which the array does not look for disks.
const AWAY: &str = "away";

/// The second daemon, once the script has asked for it.
#[derive(Default)]
pub(super) struct FarDaemon(Option<Product>);

impl FarDaemon {
    /// Does what is asked behind `absent-`, and says what the guest wants to know.
    ///
    /// | asked | done |
    /// |---|---|
    /// | `late` | the daemon is killed, the disks of `tank` are taken away, and it is started without them |
    /// | `there` | they are put back |
    /// | `far` | pool `far` on four disks of a second daemon; its volume of 256 MiB is LUN 1 of the open host |
    /// | `cut` | the second daemon is killed, and pool `far` loses all of its disks at once |
    /// | `back` | it is started again |
    /// | `pools`, `events` | says what the array lists |
    pub(super) fn answer(&mut self, product: &mut Product, what: &str) -> Result<String> {
        match what {
            "late" => {
                product.kill()?;
                let folder = folder_of(product)?;
                fs::create_dir_all(folder.join(AWAY))?;
                move_disks(&folder, &folder.join(AWAY))?;
                product.restart()?;
                Ok(String::new())
            }
            "there" => {
                let folder = folder_of(product)?;
                move_disks(&folder.join(AWAY), &folder).map(|()| String::new())
            }
            "far" => self.make_pool(product),
            "cut" => self.daemon()?.kill().map(|()| String::new()),
            "back" => self.daemon()?.restart().map(|()| String::new()),
            "pools" => product.command(&["pool", "list", "--no-headers"]),
            "events" => product.command(&["event", "list", "--limit", "1000", "--no-headers"]),
            _ => bail!("the guest asks for \"absent-{what}\", which nobody knows"),
        }
    }

    fn daemon(&mut self) -> Result<&mut Product> {
        self.0.as_mut().context("the guest has not asked for \"absent-far\"")
    }

    fn make_pool(&mut self, product: &Product) -> Result<String> {
        let folder = folder_of(product)?.join("far");
        fs::create_dir(&folder)?;
        let portals = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, FAR_PORT))];
        let launch = Launch { build: workspace::product()?, folder: folder.clone(), portals, ..Launch::default() };
        let far = self.0.insert(Product::launch(launch)?);
        product::make_pool(far, &folder, 4, "512MiB")?;
        let target = format!("{}:far", product::IQN);
        far.command(&["target", "add", "far", "--iqn", &target])?;
        far.command(&["host", "add", "array", "--initiator", &super::remote::initiator(product)?])?;
        let mut create = vec!["pool".to_owned(), "create".into(), "far".into(), "--level".into(), "raid5".into()];
        for lun in 0..FAR_DISKS {
            let (volume, disk) = (format!("tank/m{lun}"), format!("f{lun}"));
            far.command(&["volume", "create", &volume, "128MiB"])?;
            far.command(&["present", &volume, "array", "--target", "far", "--lun", &lun.to_string(), "--quiet"])?;
            let address = format!("iscsi://127.0.0.1:{FAR_PORT}/{target}/{lun}");
            product.command(&["disk", "add", "--name", &disk, &address])?;
            create.push(disk);
        }
        product.command(&create.iter().map(String::as_str).collect::<Vec<_>>())?;
        product.command(&["volume", "create", "far/vm", "256MiB"])?;
        product.command(&["present", "far/vm", OPEN_HOST, "--target", "vm", "--lun", "1", "--quiet"])
    }
}

/// The daemon's folder, which holds the files of `tank`.
fn folder_of(product: &Product) -> Result<PathBuf> {
    Ok(product.socket().parent().context("the daemon has a folder")?.to_owned())
}

fn move_disks(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            fs::rename(&path, to.join(path.file_name().context("it has a name")?))?;
        }
    }
    Ok(())
}

//! Requests that make disks disappear and return: disks of pool `tank`, which are files here, and of pool `far`, which
//! are volumes of a second daemon.
//!
//! Called for the requests `absent-…` of a script.

use super::scenario::OPEN_HOST;
use crate::workspace;
use anyhow::{Context, Result, bail};
use lab::target::product::{self, Launch, Product};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Port of the second daemon.
const FAR_PORT: u16 = 3270;
/// Number of disks of pool `far`.
const FAR_DISKS: u16 = 4;
/// Folder for the files of pool `tank` while they are missing, in which the array does not look for disks.
const AWAY: &str = "away";

/// Second daemon, once the script has requested it.
#[derive(Default)]
pub(super) struct SecondDaemon(Option<Product>);

impl SecondDaemon {
    /// Carries out the request after `absent-` and returns the answer to the guest.
    ///
    /// | request | action |
    /// |---|---|
    /// | `late` | kill the daemon, remove the disks of `tank`, and start the daemon without them |
    /// | `there` | return the disks |
    /// | `far` | create pool `far` on four disks of a second daemon, with a volume of 256 MiB as LUN 1 of the open host
    /// |
    /// | `cut` | kill the second daemon, so that pool `far` loses all of its disks at once |
    /// | `back` | restart the second daemon |
    /// | `pools`, `events` | return the list of the array |
    pub(super) fn answer(&mut self, product: &mut Product, what: &str) -> Result<String> {
        match what {
            "late" => {
                // Killed first: a running daemon would go on with the open files, wherever they are moved.
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
        // The initiator name of the array is known only from a refusal.
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

/// Returns the folder of the daemon, which contains the files of `tank`.
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

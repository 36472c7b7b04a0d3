//! Block devices of the machine that the array does not use: identity, content, and whether a device is free.
//!
//! The kernel and udev report the devices and their uses; the data plane inspects unused ones, exclusively and
//! read-only. A device that is not certainly free is not offered.

mod contents;

use crate::Engine;
use crate::backing::{BackingIdentity, admit_path};
use crate::core::Core;
use crate::machine::Machine;
pub(crate) use crate::machine::SystemDevice;
use model::{BlockDeviceReport, BlockDeviceState, Label, Order, Refusal, Size, code};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limit for inspecting one device.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum size of a pool disk.
pub(crate) const SIZE_MIN: Size = Size::mib(64);

/// State of a device, and the reason why it is not free.
type Judged = (BlockDeviceState, Option<String>);

/// Block devices of the machine that are not disks of the array.
pub struct Devices {
    core: Arc<Core>,
    /// Source of the device list: sysfs, udev and procfs.
    machine: Machine,
}

impl Devices {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, machine: Machine::default() }
    }

    /// Lists every block device of the machine that is neither a disk nor a volume of this array.
    ///
    /// *Errors*: the machine does not list its devices. A device that cannot be inspected is listed as such.
    pub async fn list(&self) -> Result<Vec<BlockDeviceReport>, Refusal> {
        let machine = self.machine.clone();
        // Reading sysfs and the udev database blocks, and this runtime has one thread.
        let found = tokio::task::spawn_blocking(move || machine.devices()).await;
        let found = found.map_err(|error| unreadable(&error.to_string()))?;
        let found = found.map_err(|error| unreadable(&error.to_string()))?;
        // Inspected in parallel: a device that hangs costs one time limit, not one for each device behind it.
        let mut looks = JoinSet::new();
        for (place, device) in self.exclude_own(found).into_iter().enumerate() {
            let engine = self.core.engine.clone();
            looks.spawn(async move { (place, inspect(&engine, device).await) });
        }
        let mut reports = looks.join_all().await;
        // Inspections end in any order; the list keeps the order of the kernel's.
        reports.sort_by_key(|(place, _)| *place);
        Ok(reports.into_iter().map(|(_, report)| report).collect())
    }

    /// Admits the path of a free device, named as only the system names devices.
    ///
    /// *Errors*: any other path, whatever it leads to; those require the administrator role.
    pub async fn admit_offered(&self, path: &str) -> Result<(), Refusal> {
        let path = admit_path(path)?;
        let refused = |why: String| {
            let hint =
                "choose a disk that blockyard disk find shows as free, or ask an admin; a token needs --scope access";
            Refusal::new(code::FORBIDDEN, format!("{why}, and only an admin may add it"), hint)
        };
        let no_offer = || refused(format!("{} is not one of the offered disks", path.display()));
        if !self.machine.names(&path) {
            return Err(no_offer());
        }
        // Compared by device number: the path and the listed device may be different links to one disk.
        let medium = BackingIdentity::at(&path).ok_or_else(no_offer)?;
        let offered = self.list().await?;
        let device =
            offered.iter().find(|device| BackingIdentity::at(&device.device) == Some(medium)).ok_or_else(no_offer)?;
        match &device.reason {
            None => Ok(()),
            Some(reason) => Err(refused(format!("{} is not free: {reason}", path.display()))),
        }
    }

    /// Filters out devices of this array; a device with a partition of this array is in use.
    fn exclude_own(&self, found: Vec<SystemDevice>) -> Vec<SystemDevice> {
        let state = self.core.state();
        let local = state.disks.iter().filter(|(_, record)| record.remote.is_none());
        let disks = local.map(|(name, record)| (format!("disk {name}"), record.path.clone()));
        // Files and devices behind volumes without a pool are ours as well.
        let backed = state.volumes.iter().filter_map(|(name, record)| match &record.backend {
            model::Backend::File { path } => Some((format!("volume {name}"), path.clone())),
            _ => None,
        });
        let ours: Vec<(String, BackingIdentity)> =
            // A path that leads nowhere cannot be one of the found devices.
            disks.chain(backed).filter_map(|(name, path)| Some((name, BackingIdentity::at(path)?))).collect();
        let known = |path: &Path| {
            let medium = BackingIdentity::at(path)?;
            ours.iter().find(|(_, other)| *other == medium).map(|(name, _)| name.clone())
        };
        let told = found.into_iter().filter(|device| known(&device.device).is_none()).map(|mut device| {
            let parts = device.parts.iter().filter_map(|part| Some((part, known(part)?)));
            let uses: Vec<String> =
                parts.map(|(part, name)| format!("its partition {} is {name} of this array", part.display())).collect();
            device.uses.extend(uses);
            if let Some(name) = device.whole.as_deref().and_then(known) {
                device.uses.push(format!("it is a partition of {name} of this array"));
            }
            device
        });
        told.collect()
    }
}

/// Inspects the device; the content of a device in use is not read.
async fn inspect(engine: &Engine, device: SystemDevice) -> BlockDeviceReport {
    let path = device.stable_path.as_ref().unwrap_or(&device.device).to_string_lossy().into_owned();
    let kernel = device.device.to_string_lossy().into_owned();
    let mut identity = device.identity.clone();
    let mut label = device.signature.clone().map(|what| Label::Foreign { description: what });
    let judged = if device.uses.is_empty() {
        let order = Order::InspectDisk { path: kernel.clone(), remote: None };
        match timeout(INSPECT_TIMEOUT, engine.disk(order)).await {
            Ok(Ok(seen)) => {
                // Values read from the device itself take precedence over those of udev.
                let inside = seen.identity;
                identity.serial = inside.serial.or(identity.serial);
                identity.model = inside.model.or(identity.model);
                identity.wwn = inside.wwn.or(identity.wwn);
                // Only the data plane reads bays, so its values stand even where they are empty.
                (identity.enclosure, identity.slot, identity.has_light) =
                    (inside.enclosure, inside.slot, inside.has_light);
                // A label from the data plane is more reliable than the signature in the udev database.
                if seen.label != Label::None || label.is_none() {
                    label = Some(seen.label);
                }
                judge(&device, label.as_ref())
            }
            Ok(Err(refusal)) if refusal.code == code::DISK_IN_USE => {
                (BlockDeviceState::InUse, Some("it is in use by another program".to_owned()))
            }
            Ok(Err(refusal)) => (BlockDeviceState::Unknown, Some(format!("{}; {}", refusal.message, refusal.hint))),
            Err(_) => {
                (BlockDeviceState::Unknown, Some(format!("it did not respond within {} s", INSPECT_TIMEOUT.as_secs())))
            }
        }
    } else {
        (BlockDeviceState::InUse, Some(device.uses.join("; ")))
    };
    let (state, reason) = judged;
    let (size, transport) = (device.size, device.transport);
    BlockDeviceReport { path, device: kernel, size, identity, transport, label, state, reason }
}

/// Classifies a device that is not in use and was inspected.
fn judge(device: &SystemDevice, label: Option<&Label>) -> Judged {
    match label {
        Some(Label::PoolMember { pool_name, .. }) => {
            let reason = format!(
                "it is a member of the foreign pool {pool_name}: add all of its disks, then run blockyard pool \
                 import {pool_name}"
            );
            return (BlockDeviceState::Member, Some(reason));
        }
        Some(Label::Damaged) => {
            let reason = "it has a damaged pool label";
            return (BlockDeviceState::HasData, Some(reason.to_owned()));
        }
        Some(Label::Foreign { description: what }) => {
            return (BlockDeviceState::HasData, Some(format!("it holds {what}")));
        }
        Some(Label::None) | None => {}
    }
    if !device.parts.is_empty() {
        let count = device.parts.len();
        let reason = if count == 1 { "it has a partition".to_owned() } else { format!("it has {count} partitions") };
        return (BlockDeviceState::HasData, Some(reason));
    }
    match unsuited(device) {
        Some(reason) => (BlockDeviceState::Unsuitable, Some(reason)),
        None => (BlockDeviceState::Free, None),
    }
}

/// Returns the reason why the device is unsuitable as a disk, if it is.
fn unsuited(device: &SystemDevice) -> Option<String> {
    if let Some(whole) = &device.whole {
        return Some(format!("it is a partition of {}, which has other partitions", whole.display()));
    }
    if let Some(of) = &device.made_of {
        return Some(format!("it is {of}, whose use cannot be detected"));
    }
    if device.is_read_only {
        return Some("it is not writable".to_owned());
    }
    (device.size < SIZE_MIN).then(|| format!("it is smaller than {SIZE_MIN}"))
}

fn unreadable(why: &str) -> Refusal {
    let hint = "give the path of a disk by hand: blockyard disk add PATH";
    Refusal::new(code::IO_FAILED, format!("the block devices of this machine cannot be listed: {why}"), hint)
}

#[cfg(test)]
mod tests;

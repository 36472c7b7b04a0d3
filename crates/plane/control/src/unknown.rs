//! Refusals for names of objects that do not exist.

use model::{DiskName, Name, Refusal, VolumeName, code};

pub(crate) fn missing(name: &DiskName) -> Refusal {
    Refusal::new(code::DISK_MISSING, format!("disk {name} is missing"), "attach it and restart, or choose another disk")
}

pub(crate) fn unknown_group(name: &Name) -> Refusal {
    Refusal::new(code::HOST_UNKNOWN, format!("group {name} does not exist"), "see blockyard group list")
}

pub(crate) fn unknown_host(name: &Name) -> Refusal {
    Refusal::new(
        code::HOST_UNKNOWN,
        format!("host {name} does not exist"),
        "see blockyard host list, or add it with blockyard host add",
    )
}

pub(crate) fn unknown_target(name: &Name) -> Refusal {
    Refusal::new(code::TARGET_UNKNOWN, format!("target {name} does not exist"), "see blockyard target list")
}

pub(crate) fn unknown_portal_group(tag: u16) -> Refusal {
    let message = format!("portal group {tag} has no portals");
    Refusal::new(code::PORTAL_GROUP_UNKNOWN, message, "see blockyard portal groups")
}

pub(crate) fn unknown_pool(name: &Name) -> Refusal {
    Refusal::new(code::POOL_UNKNOWN, format!("pool {name} does not exist"), "see blockyard pool list")
}

pub(crate) fn unknown_volume(name: &VolumeName) -> Refusal {
    Refusal::new(code::VOLUME_UNKNOWN, format!("volume {name} does not exist"), "see blockyard volume list")
}

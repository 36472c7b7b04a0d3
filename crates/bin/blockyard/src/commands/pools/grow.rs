//! Commands `blockyard pool add-group`, `add-member` and `grow`.

use crate::args::DiskGiven;
use crate::commands::new_disks::with_disk;
use crate::commands::{CommandContext, pool_path};
use crate::failure::Failure;
use crate::progress::{self, WaitTimeout};
use control::request::{AddGroup, AddMember, GrowPool};
use model::{Name, PoolReport};

pub(super) fn add_group(desk: &CommandContext, name: &Name, request: &AddGroup) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("{}/groups", pool_path(name)), request, "pool")?;
    let pool: PoolReport = answer.decode()?;
    let (level, count) = (request.group.level, request.group.disks.len());
    let text = format!("pool {name} expanded by a group: {level} of {count} disks; now {}", pool.size);
    desk.out.done(&answer, &text)
}

/// Adds a disk to a group, or to the only group.
pub(super) fn add_member(
    desk: &CommandContext,
    name: &Name,
    disk: &DiskGiven,
    (group, force): (Option<u16>, bool),
    patience: Option<WaitTimeout>,
) -> Result<(), Failure> {
    with_disk(desk, disk, force, |disk| {
        let request = AddMember { disk, group, force };
        let answer = desk.client.post(&format!("{}/members", pool_path(name)), &request, "pool")?;
        desk.out.done(&answer, &format!("disk {} is joining pool {name}, see blockyard pool show {name}", request.disk))
    })?;
    // Outside of `with_disk`, which would try to remove the new member if the wait timed out.
    if let Some(patience) = patience {
        return progress::judge(&progress::follow(&desk.client, name, !desk.out.is_quiet(), patience)?);
    }
    Ok(())
}

pub(super) fn grow(desk: &CommandContext, name: &Name, request: GrowPool) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("{}/grow", pool_path(name)), &request, "pool")?;
    let pool: PoolReport = answer.decode()?;
    desk.out.done(&answer, &format!("pool {name} expanded to its larger disks; now {}", pool.size))
}

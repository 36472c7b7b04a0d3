//! Rows for disks and spares.

use crate::gate::Caller;
use crate::row::{Authenticated, Body, PathName, Row, act, add, list, one, remove};
use control::Control;
use control::request::{Locate, NewDisk, NewSpare, Replace};
use model::{DiskName, Refusal, Role, code};
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<DiskName>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/disks", "disks", "List all disks, missing ones included", |c: C| async move { c.disks.list().await }),
        list(
            "/block-devices",
            "block_devices",
            "List block devices that are not part of the array, with their content",
            |c: C| async move { c.devices.list().await },
        )
        .only(Role::Operator),
        add("/disks", "disk", "Add a disk", |c: C, Authenticated(caller), Body(new): Body<NewDisk>| async move {
            // Creating a file names a path that need not exist, so it cannot be one of the offered devices.
            if new.create.is_some() && !caller.may_name_any_path() {
                let message = format!("only an admin may create disk files, and {caller} is not an admin");
                return Err(Refusal::new(code::FORBIDDEN, message, "ask an admin; a token needs --scope access"));
            }
            admit_path(&c, &caller, &new.path).await?;
            c.disks.add(new).await
        }),
        one(
            "/disks/{name}",
            "disk",
            "Show a disk",
            |c: C, PathName(name): One| async move { c.disks.report(&name).await },
        ),
        remove("/disks/{name}", "Remove a disk; its content is kept", |c: C, PathName(name): One| async move {
            c.disks.remove(&name).await
        })
        .destroys(),
        act(
            "/disks/{name}/fail",
            "pool",
            "Fail a disk: remove it from its pool",
            |c: C, PathName(name): One| async move { c.pools.fail_disk(&name).await },
        )
        .destroys(),
        act(
            "/disks/{name}/locate",
            "disk",
            "Switch the locate light of a disk on or off",
            |c: C, PathName(name): One, Body(how): Body<Locate>| async move { c.disks.locate(&name, how).await },
        ),
        act(
            "/disks/{name}/replace",
            "pool",
            "Replace a disk and start the rebuild",
            |c: C, PathName(name): One, Body(by): Body<Replace>| async move { c.pools.replace_disk(&name, by).await },
        ),
        act(
            "/disks/{name}/spare",
            "disk",
            "Make a disk a hot spare",
            |c: C, PathName(name): One, Body(new): Body<NewSpare>| async move { c.spares.add(&name, new).await },
        ),
        remove(
            "/disks/{name}/spare",
            "Remove the hot spare role from a disk",
            |c: C, PathName(name): One| async move { c.spares.remove(&name).await },
        ),
    ]
}

/// Admits a path that this caller may open: any for an admin, offered devices for others. A caller who may name any
/// file of the machine can gain any right, so a token needs the scope `access` for it.
pub(super) async fn admit_path(control: &Control, caller: &Caller, path: &str) -> Result<(), Refusal> {
    if caller.may_name_any_path() { Ok(()) } else { control.devices.admit_offered(path).await }
}

//! Rows for pools.

use crate::row::{Body, PathName, Row, act, add, get, list, one, post_empty, remove, set};
use control::Control;
use control::request::{
    AddGroup, AddLog, AddMember, GrowPool, ImportPool, NewPool, PoolSettings, Removal, RemoveLog, RepairPool,
    StartScrub,
};
use model::{Name, Role};
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<Name>;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows =
        vec![
            list("/pools", "pools", "List all pools, closed ones included", |c: C| async move { c.pools.list().await }),
            add("/pools", "pool", "Create a pool", |c: C, Body(new): Body<NewPool>| async move {
                c.pools.create(new).await
            }),
            one("/pools/{name}", "pool", "Show a pool", |c: C, PathName(name): One| async move {
                c.pools.report(&name).await
            }),
            set(
                "/pools/{name}",
                "pool",
                "Change the settings of a pool, for running repairs as well",
                |c: C, PathName(name): One, Body(settings): Body<PoolSettings>| async move {
                    c.pools.set(&name, settings).await
                },
            ),
            remove("/pools/{name}", "Destroy a pool and free its disks", |c: C, PathName(name): One| async move {
                c.pools.destroy(&name).await
            })
            .destroys()
            .only(Role::Admin),
        ];
    rows.extend(moving());
    rows.extend(growing());
    rows.extend(caring());
    rows
}

/// Rows for moving a pool between nodes.
fn moving() -> [Row; 3] {
    [
        post_empty(
            "/pools/{name}/export",
            "Export a pool for import on another node",
            |c: C, PathName(name): One, Body(how): Body<Removal>| async move { c.pools.export(&name, how).await },
        )
        .only(Role::Admin),
        act(
            "/pools/{name}/import",
            "pool",
            "Import a pool from its disks",
            |c: C, PathName(name): One, Body(how): Body<ImportPool>| async move { c.pools.import(&name, how).await },
        )
        .only(Role::Admin),
        act(
            "/pools/{name}/key",
            "pool_key",
            "Export the key of the encrypted volumes of a pool for escrow",
            |c: C, PathName(name): One| async move { c.pools.key(&name).await },
        )
        .gives_access()
        .only(Role::Admin)
        .secret(),
    ]
}

/// Rows for more capacity.
fn growing() -> [Row; 5] {
    [
        act(
            "/pools/{name}/groups",
            "pool",
            "Add a disk group to a pool",
            |c: C, PathName(name): One, Body(group): Body<AddGroup>| async move { c.pools.add_group(&name, group).await },
        ),
        act(
            "/pools/{name}/members",
            "pool",
            "Expand a disk group by one member (reshape)",
            |c: C, PathName(name): One, Body(member): Body<AddMember>| async move {
                c.pools.add_member(&name, member).await
            },
        ),
        act(
            "/pools/{name}/grow",
            "pool",
            "Expand a pool to the full size of its disks",
            |c: C, PathName(name): One, Body(how): Body<GrowPool>| async move { c.pools.grow(&name, how).await },
        ),
        act(
            "/pools/{name}/log",
            "pool",
            "Add a log device to a pool",
            |c: C, PathName(name): One, Body(log): Body<AddLog>| async move { c.pools.add_log(&name, log).await },
        ),
        act(
            "/pools/{name}/log/removal",
            "pool",
            "Remove the log device of a pool",
            |c: C, PathName(name): One, Body(how): Body<RemoveLog>| async move { c.pools.remove_log(&name, how).await },
        ),
    ]
}

/// Rows for repairs, scrubs and checks.
fn caring() -> [Row; 8] {
    [
        act("/pools/{name}/pause", "pool", "Pause the repairs of a pool", |c: C, PathName(name): One| async move {
            c.pools.pause(&name, true).await
        }),
        act("/pools/{name}/resume", "pool", "Resume the repairs of a pool", |c: C, PathName(name): One| async move {
            c.pools.pause(&name, false).await
        }),
        list(
            "/pools/{name}/scrubs",
            "scrubs",
            "List past scrubs of a pool, oldest first",
            |c: C, PathName(name): One| async move { c.scrubs.list(&name).await },
        ),
        act(
            "/pools/{name}/scrubs",
            "pool",
            "Start a scrub of a pool",
            |c: C, PathName(name): One, Body(how): Body<StartScrub>| async move { c.scrubs.start(&name, how).await },
        ),
        remove("/pools/{name}/scrubs", "Stop the running scrub of a pool", |c: C, PathName(name): One| async move {
            c.scrubs.stop(&name).await
        }),
        get(
            "/pools/{name}/check",
            "check",
            "Check the volume maps of a pool without writing",
            |c: C, PathName(name): One| async move { c.pools.check(&name, false).await },
        ),
        act(
            "/pools/{name}/check",
            "check",
            "Repair errors in the volume maps of a pool; returns the findings",
            |c: C, PathName(name): One, Body(how): Body<RepairPool>| async move { c.pools.repair(&name, how).await },
        ),
        get(
            "/pools/{name}/dump",
            "dump",
            "Dump the catalog and the volume maps of a pool as text",
            |c: C, PathName(name): One| async move { c.pools.dump(&name).await },
        )
        .of_host_data(),
    ]
}

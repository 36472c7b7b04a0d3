//! Rows for pools.

use crate::row::{Body, Named, Row, act, add, get, list, one, quietly, remove, set};
use control::Control;
use control::request::{
    AddGroup, AddLog, AddMember, GrowPool, ImportPool, NewPool, PoolSettings, Removal, RemoveLog, RepairPool,
    StartScrub,
};
use model::{Name, Role};
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<Name>;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = vec![
        list("/pools", "pools", "All pools that are known, also those that are not open", |c: C| async move {
            c.pools.list().await
        }),
        add("/pools", "pool", "There is a pool of these disks", |c: C, Body(new): Body<NewPool>| async move {
            c.pools.create(new).await
        }),
        one("/pools/{name}", "pool", "One pool", |c: C, Named(name): One| async move { c.pools.report(&name).await }),
        set(
            "/pools/{name}",
            "pool",
            "The settings hold, also for what is being repaired already",
            |c: C, Named(name): One, Body(settings): Body<PoolSettings>| async move { c.pools.set(&name, settings).await },
        ),
        remove("/pools/{name}", "The pool is gone; its disks are free", |c: C, Named(name): One| async move {
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
        quietly(
            "/pools/{name}/export",
            "The pool is let go of; another node may have it",
            |c: C, Named(name): One, Body(how): Body<Removal>| async move { c.pools.export(&name, how).await },
        )
        .only(Role::Admin),
        act(
            "/pools/{name}/import",
            "pool",
            "A pool that was found on its disks is open",
            |c: C, Named(name): One, Body(how): Body<ImportPool>| async move { c.pools.import(&name, how).await },
        )
        .only(Role::Admin),
        act(
            "/pools/{name}/key",
            "pool_key",
            "The key of its encrypted volumes, for who is to keep it",
            |c: C, Named(name): One| async move { c.pools.key(&name).await },
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
            "It has one more disk group",
            |c: C, Named(name): One, Body(group): Body<AddGroup>| async move { c.pools.add_group(&name, group).await },
        ),
        act(
            "/pools/{name}/members",
            "pool",
            "A disk becomes one more member of a group",
            |c: C, Named(name): One, Body(member): Body<AddMember>| async move { c.pools.add_member(&name, member).await },
        ),
        act(
            "/pools/{name}/grow",
            "pool",
            "It uses all of its disks",
            |c: C, Named(name): One, Body(how): Body<GrowPool>| async move { c.pools.grow(&name, how).await },
        ),
        act(
            "/pools/{name}/log",
            "pool",
            "It has a log device",
            |c: C, Named(name): One, Body(log): Body<AddLog>| async move { c.pools.add_log(&name, log).await },
        ),
        act(
            "/pools/{name}/log/removal",
            "pool",
            "It has no log device any more",
            |c: C, Named(name): One, Body(how): Body<RemoveLog>| async move { c.pools.remove_log(&name, how).await },
        ),
    ]
}

/// Rows for repairs, scrubs and checks.
fn caring() -> [Row; 8] {
    [
        act(
            "/pools/{name}/pause",
            "pool",
            "Nothing of it is repaired until it is resumed",
            |c: C, Named(name): One| async move { c.pools.pause(&name, true).await },
        ),
        act(
            "/pools/{name}/resume",
            "pool",
            "It is repaired again where it must be",
            |c: C, Named(name): One| async move { c.pools.pause(&name, false).await },
        ),
        list(
            "/pools/{name}/scrubs",
            "scrubs",
            "Its scrubs that are remembered, oldest first",
            |c: C, Named(name): One| async move { c.scrubs.list(&name).await },
        ),
        act(
            "/pools/{name}/scrubs",
            "pool",
            "Everything that its volumes hold is being read and compared",
            |c: C, Named(name): One, Body(how): Body<StartScrub>| async move { c.scrubs.start(&name, how).await },
        ),
        remove(
            "/pools/{name}/scrubs",
            "Its scrub ends",
            |c: C, Named(name): One| async move { c.scrubs.stop(&name).await },
        ),
        get(
            "/pools/{name}/check",
            "check",
            "What is wrong with the maps of its volumes; nothing is written",
            |c: C, Named(name): One| async move { c.pools.check(&name, false).await },
        ),
        act(
            "/pools/{name}/check",
            "check",
            "Repair what a check of the maps of its volumes finds; returns what was found",
            |c: C, Named(name): One, Body(how): Body<RepairPool>| async move { c.pools.repair(&name, how).await },
        ),
        get("/pools/{name}/dump", "dump", "Its catalog and its maps as text", |c: C, Named(name): One| async move {
            c.pools.dump(&name).await
        })
        .of_host_data(),
    ]
}

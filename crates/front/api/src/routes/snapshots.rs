//! Rows for snapshots.

use crate::row::{Asked, Body, Named, Row, add, list, one, remove, set};
use control::Control;
use control::request::{LockSnapshot, NewSnapshots, SnapshotsOf};
use model::SnapshotName;
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<SnapshotName>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list(
            "/snapshots",
            "snapshots",
            "All snapshots, or those of one volume",
            |c: C, Asked(asked): Asked<SnapshotsOf>| async move { c.snapshots.list_of(asked).await },
        ),
        add(
            "/snapshots",
            "snapshots",
            "There are snapshots of these volumes, all of one instant",
            |c: C, Body(new): Body<NewSnapshots>| async move { c.snapshots.create(new).await },
        ),
        one("/snapshots/{*name}", "snapshot", "One snapshot", |c: C, Named(name): One| async move {
            c.snapshots.report(&name).await
        }),
        set(
            "/snapshots/{*name}",
            "snapshot",
            "It cannot be deleted before this time",
            |c: C, Named(name): One, Body(lock): Body<LockSnapshot>| async move { c.snapshots.lock(&name, lock).await },
        ),
        remove(
            "/snapshots/{*name}",
            "It is gone; its space is given back in the background",
            |c: C, Named(name): One| async move { c.snapshots.delete(&name).await },
        )
        .destroys(),
    ]
}

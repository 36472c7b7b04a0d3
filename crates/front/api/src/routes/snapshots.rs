//! Rows for snapshots.

use crate::row::{Body, PathName, QueryParams, Row, add, list, one, remove, set};
use control::Control;
use control::request::{LockSnapshot, NewSnapshots, SnapshotsOf};
use model::SnapshotName;
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<SnapshotName>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list(
            "/snapshots",
            "snapshots",
            "List snapshots, of all volumes or of one",
            |c: C, QueryParams(asked): QueryParams<SnapshotsOf>| async move { c.snapshots.list_of(asked).await },
        ),
        add(
            "/snapshots",
            "snapshots",
            "Create a consistent snapshot of one or more volumes",
            |c: C, Body(new): Body<NewSnapshots>| async move { c.snapshots.create(new).await },
        ),
        one("/snapshots/{*name}", "snapshot", "Show a snapshot", |c: C, PathName(name): One| async move {
            c.snapshots.report(&name).await
        }),
        set(
            "/snapshots/{*name}",
            "snapshot",
            "Lock a snapshot until a time",
            |c: C, PathName(name): One, Body(lock): Body<LockSnapshot>| async move { c.snapshots.lock(&name, lock).await },
        ),
        remove(
            "/snapshots/{*name}",
            "Delete a snapshot; its space is freed in the background",
            |c: C, PathName(name): One| async move { c.snapshots.delete(&name).await },
        )
        .destroys(),
    ]
}

//! Rows for volumes, clones, copies, roll-backs, reservations and latencies.

use super::disks::admit_path;
use crate::row::{Authenticated, Body, PathName, QueryParams, Row, act, add, list, one, remove, set};
use control::Control;
use control::request::{
    NewBackend, NewClone, NewCopy, NewVolume, Removal, Resize, RollBack, VolumeChange, VolumeSettings,
};
use model::{Refusal, VolumeName, VolumeReport, code};
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<VolumeName>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list(
            "/volumes",
            "volumes",
            "List all volumes, missing ones included",
            |c: C| async move { c.volumes.list().await },
        ),
        add(
            "/volumes",
            "volume",
            "Create a volume",
            |c: C, Authenticated(caller), Body(new): Body<NewVolume>| async move {
                // A file or device as back end lets a host write to it, so the caller must be allowed to name the path.
                if let Some(NewBackend::File { path }) = &new.backend {
                    admit_path(&c, &caller, path).await?;
                }
                c.volumes.create(new).await
            },
        ),
        one("/volumes/{*name}", "volume", "Show a volume", |c: C, PathName(name): One| async move {
            c.volumes.report(&name).await
        }),
        set(
            "/volumes/{*name}",
            "volume",
            "Resize a volume or change its settings",
            |c: C, PathName(name): One, Body(how): Body<VolumeChange>| async move { change(&c, &name, how).await },
        ),
        remove(
            "/volumes/{*name}",
            "Delete a volume and its data",
            |c: C, PathName(name): One, QueryParams(how): QueryParams<Removal>| async move {
                c.volumes.delete(&name, how).await
            },
        )
        .destroys(),
        add("/clones", "volume", "Create a clone of a snapshot", |c: C, Body(new): Body<NewClone>| async move {
            c.snapshots.create_clone(new).await
        }),
        add(
            "/copies",
            "volume",
            "Start a copy of a volume or snapshot to a new volume",
            |c: C, Body(new): Body<NewCopy>| async move { c.copies.start(new).await },
        ),
        remove("/copies/{*name}", "Cancel a copy and delete its volume", |c: C, PathName(name): One| async move {
            c.copies.cancel(&name).await
        }),
        act("/rollbacks", "volume", "Roll a volume back to a snapshot", |c: C, Body(how): Body<RollBack>| async move {
            c.snapshots.roll_back(how).await
        })
        .destroys(),
        remove(
            "/reservations/{*name}",
            "Clear the reservation and all registrations of a volume",
            |c: C, PathName(name): One| async move { c.volumes.clear_reservations(&name).await.map(|_| ()) },
        )
        .destroys(),
        list(
            "/latencies/{*name}",
            "latencies",
            "Show the latency histograms of a volume since it was opened",
            |c: C, PathName(name): One| async move { c.volumes.latencies(&name).await },
        ),
    ]
}

async fn change(control: &Control, name: &VolumeName, change: VolumeChange) -> Result<VolumeReport, Refusal> {
    let VolumeChange { size, settings } = change;
    match size {
        Some(size) if settings.is_empty() => control.volumes.resize(name, Resize { size }).await,
        None => control.volumes.set(name, VolumeSettings { settings }).await,
        // Each is a change of its own, so the second could fail after the first.
        Some(_) => {
            let message = "size and settings cannot change in one request";
            Err(Refusal::new(code::OPTIONS_CONFLICT, message, "send two requests"))
        }
    }
}

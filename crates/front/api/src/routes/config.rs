//! Rows for the configuration of the array as one document.

use super::disks::admit_path;
use crate::document_sections::DocumentSections;
use crate::row::{Authenticated, Body, PathName, Row, Services, act, get};
use control::Control;
use control::config::{ApplyConfig, DOCUMENT_BYTES_MAX, Plan, RestoreConfig};
use control::request::NewSetup;
use model::{ConfigVersion, Role};
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get(
            "/config",
            "config",
            "Export the configuration as a document, without secrets",
            |c: C, Services(door): Services, Authenticated(caller): Authenticated| async move { c.config.export(&DocumentSections::of(&door, caller)).await },
        ),
        act(
            "/config/plan",
            "plan",
            "Preview the changes of a configuration document and the hosts they affect",
            |c: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<ApplyConfig>| async move {
                let plan: Plan = c.config.plan(&asked, &DocumentSections::of(&door, caller)).await?;
                Ok(plan)
            },
        )
        .only_plans()
        .while_held()
        .up_to(DOCUMENT_BYTES_MAX),
        act(
            "/config/apply",
            "applied",
            "Apply a configuration document as a whole or not at all",
            |c: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<ApplyConfig>| async move {
                c.config.apply(asked, &DocumentSections::of(&door, caller)).await
            },
        )
        .up_to(DOCUMENT_BYTES_MAX)
        .only(Role::Admin),
        act(
            "/setup",
            "applied",
            "Create a pool, a volume and a host and present the volume, as a whole or not at all",
            |c: C, Services(door): Services, Authenticated(caller): Authenticated, Body(asked): Body<NewSetup>| async move {
                for disk in &asked.disks {
                    // A known disk was admitted when it was added; only new paths need the right.
                    if c.disks.report(&disk.name).await.is_ok_and(|known| known.path == disk.path) {
                        continue;
                    }
                    admit_path(&c, &caller, &disk.path).await?;
                }
                c.config.set_up(asked, &DocumentSections::of(&door, caller)).await
            },
        ),
        get(
            "/config/versions",
            "configs",
            "List restore points of the access configuration, current first",
            |c: C| async move { c.config.restore_points().await },
        ),
        act(
            "/config/versions/{version}/restore",
            "applied",
            "Restore the access configuration of a restore point",
            |c: C, PathName(version): PathName<ConfigVersion>, Body(how): Body<RestoreConfig>| async move {
                c.config.restore(version.0, how).await
            },
        )
        .only(Role::Admin),
    ]
}

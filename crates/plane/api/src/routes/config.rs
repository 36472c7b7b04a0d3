//! The array as one document.

use crate::row::{Body, Named, Row, act, get};
use control::Control;
use control::config::{ApplyConfig, Plan};
use model::{ConfigVersion, Role};
use std::sync::Arc;

type C = Arc<Control>;

/// A document of ten thousand volumes has some megabytes.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

pub fn rows() -> Vec<Row> {
    vec![
        get("/config", "config", "The array as a document, without secrets", |c: C| async move { c.export().await }),
        act(
            "/config/plan",
            "plan",
            "What a document would change, and for whom",
            |c: C, Body(asked): Body<ApplyConfig>| async move {
                let plan: Plan = c.plan(&asked.document, asked.prune).await?;
                Ok(plan)
            },
        )
        .up_to(DOCUMENT_BYTES_MAX),
        act(
            "/config/apply",
            "applied",
            "The array is what the document says, or as it was",
            |c: C, Body(asked): Body<ApplyConfig>| async move { c.apply(asked).await },
        )
        .up_to(DOCUMENT_BYTES_MAX)
        .only(Role::Admin),
        get("/config/versions", "configs", "Who saw what before, the present first", |c: C| async move {
            c.past_configs().await
        }),
        act(
            "/config/versions/{version}/restore",
            "applied",
            "Everybody sees what they saw then",
            |c: C, Named(version): Named<ConfigVersion>| async move { c.restore_config(version.0).await },
        )
        .only(Role::Admin),
    ]
}

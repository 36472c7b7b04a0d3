//! Rows for the audit log.

use crate::request::{AuditQuery, SetForward};
use crate::row::{Body, QueryParams, Row, Services, file, get, one, put};
use axum::body;
use control::Control;
use futures_util::{StreamExt, stream};
use model::Role;
use std::sync::Arc;

type C = Arc<Control>;

/// Default number of records on one page.
const LIMIT: usize = 100;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get(
            "/audit",
            "audit",
            "List audit records, latest first",
            |_: C, Services(door): Services, QueryParams(asked): QueryParams<AuditQuery>| async move {
                let AuditQuery { before, limit, search } = asked;
                let limit = limit.map_or(LIMIT, |limit| usize::from(limit.get()));
                door.audit.page(before, limit, search).await
            },
        )
        .only(Role::Admin),
        get(
            "/audit/check",
            "check",
            "Verify the integrity of the audit log",
            |_: C, Services(door): Services| async move { door.audit.check().await },
        )
        .only(Role::Admin),
        one(
            "/audit/forward",
            "forward",
            "Show audit forwarding and its progress",
            |_: C, Services(door): Services| async move { Ok(door.forward.report()) },
        )
        .only(Role::Admin),
        put(
            "/audit/forward",
            "forward",
            "Set or remove the audit forwarding target",
            |_: C, Services(door): Services, Body(asked): Body<SetForward>| async move { door.forward.set(asked) },
        )
        .only(Role::Admin),
        file(
            "/audit/records",
            "application/jsonl",
            "Download all audit records, oldest first",
            |_: C, Services(door): Services| async move {
                let files = stream::iter(door.audit.files());
                // File by file on blocking threads: the whole log may be large.
                Ok(body::Body::from_stream(files.then(|path| async move {
                    tokio::task::spawn_blocking(move || std::fs::read(path)).await.map_err(std::io::Error::other)?
                })))
            },
        )
        .of_host_data()
        .only(Role::Admin),
    ]
}

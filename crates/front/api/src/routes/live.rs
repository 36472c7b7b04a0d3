//! Rows for live activity, streams and metrics.

use crate::metrics;
use crate::row::{Asked, Behind, Row, file, get};
use crate::stream::{self, Look};
use axum::body::Body;
use control::Control;
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get(
            "/activity",
            "moment",
            "What happens in one second: volumes, hosts, sessions, portals, disks",
            |c: C, Asked(look): Asked<Look>| stream::moment(c, look),
        ),
        get("/tasks", "tasks", "Commands that have no answer yet, and where they stand", |c: C| async move {
            c.sessions.tasks().await
        }),
        file(
            "/stream",
            stream::MEDIA,
            "What happens, second by second, and events as they come; it ends with the reader",
            |c: C, Asked(look): Asked<Look>| async move { Ok(stream::stream(c, look).await) },
        ),
        file(
            "/metrics",
            metrics::MEDIA,
            "Everything that has a number, for a Prometheus server",
            |c: C, Behind(door): Behind| async move { Ok(Body::from(metrics::metrics(c, &door.alerts).await?)) },
        ),
    ]
}

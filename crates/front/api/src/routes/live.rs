//! Rows for live activity, streams and metrics.

use crate::metrics;
use crate::row::{QueryParams, Row, Services, file, get};
use crate::stream::{self, StreamQuery};
use axum::body::Body;
use control::Control;
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get(
            "/activity",
            "rates",
            "List the activity of one second by volume, host, session, portal and disk",
            |c: C, QueryParams(look): QueryParams<StreamQuery>| stream::moment(c, look),
        ),
        get("/tasks", "tasks", "List commands in flight and what they wait on", |c: C| async move {
            c.sessions.tasks().await
        }),
        file(
            "/stream",
            stream::MEDIA,
            "Stream activity every second and events as they occur, until the reader disconnects",
            |c: C, QueryParams(look): QueryParams<StreamQuery>| async move { Ok(stream::stream(c, look).await) },
        ),
        file(
            "/metrics",
            metrics::MEDIA,
            "Export all metrics in Prometheus format",
            |c: C, Services(door): Services| async move { Ok(Body::from(metrics::metrics(c, &door.alerts).await?)) },
        ),
    ]
}

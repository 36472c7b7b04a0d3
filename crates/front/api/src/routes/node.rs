//! Rows for the node as a whole: status, findings, state, events, log, and the API description.

use crate::request::LogQuery;
use crate::row::{QueryParams, Row, Services, act, file, get, list};
use axum::body::Body;
use control::request::Events;
use control::{Control, EventFilter};
use model::Role;
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get("/status", "status", "Show the health of the array and the next step", |c: C| async move {
            c.status.report().await
        }),
        get(
            "/findings",
            "findings",
            "List findings about the array and its settings with their fixes, most severe first",
            |c: C| async move { c.status.findings().await },
        ),
        get("/state", "state", "Show the version of the active state and why changes are refused", |c: C| async move {
            Ok(c.core.state_report())
        }),
        act(
            "/state/accept",
            "state",
            "Accept the older version of the state that is active and allow changes",
            |c: C| async move { c.core.accept_state().await },
        )
        .only(Role::Admin)
        .while_held(),
        list(
            "/events",
            "events",
            "List events, oldest first",
            |c: C, QueryParams(asked): QueryParams<Events>| async move {
                let Events { after, since, severity, last } = asked;
                Ok(c.reconciler.events(EventFilter { after: after.unwrap_or(0), since, severity, limit: last }).await)
            },
        ),
        get(
            "/log",
            "log",
            "List the last lines of the daemon log, oldest first",
            |_: C, Services(door): Services, QueryParams(asked): QueryParams<LogQuery>| async move {
                Ok(door.log.last(asked.limit.map_or(usize::MAX, |limit| usize::from(limit.get()))))
            },
        )
        .of_host_data()
        .only(Role::Admin),
        file("/openapi.json", "application/json", "Show this OpenAPI description", |_: C| async move {
            Ok(Body::from(super::description()))
        })
        .only(Role::Viewer),
    ]
}

//! Rows for the node as a whole: status, findings, state, events, log, and the API description.

use crate::request::LogAsked;
use crate::row::{Asked, Behind, Row, act, file, get, list};
use axum::body::Body;
use control::request::Events;
use control::{Control, Wanted};
use model::Role;
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get("/status", "status", "How everything is, and the one thing to do", |c: C| async move {
            c.status.report().await
        }),
        get(
            "/findings",
            "findings",
            "What will hurt in the array and its settings, and what to do, the worst first",
            |c: C| async move { c.status.findings().await },
        ),
        get(
            "/state",
            "state",
            "The version of the state that is served, and why changes are refused",
            |c: C| async move { Ok(c.core.state_report()) },
        ),
        act(
            "/state/accept",
            "state",
            "The older version of the state that is served is accepted, and changes are taken",
            |c: C| async move { c.core.accept_state().await },
        )
        .only(Role::Admin)
        .while_held(),
        list("/events", "events", "What has happened, oldest first", |c: C, Asked(asked): Asked<Events>| async move {
            let Events { after, since, severity, last } = asked;
            Ok(c.steward.events(Wanted { after: after.unwrap_or(0), since, severity, limit: last }).await)
        }),
        get(
            "/log",
            "log",
            "The last lines of the daemon's log, the oldest first",
            |_: C, Behind(door): Behind, Asked(asked): Asked<LogAsked>| async move {
                Ok(door.log.last(asked.limit.map_or(usize::MAX, |limit| usize::from(limit.get()))))
            },
        )
        .of_host_data()
        .only(Role::Admin),
        file("/openapi.json", "application/json", "This description", |_: C| async move {
            Ok(Body::from(super::description()))
        })
        .only(Role::Viewer),
    ]
}

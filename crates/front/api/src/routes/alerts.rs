//! Rows for active alerts, silences and alert receivers.

use crate::row::{Body, PathName, QueryParams, Row, Services, act, add, list, one, remove, set};
use alert::request::{AlertNumber, NewReceiver, NewSilence, OldSilence, SetReceiver};
use control::Control;
use model::{Name, Role};
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = vec![
        list("/alerts", "alerts", "List active alerts", |_: C, Services(door): Services| async move {
            door.alerts.active_now().await
        }),
        act(
            "/alerts/{number}/acknowledge",
            "alert",
            "Acknowledge an alert",
            |_: C, Services(door): Services, PathName(number): PathName<AlertNumber>| async move {
                door.alerts.acknowledge(number.0)
            },
        ),
        list("/silences", "silences", "List silences", |_: C, Services(door): Services| async move {
            Ok(door.alerts.silences())
        }),
        add(
            "/silences",
            "silence",
            "Silence notifications of an alert for a time",
            |_: C, Services(door): Services, Body(asked): Body<NewSilence>| async move { door.alerts.silence(asked) },
        ),
        remove(
            "/silences",
            "Remove a silence",
            |_: C, Services(door): Services, QueryParams(asked): QueryParams<OldSilence>| async move {
                door.alerts.end_silence(&asked.matcher)
            },
        ),
    ];
    rows.extend(receivers());
    rows
}

fn receivers() -> Vec<Row> {
    vec![
        list(
            "/receivers",
            "receivers",
            "List alert receivers with their delivery status",
            |_: C, Services(door): Services| async move { Ok(door.alerts.list()) },
        )
        .only(Role::Operator),
        add(
            "/receivers",
            "receiver",
            "Add an alert receiver",
            |_: C, Services(door): Services, Body(asked): Body<NewReceiver>| async move { door.alerts.add(asked) },
        )
        .only(Role::Admin),
        one(
            "/receivers/{name}",
            "receiver",
            "Show an alert receiver",
            |_: C, Services(door): Services, PathName(name): PathName<Name>| async move { door.alerts.receiver(&name) },
        )
        .only(Role::Operator),
        set(
            "/receivers/{name}",
            "receiver",
            "Change an alert receiver",
            |_: C, Services(door): Services, PathName(name): PathName<Name>, Body(asked): Body<SetReceiver>| async move {
                door.alerts.set(&name, asked)
            },
        )
        .only(Role::Admin),
        remove(
            "/receivers/{name}",
            "Remove an alert receiver",
            |_: C, Services(door): Services, PathName(name): PathName<Name>| async move { door.alerts.remove(&name) },
        )
        .only(Role::Admin),
        act(
            "/receivers/{name}/test",
            "test",
            "Send a test message to an alert receiver; returns its answer",
            |_: C, Services(door): Services, PathName(name): PathName<Name>| async move { door.alerts.test(&name).await },
        ),
    ]
}

//! Rows for active alerts, silences and alert receivers.

use crate::row::{Asked, Behind, Body, Named, Row, act, add, list, one, remove, set};
use alert::request::{AlertNumber, NewReceiver, NewSilence, OldSilence, SetReceiver};
use control::Control;
use model::{Name, Role};
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = vec![
        list("/alerts", "alerts", "What is wrong now, once each", |_: C, Behind(door): Behind| async move {
            door.alerts.active_now().await
        }),
        act(
            "/alerts/{number}/acknowledge",
            "alert",
            "An operator has taken note of an alert that nothing else ends",
            |_: C, Behind(door): Behind, Named(number): Named<AlertNumber>| async move { door.alerts.acknowledge(number.0) },
        ),
        list("/silences", "silences", "What nobody is told of for a while", |_: C, Behind(door): Behind| async move {
            Ok(door.alerts.silences())
        }),
        add(
            "/silences",
            "silence",
            "Nobody is told of this for a while",
            |_: C, Behind(door): Behind, Body(asked): Body<NewSilence>| async move { door.alerts.silence(asked) },
        ),
        remove(
            "/silences",
            "People are told of this again",
            |_: C, Behind(door): Behind, Asked(asked): Asked<OldSilence>| async move {
                door.alerts.end_silence(&asked.what)
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
            "Who is told of alerts, and how that went",
            |_: C, Behind(door): Behind| async move { Ok(door.alerts.list()) },
        )
        .only(Role::Operator),
        add(
            "/receivers",
            "receiver",
            "Somebody more is told of alerts",
            |_: C, Behind(door): Behind, Body(asked): Body<NewReceiver>| async move { door.alerts.add(asked) },
        )
        .only(Role::Admin),
        one(
            "/receivers/{name}",
            "receiver",
            "One receiver of alerts",
            |_: C, Behind(door): Behind, Named(name): Named<Name>| async move { door.alerts.receiver(&name) },
        )
        .only(Role::Operator),
        set(
            "/receivers/{name}",
            "receiver",
            "A receiver of alerts is told in another way",
            |_: C, Behind(door): Behind, Named(name): Named<Name>, Body(asked): Body<SetReceiver>| async move {
                door.alerts.set(&name, asked)
            },
        )
        .only(Role::Admin),
        remove(
            "/receivers/{name}",
            "Somebody is told of alerts no more",
            |_: C, Behind(door): Behind, Named(name): Named<Name>| async move { door.alerts.remove(&name) },
        )
        .only(Role::Admin),
        act(
            "/receivers/{name}/test",
            "test",
            "A receiver of alerts has taken a test; its words",
            |_: C, Behind(door): Behind, Named(name): Named<Name>| async move { door.alerts.test(&name).await },
        ),
    ]
}

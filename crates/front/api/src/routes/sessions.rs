//! Rows for sessions and wire recordings.

use crate::row::{PathName, QueryParams, Row, end, file, get, list};
use axum::body::Body;
use control::Control;
use control::request::{EndSession, Record};
use model::{Role, SessionNumber};
use std::convert::Infallible;
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<SessionNumber>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/sessions", "sessions", "List iSCSI sessions", |c: C| async move { c.sessions.list().await }),
        get("/sessions/{id}", "session", "Show an iSCSI session in detail", |c: C, PathName(id): One| async move {
            c.sessions.detail(id.0).await
        }),
        end(
            "/sessions/{id}",
            "ended",
            "Close an iSCSI session or one of its connections",
            |c: C, PathName(id): One, QueryParams(how): QueryParams<EndSession>| async move {
                match how.cid {
                    Some(cid) => c.sessions.end_connection(id.0, cid).await,
                    None => c.sessions.end(id.0, how.now).await,
                }
            },
        ),
        file(
            "/recording",
            "application/vnd.tcpdump.pcap",
            "Record iSCSI traffic as a pcapng stream until the recording ends or the reader disconnects",
            |c: C, QueryParams(what): QueryParams<Record>| async move {
                let recording = c.sessions.record(what).await?;
                // Dropping the stream drops the recording, so a client that disconnects ends it.
                let file = futures_util::stream::unfold(recording, async |mut recording| {
                    let bytes = recording.next().await?;
                    Some((Ok::<_, Infallible>(bytes), recording))
                });
                Ok(Body::from_stream(file))
            },
        )
        .of_host_data()
        .only(Role::Admin),
    ]
}

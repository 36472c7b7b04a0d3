//! Rows for command traces of volumes.

use crate::row::{Body, PathName, Row, add, end, file, get};
use control::Control;
use control::request::NewTrace;
use model::{Refusal, Role, VolumeName, code};
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<VolumeName>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        get("/traces/{*name}", "trace", "Show the trace of a volume", |c: C, PathName(name): One| async move {
            c.traces.report(&name).await
        }),
        add(
            "/traces/{*name}",
            "trace",
            "Start a trace of a volume",
            |c: C, PathName(name): One, Body(how): Body<NewTrace>| async move { c.traces.start(&name, &how).await },
        ),
        end("/traces/{*name}", "trace", "Stop the trace of a volume", |c: C, PathName(name): One| async move {
            c.traces.stop(&name).await
        }),
        file(
            "/trace-files/{*name}",
            "application/octet-stream",
            "Download the trace file of a volume",
            |c: C, PathName(name): One| async move {
                let traced = c.traces.take(&name).await?;
                // Sorting a million commands takes a while and must not block other requests.
                let file = tokio::task::spawn_blocking(move || trace::emit(traced)).await.map_err(|error| {
                    tracing::error!(%error, "a trace could not be written");
                    Refusal::new(
                        code::INTERNAL,
                        "the trace could not be written",
                        "report this as a bug, with the daemon log",
                    )
                })?;
                Ok(file.into())
            },
        )
        .of_host_data()
        .only(Role::Operator),
    ]
}

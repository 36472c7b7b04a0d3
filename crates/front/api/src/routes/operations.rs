//! Rows for running long operations.

use crate::row::{Named, Row, get, list, remove};
use control::Control;
use model::OperationId;
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<OperationId>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/operations", "operations", "Long work that is under way, whoever began it", |c: C| async move {
            c.operations.list().await
        }),
        get(
            "/operations/{*id}",
            "operation",
            "One operation, as long as it is under way",
            |c: C, Named(id): One| async move { c.operations.report(&id).await },
        ),
        remove("/operations/{*id}", "The operation has ended before its end", |c: C, Named(id): One| async move {
            c.operations.cancel(&id).await
        }),
    ]
}

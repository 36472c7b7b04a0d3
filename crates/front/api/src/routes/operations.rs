//! Rows for running long operations.

use crate::row::{PathName, Row, get, list, remove};
use control::Control;
use model::OperationId;
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<OperationId>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/operations", "operations", "List running operations", |c: C| async move { c.operations.list().await }),
        get("/operations/{*id}", "operation", "Show a running operation", |c: C, PathName(id): One| async move {
            c.operations.report(&id).await
        }),
        remove("/operations/{*id}", "Cancel an operation", |c: C, PathName(id): One| async move {
            c.operations.cancel(&id).await
        }),
    ]
}

//! Rows for authentication settings that apply to all hosts.

use crate::row::{Body, Row, one, set};
use control::Control;
use control::request::SetAuth;
use model::Role;
use std::sync::Arc;

type C = Arc<Control>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        one(
            "/auth",
            "auth",
            "Show the authentication settings of the array",
            |c: C| async move { Ok(c.auth.report()) },
        ),
        set(
            "/auth",
            "auth",
            "Change the authentication settings of the array",
            |c: C, Body(how): Body<SetAuth>| async move { c.auth.set(how).await },
        )
        .only(Role::Admin),
    ]
}

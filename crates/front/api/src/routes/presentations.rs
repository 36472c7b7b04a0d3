//! Rows for targets and presentations (mappings of volumes to hosts).

use crate::row::{Body, PathName, QueryParams, Row, add, list, one, remove};
use control::Control;
use control::request::{NewPresentation, NewTarget, Removal, Spread, Unpresent};
use model::Name;
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<Name>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/targets", "targets", "List targets", |c: C| async move { Ok(c.targets.list()) }),
        add("/targets", "target", "Create a target", |c: C, Body(new): Body<NewTarget>| async move {
            c.targets.add(new).await
        }),
        one("/targets/{name}", "target", "Show a target", |c: C, PathName(name): One| async move {
            c.targets.report(&name)
        }),
        remove(
            "/targets/{name}",
            "Delete a target",
            |c: C, PathName(name): One, QueryParams(how): QueryParams<Removal>| async move {
                c.targets.remove(&name, how).await
            },
        ),
        list("/presentations", "presentations", "List presentations (LUN mappings)", |c: C| async move {
            Ok(c.presentations.list())
        }),
        add(
            "/presentations",
            "presentation",
            "Present a volume to a host",
            |c: C, Body(new): Body<NewPresentation>| async move { c.presentations.present(new).await },
        ),
        add(
            "/presentations/spread",
            "presentations",
            "Present volumes to a host through several targets",
            |c: C, Body(new): Body<Spread>| async move { c.presentations.spread(new).await },
        ),
        remove(
            "/presentations",
            "Unpresent a volume from a host",
            |c: C, QueryParams(which): QueryParams<Unpresent>| async move { c.presentations.unpresent(&which).await },
        ),
    ]
}

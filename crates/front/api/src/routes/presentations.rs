//! Targets, and which host sees which volume through them.

use crate::row::{Asked, Body, Named, Row, add, list, one, remove};
use control::Control;
use control::request::{NewPresentation, NewTarget, Removal, Spread, Unpresent};
use model::Name;
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<Name>;

pub fn rows() -> Vec<Row> {
    vec![
        list("/targets", "targets", "All targets", |c: C| async move { Ok(c.targets()) }),
        add("/targets", "target", "There is another target", |c: C, Body(new): Body<NewTarget>| async move {
            c.add_target(new).await
        }),
        one("/targets/{name}", "target", "One target", |c: C, Named(name): One| async move { c.target_report(&name) }),
        remove(
            "/targets/{name}",
            "The target is gone",
            |c: C, Named(name): One, Asked(how): Asked<Removal>| async move { c.remove_target(&name, how).await },
        ),
        list("/presentations", "presentations", "Who sees what", |c: C| async move { Ok(c.presentations()) }),
        add(
            "/presentations",
            "presentation",
            "A host sees a volume",
            |c: C, Body(new): Body<NewPresentation>| async move { c.present(new).await },
        ),
        add(
            "/presentations/spread",
            "presentations",
            "A host sees volumes through several targets",
            |c: C, Body(new): Body<Spread>| async move { c.present_spread(new).await },
        ),
        remove(
            "/presentations",
            "The host sees the volume no more",
            |c: C, Asked(which): Asked<Unpresent>| async move { c.unpresent(&which).await },
        ),
    ]
}

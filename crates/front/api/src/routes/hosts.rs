//! Rows for hosts, host groups and denied logins.

use crate::row::{Body, PathName, QueryParams, Row, add, end, get, list, one, remove, set};
use control::Control;
use control::request::{Explain, GroupChange, HostChange, NewHost, NewHostGroup, Removal};
use model::Name;
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<Name>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/hosts", "hosts", "List hosts", |c: C| async move { Ok(c.hosts.list()) }),
        add("/hosts", "host", "Add a host", |c: C, Body(new): Body<NewHost>| async move { c.hosts.add(new).await }),
        one("/hosts/{name}", "host", "Show a host", |c: C, PathName(name): One| async move { c.hosts.report(&name) }),
        set(
            "/hosts/{name}",
            "host",
            "Change the initiators, allowed addresses or credentials of a host",
            |c: C, PathName(name): One, Body(how): Body<HostChange>| async move { c.hosts.change(&name, how).await },
        ),
        remove(
            "/hosts/{name}",
            "Remove a host",
            |c: C, PathName(name): One, QueryParams(how): QueryParams<Removal>| async move {
                c.hosts.remove(&name, how).await
            },
        ),
        end(
            "/hosts/{name}/luns",
            "former_luns",
            "Release the remembered LUN numbers of a host, or of `everyone`, for reuse",
            |c: C, PathName(name): One| async move { c.hosts.forget_luns(&name).await },
        )
        .destroys(),
        get(
            "/hosts/{name}/explain",
            "explanation",
            "Explain whether a host can access a volume, with every check",
            |c: C, PathName(name): One, QueryParams(what): QueryParams<Explain>| async move {
                c.presentations.explain(&name, &what.volume).await
            },
        ),
        list("/refused", "refused", "List denied logins with the reason and the fix", |c: C| async move {
            c.refused_logins.list().await
        }),
        list("/groups", "groups", "List host groups", |c: C| async move { Ok(c.host_groups.list()) }),
        add("/groups", "group", "Create a host group", |c: C, Body(new): Body<NewHostGroup>| async move {
            c.host_groups.add(new).await
        }),
        one("/groups/{name}", "group", "Show a host group", |c: C, PathName(name): One| async move {
            c.host_groups.report(&name)
        }),
        set(
            "/groups/{name}",
            "group",
            "Add hosts to a host group or remove them",
            |c: C, PathName(name): One, Body(how): Body<GroupChange>| async move { c.host_groups.change(&name, how).await },
        ),
        remove(
            "/groups/{name}",
            "Delete a host group; its hosts are kept",
            |c: C, PathName(name): One, QueryParams(how): QueryParams<Removal>| async move {
                c.host_groups.remove(&name, how).await
            },
        ),
        end(
            "/groups/{name}/luns",
            "former_luns",
            "Release the remembered LUN numbers of a host group for reuse",
            |c: C, PathName(name): One| async move { c.host_groups.forget_luns(&name).await },
        )
        .destroys(),
    ]
}

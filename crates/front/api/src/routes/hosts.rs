//! Rows for hosts, host groups and denied logins.

use crate::row::{Asked, Body, Named, Row, add, end, get, list, one, remove, set};
use control::Control;
use control::request::{Explain, GroupChange, HostChange, NewHost, NewHostGroup, Removal};
use model::Name;
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<Name>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/hosts", "hosts", "All hosts", |c: C| async move { Ok(c.hosts.list()) }),
        add(
            "/hosts",
            "host",
            "A host is known",
            |c: C, Body(new): Body<NewHost>| async move { c.hosts.add(new).await },
        ),
        one("/hosts/{name}", "host", "One host", |c: C, Named(name): One| async move { c.hosts.report(&name) }),
        set(
            "/hosts/{name}",
            "host",
            "Its initiators, addresses or secrets are others",
            |c: C, Named(name): One, Body(how): Body<HostChange>| async move { c.hosts.change(&name, how).await },
        ),
        remove(
            "/hosts/{name}",
            "The host is forgotten",
            |c: C, Named(name): One, Asked(how): Asked<Removal>| async move { c.hosts.remove(&name, how).await },
        ),
        end(
            "/hosts/{name}/luns",
            "former_luns",
            "The LUN numbers that the host, or `everyone`, had are forgotten: other volumes may get them",
            |c: C, Named(name): One| async move { c.hosts.forget_luns(&name).await },
        )
        .destroys(),
        get(
            "/hosts/{name}/explain",
            "explanation",
            "Whether the host sees the volume, and every reason for it or against it",
            |c: C, Named(name): One, Asked(what): Asked<Explain>| async move {
                c.presentations.explain(&name, &what.volume).await
            },
        ),
        list("/refused", "refused", "Who was not let in lately, and what would let it in", |c: C| async move {
            c.refused_logins.list().await
        }),
        list("/groups", "groups", "All groups of hosts", |c: C| async move { Ok(c.host_groups.list()) }),
        add("/groups", "group", "There is a group of these hosts", |c: C, Body(new): Body<NewHostGroup>| async move {
            c.host_groups.add(new).await
        }),
        one("/groups/{name}", "group", "One group of hosts", |c: C, Named(name): One| async move {
            c.host_groups.report(&name)
        }),
        set(
            "/groups/{name}",
            "group",
            "Hosts have come to the group, or left it",
            |c: C, Named(name): One, Body(how): Body<GroupChange>| async move { c.host_groups.change(&name, how).await },
        ),
        remove(
            "/groups/{name}",
            "The group is forgotten; its hosts stay",
            |c: C, Named(name): One, Asked(how): Asked<Removal>| async move { c.host_groups.remove(&name, how).await },
        ),
        end(
            "/groups/{name}/luns",
            "former_luns",
            "The LUN numbers that the group had are forgotten: other volumes may get them",
            |c: C, Named(name): One| async move { c.host_groups.forget_luns(&name).await },
        )
        .destroys(),
    ]
}

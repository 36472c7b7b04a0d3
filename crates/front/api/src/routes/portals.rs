//! Rows for portals, portal groups, session balancing and iSNS.

use crate::row::{Asked, Body, Named, Row, act, add, list, one, put, remove, set};
use control::Control;
use control::request::{NewPortal, PortalGroupSettings, PortalSettings, Removal, SetBalance, SetIsns};
use model::{PortalAddress, PortalGroupTag, Role};
use std::sync::Arc;

type C = Arc<Control>;
type One = Named<PortalAddress>;
type Group = Named<PortalGroupTag>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/portals", "portals", "Where we listen, and where we should but cannot", |c: C| async move {
            c.portals.list().await
        }),
        add("/portals", "portal", "We listen on another address", |c: C, Body(new): Body<NewPortal>| async move {
            c.portals.add(new).await
        })
        .only(Role::Admin),
        one("/portals/{address}", "portal", "One portal", |c: C, Named(address): One| async move {
            c.portals.report(address).await
        }),
        set(
            "/portals/{address}",
            "portal",
            "Its settings hold",
            |c: C, Named(address): One, Body(how): Body<PortalSettings>| async move { c.portals.set(address, how).await },
        )
        .only(Role::Admin),
        remove(
            "/portals/{address}",
            "We listen there no more",
            |c: C, Named(address): One, Asked(how): Asked<Removal>| async move { c.portals.remove(address, how).await },
        )
        .only(Role::Admin),
        act("/portals/{address}/drain", "portal", "It takes no new sessions, and sends away those that it has", |c: C, Named(address): One| async move {
            c.portals.drain(address, true).await
        }),
        act("/portals/{address}/resume", "portal", "It takes sessions again", |c: C, Named(address): One| async move {
            c.portals.drain(address, false).await
        }),
        list("/portal-groups", "portal_groups", "All portal groups", |c: C| async move { c.portal_groups.list().await }),
        one("/portal-groups/{tag}", "portal_group", "One portal group", |c: C, Named(tag): Group| async move {
            c.portal_groups.report(tag).await
        }),
        set(
            "/portal-groups/{tag}",
            "portal_group",
            "Its settings hold",
            |c: C, Named(tag): Group, Body(how): Body<PortalGroupSettings>| async move { c.portal_groups.set(tag, how).await },
        )
        .only(Role::Admin),
        one("/balance", "balance", "By what sessions are shared out over data portals", |c: C| async move { Ok(c.portals.balance()) }),
        set("/balance", "balance", "Sessions are shared out by something else", |c: C, Body(how): Body<SetBalance>| async move {
            c.portals.set_balance(how).await
        })
        .only(Role::Admin),
        one("/isns", "isns", "How targets are registered with an iSNS server", |c: C| async move { Ok(c.isns.report()) }),
        put("/isns", "isns", "Targets are registered with this iSNS server, or with none", |c: C, Body(how): Body<SetIsns>| async move {
            c.isns.set(how).await
        })
        .only(Role::Admin),
    ]
}

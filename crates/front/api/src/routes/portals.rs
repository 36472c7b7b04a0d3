//! Rows for portals, portal groups, session balancing and iSNS.

use crate::row::{Body, PathName, QueryParams, Row, act, add, list, one, put, remove, set};
use control::Control;
use control::request::{NewPortal, PortalGroupSettings, PortalSettings, Removal, SetBalance, SetIsns};
use model::{PortalAddress, PortalGroupTag, Role};
use std::sync::Arc;

type C = Arc<Control>;
type One = PathName<PortalAddress>;
type Group = PathName<PortalGroupTag>;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        list("/portals", "portals", "List portals with their listen state", |c: C| async move {
            c.portals.list().await
        }),
        add("/portals", "portal", "Add a portal", |c: C, Body(new): Body<NewPortal>| async move {
            c.portals.add(new).await
        })
        .only(Role::Admin),
        one("/portals/{address}", "portal", "Show a portal", |c: C, PathName(address): One| async move {
            c.portals.report(address).await
        }),
        set(
            "/portals/{address}",
            "portal",
            "Change the settings of a portal",
            |c: C, PathName(address): One, Body(how): Body<PortalSettings>| async move { c.portals.set(address, how).await },
        )
        .only(Role::Admin),
        remove(
            "/portals/{address}",
            "Remove a portal",
            |c: C, PathName(address): One, QueryParams(how): QueryParams<Removal>| async move { c.portals.remove(address, how).await },
        )
        .only(Role::Admin),
        act("/portals/{address}/drain", "portal", "Drain a portal: accept no new sessions and redirect existing ones", |c: C, PathName(address): One| async move {
            c.portals.drain(address, true).await
        }),
        act("/portals/{address}/resume", "portal", "Resume a drained portal", |c: C, PathName(address): One| async move {
            c.portals.drain(address, false).await
        }),
        list("/portal-groups", "portal_groups", "List portal groups", |c: C| async move { c.portal_groups.list().await }),
        one("/portal-groups/{tag}", "portal_group", "Show a portal group", |c: C, PathName(tag): Group| async move {
            c.portal_groups.report(tag).await
        }),
        set(
            "/portal-groups/{tag}",
            "portal_group",
            "Change the settings of a portal group",
            |c: C, PathName(tag): Group, Body(how): Body<PortalGroupSettings>| async move { c.portal_groups.set(tag, how).await },
        )
        .only(Role::Admin),
        one("/balance", "balance", "Show the policy that balances sessions over data portals", |c: C| async move { Ok(c.portals.balance()) }),
        set("/balance", "balance", "Change the policy that balances sessions over data portals", |c: C, Body(how): Body<SetBalance>| async move {
            c.portals.set_balance(how).await
        })
        .only(Role::Admin),
        one("/isns", "isns", "Show the iSNS registration of targets", |c: C| async move { Ok(c.isns.report()) }),
        put("/isns", "isns", "Set or remove the iSNS server that targets are registered with", |c: C, Body(how): Body<SetIsns>| async move {
            c.isns.set(how).await
        })
        .only(Role::Admin),
    ]
}

//! Tests of notices, which the status shows beside the problems.

use super::{Array, new_host, new_presentation};
use crate::request::{HostChange, NewChap, NewHost, NewPortal, SecretText, SetIsns};
use model::{Demand, IsnsState, Severity, Size};
use std::time::Duration;

#[tokio::test]
async fn portal_that_is_drained_is_a_notice_and_nothing_wrong() {
    let array = Array::new().await;
    let control = &array.control;
    let address = "127.0.0.1:3261".parse().expect("an address");
    control.portals.add(NewPortal { address, settings: [].into() }).await.expect("a portal");
    control.portals.drain(address, true).await.expect("drained");
    let status = control.status.report().await.expect("told");
    let words = "All good, but portal 127.0.0.1:3261 is drained: to accept sessions again: blockyard portal \
         resume 127.0.0.1:3261";
    assert_eq!((status.severity, status.summary.as_str(), status.problems.len()), (Severity::Good, words, 0));
    control.portals.drain(address, false).await.expect("resumed");
    assert_eq!(control.status.report().await.expect("told").summary, "All good");
}

#[tokio::test]
async fn registration_that_fails_is_a_warning() {
    let array = Array::new().await;
    array.furnish().await;
    let control = &array.control;
    // No server listens there.
    let server = Some("127.0.0.1:1".parse().expect("an address"));
    control.isns.set(SetIsns { server }).await.expect("set");
    let keeps = tokio::spawn(control.isns.clone().keep_registered());
    let fails = async {
        while !matches!(control.isns.report().state, IsnsState::Failing { .. }) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), fails).await.expect("it is refused");
    let status = control.status.report().await.expect("told");
    assert!(status.summary.starts_with("iSNS server 127.0.0.1:1 is without a current registration"), "{status:?}");
    keeps.abort();
}

#[tokio::test]
async fn presentation_to_a_host_that_anybody_is_says_that_it_is_open() {
    let array = Array::new().await;
    array.furnish().await;
    let control = &array.control;
    control.hosts.add(NewHost { any: true, ..new_host("any", &[]) }).await.expect("open access");
    array.create_volume("tank/vm2", Size::mib(8)).await.expect("a volume");
    assert!(control.presentations.present(new_presentation("tank/vm2", "any")).await.expect("seen").open);
    assert!(!control.presentations.present(new_presentation("tank/vm2", "web")).await.expect("seen").open);
    control.presentations.present(new_presentation("tank/vm1", "everyone")).await.expect_err("web sees it already");
    // CHAP closes it only where a login without CHAP is denied.
    for (demand, open) in [(Demand::Offered, true), (Demand::Required, false)] {
        let secret = Some(SecretText::Text("a secret of a host".to_owned()));
        let chap = Some(NewChap { secret, demand: Some(demand), ..NewChap::default() });
        let change = HostChange { chap, ..HostChange::default() };
        control.hosts.change(&"any".parse().expect("a name"), change).await.expect("changed");
        let shown = control.presentations.list().into_iter().find(|shown| shown.host.as_str() == "any");
        assert_eq!(shown.expect("is presented").open, open, "{demand:?}");
    }
}

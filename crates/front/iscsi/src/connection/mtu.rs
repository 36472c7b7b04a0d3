//! Detection of paths with a smaller MTU than the interface of the portal.

use super::Connection;
use crate::access::canonical;
use crate::scsi_unit::{Completed, PendingCommand, ScsiUnit};
use model::{LocalAddress, Subject, SubjectKind, event};
use shard::{PathFacts, Stream, World};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

/// Upper bound of the MTU of a physical link. Larger values belong to loopback, with 65,536.
const WIRE_BYTES_MAX: u32 = 65_000;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Raises an event for each connection whose path MTU is below the MTU of the portal's interface, once for each
    /// connection and size.
    pub(super) fn check_path_mtu(&mut self) {
        let view = self.shard.access.borrow().clone();
        let host = self.session.as_ref().map(|session| session.initiator().to_owned()).unwrap_or_default();
        for path in self.paths.iter_mut().flatten() {
            let (portal, peer) = (canonical(path.ends.portal), canonical(path.ends.peer));
            // Without facts about the link or the path there is nothing to compare.
            let Some((local, way)) = view.links.at(portal.ip()).zip(path.stream.path()) else { continue };
            let Some((bytes, why)) = narrower(local, way) else { continue };
            // One event per size: the path MTU is checked at every timeout.
            if path.told_mtu_bytes.replace(bytes) != Some(bytes) {
                let sentence = sentence(&host, peer, portal, local, bytes, why);
                self.shard.engine.raise(event::PATH_MTU, Subject::new(SubjectKind::Portal, &portal), sentence);
            }
        }
    }
}

/// Place of the smaller packet size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrow {
    /// Path, as found by path MTU discovery.
    Path,
    /// Host, as announced with its TCP MSS.
    Host,
}

/// Returns the packet size and the limiting side, if it is below the MTU of `local`.
fn narrower(local: &LocalAddress, way: PathFacts) -> Option<(u32, Narrow)> {
    let ours = local.mtu_bytes;
    // Zero is an unknown MTU, larger values belong to loopback.
    if ours == 0 || ours > WIRE_BYTES_MAX {
        return None;
    }
    // The path is checked first: the path MTU limits the segment size as well, so otherwise the host would be blamed.
    if way.mtu_bytes < ours {
        return Some((way.mtu_bytes, Narrow::Path));
    }
    (way.packet_bytes_max < ours).then_some((way.packet_bytes_max, Narrow::Host))
}

fn sentence(host: &str, peer: SocketAddr, portal: SocketAddr, local: &LocalAddress, bytes: u32, why: Narrow) -> String {
    let (interface, ours, peer) = (&local.interface, local.mtu_bytes, peer.ip());
    let who = match why {
        Narrow::Path => format!("the network path to {host} at {peer} limits packets to {bytes} bytes"),
        Narrow::Host => format!("{host} at {peer} limits packets to {bytes} bytes"),
    };
    format!(
        "{who}, but {interface} of portal {portal} has an MTU of {ours}: set the same MTU on the host, on \
         {interface} and on all switches between them"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn way_is_narrower_only_when_it_takes_less_than_we_send() {
        let local = |mtu_bytes| LocalAddress {
            address: "10.0.0.1".parse().expect("an address"),
            prefix: 24,
            interface: "eth1".to_owned(),
            is_up: true,
            mtu_bytes,
        };
        let way = |mtu_bytes, packet_bytes_max| PathFacts { mtu_bytes, packet_bytes_max };
        assert_eq!(narrower(&local(9000), way(9000, 9000)), None);
        assert_eq!(narrower(&local(9000), way(1500, 1500)), Some((1500, Narrow::Path)));
        assert_eq!(narrower(&local(9000), way(9000, 1500)), Some((1500, Narrow::Host)));
        assert_eq!(narrower(&local(1500), way(1500, 1500)), None, "a host may take more than we send");
        assert_eq!(narrower(&local(65_536), way(65_535, 65_535)), None);
        assert_eq!(narrower(&local(0), way(1500, 1500)), None, "it is not known");
    }
}

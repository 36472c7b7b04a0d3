//! Logins: a portal, a target and credentials in; a connection in full feature phase out.
//!
//! Follows redirects (RFC 7143 §11.13.5, Target Moved). Called by [`crate::disk`], the lab, the simulator. It must
//! never put a secret into an error.

use crate::wire::turn;
use futures_util::future::{Either, select};
use iscsi::initiator::{Config, Connection, Event};
use iscsi::login::{InitiatorAuth, InitiatorConfig};
use iscsi::pdu::Isid;
use iscsi::{CloseReason, DigestOffer, IscsiName, Negotiated};
use shard::{StreamOptions, Time, World};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Portals that a login follows from one to the next.
const REDIRECTS_MAX: usize = 4;

/// A login to a target: who, where, and what is offered.
#[derive(Clone, Debug)]
pub struct Login {
    /// The portal that is asked first.
    pub portal: SocketAddr,
    /// The target.
    pub target: IscsiName,
    /// The initiator's name.
    pub initiator: IscsiName,
    /// Tells the sessions of one initiator apart. The same one again reinstates the session (RFC 7143 §6.3.5).
    pub isid: Isid,
    /// CHAP credentials, one-way or mutual.
    pub auth: InitiatorAuth,
    /// Header and data digests.
    pub digests: DigestOffer,
    /// Connections that the session may have.
    pub connections_max: u16,
    /// Commands of a connection that may wait or run at once; 1 to [`iscsi::initiator::TASKS_MAX`].
    pub tasks_max: u32,
    /// Time limit of the whole login, connection included.
    pub time_limit: Duration,
    /// How long the target may be silent before it is pinged, and then how long the answer may take.
    pub ping_interval: Duration,
}

/// A connection in full feature phase.
pub struct Entered<S> {
    /// The TCP connection.
    pub stream: S,
    /// The protocol.
    pub machine: Connection,
    /// What both sides have agreed on.
    pub negotiated: Box<Negotiated>,
    /// The portal where the login ended: another one than asked when the target has redirected.
    pub portal: SocketAddr,
}

/// A login that has failed, as a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No TCP connection.
    #[error("no connection to {portal}: {error}")]
    Unreachable {
        /// The portal.
        portal: SocketAddr,
        /// The reason that the operating system gives.
        error: io::Error,
    },
    /// The TCP connection broke.
    #[error("the connection to {portal} broke during the login: {error}")]
    Broken {
        /// The portal.
        portal: SocketAddr,
        /// The reason that the operating system gives.
        error: io::Error,
    },
    /// The target has refused, or broken the protocol.
    #[error("no login at {portal}: {reason}")]
    Refused {
        /// The portal.
        portal: SocketAddr,
        /// The reason.
        reason: CloseReason,
    },
    /// No end within the time limit.
    #[error("no login at {portal} within {} s", limit.as_secs())]
    TimeLimit {
        /// The portal.
        portal: SocketAddr,
        /// The limit.
        limit: Duration,
    },
    /// A redirect whose address cannot be read.
    #[error("{portal} redirects to \"{address}\", which is no IP address with a port")]
    RedirectMalformed {
        /// The portal.
        portal: SocketAddr,
        /// The address as it was written.
        address: String,
    },
    /// Redirect behind redirect.
    #[error("{portal} redirects from portal to portal without end")]
    RedirectLoop {
        /// The portal that was asked first.
        portal: SocketAddr,
    },
}

impl Login {
    /// A login to `target` at `portal` without authentication and digests, with bounds that suit a LAN.
    #[must_use]
    pub fn new(portal: SocketAddr, target: IscsiName, initiator: IscsiName) -> Self {
        Self {
            portal,
            target,
            initiator,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            auth: InitiatorAuth::None,
            digests: DigestOffer::Accepted,
            connections_max: 1,
            tasks_max: 256,
            time_limit: Duration::from_secs(60),
            ping_interval: Duration::from_secs(15),
        }
    }

    /// The machine's configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut login = InitiatorConfig::new(self.initiator.clone(), Some(self.target.clone()));
        login.isid = self.isid;
        login.auth = self.auth.clone();
        (login.offer.header_digest, login.offer.data_digest) = (self.digests, self.digests);
        login.offer.connections_max = self.connections_max;
        let (idle_interval, answer_timeout) = (self.ping_interval, self.ping_interval);
        Config { tasks_max: self.tasks_max, idle_interval, answer_timeout, ..Config::new(login) }
    }
}

/// The session's first connection is in full feature phase, at the portal that `login` names or at one where the target
/// has sent it.
///
/// *Errors*: [`LoginError`]; nothing stays open.
pub async fn log_in<W: World>(world: &W, login: &Login) -> Result<Entered<W::Stream>, LoginError> {
    let until = world.now() + login.time_limit;
    let config = Rc::new(login.config());
    let mut portal = login.portal;
    for _ in 0..REDIRECTS_MAX {
        let (stream, machine) = connect_until(world, config.clone(), portal, (until, login.time_limit)).await?;
        match enter(world, stream, machine, portal, (until, login.time_limit)).await? {
            Ok(entered) => return Ok(entered),
            Err(address) => portal = redirect(portal, address)?,
        }
    }
    Err(LoginError::RedirectLoop { portal: login.portal })
}

/// The portal that a TargetAddress names: `address:port`, perhaps with a portal group tag behind a comma.
///
/// *Errors*: a host name, or no port.
fn redirect(from: SocketAddr, address: String) -> Result<SocketAddr, LoginError> {
    let bare = address.split(',').next().unwrap_or_default();
    bare.parse().map_err(|_| LoginError::RedirectMalformed { portal: from, address })
}

/// As [`connect`], until the clock has reached the end of the time limit.
async fn connect_until<W: World>(
    world: &W,
    config: Rc<Config>,
    portal: SocketAddr,
    (until, limit): (Time, Duration),
) -> Result<(W::Stream, Connection), LoginError> {
    let connecting = pin!(connect(world, config, portal));
    match select(connecting, world.sleep_until(until)).await {
        Either::Left((connected, _)) => connected,
        Either::Right(_) => Err(LoginError::TimeLimit { portal, limit }),
    }
}

/// A TCP connection to `portal`, and a machine whose first login request waits to be sent on it.
///
/// *Errors*: [`LoginError::Unreachable`].
pub async fn connect<W: World>(
    world: &W,
    config: Rc<Config>,
    portal: SocketAddr,
) -> Result<(W::Stream, Connection), LoginError> {
    let stream = world.connect(portal, StreamOptions::default()).await;
    let stream = stream.map_err(|error| LoginError::Unreachable { portal, error })?;
    let mut random = [0; 32];
    world.random(&mut random);
    Ok((stream, Connection::new(config, random, world.now())))
}

/// The login of `machine` has succeeded; or the target has named another address, which is returned as it was written.
///
/// *Errors*: [`LoginError`]. *Shape*: `until` is the end of the time limit, and the limit for the error's text.
pub async fn enter<W: World>(
    world: &W,
    stream: W::Stream,
    mut machine: Connection,
    portal: SocketAddr,
    (until, limit): (Time, Duration),
) -> Result<Result<Entered<W::Stream>, String>, LoginError> {
    loop {
        match machine.poll_event() {
            Some(Event::FullFeature(negotiated)) => return Ok(Ok(Entered { stream, machine, negotiated, portal })),
            Some(Event::Moved(address)) => return Ok(Err(address)),
            Some(Event::Closed(reason)) => return Err(LoginError::Refused { portal, reason }),
            Some(_) => {}
            None if world.now() >= until => return Err(LoginError::TimeLimit { portal, limit }),
            None => {
                let turned = turn(world, &stream, &mut machine, Some(until)).await;
                turned.map_err(|error| LoginError::Broken { portal, error })?;
            }
        }
    }
}

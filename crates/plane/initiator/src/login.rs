//! Login: from a portal, a target and credentials to a connection in full feature phase.
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

/// Limit on redirects of one login.
const REDIRECTS_MAX: usize = 4;

/// Parameters of a login to a target.
#[derive(Clone, Debug)]
pub struct Login {
    /// Portal of the first attempt.
    pub portal: SocketAddr,
    /// Target name.
    pub target: IscsiName,
    /// Initiator name.
    pub initiator: IscsiName,
    /// Session identifier of the initiator. Logging in again with the same one reinstates the session (RFC 7143
    /// §6.3.5).
    pub isid: Isid,
    /// CHAP credentials, one-way or mutual.
    pub auth: InitiatorAuth,
    /// Header and data digests to offer.
    pub digests: DigestOffer,
    /// Limit on connections of the session.
    pub connections_max: u16,
    /// Limit on commands of a connection that are queued or running; 1 to [`iscsi::initiator::TASKS_MAX`].
    pub tasks_max: u32,
    /// Timeout of the whole login, TCP connection included.
    pub time_limit: Duration,
    /// Silence after which the target is pinged, and limit for the answer.
    pub ping_interval: Duration,
}

/// Connection in full feature phase.
pub struct LoggedIn<S> {
    /// TCP connection.
    pub stream: S,
    /// Protocol machine.
    pub machine: Connection,
    /// Negotiated parameters.
    pub negotiated: Box<Negotiated>,
    /// Portal where the login ended: differs from the requested one after a redirect.
    pub portal: SocketAddr,
}

/// Failed login, as a sentence for the operator.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No TCP connection.
    #[error("no connection to {portal}: {error}")]
    Unreachable {
        /// Portal.
        portal: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The TCP connection broke.
    #[error("the connection to {portal} broke during the login: {error}")]
    Broken {
        /// Portal.
        portal: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The target refused the login, or violated the protocol.
    #[error("no login at {portal}: {reason}")]
    Refused {
        /// Portal.
        portal: SocketAddr,
        /// Reason.
        reason: CloseReason,
    },
    /// The login did not finish within its timeout.
    #[error("no login at {portal} within {} s", limit.as_secs())]
    TimeLimit {
        /// Portal.
        portal: SocketAddr,
        /// Timeout.
        limit: Duration,
    },
    /// The target redirected to an address that cannot be parsed.
    #[error("{portal} redirects to \"{address}\", which is no IP address with a port")]
    RedirectMalformed {
        /// Portal that redirected.
        portal: SocketAddr,
        /// Address as received.
        address: String,
    },
    /// Too many redirects.
    #[error("{portal} redirects from portal to portal without end")]
    RedirectLoop {
        /// Portal of the first attempt.
        portal: SocketAddr,
    },
}

impl Login {
    /// Returns a login to `target` at `portal` without authentication and digests, with limits that suit a LAN.
    #[must_use]
    pub fn new(portal: SocketAddr, target: IscsiName, initiator: IscsiName) -> Self {
        Self {
            portal,
            target,
            initiator,
            // Type 10b, random format (RFC 7143 §11.12.5), with a fixed value.
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            auth: InitiatorAuth::None,
            digests: DigestOffer::Accepted,
            connections_max: 1,
            tasks_max: 256,
            time_limit: Duration::from_secs(60),
            ping_interval: Duration::from_secs(15),
        }
    }

    /// Returns the configuration of the protocol machine.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut login = InitiatorConfig::new(self.initiator.clone(), Some(self.target.clone()));
        login.isid = self.isid;
        login.auth = self.auth.clone();
        (login.offer.header_digest, login.offer.data_digest) = (self.digests, self.digests);
        login.offer.connections_max = self.connections_max;
        // A silent target is given up after the interval and the wait for the ping: twice this time.
        let (idle_interval, answer_timeout) = (self.ping_interval, self.ping_interval);
        Config { tasks_max: self.tasks_max, idle_interval, answer_timeout, ..Config::new(login) }
    }
}

/// Logs in and brings the session's first connection to full feature phase, at the portal of `login` or at one that the
/// target redirects to.
///
/// *Errors*: [`LoginError`]; nothing stays open.
pub async fn log_in<W: World>(world: &W, login: &Login) -> Result<LoggedIn<W::Stream>, LoginError> {
    // One deadline for all redirects, so that a chain of them cannot prolong the login.
    let until = world.now() + login.time_limit;
    let config = Rc::new(login.config());
    let mut portal = login.portal;
    for _ in 0..=REDIRECTS_MAX {
        let (stream, machine) = connect_until(world, config.clone(), portal, (until, login.time_limit)).await?;
        match enter(world, stream, machine, portal, (until, login.time_limit)).await? {
            Ok(entered) => return Ok(entered),
            Err(address) => portal = redirect(portal, address)?,
        }
    }
    Err(LoginError::RedirectLoop { portal: login.portal })
}

/// Parses a `TargetAddress` value: `address:port`, optionally followed by a comma and a portal group tag.
///
/// *Errors*: a host name, or no port.
fn redirect(from: SocketAddr, address: String) -> Result<SocketAddr, LoginError> {
    // A portal group tag may follow after a comma.
    let bare = address.split(',').next().unwrap_or_default();
    bare.parse().map_err(|_| LoginError::RedirectMalformed { portal: from, address })
}

/// As [`connect`], with a deadline.
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

/// Opens a TCP connection to `portal`, with a machine whose first login request is ready to be sent.
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

/// Runs the login of `machine`. Returns the connection, or the address of a redirect as received.
///
/// *Errors*: [`LoginError`]. *Shape*: deadline and timeout of the login; the second is for the error's text.
pub async fn enter<W: World>(
    world: &W,
    stream: W::Stream,
    mut machine: Connection,
    portal: SocketAddr,
    (until, limit): (Time, Duration),
) -> Result<Result<LoggedIn<W::Stream>, String>, LoginError> {
    loop {
        // Events first: a login that has ended at its deadline counts.
        match machine.poll_event() {
            Some(Event::FullFeature(negotiated)) => return Ok(Ok(LoggedIn { stream, machine, negotiated, portal })),
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

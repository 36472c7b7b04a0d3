//! The gate: nothing is answered before it is known who asks, and that it may.
//!
//! There are three ways to be known: as a process of root or of the daemon's own user at the socket, with a login of a user (a cookie, and
//! with everything that changes something also the right origin and the login's own word), or with a token. What each row of
//! the table takes is the row's to say ([`Row::role`], [`Row::is_open`]).

mod rates;
pub(crate) mod scopes;

use crate::Problem;
use crate::audit::{Answered, Audit, Entry, Forward};
use crate::log::LastLines;
use crate::peer::Peer;
use crate::people::{Login, People};
use crate::row::{Asker, Row, Understood};
use crate::web::{Connection, Web};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use model::{CallerReport, How, Name, Refusal, Role, Scope, Timestamp, code};
use rates::Rates;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// The cookie of a login. Browsers take a name that begins so from this host alone, over TLS alone, for every path.
pub(crate) const COOKIE: &str = "__Host-blockyard";

/// What a browser sends with everything that changes something.
const CSRF_HEADER: &str = "x-csrf-token";
/// What a page sends with what it asks by itself: it keeps no login alive.
const BACKGROUND_HEADER: &str = "blockyard-background";

/// How long the body of a request may be under way.
const BODY: Duration = Duration::from_secs(30);
/// The longest body, of what is no row.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What stands behind the gate, and is asked there.
pub(crate) struct Door {
    pub control: Arc<control::Control>,
    pub people: Arc<People>,
    pub web: Option<Arc<Web>>,
    pub audit: Arc<Audit>,
    pub alerts: Arc<alert::Alerts>,
    pub forward: Arc<Forward>,
    pub log: LastLines,
    rates: Rates,
    /// The user that the daemon runs as.
    owner: u32,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The user, the token, or who is at the socket.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// How it is known.
    pub known: Known,
}

/// How a caller is known.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// A process at the socket.
    Socket,
    /// A login.
    Session(Box<Login>),
    /// A token.
    Token {
        /// What it is called.
        name: Name,
        /// What it is for.
        scopes: Vec<Scope>,
        /// When it ends.
        until: Timestamp,
    },
}

/// Where a request is from, for rows that ask who somebody is.
#[derive(Clone, Debug)]
pub(crate) struct From {
    /// The other end.
    pub address: IpAddr,
    /// What it says that it is.
    pub agent: String,
}

impl Door {
    /// A gate for these people.
    pub(crate) fn new(
        control: Arc<control::Control>,
        people: Arc<People>,
        web: Option<Arc<Web>>,
        audit: Arc<Audit>,
        alerts: Arc<alert::Alerts>,
        forward: Arc<Forward>,
        owner: u32,
    ) -> Self {
        Self { control, people, web, audit, alerts, forward, log: LastLines::default(), rates: Rates::default(), owner }
    }

    /// The last lines of the log are kept there.
    pub(crate) fn with_log(self, log: LastLines) -> Self {
        Self { log, ..self }
    }

    /// The answer to a request whose asker may ask it; else the refusal.
    pub(crate) async fn pass(self: Arc<Self>, request: Request, next: Next) -> Response {
        let row = request.extensions().get::<&'static Row>().copied();
        let admitted = self.admit(row, &request);
        let (parts, body) = request.into_parts();
        let recorded = row.is_some_and(Row::is_recorded);
        let entry =
            |body: &Bytes| recorded.then(|| Entry::of(from(&parts.extensions), &parts.method, &parts.uri, body));
        let caller = match admitted {
            Ok(caller) => caller,
            Err(refused) => return self.refuse(*refused, entry(&Bytes::new())).await,
        };
        let bytes_max = row.map_or(BODY_BYTES_MAX, |row| row.request_bytes_max);
        let body = match read(body, bytes_max).await {
            Ok(body) => body,
            Err(refusal) => return self.refuse(Refused { refusal, caller }, entry(&Bytes::new())).await,
        };
        if let (Some(known), Some(row)) = (&caller, row)
            && let Err(refusal) = scopes::admit(known, row, &parts.uri, &body)
        {
            let entry = entry(&body).map(|entry| entry.not_understood(body.len()));
            return self.refuse(Refused { refusal, caller }, entry).await;
        }
        let busy = parts.extensions.get::<Arc<Connection>>().filter(|_| caller.is_some()).map(Connection::begin);
        let entry = match self.begin(row, entry(&body).map(|entry| entry.by(caller.as_ref()))).await {
            Ok(entry) => entry,
            Err(refusal) => return Problem(refusal).into_response(),
        };
        let (lives, body_bytes) = (caller.clone(), body.len());
        let mut request = Request::from_parts(parts, Body::from(body));
        let from = from_of(&request);
        request.extensions_mut().insert(from);
        let understood = Understood::default();
        request.extensions_mut().insert(understood.clone());
        let stranger = || format!("stranger {}", from_of(&request).address);
        let asker = Asker(caller.as_ref().map_or_else(stranger, |caller| format!("{:?} {caller}", caller.how())));
        request.extensions_mut().insert(asker);
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        request.extensions_mut().insert(self.clone());
        let answering = next.run(request);
        let response = match entry {
            // Also when the asker hangs up: what was done is written down.
            Some(entry) => {
                let audit = self.audit.clone();
                let answered = tokio::spawn(async move {
                    let response = answering.await;
                    let entry = if understood.is_so() { entry } else { entry.not_understood(body_bytes) };
                    audit.note(entry, Answered::of(&response)).await;
                    response
                });
                answered.await.unwrap_or_else(|error| {
                    tracing::error!(%error, "a change broke off");
                    let hint = "report this with the daemon's log";
                    Problem(Refusal::new(code::INTERNAL, "the change broke off", hint)).into_response()
                })
            }
            None => answering.await,
        };
        let mut response = self.while_it_may(lives, response);
        busy.map(|busy| response.extensions_mut().insert(Arc::new(busy)));
        response
    }

    /// The call may be answered: changes are taken, and its intent is written down. Logins have a result alone, so that what strangers
    /// try does not fill the audit.
    ///
    /// *Errors*: changes are refused just now, or nobody would know of the call. Nothing was done.
    async fn begin(&self, row: Option<&Row>, entry: Option<Entry>) -> Result<Option<Entry>, Refusal> {
        let (Some(row), Some(entry)) = (row, entry) else { return Ok(None) };
        if !row.looks()
            && !row.while_held
            && let Some(refusal) = self.control.core.hold()
        {
            let response = Problem(refusal.clone()).into_response();
            self.audit.note(entry, Answered::of(&response)).await;
            return Err(refusal);
        }
        match row.is_open() {
            true => self.audit.ready().await.map(|()| Some(entry)),
            false => self.audit.begin(entry).await.map(Some),
        }
    }

    /// Whoever asks, as far as this row wants to know.
    fn admit(&self, row: Option<&Row>, request: &Request) -> Result<Option<Caller>, Box<Refused>> {
        let nobody = |refusal| Box::new(Refused { refusal, caller: None });
        let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|info| info.0);
        let headers = request.headers();
        let caller = match peer {
            Some(Peer::Local(Some(user))) if user == 0 || user == self.owner => Some(Caller::local(user)),
            Some(Peer::Remote(_)) => self.known(headers, changes(request.method())).map_err(nobody)?,
            _ => {
                let message = "only root and the daemon's own user may speak to it";
                return Err(nobody(Refusal::new(code::FORBIDDEN, message, "use sudo")));
            }
        };
        if let Some(Peer::Remote(from)) = peer {
            let who = caller.as_ref().map_or_else(|| format!("address {}", from.ip()), Caller::to_string);
            self.rates.admit(&who, caller.is_some(), Instant::now()).map_err(nobody)?;
        }
        let is_open = row.is_some_and(Row::is_open);
        let Some(caller) = caller else {
            if is_open {
                // Nobody logs a browser in from elsewhere.
                return admit_origin(headers, false).map(|()| None).map_err(nobody);
            }
            let hint = "log in, or send a token as Authorization: Bearer";
            return Err(nobody(Refusal::new(code::UNPROVEN, "nobody knows who asks this", hint)));
        };
        let refused = |refusal| Box::new(Refused { refusal, caller: Some(caller.clone()) });
        if let Known::Session(login) = &caller.known
            && changes(request.method())
            && !is_open
        {
            admit_origin(headers, true).and_then(|()| admit_word(headers, login)).map_err(refused)?;
        }
        match row {
            Some(row) if !is_open && caller.role < row.role => {
                let message = format!("this takes the role {}, and {} is {}", row.role, caller.name, caller.role);
                Err(refused(Refusal::new(code::FORBIDDEN, message, "ask an admin")))
            }
            _ => Ok(Some(caller)),
        }
    }

    /// Who somebody in the network is; none where it does not say.
    ///
    /// *Errors*: it says something that is not so.
    fn known(&self, headers: &HeaderMap, changes: bool) -> Result<Option<Caller>, Refusal> {
        if let Some(bearer) = text(headers, header::AUTHORIZATION.as_str()) {
            let secret = bearer.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let token = secret.and_then(|(_, secret)| self.people.token_of(secret.trim()));
            let token = token.ok_or_else(|| {
                let hint = "see blockyard token list, or make a new one with blockyard token create";
                Refusal::new(code::UNPROVEN, "this is no token, or it has ended", hint)
            })?;
            let (name, role) = (format!("token {}", token.name), token.role);
            let known = Known::Token { name: token.name, scopes: token.scopes, until: token.until };
            return Ok(Some(Caller { name, role, known }));
        }
        let asked = changes || !headers.contains_key(BACKGROUND_HEADER);
        let login = cookie(headers).and_then(|cookie| self.people.login_of(cookie, asked));
        Ok(login.map(|(login, role)| Caller {
            name: login.user.to_string(),
            role,
            known: Known::Session(Box::new(login)),
        }))
    }

    /// The refusal, written down where somebody known wanted to change something.
    async fn refuse(&self, refused: Refused, entry: Option<Entry>) -> Response {
        let Refused { refusal, caller } = refused;
        let response = Problem(refusal).into_response();
        if let Some(entry) = entry.filter(|_| caller.is_some()) {
            self.audit.note(entry.by(caller.as_ref()), Answered::of(&response)).await;
        }
        response
    }

    /// An answer that goes on ends with the login or the token that asked for it.
    fn while_it_may(self: Arc<Self>, caller: Option<Caller>, response: Response) -> Response {
        let goes_on = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.as_bytes();
            kind.starts_with(b"text/event-stream") || kind.starts_with(b"application/vnd.tcpdump")
        });
        let Some(caller) = caller.filter(|caller| goes_on && !matches!(caller.known, Known::Socket)) else {
            return response;
        };
        let (parts, body) = response.into_parts();
        let going = body.into_data_stream().take_while(move |_| {
            let lives = match &caller.known {
                Known::Socket => true,
                Known::Session(login) => self.people.login_lives(&login.id),
                Known::Token { name, .. } => self.people.token_lives(name),
            };
            std::future::ready(lives)
        });
        Response::from_parts(parts, Body::from_stream(going))
    }
}

/// A refusal, and who was refused as far as that is known.
struct Refused {
    refusal: Refusal,
    caller: Option<Caller>,
}

impl Caller {
    fn local(user: u32) -> Self {
        let name = if user == 0 { "root".to_owned() } else { format!("user {user} of this machine") };
        Self { name, role: Role::Admin, known: Known::Socket }
    }

    /// How it is known, in one word.
    pub(crate) fn how(&self) -> How {
        match self.known {
            Known::Socket => How::Socket,
            Known::Session(_) => How::Session,
            Known::Token { .. } => How::Token,
        }
    }

    /// True when its role is at least `role` and, for a token, its scopes cover `noun`.
    pub(crate) fn may(&self, role: Role, noun: &str) -> bool {
        self.role >= role && self.scopes().is_none_or(|scopes| scopes::cover(scopes, noun))
    }

    /// True when it may decide who uses the array: an admin, and for a token one with the scope `access` that covers `noun`.
    pub(crate) fn may_give_access(&self, noun: &str) -> bool {
        self.may(Role::Admin, noun) && self.scopes().is_none_or(|scopes| scopes::has(scopes, Scope::ACCESS))
    }

    /// True when it may have any file or device of the machine opened: an admin, and for a token one with the scope `access`.
    pub(crate) fn may_name_any_path(&self) -> bool {
        self.role >= Role::Admin && self.scopes().is_none_or(|scopes| scopes::has(scopes, Scope::ACCESS))
    }

    /// The scopes of a token; none for a login and at the socket, which have no such limit.
    fn scopes(&self) -> Option<&[Scope]> {
        match &self.known {
            Known::Token { scopes, .. } => Some(scopes),
            _ => None,
        }
    }

    /// Its login.
    ///
    /// *Errors*: it is no user that has logged in.
    pub(crate) fn login(&self) -> Result<&Login, Refusal> {
        match &self.known {
            Known::Session(login) => Ok(login),
            _ => {
                let message = "this is for users who have logged in";
                Err(Refusal::new(code::VALUE_MISSING, message, "name the user: see blockyard user --help"))
            }
        }
    }

    /// The user that it is; none for tokens and at the socket.
    pub(crate) fn user(&self) -> Option<&Name> {
        self.login().ok().map(|login| &login.user)
    }

    /// Itself, as it is told.
    pub(crate) fn report(&self, people: &People) -> CallerReport {
        let session = match &self.known {
            Known::Session(login) => Some(login),
            _ => None,
        };
        let until = match &self.known {
            Known::Token { until, .. } => Some(*until),
            _ => session.map(|login| login.until()),
        };
        CallerReport {
            name: self.name.clone(),
            role: self.role,
            how: self.how(),
            csrf: session.map(|login| login.csrf.clone()),
            until,
            idle_seconds: session.map(|_| crate::people::IDLE_SECONDS),
            second_factor: session.is_some_and(|login| people.user(&login.user).is_ok_and(|user| user.second_factor)),
        }
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Admits what comes from our own pages. Programs say no origin; browsers do, with everything that changes something.
fn admit_origin(headers: &HeaderMap, must: bool) -> Result<(), Refusal> {
    let wrong = || {
        let hint = "open the console at its own address";
        Refusal::new(code::FORBIDDEN, "this does not come from a page of this console", hint)
    };
    if text(headers, "sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(wrong());
    }
    match (text(headers, header::ORIGIN.as_str()), text(headers, header::HOST.as_str())) {
        (Some(origin), Some(host)) if origin.strip_prefix("https://") == Some(host) => Ok(()),
        (None, _) if !must => Ok(()),
        _ => Err(wrong()),
    }
}

/// Admits who knows the login's own word.
fn admit_word(headers: &HeaderMap, login: &Login) -> Result<(), Refusal> {
    let said = text(headers, CSRF_HEADER).unwrap_or("");
    if said.as_bytes().ct_eq(login.csrf.as_bytes()).into() {
        return Ok(());
    }
    let hint = "send csrf of GET /api/v1/session as X-CSRF-Token";
    Err(Refusal::new(code::FORBIDDEN, "the request lacks the login's own word", hint))
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The one cookie of ours. Of several nobody knows whose they are.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut ours = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    let first = ours.next();
    first.filter(|_| ours.next().is_none())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn from(extensions: &axum::http::Extensions) -> Option<SocketAddr> {
    match extensions.get::<ConnectInfo<Peer>>().map(|info| info.0) {
        Some(Peer::Remote(from)) => Some(from),
        _ => None,
    }
}

fn from_of(request: &Request) -> From {
    let address = from(request.extensions()).map_or(IpAddr::from([127, 0, 0, 1]), |from| from.ip());
    From { address, agent: text(request.headers(), header::USER_AGENT.as_str()).unwrap_or("").to_owned() }
}

async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, bytes_max)).await;
    let why = match read {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it came too slowly".to_owned(),
    };
    Err(Refusal::new(
        code::REQUEST_TOO_LARGE,
        format!("the request cannot be read: {why}"),
        format!("send less than {} KiB", bytes_max >> 10),
    ))
}

#[cfg(test)]
mod tests;

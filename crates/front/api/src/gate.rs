//! Authentication and authorization: no request is answered before its caller is known and permitted.
//!
//! There are three ways to authenticate: as a process of root or of the daemon's own user at the socket; with a login
//! session of a user (a cookie, and for every change also the right origin and a CSRF token); or with an API token.
//! What each row of the table requires is part of the row ([`Row::role`], [`Row::is_open`]).

mod rates;
pub(crate) mod scopes;

use crate::Problem;
use crate::audit::{Answered, Audit, Entry, Forward};
use crate::log::LastLines;
use crate::peer::Peer;
use crate::people::{Login, Users};
use crate::row::{BodyParsed, Principal, Row};
use crate::web::{Connection, Web};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use model::{AuthMethod, CallerReport, Name, Refusal, Role, Scope, Timestamp, code};
use rates::Rates;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// Cookie of a login session. Browsers accept the prefix `__Host-` from this host only, over TLS only, and for the path
/// `/`.
pub(crate) const COOKIE: &str = "__Host-blockyard";

/// Header with the CSRF token, required for every change by a login session.
const CSRF_HEADER: &str = "x-csrf-token";
/// Header that marks requests which a page sends by itself; these do not extend the login session.
const BACKGROUND_HEADER: &str = "blockyard-background";

/// Timeout for receiving the body of a request.
const BODY: Duration = Duration::from_secs(30);
/// Longest body of a request that matches no row.
const BODY_BYTES_MAX: usize = 64 << 10;

/// State behind the gate that rows have access to.
pub(crate) struct Gate {
    pub control: Arc<control::Control>,
    pub people: Arc<Users>,
    pub web: Option<Arc<Web>>,
    pub audit: Arc<Audit>,
    pub alerts: Arc<alert::Alerts>,
    pub forward: Arc<Forward>,
    pub log: LastLines,
    rates: Rates,
    /// User that the daemon runs as.
    owner: u32,
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Name of the user or token, or of the process at the socket.
    pub name: String,
    /// Role of the caller.
    pub role: Role,
    /// Method of authentication.
    pub known: Authentication,
}

/// Method by which a caller was authenticated.
#[derive(Clone, Debug)]
pub(crate) enum Authentication {
    /// Process at the local socket.
    Socket,
    /// Login session of a user.
    Session(Box<Login>),
    /// API token.
    Token {
        /// Name of the token.
        name: Name,
        /// Scopes of the token.
        scopes: Vec<Scope>,
        /// Expiry of the token.
        until: Timestamp,
    },
}

/// Origin of a request, for rows that handle logins.
#[derive(Clone, Debug)]
pub(crate) struct ClientInfo {
    /// Remote address.
    pub address: IpAddr,
    /// User agent as sent by the client.
    pub agent: String,
}

impl Gate {
    /// Creates the gate with the services behind it.
    pub(crate) fn new(
        control: Arc<control::Control>,
        people: Arc<Users>,
        web: Option<Arc<Web>>,
        audit: Arc<Audit>,
        alerts: Arc<alert::Alerts>,
        forward: Arc<Forward>,
        owner: u32,
    ) -> Self {
        Self { control, people, web, audit, alerts, forward, log: LastLines::default(), rates: Rates::default(), owner }
    }

    /// Sets the buffer of recent log lines.
    pub(crate) fn with_log(self, log: LastLines) -> Self {
        Self { log, ..self }
    }

    /// Authenticates, authorizes and records a request, then passes it on. Returns the answer or the refusal.
    pub(crate) async fn pass(self: Arc<Self>, request: Request, next: Next) -> Response {
        let row = request.extensions().get::<&'static Row>().copied();
        let admitted = self.admit(row, &request);
        // The body is read only after this check: a refused caller cannot make the daemon buffer anything.
        let (parts, body) = request.into_parts();
        let recorded = row.is_some_and(Row::is_recorded);
        let entry = |body: &Bytes| {
            recorded.then(|| Entry::of(remote_address(&parts.extensions), &parts.method, &parts.uri, body))
        };
        let caller = match admitted {
            Ok(caller) => caller,
            // The body was not read, so the record has none.
            Err(refused) => return self.refuse(*refused, entry(&Bytes::new())).await,
        };
        let bytes_max = row.map_or(BODY_BYTES_MAX, |row| row.request_bytes_max);
        let body = match read(body, bytes_max).await {
            Ok(body) => body,
            Err(refusal) => return self.refuse(Refused { refusal, caller }, entry(&Bytes::new())).await,
        };
        // The needed scopes depend on the body, so they are checked after it was read.
        if let (Some(known), Some(row)) = (&caller, row)
            && let Err(refusal) = scopes::admit(known, row, &parts.uri, &body)
        {
            // Only the row knows which keys are secrets, and it has not parsed the body.
            let entry = entry(&body).map(|entry| entry.not_understood(body.len()));
            return self.refuse(Refused { refusal, caller }, entry).await;
        }
        // From here on the connection is not closed in favor of another one.
        let busy = parts.extensions.get::<Arc<Connection>>().filter(|_| caller.is_some()).map(Connection::begin);
        // The intent must be durable before anything is changed.
        let entry = match self.begin(row, entry(&body).map(|entry| entry.by(caller.as_ref()))).await {
            Ok(entry) => entry,
            Err(refusal) => return Problem(refusal).into_response(),
        };
        let (lives, body_bytes) = (caller.clone(), body.len());
        let mut request = Request::from_parts(parts, Body::from(body));
        let from = client_info(&request);
        request.extensions_mut().insert(from);
        // The row sets this once it has parsed the body; only then it is known which keys are secrets.
        let understood = BodyParsed::default();
        request.extensions_mut().insert(understood.clone());
        // Idempotency keys of unauthenticated clients are kept apart by address.
        let stranger = || format!("unauthenticated {}", client_info(&request).address);
        // With the method of authentication, because a user and a token may have one name.
        let asker = Principal(caller.as_ref().map_or_else(stranger, |caller| format!("{:?} {caller}", caller.how())));
        request.extensions_mut().insert(asker);
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        request.extensions_mut().insert(self.clone());
        let answering = next.run(request);
        let response = match entry {
            // A task of its own, so that the result is recorded even if the client disconnects.
            Some(entry) => {
                let audit = self.audit.clone();
                let answered = tokio::spawn(async move {
                    let response = answering.await;
                    let entry = if understood.is_so() { entry } else { entry.not_understood(body_bytes) };
                    audit.note(entry, Answered::of(&response)).await;
                    response
                });
                answered.await.unwrap_or_else(|error| {
                    tracing::error!(%error, "a change failed unexpectedly");
                    let hint = "report this as a bug, with the daemon log";
                    Problem(Refusal::new(code::INTERNAL, "the change failed unexpectedly", hint)).into_response()
                })
            }
            None => answering.await,
        };
        // Streams end when the login or token that requested them does.
        let mut response = self.end_when_revoked(lives, response);
        busy.map(|busy| response.extensions_mut().insert(Arc::new(busy)));
        response
    }

    /// Admits the call: changes are not held back, and its intent is recorded. Logins have a result record only, so
    /// that attempts of unauthenticated clients do not fill the audit log.
    ///
    /// *Errors*: changes are refused at present, or the call could not be recorded. Nothing was done.
    async fn begin(&self, row: Option<&Row>, entry: Option<Entry>) -> Result<Option<Entry>, Refusal> {
        // Rows without a record change nothing, so they are answered while changes are held, too.
        let (Some(row), Some(entry)) = (row, entry) else { return Ok(None) };
        // Changes are held back while the node runs on an older version of its state; the refusal is recorded.
        if !row.is_read_only()
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

    /// Authenticates the caller, and checks its rate and role for the row.
    fn admit(&self, row: Option<&Row>, request: &Request) -> Result<Option<Caller>, Box<Refused>> {
        let nobody = |refusal| Box::new(Refused { refusal, caller: None });
        let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|info| info.0);
        let headers = request.headers();
        let caller = match peer {
            // The kernel vouches for the user at the other end of the socket; no further authentication is needed.
            Some(Peer::Local(Some(user))) if user == 0 || user == self.owner => Some(Caller::local(user)),
            Some(Peer::Remote(_)) => self.known(headers, changes(request.method())).map_err(nobody)?,
            _ => {
                let message = "only root and the user of the daemon may use this socket";
                return Err(nobody(Refusal::new(code::FORBIDDEN, message, "use sudo")));
            }
        };
        // Rates are limited by caller, or by address where there is none, before anything is authorized.
        // Processes at the socket belong to root or the daemon's user, and are not limited.
        if let Some(Peer::Remote(from)) = peer {
            let who = caller.as_ref().map_or_else(|| format!("address {}", from.ip()), Caller::to_string);
            self.rates.admit(&who, caller.is_some(), Instant::now()).map_err(nobody)?;
        }
        // An unknown path is not open, so its existence is not told to clients without a login.
        let is_open = row.is_some_and(Row::is_open);
        let Some(caller) = caller else {
            if is_open {
                // Login CSRF: a foreign page must not log a browser in here.
                return admit_origin(headers, false).map(|()| None).map_err(nobody);
            }
            let hint = "log in, or send a token as Authorization: Bearer";
            return Err(nobody(Refusal::new(code::UNPROVEN, "not authenticated", hint)));
        };
        let refused = |refusal| Box::new(Refused { refusal, caller: Some(caller.clone()) });
        // Only cookies are sent by browsers on behalf of foreign pages, so only sessions need the CSRF checks.
        if let Authentication::Session(login) = &caller.known
            && changes(request.method())
            && !is_open
        {
            admit_origin(headers, true).and_then(|()| admit_csrf_token(headers, login)).map_err(refused)?;
        }
        match row {
            // Roles are ordered: each one includes the rights of those below it.
            Some(row) if !is_open && caller.role < row.role => {
                let message = format!("this needs role {}, but {} has role {}", row.role, caller.name, caller.role);
                Err(refused(Refusal::new(code::FORBIDDEN, message, "ask an administrator")))
            }
            _ => Ok(Some(caller)),
        }
    }

    /// Authenticates a remote caller; `None` if it sent no credentials.
    ///
    /// *Errors*: its token is unknown or has expired.
    fn known(&self, headers: &HeaderMap, changes: bool) -> Result<Option<Caller>, Refusal> {
        // A token takes precedence over a cookie.
        if let Some(bearer) = text(headers, header::AUTHORIZATION.as_str()) {
            // The scheme is case-insensitive (RFC 9110 §11.1).
            let secret = bearer.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let token = secret.and_then(|(_, secret)| self.people.token_of(secret.trim()));
            // A wrong token is an error and not an anonymous request: its sender expects to be authenticated.
            let token = token.ok_or_else(|| {
                let hint = "see blockyard token list, or create a token with blockyard token create";
                Refusal::new(code::UNPROVEN, "the token is invalid or has expired", hint)
            })?;
            let (name, role) = (format!("token {}", token.name), token.role);
            let known = Authentication::Token { name: token.name, scopes: token.scopes, until: token.until };
            return Ok(Some(Caller { name, role, known }));
        }
        // A page that polls in the background must not keep an unattended session alive.
        let asked = changes || !headers.contains_key(BACKGROUND_HEADER);
        // An expired cookie is no error, because its browser has to be able to log in again.
        let login = cookie(headers).and_then(|cookie| self.people.login_of(cookie, asked));
        Ok(login.map(|(login, role)| Caller {
            name: login.user.to_string(),
            role,
            known: Authentication::Session(Box::new(login)),
        }))
    }

    /// Answers with the refusal, and records it if a known caller attempted a change.
    async fn refuse(&self, refused: Refused, entry: Option<Entry>) -> Response {
        let Refused { refusal, caller } = refused;
        let response = Problem(refusal).into_response();
        // Attempts of unauthenticated clients would fill the audit log.
        if let Some(entry) = entry.filter(|_| caller.is_some()) {
            self.audit.note(entry.by(caller.as_ref()), Answered::of(&response)).await;
        }
        response
    }

    /// Ends a streaming response when the login or token that requested it is revoked.
    fn end_when_revoked(self: Arc<Self>, caller: Option<Caller>, response: Response) -> Response {
        // Event streams and recordings may run for hours; other answers are complete at once.
        let goes_on = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.as_bytes();
            kind.starts_with(b"text/event-stream") || kind.starts_with(b"application/vnd.tcpdump")
        });
        // A process at the socket cannot lose its authentication.
        let Some(caller) = caller.filter(|caller| goes_on && !matches!(caller.known, Authentication::Socket)) else {
            return response;
        };
        let (parts, body) = response.into_parts();
        let going = body.into_data_stream().take_while(move |_| {
            let lives = match &caller.known {
                Authentication::Socket => true,
                Authentication::Session(login) => self.people.login_lives(&login.id),
                Authentication::Token { name, .. } => self.people.token_lives(name),
            };
            std::future::ready(lives)
        });
        Response::from_parts(parts, Body::from_stream(going))
    }
}

/// A refusal, with its caller if that is known.
struct Refused {
    refusal: Refusal,
    caller: Option<Caller>,
}

impl Caller {
    fn local(user: u32) -> Self {
        let name = if user == 0 { "root".to_owned() } else { format!("user {user} of this machine") };
        Self { name, role: Role::Admin, known: Authentication::Socket }
    }

    /// Method of authentication for records.
    pub(crate) fn how(&self) -> AuthMethod {
        match self.known {
            Authentication::Socket => AuthMethod::Socket,
            Authentication::Session(_) => AuthMethod::Session,
            Authentication::Token { .. } => AuthMethod::Token,
        }
    }

    /// True if its role is at least `role` and, for a token, its scopes cover `noun`.
    pub(crate) fn may(&self, role: Role, noun: &str) -> bool {
        self.role >= role && self.scopes().is_none_or(|scopes| scopes::cover(scopes, noun))
    }

    /// True if it may control access to the array: an admin, and for a token one with the scope `access` that covers
    /// `noun`.
    pub(crate) fn may_give_access(&self, noun: &str) -> bool {
        self.may(Role::Admin, noun) && self.scopes().is_none_or(|scopes| scopes::has(scopes, Scope::ACCESS))
    }

    /// True if it may name any file or device of the machine: an admin, and for a token one with the scope `access`.
    pub(crate) fn may_name_any_path(&self) -> bool {
        self.role >= Role::Admin && self.scopes().is_none_or(|scopes| scopes::has(scopes, Scope::ACCESS))
    }

    /// Scopes of a token; `None` for logins and the socket, which are not limited by scopes.
    fn scopes(&self) -> Option<&[Scope]> {
        match &self.known {
            Authentication::Token { scopes, .. } => Some(scopes),
            _ => None,
        }
    }

    /// Login session of the caller.
    ///
    /// *Errors*: the caller is not a logged-in user.
    pub(crate) fn login(&self) -> Result<&Login, Refusal> {
        match &self.known {
            Authentication::Session(login) => Ok(login),
            _ => {
                let message = "this needs a logged-in user";
                Err(Refusal::new(code::VALUE_MISSING, message, "give the user name: see blockyard user --help"))
            }
        }
    }

    /// Name of the logged-in user; `None` for tokens and the socket.
    pub(crate) fn user(&self) -> Option<&Name> {
        self.login().ok().map(|login| &login.user)
    }

    /// Report of the caller about itself.
    pub(crate) fn report(&self, people: &Users) -> CallerReport {
        let session = match &self.known {
            Authentication::Session(login) => Some(login),
            _ => None,
        };
        // A token has an expiry of its own, a login that of its session, the socket none.
        let until = match &self.known {
            Authentication::Token { until, .. } => Some(*until),
            _ => session.map(|login| login.until()),
        };
        CallerReport {
            name: self.name.clone(),
            role: self.role,
            auth_method: self.how(),
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

/// Admits requests from our own pages only. Programs send no `Origin`; browsers send it with every change.
fn admit_origin(headers: &HeaderMap, must: bool) -> Result<(), Refusal> {
    let wrong = || {
        let hint = "open the console at its own URL";
        Refusal::new(code::FORBIDDEN, "the request does not come from this console (wrong origin)", hint)
    };
    // Fetch metadata: sent by all current browsers and not changeable by a page.
    if text(headers, "sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(wrong());
    }
    // The origin must be the host that was asked; the host itself was checked against the names of the array.
    match (text(headers, header::ORIGIN.as_str()), text(headers, header::HOST.as_str())) {
        (Some(origin), Some(host)) if origin.strip_prefix("https://") == Some(host) => Ok(()),
        // Programs other than browsers send no origin.
        (None, _) if !must => Ok(()),
        _ => Err(wrong()),
    }
}

/// Admits a request with the CSRF token of the login session.
fn admit_csrf_token(headers: &HeaderMap, login: &Login) -> Result<(), Refusal> {
    let said = text(headers, CSRF_HEADER).unwrap_or("");
    // Compared in constant time: the duration must not reveal how many characters match.
    if said.as_bytes().ct_eq(login.csrf.as_bytes()).into() {
        return Ok(());
    }
    let hint = "send the csrf value of GET /api/v1/session as X-CSRF-Token";
    Err(Refusal::new(code::FORBIDDEN, "the CSRF token is missing or wrong", hint))
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Value of the session cookie. With several of that name it is unknown which one is ours, so there is none.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    // Cookies may come in several headers, and several in one header.
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut ours = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    let first = ours.next();
    first.filter(|_| ours.next().is_none())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn remote_address(extensions: &axum::http::Extensions) -> Option<SocketAddr> {
    match extensions.get::<ConnectInfo<Peer>>().map(|info| info.0) {
        Some(Peer::Remote(from)) => Some(from),
        _ => None,
    }
}

fn client_info(request: &Request) -> ClientInfo {
    // Requests over the local socket have no address.
    let address = remote_address(request.extensions()).map_or(IpAddr::from([127, 0, 0, 1]), |from| from.ip());
    ClientInfo { address, agent: text(request.headers(), header::USER_AGENT.as_str()).unwrap_or("").to_owned() }
}

async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, bytes_max)).await;
    // A slow body must not hold memory and a connection for long.
    let why = match read {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it arrived too slowly".to_owned(),
    };
    Err(Refusal::new(
        code::REQUEST_TOO_LARGE,
        format!("the request cannot be read: {why}"),
        format!("send less than {} KiB", bytes_max >> 10),
    ))
}

#[cfg(test)]
mod tests;

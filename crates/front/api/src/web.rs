//! HTTPS server for the console and the API.
//!
//! Everything here happens before authentication, so everything is bounded: connections in total and from one address,
//! the duration of a TLS handshake and of a request header, and the bytes of both.

mod certificate;
mod connections;
mod headers;
mod names;
mod plain;

pub use certificate::Source;
pub use names::is_host_name;

use crate::console;
use crate::peer::Peer;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{Request, Response, Version, header};
use axum::response::IntoResponse;
use bounded::descriptors;
use certificate::Certificate;
pub(crate) use connections::Connection;
use connections::{Busy, Connections, Sent, Watched};
use control::{Control, now};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use model::{
    CertificateReport, Problem, Refusal, Severity, Subject, SubjectKind, Timestamp, WebAddress, WebReport, code, event,
};
use names::Names;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::version::TLS13;
use socket2::{SockRef, TcpKeepalive};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Timeout from the connection to the end of the TLS handshake. Shorter in tests.
const HANDSHAKE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Timeout for the header of a request; also the idle timeout of a connection.
const HEAD: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
/// Timeout for data that the peer does not acknowledge (`TCP_USER_TIMEOUT`).
const UNREAD: Duration = Duration::from_secs(30);
/// Time for requests in flight to end after the daemon was told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Longest header of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Retry interval for an address that cannot be bound.
const AGAIN: Duration = Duration::from_secs(10);
/// Interval at which the certificate files are checked.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);
/// Remaining validity of a certificate, in seconds, below which it is reported.
const ENDS_SOON: u64 = 14 * 24 * 3600;
/// Interval at which the shortage of file descriptors is checked.
const SHORTAGE_LOOK: Duration = Duration::from_secs(1);
/// Pause after a failed `accept`, for example for lack of file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Addresses and certificate of the HTTPS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOptions {
    /// Addresses to listen on; port 0 stands for any free port.
    pub listen: Vec<SocketAddr>,
    /// Additional names and addresses that the server answers to, beside those of its certificate and the address of
    /// the connection.
    pub names: BTreeSet<String>,
    /// Source of the certificate.
    pub source: Source,
}

/// HTTPS server.
#[derive(Debug)]
pub(crate) struct Web {
    addresses: Mutex<Vec<WebAddress>>,
    certificate: Arc<Certificate>,
    names: Names,
    connections: Connections,
}

impl Web {
    /// Creates the server. Nothing listens yet, and the certificate was not read yet.
    pub(crate) fn new(options: WebOptions) -> Self {
        let certificate = Arc::new(Certificate::new(options.source));
        // Addresses are reported as closed until they are bound.
        let closed = |address| WebAddress { address, open: false, reason: None };
        let addresses = Mutex::new(options.listen.into_iter().map(closed).collect());
        Self {
            addresses,
            certificate,
            names: Names::new(options.names),
            connections: Connections::new(descriptors::allowed()),
        }
    }

    /// Report of the server. `node` replaces an unspecified address in the URL.
    pub(crate) fn report(&self, node: &str) -> WebReport {
        let addresses = self.addresses().clone();
        let named = |address: &WebAddress| match address.address {
            any if any.ip().is_unspecified() => format!("https://{node}:{}/", any.port()),
            one => format!("https://{one}/"),
        };
        // The first open address stands for all of them.
        let url = addresses.iter().find(|address| address.open).map(named);
        WebReport { url, addresses, certificate: self.certificate.report() }
    }

    /// Serves `api` and the console until `stopping` is true, then lets requests in flight end.
    pub(crate) async fn serve(self: Arc<Self>, control: Arc<Control>, api: Router, stopping: watch::Receiver<bool>) {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        // TLS 1.3 only; all current browsers support it.
        let config = config.with_protocol_versions(&[&TLS13]).expect("the provider has suites of TLS 1.3");
        let mut config = config.with_no_client_auth().with_cert_resolver(self.certificate.clone());
        // HTTP/1.1 only: a connection then carries one request at a time, on which the limits rely.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let count = self.addresses().len();
        let mut tasks = tokio::task::JoinSet::new();
        let (usable, is_usable) = watch::channel(false);
        for at in 0..count {
            let (mut is_usable, mut stopped) = (is_usable.clone(), stopping.clone());
            let listening = self.clone().listen(control.clone(), at, api.clone(), acceptor.clone(), stopping.clone());
            tasks.spawn(async move {
                // Without a certificate no handshake could succeed.
                let goes = tokio::select! {
                    usable = async { is_usable.wait_for(|usable| *usable).await.is_ok() } => usable,
                    () = async { drop(stopped.wait_for(|stopping| *stopping).await) } => false,
                };
                if goes {
                    listening.await;
                }
            });
        }
        let looking = tokio::spawn(self.clone().look_after_certificate(control, usable));
        let making_room = tokio::spawn(self.clone().make_room());
        // Ends when every address has stopped.
        while tasks.join_next().await.is_some() {}
        looking.abort();
        making_room.abort();
    }

    /// Closes idle connections when file descriptors are short: sessions of hosts have priority.
    async fn make_room(self: Arc<Self>) {
        loop {
            sleep(SHORTAGE_LOOK).await;
            if descriptors::are_short() {
                // A few each second, so that no more are closed than needed.
                self.connections.end_idle(16);
            }
        }
    }

    /// Serves one address. Retries until it can be bound.
    async fn listen(
        self: Arc<Self>,
        control: Arc<Control>,
        at: usize,
        api: Router,
        acceptor: TlsAcceptor,
        mut stopping: watch::Receiver<bool>,
    ) {
        let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
        tokio::pin!(stopped);
        let listener = tokio::select! {
            listener = self.bind(&control, at) => listener,
            () = &mut stopped => return,
        };
        let mut connections = tokio::task::JoinSet::new();
        let (end, ending) = watch::channel(false);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    // Descriptors in reserve belong to other parts of the daemon; the connection is closed at once.
                    Ok((stream, _)) if descriptors::is_of_the_reserve(&stream) => {
                        tracing::warn!("console connection closed: nearly all open files are in use");
                        drop(stream);
                        sleep(BREATH).await;
                    }
                    Ok((stream, from)) => {
                        // At the limits an idle connection makes room; if all are busy, this one is closed.
                        if let Some(connection) = self.connections.admit(from.ip()) {
                            let met = self.clone().serve_connection(stream, from, connection, api.clone(), acceptor.clone(), ending.clone());
                            connections.spawn(met);
                        }
                    }
                    Err(error) => {
                        // For example too many open files; the pause keeps the loop from spinning.
                        tracing::warn!(%error, "a console connection could not be accepted");
                        sleep(BREATH).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut stopped => break,
            }
        }
        // The port is free from here on, while requests in flight end.
        drop(listener);
        end.send_replace(true);
        // Connections that do not end in time are dropped with their tasks.
        if timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!("requests from the network were aborted");
        }
    }

    async fn bind(&self, control: &Control, at: usize) -> TcpListener {
        // Addresses are never removed, so the index stays valid.
        let address = self.addresses()[at].address;
        let subject = Subject::new(SubjectKind::Portal, &address);
        loop {
            // Port 0 is replaced by the port that the system chose.
            match listen(control, address).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((address, listener)) => {
                    self.addresses()[at] = WebAddress { address, open: true, reason: None };
                    if let Some(CertificateReport { fingerprint, until, .. }) = self.certificate.report() {
                        tracing::info!(%address, fingerprint, %until, "the console is available");
                    }
                    let sentence = format!("the console is now available at {address}");
                    // Ends an earlier report about this address.
                    control.notices.settle(event::WEB_UNUSABLE, subject, event::WEB_OPENED, &sentence);
                    return listener;
                }
                Err(error) => {
                    self.addresses()[at].reason = Some(error.to_string());
                    control.notices.add(event::WEB_UNUSABLE, subject.clone(), unserved(address, &error));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Reports a certificate that cannot be used, has changed or expires soon. Sets `usable` to true when it was read
    /// for the first time.
    async fn look_after_certificate(self: Arc<Self>, control: Arc<Control>, usable: watch::Sender<bool>) {
        let node = || Subject::new(SubjectKind::Node, &control.core.settings().node);
        loop {
            let certificate = self.certificate.clone();
            // File access blocks, so it runs on a blocking thread.
            let looked = tokio::task::spawn_blocking(move || certificate.refresh(now())).await;
            let report = self.certificate.report();
            let wait = match looked {
                Ok(Ok(is_another)) => {
                    if let (true, Some(report)) = (is_another, &report) {
                        tracing::info!(fingerprint = report.fingerprint, "console certificate loaded");
                    }
                    let sentence = "console certificate is usable";
                    control.notices.settle(event::CERTIFICATE_WRONG, node(), event::CERTIFICATE_RIGHT, sentence);
                    usable.send_replace(true);
                    CERTIFICATE_LOOK
                }
                Ok(Err(refusal)) => {
                    // A certificate that was read before stays in use, so the addresses stay open.
                    if report.is_none() {
                        self.addresses().iter_mut().for_each(|address| address.reason = Some(refusal.message.clone()));
                    }
                    control.notices.add(event::CERTIFICATE_WRONG, node(), unusable(&refusal, report.is_some()));
                    AGAIN
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate could not be checked");
                    AGAIN
                }
            };
            // Also after a failed read: the certificate in use may be expiring.
            match report.and_then(|report| unfit(&report, now())) {
                Some(problem) => control.notices.add(event::CERTIFICATE_ENDS, node(), problem),
                None => {
                    let sentence = "console certificate is valid";
                    control.notices.settle(event::CERTIFICATE_ENDS, node(), event::CERTIFICATE_RIGHT, sentence);
                }
            }
            sleep(wait).await;
        }
    }

    /// Serves one connection.
    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        connection: Connection,
        api: Router,
        acceptor: TlsAcceptor,
        mut ending: watch::Receiver<bool>,
    ) {
        // The address that was reached is a name of the array for this connection.
        let Ok(to) = stream.local_addr() else { return };
        let connection = Arc::new(connection);
        let ready = async {
            settle(&stream)?;
            // A browser that was given http:// gets a redirect instead of a failed handshake.
            if plain::is_plain(&stream).await? {
                plain::answer(stream, |host| self.is_called(host, to)).await?;
                return Ok(None);
            }
            acceptor.accept(stream).await.map(Some)
        };
        // The connection may be closed for another one at any time before its request is authenticated.
        let ready = tokio::select! {
            ready = timeout(HANDSHAKE, ready) => ready,
            () = connection.must_end() => return,
        };
        let stream = match ready {
            Ok(Ok(Some(stream))) => stream,
            // A plain HTTP request was answered, or the handshake took too long.
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::debug!(%from, %error, "no handshake");
                return;
            }
        };
        let (door, on) = (self.clone(), connection.clone());
        let service = service_fn(move |request| {
            let (door, api, on) = (door.clone(), api.clone(), on.clone());
            async move {
                let mut response = door.answer(api, on, from, to, request).await?;
                // Keeps the connection busy until the body was handed over.
                let busy: Option<Arc<Busy>> = response.extensions_mut().remove();
                Ok::<_, Infallible>(response.map(|body| Body::new(Sent::new(body, busy))))
            }
        });
        let mut http = http1::Builder::new();
        // These limits hold before anything is known about the client.
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES_MAX);
        let serving = http.serve_connection(TokioIo::new(Watched::new(stream, connection.clone())), service);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = connection.must_end() => return,
            () = async { drop(ending.wait_for(|ending| *ending).await) } => {
                // Graceful: the answer in flight is sent, then the connection is closed.
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "a connection broke");
        }
    }

    /// Answers a request from `from` to our address `to`.
    async fn answer(
        &self,
        api: Router,
        on: Arc<Connection>,
        from: SocketAddr,
        to: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let mut response = match self.admit_host(&request, to) {
            Err(refusal) => crate::Problem(refusal).into_response(),
            Ok(()) => match console::answer(request.method(), request.uri(), request.headers()) {
                Some(response) => response,
                None => {
                    let mut request = request.map(Body::new);
                    // The gate takes the origin of the request from here.
                    request.extensions_mut().insert(ConnectInfo(Peer::Remote(from)));
                    // The gate marks the connection as busy once the caller is authenticated.
                    request.extensions_mut().insert(on);
                    TowerToHyperService::new(api).call(request).await?
                }
            },
        };
        // Also for refusals: their pages must not be framed or cached either.
        headers::harden(response.headers_mut());
        Ok(response)
    }

    /// Admits a request whose host is the array, both in the `Host` header and in an absolute target. Protects against
    /// DNS rebinding.
    ///
    /// *Source*: RFC 9112 §3.2.
    fn admit_host(&self, request: &Request<Incoming>, to: SocketAddr) -> Result<(), Refusal> {
        // A value that is no text counts as an unknown name.
        let mut headers = request.headers().get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or(""));
        let named = match (headers.next(), headers.next()) {
            (Some(host), None) => host,
            // HTTP/1.0 without a host: health checks of load balancers; no browser sends it.
            (None, None) if request.version() == Version::HTTP_10 => return Ok(()),
            _ => "",
        };
        // An absolute target names a host as well, and both must be ours.
        let target = request.uri().authority().map_or(named, |authority| authority.as_str());
        if self.is_called(named, to) && self.is_called(target, to) {
            return Ok(());
        }
        let host = if self.is_called(named, to) { target } else { named };
        let message = format!("unknown host name {} in the request", bounded::quoted(host));
        let hint = "use the address of the array or a name of its certificate, or add the name to names of [web] \
             in the configuration file";
        Err(Refusal::new(code::HOST_NAME_UNKNOWN, message, hint))
    }

    /// True if `host` is a name or address of the array, for a connection to the address `to`.
    fn is_called(&self, host: &str, to: SocketAddr) -> bool {
        self.names.answer_to(host, to.ip(), self.certificate.first().as_ref())
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<WebAddress>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Problem report for an address that cannot be bound.
fn unserved(address: SocketAddr, error: &std::io::Error) -> Problem {
    Problem {
        severity: Severity::Warning,
        subject: format!("console {address}"),
        state: "not available".to_owned(),
        meaning: format!("cannot listen on {address}: {error}; volumes stay online"),
        action: "free the address or correct [web] in the configuration; retried every 10 seconds".to_owned(),
    }
}

/// Problem report for files that are not a certificate and its key. A certificate read before stays in use.
fn unusable(refusal: &Refusal, is_served: bool) -> Problem {
    let (state, rest) = match is_served {
        true => ("not updated", "the previous certificate stays in use until the daemon is stopping"),
        false => ("not usable", "the console is not available; volumes stay online"),
    };
    Problem {
        severity: Severity::Warning,
        subject: "certificate of the console".to_owned(),
        state: state.to_owned(),
        meaning: format!("{}; {rest}", refusal.message),
        action: format!("{}; retried every 10 seconds", refusal.hint),
    }
}

/// Problem report for a certificate that is not valid at `now`, or expires soon; `None` for a valid one.
fn unfit(report: &CertificateReport, now: Timestamp) -> Option<Problem> {
    let CertificateReport { from, until, generated, .. } = report;
    let (state, meaning) = match () {
        () if *from > now => ("not valid yet", format!("it is valid from {from}, but the clock is at {now}")),
        () if *until <= now => ("expired", format!("it was valid until {until}, and the clock is at {now}")),
        () if *until <= now.plus(ENDS_SOON) => ("about to expire", format!("it is valid until {until}")),
        () => return None,
    };
    let action = match generated {
        true => "the node creates a new one within a minute; see its log if this persists",
        false => "replace it, or correct the clock",
    };
    Some(Problem {
        severity: Severity::Warning,
        subject: "certificate of the console".to_owned(),
        state: state.to_owned(),
        meaning: format!("{meaning}; browsers warn about invalid certificates"),
        action: action.to_owned(),
    })
}

/// Sets the TCP options: the system closes a connection whose peer is gone or does not read.
fn settle(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(UNREAD))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(UNREAD).with_interval(Duration::from_secs(10)))
}

/// Binds `address`; a port below 1024 through the privileged helper.
async fn listen(control: &Control, address: SocketAddr) -> io::Result<TcpListener> {
    match (TcpListener::bind(address).await, control.core.privileged()) {
        // Ports below 1024 need a privilege that the daemon does not have.
        (Err(error), Some(helper)) if error.kind() == io::ErrorKind::PermissionDenied => TcpListener::from_std(
            tokio::task::spawn_blocking(move || helper.bind(address)).await.map_err(io::Error::other)??,
        ),
        (bound, _) => bound,
    }
}

#[cfg(test)]
pub(crate) mod tests;

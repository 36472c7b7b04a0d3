//! HTTPS: the console and the API for whoever is not at the socket.
//!
//! Everything here happens before anybody has proven anything, so everything is bounded: connections in all and from one
//! address, the time of a handshake and of a request's head, and the bytes of both.

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

/// From a connection to the end of its handshake. Tests are as strict, and more impatient.
const HANDSHAKE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// From the wish for a request to the end of its head; also how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
/// How long the other end may leave unacknowledged what was sent to it.
const UNREAD: Duration = Duration::from_secs(30);
/// How long what is under way may take once the daemon stops.
const DRAIN: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How often an address that cannot be listened on is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the certificate is looked at.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);
/// In seconds: a certificate that is valid for less is told of.
const ENDS_SOON: u64 = 14 * 24 * 3600;
/// How often it is looked at whether descriptors are short.
const SHORTAGE_LOOK: Duration = Duration::from_secs(1);
/// A pause after the system gave no connection, for want of descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Where to listen, and what to prove ourselves with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOptions {
    /// Addresses; each with a port, 0 for any.
    pub listen: Vec<SocketAddr>,
    /// Names and addresses that it answers to, beside those of its certificate and the address that was asked.
    pub names: BTreeSet<String>,
    /// The certificate.
    pub source: Source,
}

/// The door to the network.
#[derive(Debug)]
pub(crate) struct Web {
    addresses: Mutex<Vec<WebAddress>>,
    certificate: Arc<Certificate>,
    names: Names,
    connections: Connections,
}

impl Web {
    /// Nothing listens yet, and the certificate is not looked at yet.
    pub(crate) fn new(options: WebOptions) -> Self {
        let certificate = Arc::new(Certificate::new(options.source));
        let closed = |address| WebAddress { address, open: false, why: None };
        let addresses = Mutex::new(options.listen.into_iter().map(closed).collect());
        Self {
            addresses,
            certificate,
            names: Names::new(options.names),
            connections: Connections::new(descriptors::allowed()),
        }
    }

    /// How it is. `node` stands for us where we listen on every address.
    pub(crate) fn report(&self, node: &str) -> WebReport {
        let addresses = self.addresses().clone();
        let named = |address: &WebAddress| match address.address {
            any if any.ip().is_unspecified() => format!("https://{node}:{}/", any.port()),
            one => format!("https://{one}/"),
        };
        let url = addresses.iter().find(|address| address.open).map(named);
        WebReport { url, addresses, certificate: self.certificate.report() }
    }

    /// Serves `api` and the console until `stopping` is true, and then lets what is under way end.
    pub(crate) async fn serve(self: Arc<Self>, control: Arc<Control>, api: Router, stopping: watch::Receiver<bool>) {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(&[&TLS13]).expect("the provider has suites of TLS 1.3");
        let mut config = config.with_no_client_auth().with_cert_resolver(self.certificate.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let count = self.addresses().len();
        let mut tasks = tokio::task::JoinSet::new();
        let (usable, is_usable) = watch::channel(false);
        for at in 0..count {
            let (mut is_usable, mut stopped) = (is_usable.clone(), stopping.clone());
            let listening = self.clone().listen(control.clone(), at, api.clone(), acceptor.clone(), stopping.clone());
            tasks.spawn(async move {
                // Without a certificate nobody could be met there.
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
        while tasks.join_next().await.is_some() {}
        looking.abort();
        making_room.abort();
    }

    /// Where descriptors are short, idle connections end before hosts are turned away.
    async fn make_room(self: Arc<Self>) {
        loop {
            sleep(SHORTAGE_LOOK).await;
            if descriptors::are_short() {
                self.connections.end_idle(16);
            }
        }
    }

    /// Listens on the address, or tries to.
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
                    Ok((stream, _)) if descriptors::is_of_the_reserve(&stream) => {
                        tracing::warn!("a connection to the console was closed: nearly all open files are in use");
                        drop(stream);
                        sleep(BREATH).await;
                    }
                    Ok((stream, from)) => {
                        if let Some(connection) = self.connections.admit(from.ip()) {
                            let met = self.clone().meet(stream, from, connection, api.clone(), acceptor.clone(), ending.clone());
                            connections.spawn(met);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the console was not taken");
                        sleep(BREATH).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut stopped => break,
            }
        }
        drop(listener);
        end.send_replace(true);
        if timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!("requests from the network were given up");
        }
    }

    async fn bind(&self, control: &Control, at: usize) -> TcpListener {
        let address = self.addresses()[at].address;
        let subject = Subject::new(SubjectKind::Portal, &address);
        loop {
            match listen(control, address).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((address, listener)) => {
                    self.addresses()[at] = WebAddress { address, open: true, why: None };
                    if let Some(CertificateReport { fingerprint, until, .. }) = self.certificate.report() {
                        tracing::info!(%address, fingerprint, %until, "the console is served");
                    }
                    let sentence = format!("the console is served at {address} now");
                    control.notices.settle(event::WEB_UNUSABLE, subject, event::WEB_OPENED, &sentence);
                    return listener;
                }
                Err(error) => {
                    self.addresses()[at].why = Some(error.to_string());
                    control.notices.add(event::WEB_UNUSABLE, subject.clone(), unserved(address, &error));
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// A certificate that cannot be used, has changed or ends soon is noticed; `usable` is true from its first use on.
    async fn look_after_certificate(self: Arc<Self>, control: Arc<Control>, usable: watch::Sender<bool>) {
        let node = || Subject::new(SubjectKind::Node, &control.core.settings().node);
        loop {
            let certificate = self.certificate.clone();
            let looked = tokio::task::spawn_blocking(move || certificate.refresh(now())).await;
            let report = self.certificate.report();
            let wait = match looked {
                Ok(Ok(is_another)) => {
                    if let (true, Some(report)) = (is_another, &report) {
                        tracing::info!(fingerprint = report.fingerprint, "the certificate of the console was read");
                    }
                    let sentence = "the certificate of the console can be used";
                    control.notices.settle(event::CERTIFICATE_WRONG, node(), event::CERTIFICATE_RIGHT, sentence);
                    usable.send_replace(true);
                    CERTIFICATE_LOOK
                }
                Ok(Err(refusal)) => {
                    if report.is_none() {
                        self.addresses().iter_mut().for_each(|address| address.why = Some(refusal.message.clone()));
                    }
                    control.notices.add(event::CERTIFICATE_WRONG, node(), unusable(&refusal, report.is_some()));
                    AGAIN
                }
                Err(error) => {
                    tracing::error!(%error, "the certificate could not be looked at");
                    AGAIN
                }
            };
            match report.and_then(|report| unfit(&report, now())) {
                Some(problem) => control.notices.add(event::CERTIFICATE_ENDS, node(), problem),
                None => {
                    let sentence = "the certificate of the console is valid for a while";
                    control.notices.settle(event::CERTIFICATE_ENDS, node(), event::CERTIFICATE_RIGHT, sentence);
                }
            }
            sleep(wait).await;
        }
    }

    /// One connection, from its first byte to its end.
    async fn meet(
        self: Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        connection: Connection,
        api: Router,
        acceptor: TlsAcceptor,
        mut ending: watch::Receiver<bool>,
    ) {
        let Ok(to) = stream.local_addr() else { return };
        let connection = Arc::new(connection);
        let ready = async {
            settle(&stream)?;
            if plain::is_plain(&stream).await? {
                plain::answer(stream, |host| self.is_called(host, to)).await?;
                return Ok(None);
            }
            acceptor.accept(stream).await.map(Some)
        };
        let ready = tokio::select! {
            ready = timeout(HANDSHAKE, ready) => ready,
            () = connection.must_end() => return,
        };
        let stream = match ready {
            Ok(Ok(Some(stream))) => stream,
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
                let busy: Option<Arc<Busy>> = response.extensions_mut().remove();
                Ok::<_, Infallible>(response.map(|body| Body::new(Sent::new(body, busy))))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES_MAX);
        let serving = http.serve_connection(TokioIo::new(Watched::new(stream, connection.clone())), service);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = connection.must_end() => return,
            () = async { drop(ending.wait_for(|ending| *ending).await) } => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "a connection broke");
        }
    }

    /// The answer to a request that came from `from` to our address `to`.
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
                    request.extensions_mut().insert(ConnectInfo(Peer::Remote(from)));
                    // The gate marks it busy once it knows who asks.
                    request.extensions_mut().insert(on);
                    TowerToHyperService::new(api).call(request).await?
                }
            },
        };
        headers::harden(response.headers_mut());
        Ok(response)
    }

    /// Admits a request to a host that is the array, in the Host header and, where the target is a whole URL, there as well.
    ///
    /// *Source*: RFC 9112 §3.2.
    fn admit_host(&self, request: &Request<Incoming>, to: SocketAddr) -> Result<(), Refusal> {
        let mut headers = request.headers().get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or(""));
        let named = match (headers.next(), headers.next()) {
            (Some(host), None) => host,
            // Health checks of load balancers; no browser speaks it.
            (None, None) if request.version() == Version::HTTP_10 => return Ok(()),
            _ => "",
        };
        let target = request.uri().authority().map_or(named, |authority| authority.as_str());
        if self.is_called(named, to) && self.is_called(target, to) {
            return Ok(());
        }
        let host = if self.is_called(named, to) { target } else { named };
        let message = format!("the array does not answer to the host name {}", bounded::quoted(host));
        let hint = "open it at its address or at a name of its certificate, or add the name to names of [web] in the configuration file";
        Err(Refusal::new(code::HOST_NAME_UNKNOWN, message, hint))
    }

    /// True when `host` is the array, for a connection that came to the address `to`.
    fn is_called(&self, host: &str, to: SocketAddr) -> bool {
        self.names.answer_to(host, to.ip(), self.certificate.first().as_ref())
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<WebAddress>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address that cannot be listened on.
fn unserved(address: SocketAddr, error: &std::io::Error) -> Problem {
    Problem {
        severity: Severity::Warning,
        subject: format!("console {address}"),
        state: "not served".to_owned(),
        meaning: format!("cannot listen on {address}: {error}; volumes are served all the same"),
        action: "free the address or correct [web] in the configuration; it is tried again every 10 seconds".to_owned(),
    }
}

/// Files that are no certificate and key. One that was read before is used on.
fn unusable(refusal: &Refusal, is_served: bool) -> Problem {
    let (state, rest) = match is_served {
        true => ("kept from before", "the certificate that was read before is used until the daemon stops"),
        false => ("not usable", "the console is not served; volumes are"),
    };
    Problem {
        severity: Severity::Warning,
        subject: "certificate of the console".to_owned(),
        state: state.to_owned(),
        meaning: format!("{}; {rest}", refusal.message),
        action: format!("{}; it is tried again every 10 seconds", refusal.hint),
    }
}

/// A certificate that is not valid at `now`, or not for much longer.
fn unfit(report: &CertificateReport, now: Timestamp) -> Option<Problem> {
    let CertificateReport { from, until, generated, .. } = report;
    let (state, meaning) = match () {
        () if *from > now => ("not valid yet", format!("it is valid from {from} on, and the clock says {now}")),
        () if *until <= now => ("over", format!("it was valid until {until}, and the clock says {now}")),
        () if *until <= now.plus(ENDS_SOON) => ("ending soon", format!("it is valid until {until}")),
        () => return None,
    };
    let action = match generated {
        true => "the node makes another one within a minute; see its log if this stays",
        false => "put another one in its place, or set the clock right",
    };
    Some(Problem {
        severity: Severity::Warning,
        subject: "certificate of the console".to_owned(),
        state: state.to_owned(),
        meaning: format!("{meaning}; browsers warn of one that is not valid"),
        action: action.to_owned(),
    })
}

/// The system gives the connection up where the other end is gone or does not read.
fn settle(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(UNREAD))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(UNREAD).with_interval(Duration::from_secs(10)))
}

/// Listens at `address`, on a port below 1024 through the privileged helper.
async fn listen(control: &Control, address: SocketAddr) -> io::Result<TcpListener> {
    match (TcpListener::bind(address).await, control.core.privileged()) {
        (Err(error), Some(helper)) if error.kind() == io::ErrorKind::PermissionDenied => TcpListener::from_std(
            tokio::task::spawn_blocking(move || helper.bind(address)).await.map_err(io::Error::other)??,
        ),
        (bound, _) => bound,
    }
}

#[cfg(test)]
pub(crate) mod tests;

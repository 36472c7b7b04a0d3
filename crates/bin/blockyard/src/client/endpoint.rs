//! Transports to the daemon: its local socket, or HTTPS to a remote array.

use crate::args::Global;
use crate::config::default_socket;
use crate::failure::Failure;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Uri};
use model::{Refusal, code};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use trust::{Connection, Trust};
use zeroize::Zeroizing;

/// Timeout of the connection to a remote array.
const CONNECT: Duration = Duration::from_secs(10);
/// Limit of the token file in bytes, longer than any token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Endpoint of the daemon.
pub(super) enum Endpoint {
    /// Socket on this machine.
    Socket(PathBuf),
    /// Remote array over HTTPS.
    Remote(Box<Remote>),
}

/// Remote array, with the trust and the token for it.
pub(super) struct Remote {
    url: String,
    host: String,
    port: u16,
    trust: Trust,
    token: Zeroizing<String>,
}

impl Endpoint {
    /// Returns the endpoint of the command line, else of the environment, else the default socket.
    pub(super) fn of(global: &Global) -> Result<Self, Failure> {
        // `--socket` on the command line overrides `BLOCKYARD_URL` of the environment.
        let url = global.url.clone().or_else(|| variable("BLOCKYARD_URL").filter(|_| global.socket.is_none()));
        let Some(url) = url else {
            return Ok(Self::Socket(global.socket.clone().unwrap_or_else(default_socket)));
        };
        let wrong = || {
            let message = format!("\"{url}\" is not the URL of an array");
            Failure::usage(&Refusal::new(code::ADDRESS_INVALID, message, "write https://array1:8443"))
        };
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        // The API is at the root of its host. A path in the URL would be ignored silently.
        let at_root = matches!(parsed.path(), "" | "/") && parsed.query().is_none();
        // HTTPS only: every request carries the token.
        let host = parsed.host().filter(|_| parsed.scheme_str() == Some("https") && at_root).ok_or_else(wrong)?;
        // The resolver expects an IPv6 address without brackets.
        let host = host.trim_matches(['[', ']']).to_owned();
        let trust = match (global.pin.clone().or_else(|| variable("BLOCKYARD_PIN")), &global.ca_file) {
            // A CA file of the command line overrides a pin of the environment.
            (Some(pin), None) => Trust::Pin(pin),
            (_, Some(file)) => Trust::Authority(file.clone()),
            (None, None) => Trust::System,
        };
        // Settled before anything is sent: a setting that cannot work fails here, and the token is for an authenticated
        // server.
        trust.client()?;
        let token = token(global.token_file.as_deref())?;
        Ok(Self::Remote(Box::new(Remote { port: parsed.port_u16().unwrap_or(443), url, host, trust, token })))
    }

    /// Sends a request and returns the response before its body has arrived.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        match self {
            Self::Socket(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(socket, &error))?;
                over(stream, request).await
            }
            Self::Remote(remote) => {
                let headers = request.headers_mut();
                let bearer = format!("Bearer {}", *remote.token);
                let mut bearer = hyper::header::HeaderValue::from_str(&bearer)
                    .map_err(|_| no_token("it contains invalid characters"))?;
                // Debug output of headers must not contain the token.
                bearer.set_sensitive(true);
                headers.insert("authorization", bearer);
                // A Host header has an IPv6 address in brackets (RFC 3986 §3.2.2).
                let host = if remote.host.contains(':') { format!("[{}]", remote.host) } else { remote.host.clone() };
                let host = format!("{host}:{}", remote.port)
                    .parse()
                    .map_err(|_| no_token("its host name contains invalid characters"))?;
                headers.insert("host", host);
                over(remote.connect().await?, request).await
            }
        }
    }

    /// Returns the process ID of the daemon; none if it does not answer, or is remote.
    pub(super) async fn pid(&self) -> Option<u32> {
        let Self::Socket(socket) = self else { return None };
        // The kernel names the process at the other end (SO_PEERCRED).
        let peer = UnixStream::connect(socket).await.ok()?.peer_cred().ok()?;
        peer.pid().and_then(|pid| u32::try_from(pid).ok())
    }
}

impl Remote {
    async fn connect(&self) -> Result<Connection, Failure> {
        let refused = |error: io::Error| {
            let message = format!("cannot connect to {}: {error}", self.url);
            let hint = "see blockyard web show there; trust a self-signed certificate with --pin";
            Failure::from(Refusal::new(code::DAEMON_UNREACHABLE, message, hint))
        };
        trust::connect(&self.host, self.port, Some(&self.trust), CONNECT).await.map_err(refused)
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Failure> {
    Ok(http_client::send(stream, request).await.map_err(|error| super::gone(&error))?)
}

fn variable(name: &str) -> Option<String> {
    // An empty variable counts as unset, so that a script can clear one.
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the token from a file, from standard input, or from the environment.
fn token(file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    match file {
        None => {
            // No option takes the token itself: arguments are visible in the list of processes.
            let from_environment = variable("BLOCKYARD_TOKEN").ok_or_else(|| no_token("none is given"))?;
            *text = from_environment;
        }
        Some(path) => {
            let read = bounded::source_or_stdin(path, TOKEN_BYTES_MAX).and_then(bounded::text_of);
            *text = read.map_err(|error| no_token(&error.to_string()))?;
        }
    }
    // The copy is wiped as well when it is dropped.
    let trimmed = Zeroizing::new(text.trim().to_owned());
    if trimmed.is_empty() { Err(no_token("it is empty")) } else { Ok(trimmed) }
}

fn no_token(why: &str) -> Failure {
    let message = format!("no API token: {why}");
    let hint = "create one there with blockyard token create, and give its file with --token-file";
    Refusal::new(code::UNPROVEN, message, hint).into()
}

fn unreachable(socket: &Path, error: &io::Error) -> Failure {
    let socket = socket.display();
    // Distinguished, because the daemon runs and starting it would not help.
    if error.kind() == ErrorKind::PermissionDenied {
        let message = format!("only root and the user of the daemon may connect to {socket}");
        return Refusal::new(code::FORBIDDEN, message, "use sudo").into();
    }
    let message = format!("no daemon is listening at {socket}");
    let hint = "start it with blockyard serve, or give its socket with --socket";
    Refusal::new(code::DAEMON_UNREACHABLE, message, hint).into()
}

//! HTTP client for the daemon's API, over its socket or over HTTPS.

mod endpoint;
mod read_version;

pub(crate) use read_version::ReadVersion;

use crate::args::{Global, ListOptions};
use crate::failure::Failure;
use endpoint::Endpoint;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ETAG, IF_MATCH};
use hyper::{Method, Request, Response};
use model::{Refusal, code};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Limit of a list that the API accepts.
const LIMIT_MAX: u64 = 10_000;

/// Client with its endpoint.
pub(crate) struct Client {
    endpoint: Endpoint,
    runtime: tokio::runtime::Runtime,
    /// Print each request to stderr (`--requests`).
    prints_requests: bool,
}

/// Answer: the complete JSON object, and the key of the part that was requested.
pub(crate) struct Answer {
    pub whole: Value,
    key: &'static str,
    /// Entity tag of that part, if it has one.
    tag: Option<String>,
}

/// Successful response, before its key is known.
struct RawAnswer {
    whole: Value,
    tag: Option<String>,
}

impl RawAnswer {
    fn under(self, key: &'static str) -> Answer {
        Answer { whole: self.whole, key, tag: self.tag }
    }
}

impl Client {
    /// Creates a client for the daemon of the command line, of the environment, or at the default socket.
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        // One thread suffices: a command sends one request after the other.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            let message = format!("cannot create an event queue: {error}");
            Refusal::new(code::IO_FAILED, message, "close other programs and try again")
        })?;
        Ok(Self { endpoint: Endpoint::of(global)?, runtime, prints_requests: global.requests })
    }

    /// Returns true if the daemon is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.endpoint, Endpoint::Socket(_))
    }

    /// Returns the process ID of the daemon; none if it does not answer.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.runtime.block_on(self.endpoint.pid())
    }

    /// Sends `GET path` and returns the answer under `key`.
    pub(crate) fn get(&self, path: &str, key: &'static str) -> Result<Answer, Failure> {
        self.send(Method::GET, path, None, None).map(|said| said.under(key))
    }

    /// Sends `GET path` with these query pairs and the options of the list, and returns the answer under `key`.
    pub(crate) fn list(
        &self,
        path: &str,
        key: &'static str,
        options: &ListOptions,
        pairs: &[(&str, String)],
    ) -> Result<Answer, Failure> {
        let ListOptions { search, limit } = options;
        // The search is the only free text in a query.
        let search = search.as_ref().map(|text| ("search", escaped(text)));
        let limit = limit.map(|limit| ("limit", limit.to_string()));
        let pairs: Vec<_> = pairs.iter().cloned().chain(search).chain(limit).collect();
        let asked = if pairs.is_empty() { String::new() } else { format!("?{}", query(&pairs)) };
        self.get(&format!("{path}{asked}"), key)
    }

    /// Sends `POST path` and returns the answer under `key`.
    pub(crate) fn post(&self, path: &str, body: &impl Serialize, key: &'static str) -> Result<Answer, Failure> {
        self.send(Method::POST, path, Some(json(body)?), None).map(|said| said.under(key))
    }

    /// Sends `POST path` and ignores the body of the answer.
    pub(crate) fn post_and_forget(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        self.send(Method::POST, path, Some(json(body)?), None).map(|_| ())
    }

    /// Sends `PATCH path` and returns the answer under `key`.
    pub(crate) fn patch(&self, path: &str, body: &impl Serialize, key: &'static str) -> Result<Answer, Failure> {
        self.send(Method::PATCH, path, Some(json(body)?), None).map(|said| said.under(key))
    }

    /// Sends `PUT path` and returns the answer under `key`.
    pub(crate) fn put(&self, path: &str, body: &impl Serialize, key: &'static str) -> Result<Answer, Failure> {
        self.send(Method::PUT, path, Some(json(body)?), None).map(|said| said.under(key))
    }

    /// Sends `DELETE path` and ignores the body of the answer.
    pub(crate) fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send(Method::DELETE, path, None, None).map(|_| ())
    }

    /// Sends `DELETE path` and returns the answer under `key`.
    pub(crate) fn delete_for(&self, path: &str, key: &'static str) -> Result<Answer, Failure> {
        self.send(Method::DELETE, path, None, None).map(|said| said.under(key))
    }

    /// Sends `GET path` and passes the body, which is not JSON, to `take` as it arrives. Returns the error with which
    /// `take` stopped.
    pub(crate) fn fetch(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<std::io::Result<()>, Failure> {
        self.runtime.block_on(async {
            let mut response = self.ask(Method::GET, path, None, None).await?;
            if !response.status().is_success() {
                // An error is JSON also where the answer is not, and it is short.
                let body = response.into_body().collect().await.map_err(|error| gone(&error))?.to_bytes();
                return Err(refused(&body));
            }
            while let Some(frame) = response.frame().await {
                let frame = frame.map_err(|error| gone(&error))?;
                if let Some(Err(error)) = frame.data_ref().map(|bytes| take(bytes)) {
                    // An error of the caller, such as a full disk, is not a failure of the daemon.
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })
    }

    /// Sends a request and reads the whole answer. With a tag, the change is made only if the object still has that tag
    /// (`If-Match`).
    fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>, tag: Option<&str>) -> Result<RawAnswer, Failure> {
        self.runtime.block_on(async {
            let response = self.ask(method, path, body, tag).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| gone(&error))?.to_bytes();
            if !head.status.is_success() {
                return Err(refused(&body));
            }
            let tag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let whole = match body.is_empty() {
                // A response without content, such as that of DELETE, decodes as null.
                true => Value::Null,
                false => serde_json::from_slice(&body).map_err(|error| garbled(&error))?,
            };
            Ok(RawAnswer { whole, tag })
        })
    }

    /// Sends a request and returns the response before its body has arrived.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        tag: Option<&str>,
    ) -> Result<Response<Incoming>, Failure> {
        // Standard error, so that the output of the command can still be piped.
        if self.prints_requests {
            eprintln!("> {method} {path}");
        }
        let request = Request::builder();
        let request = tag.into_iter().fold(request, |request, tag| request.header(IF_MATCH, tag));
        let request = request
            .method(method)
            .uri(format!("/api/v1{path}"))
            // HTTP/1.1 requires a Host header; over the socket its value does not matter.
            .header("host", "blockyard")
            // The API refuses other media types (BY-1012).
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .expect("paths are made of names, which need no escape");
        self.endpoint.send(request).await
    }
}

impl Answer {
    /// Decodes the requested part.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        // A missing key decodes like null: fields of newer daemons stay optional.
        let value = self.whole.get(self.key).cloned().unwrap_or(Value::Null);
        serde_json::from_value(value).map_err(|error| garbled(&error))
    }

    /// Describes how many rows the limit omitted, and how to see them; none if the list is complete.
    pub(crate) fn left_out(&self) -> Option<String> {
        // Only lists have a total.
        let total = self.whole.get("total")?.as_u64()?;
        let left = total.saturating_sub(self.whole.get(self.key)?.as_array()?.len() as u64);
        let noun = self.key.replace('_', " ");
        let are = if left == 1 { "is" } else { "are" };
        let how = match total {
            // Beyond the maximum of the API no limit shows the whole list.
            ..=LIMIT_MAX => format!("see all with --limit {total}"),
            _ => "narrow the list with --search".to_owned(),
        };
        (left > 0).then(|| format!("{left} of {total} {noun} {are} not shown; {how}"))
    }
}

/// Percent-encodes text for a query.
pub(crate) fn escaped(text: &str) -> String {
    // Unreserved characters (RFC 3986 §2.3), and the slash, which a query may contain (§3.4).
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Returns the query that confirms a disruptive request, if `force` is set.
pub(crate) fn forced(force: bool) -> &'static str {
    if force { "?force=true" } else { "" }
}

/// Builds a query from pairs. Names need no escape except for the slash, which queries allow.
pub(crate) fn query(pairs: &[(&str, String)]) -> String {
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&")
}

fn json(body: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(body).map_err(|error| {
        let message = format!("the request cannot be encoded as JSON: {error}");
        Refusal::new(code::INTERNAL, message, "report this as a bug").into()
    })
}

fn refused(body: &[u8]) -> Failure {
    serde_json::from_slice::<Refusal>(body).map_or_else(|error| garbled(&error), Failure::from)
}

fn gone(error: &hyper::Error) -> Refusal {
    let message = format!("the connection to the daemon closed before the response: {error}");
    Refusal::new(
        code::DAEMON_UNREACHABLE,
        message,
        "check the daemon log, then check the current state before you repeat the command",
    )
}

fn garbled(error: &serde_json::Error) -> Failure {
    let message = format!("unexpected response from the daemon: {error}");
    Refusal::new(code::INTERNAL, message, "use the blockyard command of the same version as the daemon").into()
}

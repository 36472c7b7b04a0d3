//! Test fixtures: a node with an HTTPS server, and a browser.

use crate::web::{Source, WebOptions};
use crate::{Listening, listen, serve};
use control::{Control, Engine, Settings, Store};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use model::Role;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;
use testbed::Testbed;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trust::Trust;

/// Password of every user in these tests.
pub(crate) const PASSWORD: &str = "correct horse battery staple";

/// A node that serves until it is dropped.
pub(crate) struct Node {
    pub address: SocketAddr,
    pub control: Arc<Control>,
    pub dir: TempDir,
    pin: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Node {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            state_dir: dir.path().join("state"),
            socket: dir.path().join("socket"),
            node: "node1".parse().expect("a name"),
            target_base: "iqn.2026-11.io.blockyard".to_owned(),
            portals: vec!["127.0.0.1:3260".parse().expect("an address")],
            disk_search: Vec::new(),
        };
        let store = Store::open(&settings.state_dir).expect("a store");
        let source = Source::Generated {
            folder: settings.state_dir.join("web"),
            names: ["node1", "127.0.0.1"].map(str::to_owned).into(),
        };
        let names = ["node1".to_owned()].into();
        let options = WebOptions { names, listen: vec!["127.0.0.1:0".parse().expect("an address")], source };
        let listening: Listening = listen(&settings.socket).expect("listens").with_web(options);
        let web = listening.web().expect("a door");
        let (orders, _thread) = Testbed::default().start();
        let control = Arc::new(Control::start(settings, store, Engine::new(orders)).await.expect("starts"));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        tokio::spawn(serve(control.clone(), listening, async move { drop(stopped.await) }));
        let report = loop {
            let report = web.report("node1");
            if report.url.is_some() {
                break report;
            }
            tokio::task::yield_now().await;
        };
        let pin = report.certificate.expect("a certificate").pin;
        Self { address: report.addresses[0].address, control, dir, pin, stop: Some(stop) }
    }

    /// Answer to a request over the local socket, as the command line sends it.
    pub(crate) async fn local(&self, method: Method, path: &str, body: &Value) -> Page {
        let stream = UnixStream::connect(self.dir.path().join("socket")).await.expect("connects");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("speaks");
        tokio::spawn(connection);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header("host", "blockyard");
        let request = request.header("content-type", "application/json").body(Full::new(Bytes::from(body)));
        Page::of(sender.send_request(request.expect("a request")).await.expect("an answer")).await
    }

    /// Adds a user who can log in.
    pub(crate) async fn user(&self, name: &str, role: Role) {
        let body = json!({ "name": name, "role": role, "password": PASSWORD });
        let page = self.local(Method::POST, "/api/v1/users", &body).await;
        assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
    }

    /// A browser in which this user has logged in.
    pub(crate) async fn browser_of(&self, name: &str) -> Browser {
        let mut browser = Browser::of(self);
        let page = browser.log_in(name, PASSWORD).await;
        assert_eq!(page.status, StatusCode::CREATED, "{}", page.text);
        browser
    }

    /// Pin of the server's key, as `blockyard web show` prints it.
    pub(crate) fn pin(&self) -> String {
        self.pin.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// Received answer.
pub(crate) struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

impl Page {
    async fn of(response: Response<Incoming>) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        Self { status, headers, text: String::from_utf8(body.to_vec()).expect("text") }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

/// A browser or any other HTTPS client.
#[derive(Clone)]
pub(crate) struct Browser {
    address: SocketAddr,
    connector: TlsConnector,
    /// Headers sent with each request.
    pub headers: Vec<(&'static str, String)>,
}

impl Browser {
    pub(crate) fn of(node: &Node) -> Self {
        Self::with(node, Trust::Pin(node.pin()))
    }

    pub(crate) fn with(node: &Node, trust: Trust) -> Self {
        let connector = TlsConnector::from(Arc::new(trust.client().expect("a client")));
        Self { address: node.address, connector, headers: Vec::new() }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("node1").expect("a name");
        self.connector.connect(name, stream).await
    }

    /// Sends a request and expects this status.
    #[track_caller]
    pub(crate) fn expect(page: Page, status: u16) -> Value {
        assert_eq!(page.status.as_u16(), status, "{}", page.text);
        page.json()
    }

    /// Logs the user in: this browser sends its cookie, CSRF token and origin from then on.
    pub(crate) async fn log_in(&mut self, name: &str, password: &str) -> Page {
        let body = json!({ "name": name, "password": password }).to_string();
        let page = self.ask(Method::POST, "/api/v1/session", &body).await;
        if page.status == StatusCode::CREATED {
            self.keep(&page);
        }
        page
    }

    /// Takes over cookie and CSRF token from the answer to a login.
    pub(crate) fn keep(&mut self, page: &Page) {
        let cookie = page.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        let csrf = page.json()["session"]["csrf"].as_str().expect("a word").to_owned();
        let origin = format!("https://{}", self.address);
        self.headers = vec![("cookie", cookie), ("x-csrf-token", csrf), ("origin", origin)];
    }

    /// Copy of this browser without the header, or with another value of it.
    pub(crate) fn but(&self, name: &'static str, value: Option<&str>) -> Self {
        let mut other = self.clone();
        other.headers.retain(|(header, _)| *header != name);
        other.headers.extend(value.map(|value| (name, value.to_owned())));
        other
    }

    /// Requests a page like a browser of a person does.
    pub(crate) async fn page(&self, path: &str) -> Page {
        let mut person = self.clone();
        person.headers.push(("accept", "text/html".to_owned()));
        person.ask(Method::GET, path, "").await
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: &str) -> Page {
        Page::of(self.open(method, path, body).await).await
    }

    /// Answer whose body has not been received yet.
    pub(crate) async fn open(&self, method: Method, path: &str, body: &str) -> Response<Incoming> {
        let stream = self.connect().await.expect("connects");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("speaks");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !self.headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        request = request.header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        sender.send_request(request).await.expect("an answer")
    }
}

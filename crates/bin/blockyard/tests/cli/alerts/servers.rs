//! Servers that receive alerts: mail over SMTP, and requests over HTTPS. Each connection has a thread.

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Returns a TLS configuration with a key of its own, and its pin.
pub(crate) fn proof() -> (Arc<ServerConfig>, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = rcgen::CertificateParams::new(vec!["elsewhere".to_owned()]).expect("a name").self_signed(&key);
    let certificate = made.expect("a certificate").der().clone();
    let pin = trust::pin_of(&certificate).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("suites");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).expect("they belong together");
    (Arc::new(config), pin)
}

pub(crate) fn secured(stream: TcpStream, config: &Arc<ServerConfig>) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(config.clone()).expect("a connection"), stream)
}

/// HTTPS server that answers 500 a few times, and then accepts requests.
pub(crate) struct Webhook {
    pub url: String,
    pub pin: String,
    asked: Arc<Mutex<usize>>,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    pub(crate) fn start(failures: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}/hook?of=blockyard", listener.local_addr().expect("an address"));
        let (config, pin) = proof();
        let (asked, taken) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, messages) = (asked.clone(), taken.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(secured(stream.expect("a connection"), &config));
                let Some((head, body)) = request(&mut stream) else { continue };
                let mut count = count.lock().expect("a lock");
                *count += 1;
                let is_good = *count > failures;
                drop(count);
                if is_good {
                    assert!(head.contains("\nblockyard-signature: t="), "{head}");
                    assert!(head.starts_with("post /hook?of=blockyard http/1.1"), "{head}");
                    messages.lock().expect("a lock").push(serde_json::from_slice(&body).expect("JSON"));
                }
                let status = if is_good { "200 OK" } else { "500 Not now" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken");
                let _ = stream.get_mut().write_all(answer.as_bytes());
                let _ = stream.get_mut().flush();
            }
        });
        Self { url, pin, asked, taken }
    }

    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().expect("a lock")
    }

    pub(crate) fn taken(&self) -> Vec<Value> {
        self.taken.lock().expect("a lock").clone()
    }
}

/// Reads a request: its head in lower case, and its body.
fn request(stream: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.trim().parse().expect("a number")];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Mail server that offers STARTTLS, and accepts mail only after authentication.
pub(crate) struct Mailbox {
    pub address: String,
    pub pin: String,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Mailbox {
    pub(crate) fn start(login: Option<(&'static str, &'static str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (config, pin) = proof();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mails = taken.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, mails) = (config.clone(), mails.clone());
                std::thread::spawn(move || talk(stream.expect("a connection"), &config, login, &mails));
            }
        });
        Self { address, pin, taken }
    }

    pub(crate) fn taken(&self) -> Vec<String> {
        self.taken.lock().expect("a lock").clone()
    }
}

fn talk(plain: TcpStream, config: &Arc<ServerConfig>, login: Option<(&str, &str)>, mails: &Mutex<Vec<String>>) {
    let again = plain.try_clone().expect("a descriptor");
    let mut stream: BufReader<Box<dyn Stream>> = BufReader::new(Box::new(plain));
    let (mut is_secure, mut is_known) = (false, login.is_none());
    let mut again = Some(again);
    let mut answer = "220 elsewhere ESMTP\r\n".to_owned();
    loop {
        let _ = stream.get_mut().write_all(answer.as_bytes()).and_then(|()| stream.get_mut().flush());
        if answer.starts_with("220 go") {
            stream = BufReader::new(Box::new(secured(again.take().expect("once"), config)));
            is_secure = true;
        }
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end();
        answer = match line.split(' ').next().unwrap_or_default() {
            "EHLO" if is_secure => "250-elsewhere\r\n250-AUTH LOGIN PLAIN\r\n250 8BITMIME\r\n",
            "EHLO" => "250-elsewhere\r\n250 STARTTLS\r\n",
            "STARTTLS" => "220 go on\r\n",
            "AUTH" => {
                // Zero, array1, zero, pass word.
                is_known = is_secure && line == "AUTH PLAIN AGFycmF5MQBwYXNzIHdvcmQ=";
                if is_known { "235 known\r\n" } else { "535 unknown\r\n" }
            }
            "MAIL" | "RCPT" if is_known => "250 well\r\n",
            "DATA" if is_known => {
                let _ = stream.get_mut().write_all(b"354 go on\r\n").and_then(|()| stream.get_mut().flush());
                let mut mail = String::new();
                while !mail.ends_with("\r\n.\r\n") {
                    if stream.read_line(&mut mail).unwrap_or(0) == 0 {
                        return;
                    }
                }
                mails.lock().expect("a lock").push(mail);
                "250 2.0.0 taken\r\n"
            }
            "QUIT" => return,
            _ => "503 not so\r\n",
        }
        .to_owned();
    }
}

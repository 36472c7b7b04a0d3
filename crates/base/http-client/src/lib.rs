//! HTTP/1.1 client for one request over an existing connection: for the command line, alerts, the watchdog and the lab.
//!
//! The protocol is hyper's. The caller opens the connection, a local socket or TLS.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// Limit on the body that [`get`] reads, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Sends the request and returns the response before its body has arrived. The connection ends with the response.
///
/// *Errors*: the connection breaks, or the peer does not speak HTTP.
pub async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The result of the task is not needed: an error of the connection also fails the exchange, which reports it.
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Requests `GET path` from the daemon behind `socket` and returns the body. Blocks this thread, at most for
/// `patience`.
///
/// *Errors*: no answer in time; the status is not 200; the body exceeds [`ANSWER_BYTES_MAX`].
pub fn get(socket: &Path, path: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = async {
        // HTTP/1.1 requires a Host header; its value has no meaning on a local socket.
        let stream = UnixStream::connect(socket).await?;
        let request = Request::get(path).header(HOST, "blockyard").body(Full::default()).map_err(io::Error::other)?;
        let response = send(stream, request).await.map_err(io::Error::other)?;
        let status = response.status();
        if status != hyper::StatusCode::OK {
            return Err(io::Error::other(format!("it answers {status}")));
        }
        // Bounded: a faulty server must not exhaust the memory.
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        Ok(body.to_bytes().to_vec())
    };
    runtime.block_on(async {
        let late = || io::Error::new(ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs()));
        tokio::time::timeout(patience, answer).await.map_err(|_| late())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// Returns the request that `get` sends, and its result for this answer.
    fn got(answer: &'static [u8], patience: Duration) -> (String, io::Result<Vec<u8>>) {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("binds");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut asked = [0; 1024];
            let len = stream.read(&mut asked).expect("a request");
            stream.write_all(answer).expect("writes");
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            String::from_utf8_lossy(&asked[..len]).into_owned()
        });
        let got = get(&socket, "/api/v1/disks", patience);
        (server.join().expect("it ends"), got)
    }

    #[test]
    fn answer_is_its_body_also_in_chunks() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        let (asked, answer) = got(whole, Duration::from_secs(10));
        assert!(asked.starts_with("GET /api/v1/disks HTTP/1.1\r\nhost: blockyard\r\n"), "{asked}");
        assert_eq!(answer.expect("an answer"), b"hello");
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert_eq!(got(chunks, Duration::from_secs(10)).1.expect("an answer"), b"hello");
    }

    #[test]
    fn what_is_no_good_answer_is_an_error_that_says_so() {
        let refused = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        let error = got(refused, Duration::from_secs(10)).1.expect_err("it is refused");
        assert_eq!(error.to_string(), "it answers 503 Service Unavailable");
        let error = got(b"", Duration::from_millis(200)).1.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(got(b"SSH-2.0-OpenSSH_9.2\r\n", Duration::from_secs(10)).1.is_err());
        let error = get(Path::new("/nobody/is/there"), "/", Duration::from_secs(1)).expect_err("no socket");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

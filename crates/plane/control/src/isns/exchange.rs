//! Connection to an iSNS server: one request at a time, and its answer.

use isns::{Request, Response, ResponseParser};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit for connecting and for each exchange.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An open connection to a server.
pub(super) struct Server {
    stream: TcpStream,
    local: SocketAddr,
    answers: ResponseParser,
    transaction: u16,
}

/// Connects to the server.
///
/// *Errors*: the reason of the failure, in words.
pub(super) async fn connect(server: SocketAddr) -> Result<Server, String> {
    let connected = timeout(TIMEOUT, TcpStream::connect(server)).await;
    let stream = connected.map_err(|_| silent())?.map_err(|error| format!("it cannot be reached: {error}"))?;
    let local = stream.local_addr().map_err(|error| error.to_string())?;
    Ok(Server { stream, local, answers: ResponseParser::default(), transaction: 0 })
}

impl Server {
    /// Returns our address on this connection, as the server sees it.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sends the request and returns its answer.
    ///
    /// *Errors*: the reason of the failure, in words.
    pub(super) async fn ask(&mut self, request: Request<'_>) -> Result<Response, String> {
        // A new number, so that a late response to an earlier request is not taken for this one.
        self.transaction += 1;
        timeout(TIMEOUT, self.exchange(request)).await.map_err(|_| silent())?
    }

    async fn exchange(&mut self, request: Request<'_>) -> Result<Response, String> {
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        self.stream.write_all(&request.emit(self.transaction)).await.map_err(broke)?;
        let mut bytes = [0; 4096];
        loop {
            while let Some(answer) = self.answers.poll().map_err(|violation| violation.to_string())? {
                // The server may send requests of its own on the connection; they are skipped.
                if (answer.transaction, answer.function) == (self.transaction, request.function().response()) {
                    return Ok(answer);
                }
            }
            match self.stream.read(&mut bytes).await.map_err(broke)? {
                0 => return Err("it closed the connection without a response".to_owned()),
                len => self.answers.handle(&bytes[..len]),
            }
        }
    }
}

fn silent() -> String {
    format!("it did not respond within {} seconds", TIMEOUT.as_secs())
}

//! One connection to an iSNS server: a question, and its answer.

use isns::{Answer, Answers, Request};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that can be asked.
pub(super) struct Server {
    stream: TcpStream,
    local: SocketAddr,
    answers: Answers,
    transaction: u16,
}

/// A connection to the server.
///
/// *Errors*: why there is none, in words.
pub(super) async fn connect(server: SocketAddr) -> Result<Server, String> {
    let connected = timeout(PATIENCE, TcpStream::connect(server)).await;
    let stream = connected.map_err(|_| silent())?.map_err(|error| format!("it cannot be reached: {error}"))?;
    let local = stream.local_addr().map_err(|error| error.to_string())?;
    Ok(Server { stream, local, answers: Answers::default(), transaction: 0 })
}

impl Server {
    /// Our address as the server sees it.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The answer to the request.
    ///
    /// *Errors*: why there is none, in words.
    pub(super) async fn ask(&mut self, request: Request<'_>) -> Result<Answer, String> {
        self.transaction += 1;
        timeout(PATIENCE, self.exchange(request)).await.map_err(|_| silent())?
    }

    async fn exchange(&mut self, request: Request<'_>) -> Result<Answer, String> {
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        self.stream.write_all(&request.emit(self.transaction)).await.map_err(broke)?;
        let mut bytes = [0; 4096];
        loop {
            while let Some(answer) = self.answers.poll().map_err(|violation| violation.to_string())? {
                // It may ask something of its own meanwhile, which we need not know.
                if (answer.transaction, answer.function) == (self.transaction, request.function().answer()) {
                    return Ok(answer);
                }
            }
            match self.stream.read(&mut bytes).await.map_err(broke)? {
                0 => return Err("it closed the connection without an answer".to_owned()),
                len => self.answers.handle(&bytes[..len]),
            }
        }
    }
}

fn silent() -> String {
    format!("it does not answer within {} seconds", PATIENCE.as_secs())
}

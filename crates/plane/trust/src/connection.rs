//! Client connections, in the clear or under TLS.

use crate::Trust;
use rustls::pki_types::ServerName;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Established connection.
#[derive(Debug)]
pub enum Connection {
    /// In the clear.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to `host`, a name or an address without brackets; in the clear where `trust` is `None`.
///
/// *Errors*: the server cannot be reached within `patience`, or is not trusted.
pub async fn connect(host: &str, port: u16, trust: Option<&Trust>, patience: Duration) -> io::Result<Connection> {
    // The time limit applies to the connection and to the handshake separately.
    let within = tokio::time::timeout(patience, TcpStream::connect((host, port))).await;
    let line = Connection::Plain(within.map_err(|_| silent(patience))??);
    match trust {
        Some(trust) => secure(line, host, trust, patience).await,
        None => Ok(line),
    }
}

/// Upgrades the connection to TLS.
///
/// *Errors*: it is under TLS already, or the server is not trusted or silent for `patience`.
pub async fn secure(line: Connection, host: &str, trust: &Trust, patience: Duration) -> io::Result<Connection> {
    let Connection::Plain(stream) = line else { return Err(io::Error::other("it is under TLS already")) };
    let config = trust.client().map_err(|refusal| io::Error::other(refusal.to_string()))?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = tokio::time::timeout(patience, shaken).await.map_err(|_| silent(patience))??;
    Ok(Connection::Tls(Box::new(stream)))
}

fn silent(patience: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("it does not answer within {} seconds", patience.as_secs()))
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

//! Redirect of plain HTTP on the HTTPS port.

use std::io::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest request that gets a redirect, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// True if the first byte is a letter, as in every HTTP request. A TLS handshake starts with the byte 22.
pub(crate) async fn is_plain(stream: &TcpStream) -> Result<bool> {
    // Peeked, not read: a TLS handshake must still find its first byte.
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0].is_ascii_alphabetic())
}

/// Answers the request and closes the connection. Redirects only to a host for which `is_ours` is true.
pub(crate) async fn answer(mut stream: TcpStream, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    // Only the header is needed, and only up to the limit.
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    stream.write_all(response(&request, is_ours).as_bytes()).await?;
    stream.shutdown().await
}

/// Redirect to the same place over HTTPS, or an explanation if the request names no valid place.
fn response(request: &[u8], is_ours: impl Fn(&str) -> bool) -> String {
    const SENTENCE: &str = "This port speaks HTTPS: write https:// before the address.\n";
    let (status, location) = match place(request, is_ours) {
        Some(place) => ("308 Permanent Redirect", format!("Location: {place}\r\n")),
        None => ("400 Bad Request", String::new()),
    };
    let length = SENTENCE.len();
    format!(
        "HTTP/1.1 {status}\r\n{location}Content-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{SENTENCE}"
    )
}

fn place(request: &[u8], is_ours: impl Fn(&str) -> bool) -> Option<String> {
    // The request line and the `Host` header are all that a redirect needs.
    let text = std::str::from_utf8(request).ok()?;
    let mut lines = text.split("\r\n");
    let target = lines.next()?.split(' ').nth(1)?;
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then_some(value.trim())
    })?;
    // Only harmless characters are echoed into the `Location` header: no line breaks, no credentials.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    let whole = host.chars().all(plain) && is_ours(host);
    let sane = target.starts_with('/') && target.chars().all(|c| c.is_ascii_graphic());
    (whole && sane).then(|| format!("https://{host}{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_request_is_sent_to_the_same_place_and_nowhere_else() {
        let response = |request: &[u8]| response(request, |host| host.starts_with("array1"));
        let there = response(b"GET /pools?x=1 HTTP/1.1\r\nHost: array1:8443\r\n\r\n");
        assert!(there.contains("308") && there.contains("Location: https://array1:8443/pools?x=1\r\n"), "{there}");
        for hostile in [
            &b"GET http://evil/ HTTP/1.1\r\nHost: array1\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: array1/x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: array1@evil\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET /\nLocation: x HTTP/1.1\r\nHost: array1\r\n\r\n",
            b"\xff\xfe\r\n\r\n",
            b"",
        ] {
            let said = response(hostile);
            assert!(said.starts_with("HTTP/1.1 400") && !said.contains("Location"), "{said}");
        }
    }
}

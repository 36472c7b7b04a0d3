//! SMTP client: delivers one mail to a server.
//!
//! *Source*: RFC 5321, RFC 3207 (STARTTLS), RFC 4954 and RFC 4616 (AUTH PLAIN), RFC 8314 (implicit TLS).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::MailTls;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use trust::{Connection, Trust};
use zeroize::Zeroizing;

use crate::receiver::split;

/// Timeout of each step of the dialogue.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limits of a reply: bytes of a line, and lines.
const LINE_BYTES_MAX: usize = 4096;
const LINES_MAX: usize = 100;

/// Mail server.
pub(crate) struct Server<'a> {
    /// Host and port.
    pub server: &'a str,
    pub tls: MailTls,
    pub trust: &'a Trust,
    /// User and password.
    pub login: Option<(&'a str, &'a [u8])>,
}

/// Delivers the mail to all of `to` and returns the server's reply.
///
/// *Shape*: `mail` has CRLF line endings. *Errors*: the reason as text.
pub(crate) async fn send(server: &Server<'_>, from: &str, to: &[String], mail: &str) -> Result<String, String> {
    let (host, port) = split(server.server).map_err(|refusal| refusal.to_string())?;
    // Implicit TLS encrypts from the first byte; STARTTLS begins in the clear.
    let at_once = (server.tls == MailTls::Implicit).then_some(server.trust);
    let line = trust::connect(&host, port, at_once, PATIENCE).await;
    let line = line.map_err(|error| format!("it cannot be reached: {error}"))?;
    let mut talk = SmtpConnection { line, rest: Vec::new() };
    // 220: service ready (RFC 5321 §4.2.3).
    talk.expect(220).await?;
    let mut offers = talk.greet(from).await?;
    if server.tls == MailTls::Starttls {
        // Never falls back to the clear: an attacker could remove the offer.
        if !offers.iter().any(|offer| offer.eq_ignore_ascii_case("STARTTLS")) {
            return Err("it does not offer STARTTLS; nothing was sent unencrypted".to_owned());
        }
        talk.ask("STARTTLS", 220).await?;
        // Bytes before the handshake may have been injected by an attacker (command injection).
        if !talk.rest.is_empty() {
            return Err("it sent unexpected data before TLS".to_owned());
        }
        let line = trust::secure(talk.line, &host, server.trust, PATIENCE).await;
        talk = SmtpConnection { line: line.map_err(|error| format!("TLS: {error}"))?, rest: Vec::new() };
        // The capabilities before TLS are not trusted; they are requested again (RFC 3207 §4.2).
        offers = talk.greet(from).await?;
    }
    if let Some((user, password)) = server.login {
        talk.log_in(&offers, user, password).await?;
    }
    talk.ask(&format!("MAIL FROM:<{from}>"), 250).await?;
    for to in to {
        talk.ask(&format!("RCPT TO:<{to}>"), 250).await?;
    }
    talk.ask("DATA", 354).await?;
    talk.say(&stuffed(mail)).await?;
    let said = talk.expect(250).await?;
    // The mail is accepted; the end of the connection does not matter.
    let _ = talk.say("QUIT\r\n").await;
    Ok(said.join(" "))
}

struct SmtpConnection {
    line: Connection,
    /// Bytes received and not yet parsed.
    rest: Vec<u8>,
}

impl SmtpConnection {
    /// Sends EHLO and returns the capabilities of the server.
    async fn greet(&mut self, from: &str) -> Result<Vec<String>, String> {
        let domain = from.rsplit_once('@').map_or("localhost", |(_, domain)| domain);
        let said = self.ask(&format!("EHLO {domain}"), 250).await?;
        Ok(said.iter().skip(1).map(|line| line.get(4..).unwrap_or_default().trim().to_owned()).collect())
    }

    async fn log_in(&mut self, offers: &[String], user: &str, password: &[u8]) -> Result<(), String> {
        let ways = offers
            .iter()
            .find_map(|offer| offer.get(..5).filter(|word| word.eq_ignore_ascii_case("AUTH ")).map(|_| &offer[5..]));
        let has = |way: &str| ways.is_some_and(|ways| ways.split_whitespace().any(|it| it.eq_ignore_ascii_case(way)));
        let encoded = |bytes: &[u8]| Zeroizing::new(BASE64.encode(bytes));
        if has("PLAIN") {
            // AUTH PLAIN: empty authorization identity, user and password, separated by zeros (RFC 4616).
            let whole = Zeroizing::new([b"\0", user.as_bytes(), b"\0", password].concat());
            let asked = Zeroizing::new(format!("AUTH PLAIN {}", *encoded(&whole)));
            self.ask(&asked, 235).await.map(drop)
        } else if has("LOGIN") {
            self.ask("AUTH LOGIN", 334).await?;
            self.ask(&encoded(user.as_bytes()), 334).await?;
            self.ask(&encoded(password), 235).await.map(drop)
        } else {
            Err("it offers no supported login method (PLAIN, LOGIN)".to_owned())
        }
    }

    async fn ask(&mut self, asked: &str, wanted: u16) -> Result<Vec<String>, String> {
        // An address or a name with a line break would be a command of its own.
        if asked.contains(['\r', '\n']) {
            return Err("the command contains a line break".to_owned());
        }
        self.say(&Zeroizing::new(format!("{asked}\r\n"))).await?;
        self.expect(wanted).await
    }

    async fn say(&mut self, text: &str) -> Result<(), String> {
        let said = async {
            self.line.write_all(text.as_bytes()).await?;
            self.line.flush().await
        };
        let said = timeout(PATIENCE, said).await.map_err(|_| silent())?;
        said.map_err(|error| format!("connection lost: {error}"))
    }

    /// Reads a reply and checks its code.
    async fn expect(&mut self, wanted: u16) -> Result<Vec<String>, String> {
        let mut lines: Vec<String> = Vec::new();
        loop {
            let line = timeout(PATIENCE, self.read_line()).await.map_err(|_| silent())??;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            // A hyphen after the code means that more lines follow (RFC 5321 §4.2.1).
            let is_last = line.get(3..4).is_none_or(|it| it != "-");
            lines.push(line);
            match code {
                Some(code) if is_last && code == wanted => return Ok(lines),
                Some(_) if is_last => return Err(format!("it responded {}", lines.join(" "))),
                Some(_) if lines.len() < LINES_MAX => {}
                _ => return Err("it does not speak SMTP".to_owned()),
            }
        }
    }

    async fn read_line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            // Bounded: a faulty server must not exhaust the memory.
            if self.rest.len() > LINE_BYTES_MAX {
                return Err("it does not speak SMTP".to_owned());
            }
            let mut bytes = [0; 1024];
            let read = self.line.read(&mut bytes).await.map_err(|error| format!("connection lost: {error}"))?;
            if read == 0 {
                return Err("it has closed the connection".to_owned());
            }
            self.rest.extend_from_slice(&bytes[..read]);
        }
    }
}

/// Returns the mail with dot-stuffing and the final dot. *Source*: RFC 5321 §4.5.2.
fn stuffed(mail: &str) -> String {
    let mut text = String::with_capacity(mail.len() + 16);
    for line in mail.split_terminator("\r\n") {
        // Dot stuffing (RFC 5321 §4.5.2).
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str(".\r\n");
    text
}

fn silent() -> String {
    format!("it did not respond within {} seconds", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_dot_does_not_end_the_mail() {
        assert_eq!(stuffed("a\r\n.\r\n.b\r\n"), "a\r\n..\r\n..b\r\n.\r\n");
    }
}

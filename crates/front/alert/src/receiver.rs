//! Settings of a receiver, as stored, and their validation.

use crate::book::{DeliveryStatus, Due};
use crate::request::SetReceiver;
use control::config::ReceiverEntry;
use control::from_hex;
use control::request::SecretText;
use hyper::Uri;
use model::{
    EventSeverity, MailTls, Name, ReceiverReport, ReceiverTrust, ReceiverWay, Refusal, Secret, Span, WebhookForm, code,
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use trust::Trust;

/// Default gathering time.
pub(crate) const GATHER: Span = Span::from_millis(10_000);
/// Default reminder interval.
pub(crate) const REMIND: Span = Span::from_millis(24 * 3_600_000);
/// Default minimum severity.
pub(crate) const LEAST: EventSeverity = EventSeverity::Warning;
/// Limit on the gathering time; more is assumed to be a mistake.
const GATHER_MAX: Span = Span::from_millis(3_600_000);
/// Minimum of the reminder interval.
const REMIND_MIN: Span = Span::from_millis(60_000);
/// Limit on recipients of one mail.
const TO_MAX: usize = 50;
/// Limit on the length of addresses, URLs and user names in bytes.
const TEXT_MAX: usize = 2048;

/// Receiver as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receiver {
    #[serde(alias = "way")]
    pub delivery: ReceiverWay,
    pub trust: ReceiverTrust,
    #[serde(alias = "least")]
    pub min_severity: EventSeverity,
    pub gather: Span,
    pub remind: Span,
    /// Password for the mail server, or key for the signature of webhook requests.
    #[serde(alias = "proof")]
    pub credential: Option<DeliveryCredential>,
}

/// Password, or key for the signature of messages. The control plane encrypts fields named `secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryCredential {
    #[serde(with = "control::secret_hex")]
    secret: Secret,
}

impl DeliveryCredential {
    /// Bytes of the credential.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.expose()
    }
}

impl Receiver {
    /// Creates a receiver.
    ///
    /// *Errors*: it has neither a mail server nor a webhook, or both; or its settings are invalid.
    pub(crate) fn new(name: &Name, how: SetReceiver, node: &str) -> Result<Self, Refusal> {
        let is_mail = how.to.is_some() || how.smtp.is_some();
        let way = match (&how.smtp, &how.url) {
            // Placeholders, which `changed` sets and checks below.
            (Some(_), None) => ReceiverWay::Mail {
                to: Vec::new(),
                from: usual_sender(node),
                smtp: String::new(),
                tls: MailTls::default(),
                user: None,
            },
            (None, Some(_)) => ReceiverWay::Webhook { url: String::new(), format: WebhookForm::default() },
            (None, None) if is_mail => {
                let message = format!("receiver {name} has no mail server");
                let hint = "give the mail server: --smtp HOST, or smtp in a document";
                return Err(Refusal::new(code::VALUE_MISSING, message, hint));
            }
            (None, None) => {
                let message = format!("receiver {name} has neither a mail address nor a webhook");
                return Err(Refusal::new(code::VALUE_MISSING, message, "give --mail with --smtp, or --webhook"));
            }
            (Some(_), Some(_)) => {
                let message = format!("receiver {name} has both a mail server and a webhook");
                return Err(Refusal::new(code::OPTIONS_CONFLICT, message, "create one receiver for each"));
            }
        };
        let (trust, least) = (ReceiverTrust::System, LEAST);
        Self { delivery: way, trust, min_severity: least, gather: GATHER, remind: REMIND, credential: None }
            .changed(how)
    }

    /// Creates a receiver from a document. Omitted settings get their defaults, except for the secret, which is kept.
    ///
    /// *Errors*: invalid settings, or a required secret is missing.
    pub(crate) fn of_entry(
        name: &Name,
        entry: &ReceiverEntry,
        known: Option<&Self>,
        node: &str,
    ) -> Result<Self, Refusal> {
        let is_mail = entry.smtp.is_some() || !entry.to.is_empty() || entry.user.is_some() || entry.tls.is_some();
        let entry = entry.clone();
        // In a document an absent value means the default, so every option is set.
        let how = SetReceiver {
            to: is_mail.then_some(entry.to),
            from: entry.from.or_else(|| is_mail.then(|| usual_sender(node))),
            smtp: entry.smtp,
            tls: is_mail.then(|| entry.tls.unwrap_or_default()),
            // An empty user removes the one that is stored.
            user: entry.user.or_else(|| is_mail.then(String::new)),
            password: entry.password,
            format: entry.format.or_else(|| entry.url.is_some().then(WebhookForm::default)),
            url: entry.url,
            secret: entry.secret,
            ca_file: entry.ca_file.or_else(|| entry.pin.is_none().then(String::new)),
            pin: entry.pin,
            min_severity: Some(entry.min_severity.unwrap_or(LEAST)),
            gather: Some(entry.gather.unwrap_or(GATHER)),
            remind: Some(entry.remind.unwrap_or(REMIND)),
        };
        // A receiver that changes between mail and webhook is a new one.
        let same_way = |known: &&Self| matches!(known.delivery, ReceiverWay::Mail { .. }) == how.smtp.is_some();
        // With both or neither of them given, `new` names the mistake.
        let receiver = match known.filter(same_way).filter(|_| how.smtp.is_some() != how.url.is_some()) {
            None => Self::new(name, how, node)?,
            Some(known) => {
                let mut known = known.clone();
                // Without a user a stored password has no meaning.
                if is_mail && how.user.as_ref().is_some_and(String::is_empty) {
                    known.credential = None;
                }
                known.changed(how)?
            }
        };
        if entry.signed && receiver.credential.is_none() {
            let message = "its messages are signed, but no signing secret is stored here";
            return Err(Refusal::new(code::VALUE_MISSING, message, "give secret or secret_file, or remove signed"));
        }
        Ok(receiver)
    }

    /// Returns the receiver with the changes applied.
    ///
    /// *Errors*: invalid settings.
    pub(crate) fn changed(mut self, change: SetReceiver) -> Result<Self, Refusal> {
        let before = self.destination();
        let SetReceiver { to, from, smtp, tls, user, password, url, format, secret, .. } = change;
        let SetReceiver { ca_file, pin, min_severity, gather, remind, .. } = change;
        let credential = match &mut self.delivery {
            ReceiverWay::Mail { to: old_to, from: old_from, smtp: old_smtp, tls: old_tls, user: old_user } => {
                if url.is_some() || format.is_some() || secret.is_some() {
                    return Err(Refusal::new(
                        code::OPTIONS_CONFLICT,
                        "a mail receiver has no URL, format or secret",
                        "omit them",
                    ));
                }
                set(old_to, to);
                set(old_from, from);
                set(old_tls, tls);
                // After the TLS mode, on which the default port depends.
                if let Some(smtp) = smtp {
                    *old_smtp = server(&smtp, *old_tls)?;
                }
                if user.is_some() {
                    *old_user = user.filter(|user| !user.is_empty());
                }
                password.map(|password| password_of(password).map(|secret| DeliveryCredential { secret }))
            }
            ReceiverWay::Webhook { url: old_url, format: old_format } => {
                let of_mail = to.is_some() || from.is_some() || smtp.is_some() || tls.is_some();
                if of_mail || user.is_some() || password.is_some() {
                    return Err(Refusal::new(
                        code::OPTIONS_CONFLICT,
                        "a webhook receiver has no mail settings",
                        "omit them",
                    ));
                }
                set(old_url, url);
                set(old_format, format);
                secret.map(|secret| secret.secret().map(|secret| DeliveryCredential { secret }))
            }
        };
        // A stored credential must not be used for a server that it was not given for.
        if before != self.destination() && self.credential.is_some() && credential.is_none() {
            let message = "the server has changed, and the stored credentials would be sent to another server";
            return Err(Refusal::new(code::VALUE_MISSING, message, "give its password or secret again"));
        }
        self.credential = credential.transpose()?.or(self.credential);
        self.trust = match (pin, ca_file) {
            (Some(_), Some(path)) if !path.is_empty() => {
                return Err(Refusal::new(
                    code::OPTIONS_CONFLICT,
                    "a pinned key and a CA file exclude each other",
                    "give one of the two",
                ));
            }
            (Some(pin), _) => ReceiverTrust::Pin { pin },
            // An empty path selects the authorities of the system.
            (None, Some(path)) if path.is_empty() => ReceiverTrust::System,
            (None, Some(path)) => ReceiverTrust::CaFile { path },
            (None, None) => self.trust,
        };
        set(&mut self.min_severity, min_severity);
        set(&mut self.gather, gather);
        set(&mut self.remind, remind);
        // As a whole, because rules concern several settings together.
        self.admit()?;
        Ok(self)
    }

    /// Server that the credential is meant for.
    fn destination(&self) -> String {
        match &self.delivery {
            ReceiverWay::Mail { smtp, .. } => smtp.clone(),
            ReceiverWay::Webhook { url, .. } => {
                url.parse::<Uri>().ok().and_then(|url| url.authority().map(ToString::to_string)).unwrap_or_default()
            }
        }
    }

    fn admit(&self) -> Result<(), Refusal> {
        if self.gather > GATHER_MAX {
            return Err(Refusal::new(
                code::NUMBER_INVALID,
                format!("a gather time of {} is too long", self.gather),
                "use at most 1h",
            ));
        }
        if self.remind > Span::from_millis(0) && self.remind < REMIND_MIN {
            return Err(Refusal::new(
                code::NUMBER_INVALID,
                format!("a repeat interval of {} is too short", self.remind),
                "write 1min or more, or 0s for never",
            ));
        }
        match &self.delivery {
            ReceiverWay::Mail { to, from, smtp, tls, user } => {
                if to.is_empty() || to.len() > TO_MAX {
                    return Err(Refusal::new(
                        code::NUMBER_INVALID,
                        "the number of mail recipients is out of range",
                        format!("give 1 to {TO_MAX} addresses"),
                    ));
                }
                to.iter().chain([from]).try_for_each(|address| admit_address(address))?;
                if user.is_some() != self.credential.is_some() {
                    return Err(Refusal::new(
                        code::VALUE_MISSING,
                        "user and password must be given together",
                        "give both, or neither",
                    ));
                }
                let (host, _) = split(smtp)?;
                // Without TLS a password is sent only within this machine.
                if *tls == MailTls::None && user.is_some() && !is_here(&host) {
                    let message = "a password is not sent without TLS";
                    return Err(Refusal::new(code::OPTIONS_CONFLICT, message, "use --tls starttls or --tls implicit"));
                }
                // In AUTH PLAIN a zero would end the name (RFC 4616 §2).
                if user.as_ref().is_some_and(|user| user.len() > TEXT_MAX || user.contains('\0')) {
                    return Err(Refusal::new(code::WORD_UNKNOWN, "the mail user is invalid", "write only the name"));
                }
            }
            ReceiverWay::Webhook { url, .. } => drop(parts(url)?),
        }
        // An unusable pin or file of authorities is reported now, and not with the first alert.
        if self.trust != ReceiverTrust::System {
            self.trust().client()?;
        }
        Ok(())
    }

    /// Trust settings of the connection.
    pub(crate) fn trust(&self) -> Trust {
        match &self.trust {
            ReceiverTrust::System => Trust::System,
            ReceiverTrust::CaFile { path } => Trust::Authority(PathBuf::from(path)),
            ReceiverTrust::Pin { pin } => Trust::Pin(pin.clone()),
        }
    }

    /// Notification settings.
    pub(crate) fn due<'a>(&self, receiver: &'a Name) -> Due<'a> {
        Due { receiver, least: self.min_severity, gather: self.gather.seconds(), remind: self.remind.seconds() }
    }

    /// Report without the credential.
    pub(crate) fn report(&self, name: &Name, fare: &DeliveryStatus) -> ReceiverReport {
        let Self { delivery: way, trust, min_severity: least, gather, remind, credential: proof } = self.clone();
        let DeliveryStatus { succeeded, failed, why, is_away } = fare.clone();
        let (name, has_secret) = (name.clone(), proof.is_some());
        ReceiverReport {
            name,
            delivery: way,
            trust,
            min_severity: least,
            gather,
            remind,
            has_secret,
            last_success: succeeded,
            last_failure: failed,
            error: why,
            is_failing: is_away,
        }
    }
}

/// Default sender address.
pub(crate) fn usual_sender(node: &str) -> String {
    format!("blockyard@{node}")
}

fn set<T>(old: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *old = new;
    }
}

/// Checks the length only: the mail server's operator chose the password.
fn password_of(text: SecretText) -> Result<Secret, Refusal> {
    let bytes = match text {
        SecretText::Text(text) => Some(text.into_bytes()),
        SecretText::Hex { hex } => from_hex(&hex),
    };
    let bytes = bytes.filter(|bytes| !bytes.is_empty() && bytes.len() <= 255 && !bytes.contains(&0));
    bytes.map(Secret::of).ok_or_else(|| {
        Refusal::new(code::SECRET_INVALID, "the mail password is invalid", "give 1 to 255 bytes without zeros")
    })
}

/// Adds the default port to a mail server without one.
fn server(text: &str, tls: MailTls) -> Result<String, Refusal> {
    let usual = match tls {
        MailTls::Starttls => 587,
        MailTls::Implicit => 465,
        MailTls::None => 25,
    };
    let has_port = split(text).is_ok();
    let whole = match text.parse::<IpAddr>() {
        // A bare IPv6 address needs brackets before a port.
        Ok(IpAddr::V6(address)) => format!("[{address}]:{usual}"),
        _ if has_port => text.to_owned(),
        _ => format!("{text}:{usual}"),
    };
    split(&whole).map(|_| whole)
}

/// Splits a server address into host and port.
///
/// *Errors*: it is not a server address.
pub(crate) fn split(server: &str) -> Result<(String, u16), Refusal> {
    // User information (`user@host`) has no meaning here, and is refused.
    let parsed = server.parse::<hyper::http::uri::Authority>().ok().filter(|it| !it.as_str().contains('@'));
    let found = parsed.and_then(|it| Some((it.host().trim_matches(['[', ']']).to_owned(), it.port_u16()?)));
    found.filter(|(host, port)| !host.is_empty() && *port > 0 && server.len() <= 255).ok_or_else(|| {
        let message = format!("\"{}\" is not the address of a server", server.escape_debug());
        Refusal::new(code::ADDRESS_INVALID, message, "write mail.example.com:587, 10.0.0.5:25 or [fd00::5]:25")
    })
}

/// Location of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct WebhookAddress {
    pub is_tls: bool,
    pub host: String,
    pub port: u16,
    /// Host and port as written in the URL.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// Parses the URL of a webhook.
///
/// *Errors*: it is not a URL, or uses HTTP without TLS to another machine.
pub(crate) fn parts(url: &str) -> Result<WebhookAddress, Refusal> {
    let wrong = |hint: &str| {
        let message = format!("\"{}\" is not a webhook URL", url.escape_debug());
        Refusal::new(code::ADDRESS_INVALID, message, hint)
    };
    let usual = "write https://host/path";
    let parsed: Uri = url.parse().ok().filter(|_| url.len() <= TEXT_MAX).ok_or_else(|| wrong(usual))?;
    let authority = parsed.authority().filter(|it| !it.as_str().contains('@')).ok_or_else(|| wrong(usual))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let is_tls = match parsed.scheme_str() {
        Some("https") => true,
        // Unencrypted only within this machine.
        Some("http") if is_here(&host) => false,
        Some("http") => return Err(wrong("write https://…: unencrypted webhooks are allowed only to this machine")),
        _ => return Err(wrong(usual)),
    };
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let path = parsed.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Ok(WebhookAddress { is_tls, host, port, authority: authority.to_string(), path })
}

/// True for a loopback address or name.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn admit_address(address: &str) -> Result<(), Refusal> {
    // Characters that need quoting, or that could start another header or command.
    let odd = |c: char| c.is_whitespace() || c.is_control() || "<>\"(),:;\\[]".contains(c);
    let sound = address.rsplit_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.is_empty() && !local.contains('@') && address.is_ascii() && !address.contains(odd)
    });
    if sound && address.len() <= 254 {
        return Ok(());
    }
    let message = format!("\"{}\" is not a mail address", address.escape_debug());
    Err(Refusal::new(code::ADDRESS_INVALID, message, "write storage-team@example.com"))
}

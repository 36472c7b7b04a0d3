//! Arguments of `blockyard alert …`.

use super::ListOptions;
use clap::{Args, Subcommand};
use model::{EventSeverity, MailTls, Name, Span, WebhookForm};
use std::path::PathBuf;

/// Actions on alerts and on alert receivers.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List active alerts, the most severe first
    #[command(after_help = "Example:\n  blockyard alert active")]
    Active(ListOptions),
    /// List alert receivers with the last successful and the last failed delivery
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard alert list")]
    List(ListOptions),
    /// Add an alert receiver: mail or webhook
    #[command(
        group(clap::ArgGroup::new("what").multiple(true)),
        group(clap::ArgGroup::new("way").required(true).args(["mail", "webhook"])),
        after_help = "The SMTP password is read from a file or from $BLOCKYARD_SMTP_PASSWORD, the webhook signing \
             secret from a file or from
$BLOCKYARD_WEBHOOK_SECRET. Alerts that are already active are sent too.

Example:
  blockyard alert add ops --mail storage@example.com --smtp mail.example.com --user array1 --password-file smtp.password
  blockyard alert add chat --webhook https://hooks.example.com/T1/B2 --form slack --least critical
  blockyard alert add desk --webhook https://desk.example.com/blockyard --secret-file webhook.secret"
    )]
    Add {
        /// Name of the receiver
        name: Name,
        #[command(flatten)]
        how: ReceiverOptions,
    },
    /// Change an alert receiver; options that are not given keep their values
    #[command(
        group(clap::ArgGroup::new("what").required(true).multiple(true)),
        after_help = "Example:
  blockyard alert set ops --least critical
  blockyard alert set ops --mail storage@example.com --mail night@example.com"
    )]
    Set {
        /// Name of the receiver
        name: Name,
        #[command(flatten)]
        how: ReceiverOptions,
    },
    /// Send a test message to an alert receiver now, and print the response of its server
    #[command(after_help = "Example:\n  blockyard alert test ops")]
    Test {
        /// Name of the receiver
        name: Name,
    },
    /// Remove an alert receiver
    #[command(visible_alias = "rm", after_help = "Example:\n  blockyard alert remove chat")]
    Remove {
        /// Name of the receiver
        name: Name,
    },
    /// Silence an alert for a limited time: send no messages about it
    #[command(
        group(clap::ArgGroup::new("until").required(true).args(["lasts", "off"])),
        after_help = "The alert stays in blockyard alert active. A notification is sent if it is still active when \
             the silence ends.

Example:
  blockyard alert silence pool tank --for 2h
  blockyard alert silence BY-E404 --for 30min
  blockyard alert silence pool tank --off"
    )]
    Silence {
        /// Code such as BY-E302, or object such as pool tank
        #[arg(required = true)]
        what: Vec<String>,
        /// Duration of the silence
        #[arg(long = "for", value_name = "SPAN")]
        lasts: Option<Span>,
        /// End the silence
        #[arg(long)]
        off: bool,
    },
    /// Acknowledge an alert that does not end by itself
    #[command(
        visible_alias = "ack",
        after_help = "Needed for alerts that do not clear by themselves, such as lost blocks. The audit log records \
             who acknowledged.

Example:
  blockyard alert acknowledge 12"
    )]
    Acknowledge {
        /// Number of the alert, as listed by blockyard alert active
        number: u64,
    },
    /// List silenced alerts
    #[command(after_help = "Example:\n  blockyard alert silenced")]
    Silenced(ListOptions),
}

/// Settings of an alert receiver.
#[derive(Args, Debug)]
pub(crate) struct ReceiverOptions {
    /// Set a mail address of the receiver; may be repeated
    #[arg(long, value_name = "ADDRESS", group = "what")]
    pub mail: Vec<String>,
    /// Set the mail server (SMTP) [port: 587, with --tls implicit 465, with --tls none 25]
    #[arg(long, value_name = "HOST[:PORT]", group = "what")]
    pub smtp: Option<String>,
    /// Set the sender's address [default: blockyard@NODE]
    #[arg(long, value_name = "ADDRESS", group = "what")]
    pub from: Option<String>,
    /// Set the TLS mode of the connection to the mail server: starttls, implicit or none [default: starttls]
    #[arg(long, value_name = "HOW", group = "what")]
    pub tls: Option<MailTls>,
    /// Set the user name for the login to the mail server
    #[arg(long, value_name = "USER", group = "what")]
    pub user: Option<String>,
    /// File with nothing but the password of that user, or - for standard input
    #[arg(long, value_name = "FILE", group = "what")]
    pub password_file: Option<PathBuf>,
    /// Set the URL that HTTP requests are sent to: https://…
    #[arg(long, value_name = "URL", group = "what")]
    pub webhook: Option<String>,
    /// Set the format of the request body: generic, slack or ntfy [default: generic]
    #[arg(long, value_name = "FORM", group = "what")]
    pub form: Option<WebhookForm>,
    /// File with the secret that requests are signed with, or - for standard input
    #[arg(long, value_name = "FILE", group = "what")]
    pub secret_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file of the node, instead of the system's
    #[arg(long, value_name = "FILE", group = "what", conflicts_with = "server_pin")]
    pub server_ca_file: Option<PathBuf>,
    /// Trust only this key of the server, whoever signed its certificate: sha256: and 64 hexadecimal digits
    #[arg(long, value_name = "PIN", group = "what")]
    pub server_pin: Option<String>,
    /// Set the lowest severity that is sent: info, warning or critical [default: warning]
    #[arg(long, value_name = "SEVERITY", group = "what")]
    pub least: Option<EventSeverity>,
    /// Set the time for which alerts are collected into one message [default: 10s]
    #[arg(long, value_name = "SPAN", group = "what")]
    pub gather: Option<Span>,
    /// Set the interval of reminders while an alert is active; 0s sends none [default: 1d]
    #[arg(long, value_name = "SPAN", group = "what")]
    pub remind: Option<Span>,
}

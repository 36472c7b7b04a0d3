//! `blockyard alert …`

use super::ListOptions;
use clap::{Args, Subcommand};
use model::{EventSeverity, MailTls, Name, Span, WebhookForm};
use std::path::PathBuf;

/// What can be done about alerts.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List what is wrong now, the worst first
    #[command(after_help = "Example:\n  blockyard alert active")]
    Active(ListOptions),
    /// List who is told, and when that went well or failed last
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard alert list")]
    List(ListOptions),
    /// Tell somebody more, by mail or by an HTTP request
    #[command(
        group(clap::ArgGroup::new("what").multiple(true)),
        group(clap::ArgGroup::new("way").required(true).args(["mail", "webhook"])),
        after_help = "A password comes from a file or from $BLOCKYARD_SMTP_PASSWORD, what messages are signed with from a file or from
$BLOCKYARD_WEBHOOK_SECRET. What is wrong now is told, too.

Example:
  blockyard alert add ops --mail storage@example.com --smtp mail.example.com --user array1 --password-file smtp.password
  blockyard alert add chat --webhook https://hooks.example.com/T1/B2 --form slack --least critical
  blockyard alert add desk --webhook https://desk.example.com/blockyard --secret-file webhook.secret"
    )]
    Add {
        /// What to call it
        name: Name,
        #[command(flatten)]
        how: ReceiverOptions,
    },
    /// Change how somebody is told; what is not named stays as it was
    #[command(
        group(clap::ArgGroup::new("what").required(true).multiple(true)),
        after_help = "Example:
  blockyard alert set ops --least critical
  blockyard alert set ops --mail storage@example.com --mail night@example.com"
    )]
    Set {
        /// Which receiver
        name: Name,
        #[command(flatten)]
        how: ReceiverOptions,
    },
    /// Tell somebody now, for a test, and print what the other side says
    #[command(after_help = "Example:\n  blockyard alert test ops")]
    Test {
        /// Which receiver
        name: Name,
    },
    /// Tell somebody no more
    #[command(visible_alias = "rm", after_help = "Example:\n  blockyard alert remove chat")]
    Remove {
        /// Which receiver
        name: Name,
    },
    /// Tell nobody of something for a while
    #[command(
        group(clap::ArgGroup::new("until").required(true).args(["lasts", "off"])),
        after_help = "It goes on standing in blockyard alert active, and is told when it is still so then.

Example:
  blockyard alert silence pool tank --for 2h
  blockyard alert silence BY-E404 --for 30min
  blockyard alert silence pool tank --off"
    )]
    Silence {
        /// A code such as BY-E302, or a subject such as pool tank
        #[arg(required = true)]
        what: Vec<String>,
        /// For how long
        #[arg(long = "for", value_name = "SPAN")]
        lasts: Option<Span>,
        /// Tell people again
        #[arg(long)]
        off: bool,
    },
    /// Take note of an alert that nothing else ends
    #[command(
        visible_alias = "ack",
        after_help = "What has happened and is over, and what only you can judge, such as blocks that are lost. The audit says who has.

Example:
  blockyard alert acknowledge 12"
    )]
    Acknowledge {
        /// The number of the alert, as blockyard alert active has it
        number: u64,
    },
    /// List what nobody is told of for a while
    #[command(after_help = "Example:\n  blockyard alert silenced")]
    Silenced(ListOptions),
}

/// How somebody is told.
#[derive(Args, Debug)]
pub(crate) struct ReceiverOptions {
    /// An address that mail goes to; may be repeated
    #[arg(long, value_name = "ADDRESS", group = "what")]
    pub mail: Vec<String>,
    /// The server that takes the mail [port: 587, with --tls implicit 465, with --tls none 25]
    #[arg(long, value_name = "HOST[:PORT]", group = "what")]
    pub smtp: Option<String>,
    /// The address that mail is from [default: blockyard@NODE]
    #[arg(long, value_name = "ADDRESS", group = "what")]
    pub from: Option<String>,
    /// How the connection to the server is kept from others: starttls, implicit or none [default: starttls]
    #[arg(long, value_name = "HOW", group = "what")]
    pub tls: Option<MailTls>,
    /// As whom to log in to the server
    #[arg(long, value_name = "USER", group = "what")]
    pub user: Option<String>,
    /// A file that holds that user's password alone, or - for standard input
    #[arg(long, value_name = "FILE", group = "what")]
    pub password_file: Option<PathBuf>,
    /// Where an HTTP request goes: https://…
    #[arg(long, value_name = "URL", group = "what")]
    pub webhook: Option<String>,
    /// What the request holds: generic, slack or ntfy [default: generic]
    #[arg(long, value_name = "FORM", group = "what")]
    pub form: Option<WebhookForm>,
    /// A file that holds what requests are signed with, or - for standard input
    #[arg(long, value_name = "FILE", group = "what")]
    pub secret_file: Option<PathBuf>,
    /// A file of the node with the authorities to believe, instead of the system's
    #[arg(long, value_name = "FILE", group = "what", conflicts_with = "server_pin")]
    pub server_ca_file: Option<PathBuf>,
    /// The key to believe, whatever its certificate says: sha256: and 64 digits
    #[arg(long, value_name = "PIN", group = "what")]
    pub server_pin: Option<String>,
    /// Tell of what is as bad or worse: info, warning or critical [default: warning]
    #[arg(long, value_name = "SEVERITY", group = "what")]
    pub least: Option<EventSeverity>,
    /// For how long what happens together is gathered into one message [default: 10s]
    #[arg(long, value_name = "SPAN", group = "what")]
    pub gather: Option<Span>,
    /// After how long to tell again of what is still so; 0s for never [default: 1d]
    #[arg(long, value_name = "SPAN", group = "what")]
    pub remind: Option<Span>,
}

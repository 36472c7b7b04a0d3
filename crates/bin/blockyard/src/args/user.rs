//! `blockyard user …`, `blockyard token …`, `blockyard audit …`

use super::ListOptions;
use clap::Subcommand;
use model::{Name, Role, Scope, Span};
use std::path::PathBuf;

/// What can be done about those who may log in.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Let somebody log in
    #[command(
        after_help = "Without a password a link is printed, with which the user chooses one: it is good once, and for half an hour.

Example:
  blockyard user add alice --role operator
  blockyard user add bob --role viewer --password-file -"
    )]
    Add {
        /// What to log in as
        name: Name,
        /// What the user may do: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// A file that holds the password alone, or - for standard input [or $BLOCKYARD_PASSWORD]
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List those who may log in
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard user list")]
    List(ListOptions),
    /// Change what a user may do, or how it proves itself
    #[command(
        group(clap::ArgGroup::new("what").required(true).multiple(true)),
        after_help = "The user's logins are over then.

Example:
  blockyard user set alice --role admin
  blockyard user set bob --no-second-factor"
    )]
    Set {
        /// Which user
        name: Name,
        /// What the user may do: viewer, operator or admin
        #[arg(long, value_name = "ROLE", group = "what")]
        role: Option<Role>,
        /// A file that holds the new password alone, or - for standard input
        #[arg(long, value_name = "FILE", group = "what")]
        password_file: Option<PathBuf>,
        /// Let the user log in without a number from an app, until it sets that up anew
        #[arg(long, group = "what")]
        no_second_factor: bool,
    },
    /// List logins that are open
    #[command(after_help = "Example:\n  blockyard user logins")]
    Logins(ListOptions),
    /// End a login
    #[command(after_help = "Example:\n  blockyard user logout 5f1c22a09b7d4e10")]
    Logout {
        /// Which one, as blockyard user logins has it
        id: Name,
    },
    /// Let a user log in no more
    #[command(
        visible_alias = "rm",
        after_help = "Its logins are over, and its tokens good for nothing.\n\nExample:\n  blockyard user remove alice"
    )]
    Remove {
        /// Which user
        name: Name,
    },
}

/// What can be done about what programs prove themselves with.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it this once
    #[command(
        after_help = "A token has the permissions of its role, with two exceptions: to destroy data it needs --scope destroy, and to manage users, passwords,
login links, logins and tokens it needs --scope access. Any other scope is a noun of the API and limits the token to it.

Example:
  blockyard token create backup --role operator --scope snapshots --for 30d
  blockyard token create terraform --role admin --scope destroy > /root/terraform.token"
    )]
    Create {
        /// What to call it
        name: Name,
        /// What it may do: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Scope: destroy, access, or a noun of the API such as volumes; may be repeated [default: all nouns]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<Scope>,
        /// How long it is good [default: 90d]
        #[arg(long = "for", value_name = "SPAN")]
        lasts: Option<Span>,
    },
    /// List tokens
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard token list")]
    List(ListOptions),
    /// Make a token good for nothing
    #[command(visible_alias = "rm", after_help = "Example:\n  blockyard token revoke backup")]
    Revoke {
        /// Which one
        name: Name,
    },
}

/// What can be asked about who has changed what.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List who has changed what, the latest first
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard audit list --search tank --limit 20")]
    List {
        /// Only so many
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,
        /// Only those with a lower number
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
        /// Only those that have this text
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Look whether every record is as it was written
    #[command(after_help = "Exit code 1 when one is not; it is named.\n\nExample:\n  blockyard audit verify")]
    Verify,
    /// Say every record to a syslog server, too, as it is written
    #[command(
        after_help = "All records that are kept are said, in order and at least once; what could not be said is said later.

Example:
  blockyard audit forward syslog+tls://logs.example.com
  blockyard audit forward show
  blockyard audit forward off"
    )]
    Forward {
        /// Where to, such as syslog+tls://host:6514; off for nowhere, show for how it is
        to: String,
        /// A file of the node with the authorities to believe, instead of the system's
        #[arg(long, value_name = "FILE", conflicts_with = "server_pin")]
        server_ca_file: Option<PathBuf>,
        /// The key to believe, whatever its certificate says: sha256: and 64 digits
        #[arg(long, value_name = "PIN")]
        server_pin: Option<String>,
    },
    /// Write all records to a new file, as they are kept: a line of JSON each
    #[command(after_help = "With - they go to standard output.\n\nExample:\n  blockyard audit export --to audit.jsonl")]
    Export {
        /// The file; it must not be there
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

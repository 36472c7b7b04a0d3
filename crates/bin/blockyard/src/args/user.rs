//! Arguments of `blockyard user …`, `blockyard token …` and `blockyard audit …`.

use super::ListOptions;
use clap::Subcommand;
use model::{Name, Role, Scope, Span};
use std::path::PathBuf;

/// Actions on users of the console.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user of the console
    #[command(
        after_help = "Without a password a one-time link is printed, with which the user sets one. It expires after \
             30 minutes.

Example:
  blockyard user add alice --role operator
  blockyard user add bob --role viewer --password-file -"
    )]
    Add {
        /// Name that the user logs in with
        name: Name,
        /// Set the role of the user: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// File with nothing but the password, or - for standard input [or $BLOCKYARD_PASSWORD]
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List users
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard user list")]
    List(ListOptions),
    /// Change the role, password or second factor of a user
    #[command(
        group(clap::ArgGroup::new("what").required(true).multiple(true)),
        after_help = "This ends the logins of the user.

Example:
  blockyard user set alice --role admin
  blockyard user set bob --no-second-factor"
    )]
    Set {
        /// Name of the user
        name: Name,
        /// Set the role of the user: viewer, operator or admin
        #[arg(long, value_name = "ROLE", group = "what")]
        role: Option<Role>,
        /// File with nothing but the new password, or - for standard input
        #[arg(long, value_name = "FILE", group = "what")]
        password_file: Option<PathBuf>,
        /// Remove the second factor: the user logs in without a one-time code until it is set up again
        #[arg(long, group = "what")]
        no_second_factor: bool,
    },
    /// List open logins
    #[command(after_help = "Example:\n  blockyard user logins")]
    Logins(ListOptions),
    /// End a login of a user
    #[command(after_help = "Example:\n  blockyard user logout 5f1c22a09b7d4e10")]
    Logout {
        /// Identifier of the login, as listed by blockyard user logins
        id: Name,
    },
    /// Remove a user
    #[command(
        visible_alias = "rm",
        after_help = "Ends its logins and revokes its tokens.\n\nExample:\n  blockyard user remove alice"
    )]
    Remove {
        /// Name of the user
        name: Name,
    },
}

/// Actions on API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it once
    #[command(
        after_help = "A token has the permissions of its role, with two exceptions: to destroy data it needs --scope destroy, and to manage users, passwords,
login links, logins and tokens it needs --scope access. Any other scope is a noun of the API and limits the token to it.

Example:
  blockyard token create backup --role operator --scope snapshots --for 30d
  blockyard token create terraform --role admin --scope destroy > /root/terraform.token"
    )]
    Create {
        /// Name of the token
        name: Name,
        /// Set the role of the token: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Set a scope: destroy, access, or a noun of the API such as volumes; may be repeated [default: all nouns]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<Scope>,
        /// Set the lifetime of the token [default: 90d]
        #[arg(long = "for", value_name = "SPAN")]
        lasts: Option<Span>,
    },
    /// List tokens
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard token list")]
    List(ListOptions),
    /// Revoke a token
    #[command(visible_alias = "rm", after_help = "Example:\n  blockyard token revoke backup")]
    Revoke {
        /// Name of the token
        name: Name,
    },
}

/// Actions on the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List changes with the user or token that made them, latest first
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard audit list --search tank --limit 20")]
    List {
        /// List only the latest N records
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,
        /// List only records with a lower number
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
        /// List only records that contain this text
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Verify the integrity of the audit log
    #[command(after_help = "Exit code 1 if a record was changed; its number is printed.\n\nExample:\n  blockyard \
         audit verify")]
    Verify,
    /// Forward every audit record to a syslog server
    #[command(
        after_help = "All stored records are sent in order, at least once; records that could not be sent are retried.

Example:
  blockyard audit forward syslog+tls://logs.example.com
  blockyard audit forward show
  blockyard audit forward off"
    )]
    Forward {
        /// Address of the server, such as syslog+tls://host:6514; off stops forwarding, show prints the setting
        to: String,
        /// Trust the certificate authorities in this file of the node, instead of the system's
        #[arg(long, value_name = "FILE", conflicts_with = "server_pin")]
        server_ca_file: Option<PathBuf>,
        /// Trust only this key of the server, whoever signed its certificate: sha256: and 64 hexadecimal digits
        #[arg(long, value_name = "PIN")]
        server_pin: Option<String>,
    },
    /// Export all audit records to a new file, one JSON object per line
    #[command(after_help = "With - they are written to standard output.\n\nExample:\n  blockyard audit export \
         --to audit.jsonl")]
    Export {
        /// File to create; it must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

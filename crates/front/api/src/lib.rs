//! Management API of the array: REST on a local socket and over HTTPS, with authentication, roles and an audit log.
//!
//! Every operation is a [row](Row) of the [table](table). A request is authenticated and authorized ([`server`]),
//! routed to its row ([`routes`]), parsed ([`row`]), carried out by `control::Control`, and answered; a refusal becomes
//! a [problem document](Problem). Called by the daemon. Nothing here may know the desired state or how it is reached.

mod audit;
mod conditional;
mod console;
mod document_sections;
mod gate;
mod listed;
mod log;
mod metrics;
mod openapi;
mod peer;
mod people;
mod problem;
pub mod request;
mod routes;
mod row;
mod server;
mod stream;
mod web;

#[cfg(feature = "fuzzing")]
pub use audit::fuzzing;
pub use audit::{AuditBroken, AuditCheck, AuditPage, AuditRecord};
pub use log::{DaemonLog, LastLines};
pub use problem::Problem;
pub use routes::{description, document, marked, router, row_of, table};
pub use row::{BASE, Principal, Row, SCHEMA};
pub use server::{Listening, listen, serve};
pub use web::{Source, WebOptions, is_host_name};

#[cfg(test)]
mod tests;

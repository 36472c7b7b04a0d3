//! The login phase of a connection.

use super::Config;
use super::link::Link;
use crate::receive::{Digests, Head, Limits};
use crate::standin::Grant;
use crate::{LoginStatus, Violation};

/// A login under way.
#[derive(Debug)]
pub(crate) struct LoginPhase {}

impl LoginPhase {
    pub(crate) fn new(_: &Config, _: [u8; 32]) -> Self {
        Self {}
    }
    pub(crate) fn receive_limits() -> Limits {
        Limits { digests: Digests::default(), data_segment_bytes_max: 8192, buffer_bytes_max: 12 << 10, places: false }
    }
    pub(crate) fn grant(&mut self, _: &mut Link, _: Grant) {}
    pub(crate) fn refuse(&mut self, _: &mut Link, _: LoginStatus) {}
    pub(crate) fn handle_pdu(&mut self, _: &mut Link, _: Head<'_>, _: &[u8]) {}
    pub(crate) fn handle_fault(&mut self, _: &mut Link, _: Violation) {}
}

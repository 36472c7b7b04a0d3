//! The login phase of an initiator's connection.

use super::connection::Link;
use super::full_feature::FullFeature;
use crate::receive::{Digests, Head};

/// A login under way.
#[derive(Debug)]
pub(crate) struct LoginPhase {}

impl LoginPhase {
    pub(crate) fn new(_: &mut Link, _: [u8; 32]) -> Self {
        Self {}
    }

    pub(crate) fn handle_pdu(&mut self, _: &mut Link, _: Head<'_>, _: &[u8]) -> Option<(FullFeature, Digests)> {
        None
    }
}

//! Stands in for the login types until the login machines are there.

#![allow(missing_docs)]
use crate::pdu::{Cid, Isid, Tsih};
#[derive(Clone, Debug, Default)]
pub struct TargetConfig {}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionType {
    Discovery,
    Normal,
}
#[derive(Clone, Debug)]
pub struct Negotiated {
    pub session_type: SessionType,
    pub first_burst_bytes_max: u32,
    pub burst_bytes_max: u32,
    pub outstanding_r2t_max: u16,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub peer_data_segment_bytes_max: u32,
    pub own_data_segment_bytes_max: u32,
    pub time2wait_s: u16,
    pub cid: Cid,
    pub target_name: Option<String>,
}
#[derive(Debug)]
pub struct LoginQuestion {}
#[derive(Debug)]
pub struct Grant {}
#[derive(Debug)]
pub struct FullFeature {
    pub isid: Isid,
    pub tsih: Tsih,
}
#[derive(Clone, Debug, Default)]
pub struct InitiatorConfig {}

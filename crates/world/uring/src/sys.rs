//! The only module of this crate with `unsafe`: memory that the kernel accesses asynchronously.

pub(crate) mod interfaces;
pub(crate) mod ring;
pub(crate) mod tcp_info;

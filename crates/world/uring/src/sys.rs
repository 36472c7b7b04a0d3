//! The only room of this crate with `unsafe`: what the kernel does with our memory behind our back.

pub(crate) mod interfaces;
pub(crate) mod ring;
pub(crate) mod tcp_info;

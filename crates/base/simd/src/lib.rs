//! The arithmetic that must be fast: CRC32C, XOR and the P+Q parity of RAID-6.
//!
//! [`xor`], [`parity`] and [`crc32c`] are what callers use; each runs the best [`kernel`] that this
//! CPU has ([`choice`]). The scalar kernel is the meaning, the others are the same function faster.
//! `unsafe` lives in the private module `sys` only.

pub mod choice;
pub mod crc32c;
pub mod gf256;
pub mod kernel;
pub mod memory;
pub mod parity;
mod scalar;
mod sys;
pub mod xor;

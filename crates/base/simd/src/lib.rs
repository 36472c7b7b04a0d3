//! Vectorized arithmetic: CRC32C, XOR and the P+Q parity of RAID-6. Also memory beyond the CPU caches.
//!
//! [`xor`], [`parity`] and [`crc32c`] are the interface; each uses the best [`kernel`] of this CPU ([`choice`]). The
//! scalar kernel defines the result, the others compute the same function faster. `unsafe` is restricted to the private
//! module `sys`.

pub mod choice;
pub mod crc32c;
pub mod gf256;
pub mod kernel;
pub mod memory;
pub mod parity;
mod scalar;
mod sys;
pub mod xor;

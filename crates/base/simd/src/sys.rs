//! Kernels of x86-64, and huge pages. All `unsafe` of this crate is here: loads and stores of a whole vector from an
//! array of its size, the step from a detected CPU feature to code that relies on it, and memory that is divided into
//! slots.

use crate::kernel::Kernel;

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni256;
#[cfg(target_arch = "x86_64")]
mod gfni512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod memory;
pub(crate) mod region;
#[cfg(target_arch = "x86_64")]
mod ssse3;

/// Fallback for other CPUs: plain copies, no prefetch.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod memory {
    pub(crate) fn copy_past_caches(into: &mut [u8], from: &[u8]) {
        assert_eq!(into.len(), from.len(), "as much is copied as there is room");
        into.copy_from_slice(from);
    }

    pub(crate) fn prefetch<T>(_at: *const T) {}

    pub(crate) fn vendor() -> [u8; 12] {
        [0; 12]
    }
}

/// Kernels that this CPU can run besides the scalar one, the slowest first.
#[cfg(target_arch = "x86_64")]
pub(crate) fn detected() -> impl Iterator<Item = &'static Kernel> {
    [ssse3::kernel(), avx2::kernel(), gfni256::kernel(), gfni512::kernel()].into_iter().flatten()
}

/// No kernels: other CPUs run the scalar one.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn detected() -> impl Iterator<Item = &'static Kernel> {
    std::iter::empty()
}

//! Selection of the kernel, once, from the features of the CPU.

use crate::kernel::Kernel;
use crate::{scalar, sys};
use std::sync::LazyLock;

/// Fastest kernel of this CPU.
#[must_use]
pub fn best() -> &'static Kernel {
    static BEST: LazyLock<&'static Kernel> =
        LazyLock::new(|| available().last().expect("the scalar kernel runs everywhere"));
    &BEST
}

/// Every kernel that this CPU can run, the slowest first.
pub fn available() -> impl Iterator<Item = &'static Kernel> {
    std::iter::once(&scalar::KERNEL).chain(sys::detected())
}

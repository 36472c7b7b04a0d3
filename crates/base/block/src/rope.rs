//! Scattered bytes: result of a read whose blocks come from several places.

use crate::{Buf, View};

/// Bytes in one or more views, in order. Cutting and joining copy nothing.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// First view; empty only when the rope is empty.
    first: View,
    /// Further views, none empty. Most ropes have a single view, and the empty vector allocates nothing.
    rest: Vec<View>,
}

impl Rope {
    /// Returns an empty rope.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest.iter().fold(self.first.len(), |len, part| len + part.len())
    }

    /// True when the rope has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Appends a view.
    #[inline]
    pub fn push(&mut self, view: View) {
        // Empty views are dropped, so that no piece is empty.
        if self.first.is_empty() {
            self.first = view;
        } else if !view.is_empty() {
            self.rest.push(view);
        }
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Self) {
        // An empty first piece means an empty rope, so `rest` needs no check.
        self.push(other.first);
        self.rest.extend(other.rest);
    }

    /// Pieces in order; none is empty.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &View> {
        Some(&self.first).filter(|first| !first.is_empty()).into_iter().chain(&self.rest)
    }

    /// Consumes the rope and returns its pieces in order.
    #[inline]
    pub fn into_parts(self) -> impl Iterator<Item = View> {
        Some(self.first).filter(|first| !first.is_empty()).into_iter().chain(self.rest)
    }

    /// Returns the only piece, or the rope itself when it has several.
    #[inline]
    pub fn into_single(self) -> Result<View, Self> {
        if self.rest.is_empty() { Ok(self.first) } else { Err(self) }
    }

    /// Returns the bytes in `range`, sharing memory.
    ///
    /// *Panics*: when the range passes the end.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "bytes {range:?} are not in a rope of {len}");
        let mut out = Self::new();
        let mut at = 0;
        for part in self.parts() {
            // Clamped to the piece: a piece outside of the range becomes empty and is skipped.
            let from = range.start.clamp(at, at + part.len()) - at;
            let to = range.end.clamp(at, at + part.len()) - at;
            if from < to {
                out.push(part.slice(from..to));
            }
            at += part.len();
        }
        out
    }

    /// Returns the bytes in one piece; copies only when there were several.
    #[must_use]
    pub fn into_view(self) -> View {
        if self.rest.is_empty() { self.first } else { self.to_buf().freeze() }
    }

    /// Returns a writable copy of the bytes.
    #[must_use]
    pub fn to_buf(&self) -> Buf {
        // Old bytes cannot leak: `copy_to` overwrites all of them.
        let mut buf = Buf::recycled(self.len());
        self.copy_to(&mut buf);
        buf
    }

    /// Copies all bytes into `into`.
    ///
    /// *Panics*: when `into` has another length.
    pub fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len(), "a rope is copied whole");
        // The lengths are equal, so `split_at_mut` cannot pass the end.
        let mut rest = into;
        for part in self.parts() {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
    }
}

impl From<View> for Rope {
    #[inline]
    fn from(view: View) -> Self {
        Self { first: view, rest: Vec::new() }
    }
}

impl From<Buf> for Rope {
    fn from(buf: Buf) -> Self {
        buf.freeze().into()
    }
}

impl PartialEq<[u8]> for Rope {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        self.len() == other.len()
            && self.parts().all(|part| {
                let (head, tail) = rest.split_at(part.len());
                rest = tail;
                **part == *head
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rope_slices_are_what_a_flat_copy_slices_to(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            a in 0usize..240, b in 0usize..240,
        ) {
            let flat: Vec<u8> = parts.concat();
            let mut rope = Rope::new();
            for part in &parts {
                rope.push(Buf::copy_of(part).freeze());
            }
            let (a, b) = (a.min(b).min(flat.len()), a.max(b).min(flat.len()));
            prop_assert!(rope.slice(a..b) == flat[a..b]);
            prop_assert_eq!(&rope.slice(a..b).into_view()[..], &flat[a..b]);
            prop_assert_eq!(rope.len(), flat.len());
        }
    }
}

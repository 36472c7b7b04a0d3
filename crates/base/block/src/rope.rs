//! Bytes in pieces: what a read returns when its blocks came from several places.

use crate::{Buf, View};

/// A run of bytes in one or more views, in order. Cutting and joining copy nothing.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// Empty only when the rope is.
    first: View,
    /// What comes behind, none of it empty. Most ropes have nothing there, which takes no memory.
    rest: Vec<View>,
}

impl Rope {
    /// A rope without bytes.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes the rope has.
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

    /// Adds a view at the end.
    #[inline]
    pub fn push(&mut self, view: View) {
        if self.first.is_empty() {
            self.first = view;
        } else if !view.is_empty() {
            self.rest.push(view);
        }
    }

    /// Adds all of `other` at the end.
    pub fn append(&mut self, other: Self) {
        self.push(other.first);
        self.rest.extend(other.rest);
    }

    /// The pieces, in order; none is empty.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &View> {
        Some(&self.first).filter(|first| !first.is_empty()).into_iter().chain(&self.rest)
    }

    /// The pieces, in order, for good.
    #[inline]
    pub fn into_parts(self) -> impl Iterator<Item = View> {
        Some(self.first).filter(|first| !first.is_empty()).into_iter().chain(self.rest)
    }

    /// The only piece, or all of a rope that has several.
    #[inline]
    pub fn into_single(self) -> Result<View, Self> {
        if self.rest.is_empty() { Ok(self.first) } else { Err(self) }
    }

    /// The bytes in `range`, sharing memory.
    ///
    /// *Panics*: when the range passes the end.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "bytes {range:?} are not in a rope of {len}");
        let mut out = Self::new();
        let mut at = 0;
        for part in self.parts() {
            let from = range.start.clamp(at, at + part.len()) - at;
            let to = range.end.clamp(at, at + part.len()) - at;
            if from < to {
                out.push(part.slice(from..to));
            }
            at += part.len();
        }
        out
    }

    /// The bytes in one piece; copies only when there were several.
    #[must_use]
    pub fn into_view(self) -> View {
        if self.rest.is_empty() { self.first } else { self.to_buf().freeze() }
    }

    /// A copy of the bytes that the caller may write.
    #[must_use]
    pub fn to_buf(&self) -> Buf {
        let mut buf = Buf::recycled(self.len());
        self.copy_to(&mut buf);
        buf
    }

    /// Copies all bytes into `into`.
    ///
    /// *Panics*: when `into` has another length.
    pub fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len(), "a rope is copied whole");
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

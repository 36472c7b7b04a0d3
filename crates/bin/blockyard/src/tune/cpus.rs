//! Sets of processors in the notations of the kernel: lists and masks.

use super::Root;
use model::{Refusal, code};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Set of processor numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Cpus(BTreeSet<u32>);

/// Parses a list typed by an administrator: at least one number, and nothing but numbers and ranges.
impl FromStr for Cpus {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let is_range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            // Numbers of 16 bits stay below the bound of `of_list`, which would ignore larger ones.
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if first <= last)
        };
        if text.split(',').all(is_range) {
            return Ok(Self::of_list(text));
        }
        let message = format!("\"{text}\" is not a list of cores");
        Err(Refusal::new(code::CONFIG_INVALID, message, "write, for example, 2-5 or 0,2,4"))
    }
}

impl TryFrom<String> for Cpus {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl Cpus {
    /// Parses a list of the kernel such as `0-3,8`, ignoring invalid parts.
    pub(crate) fn of_list(text: &str) -> Self {
        let mut all = BTreeSet::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            // The bound keeps a corrupt range from filling the memory.
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
                && last < 65_536
            {
                all.extend(first..=last);
            }
        }
        Self(all)
    }

    /// Returns the processors that are online.
    pub(crate) fn online(root: &Root) -> Self {
        Self::of_list(&root.text("sys/devices/system/cpu/online").unwrap_or_default())
    }

    /// Returns the processors of a NUMA node; those online if the device names no node.
    pub(crate) fn near(root: &Root, node: Option<u32>) -> Self {
        let list = node.and_then(|node| root.text(&format!("sys/devices/system/node/node{node}/cpulist")));
        let near = Self::of_list(&list.unwrap_or_default());
        // A node may have memory and no processor.
        if near.len() == 0 { Self::online(root) } else { near }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains_all(&self, other: &Self) -> bool {
        other.0.is_subset(&self.0)
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// Returns the `n`th processor, wrapping around at the end.
    pub(crate) fn nth(&self, n: usize) -> Option<u32> {
        // The remainder by zero is none, so an empty set has no processor.
        self.0.iter().copied().nth(n.checked_rem(self.0.len())?)
    }

    /// Parses a mask: hexadecimal words of 32 processors, the highest first.
    pub(crate) fn of_mask(text: &str) -> Self {
        let mut all = BTreeSet::new();
        for (n, word) in text.trim().rsplit(',').enumerate() {
            // A word that cannot be read counts as empty, so its processors are left alone.
            let bits = u32::from_str_radix(word, 16).unwrap_or(0);
            let first = u32::try_from(n).unwrap_or(0) * 32;
            all.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
        }
        Self(all)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            // Adjacent numbers become a range.
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let range =
            |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        out.write_str(&ranges.into_iter().map(range).collect::<Vec<_>>().join(","))
    }
}

/// Returns the NUMA node in a device's `numa_node` file; none for -1.
pub(super) fn node(root: &Root, path: &str) -> Option<u32> {
    // The kernel writes -1 for a device without a node, which does not parse as unsigned.
    root.text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_those_of_the_kernel() {
        for (list, mask) in
            [("0", "1"), ("0-3,8", "10f"), ("31-32", "1,80000000"), ("64", "1,00000000,00000000"), ("", "0")]
        {
            let cpus = Cpus::of_list(list);
            assert_eq!((cpus.to_string().as_str(), Cpus::of_mask(mask)), (list, cpus.clone()));
        }
        assert_eq!(Cpus::of_list("3-1,x,7-").to_string(), "");
        assert_eq!(Cpus::of_list("2,5").nth(3), Some(5));
        assert_eq!(Cpus::default().nth(0), None);
    }

    #[test]
    fn list_that_somebody_writes_is_taken_whole_or_not_at_all() {
        assert_eq!("2-5,8".parse::<Cpus>().map(|cpus| cpus.to_string()).ok().as_deref(), Some("2-5,8"));
        for text in ["", "2,", "5-2", "a", "1-2-3", "70000", " 1"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }
}

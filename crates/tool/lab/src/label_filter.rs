//! Filter of points: `AXIS=LABEL`, repeatable.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Labels by axis. A point is selected if it has one of the labels on every named axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelFilter(BTreeMap<String, BTreeSet<String>>);

impl LabelFilter {
    /// Parses texts such as `depth=32`; several of one axis mean any of them.
    ///
    /// *Errors*: a text without an equals sign.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut only = Self::default();
        for text in texts {
            let (axis, label) = text.split_once('=').with_context(|| format!("\"{text}\": write AXIS=LABEL"))?;
            only.0.entry(axis.to_owned()).or_default().insert(label.to_owned());
        }
        Ok(only)
    }

    /// Returns true if the point at `labels` is selected.
    #[must_use]
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        // A point without the axis is not selected.
        self.0.iter().all(|(axis, wanted)| labels.get(axis).is_some_and(|label| wanted.contains(label)))
    }

    /// Returns the named axes with their labels.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        self.0.iter().map(|(axis, wanted)| (axis.as_str(), wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(axis, label)| ((*axis).to_owned(), (*label).to_owned())).collect()
    }

    #[test]
    fn any_label_of_an_axis_and_every_axis() {
        let texts = ["depth=1", "depth=8", "peer=tgt"].map(str::to_owned);
        let only = LabelFilter::parse(&texts).expect("it is right");
        assert!(only.holds(&at(&[("depth", "1"), ("peer", "tgt"), ("load", "read")])));
        assert!(only.holds(&at(&[("depth", "8"), ("peer", "tgt")])));
        assert!(!only.holds(&at(&[("depth", "2"), ("peer", "tgt")])));
        assert!(!only.holds(&at(&[("depth", "8")])));
        assert!(LabelFilter::default().holds(&at(&[])));
        assert!(LabelFilter::parse(&["depth".to_owned()]).is_err());
    }
}

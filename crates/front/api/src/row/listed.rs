//! Lists: in a stable order, searched, sorted, and cut into pages before they are said.

use super::part::{Question, Taken, unclear};
use axum::extract::Query;
use model::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;

/// The most that one page holds.
const LIMIT_MAX: usize = 10_000;

/// The keys of the query that choose a page.
const KEYS: [&str; 4] = ["limit", "cursor", "search", "sort"];

/// Something that lists hold.
pub(crate) trait Listed {
    /// What a list can be sorted by, beside its own order.
    const SORTS: &'static [&'static str];

    /// What it is sorted by where nothing else is asked for, and what tells it from the others.
    fn order(&self) -> Key;

    /// What it is sorted by when it is sorted by `sort`, one of [`Listed::SORTS`].
    fn sort(&self, sort: &str) -> Atom;

    /// The words that a search looks through.
    fn words(&self) -> Vec<Cow<'_, str>>;
}

/// What things are ordered by, the first atom before the second.
pub(crate) type Key = Vec<Atom>;

/// One thing to order by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Atom {
    /// By number.
    Number(u64),
    /// By text.
    Text(String),
}

impl From<u64> for Atom {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A key of one text.
pub(crate) fn key(text: impl ToString) -> Key {
    vec![Atom::Text(text.to_string())]
}

/// Which part of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    limit: Option<usize>,
    after: Option<Key>,
    search: Option<String>,
    sort: Option<String>,
    descending: bool,
}

/// A page as the query has it.
#[derive(Deserialize)]
struct Wanted {
    limit: Option<usize>,
    cursor: Option<String>,
    search: Option<String>,
    sort: Option<String>,
}

impl Page {
    /// The page that is asked for; everything where none is.
    ///
    /// *Errors*: there is no such order, the limit is out of bounds, or the cursor is none of this list.
    pub(super) fn take<T: Listed>(question: &mut Question) -> Result<Self, Refusal> {
        let uri = question.pairs_of(&KEYS);
        let Query(wanted) = Query::<Wanted>::try_from_uri(&uri).map_err(|error| unclear(&error.body_text()))?;
        let Wanted { limit, cursor, search, sort } = wanted;
        if limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
            return Err(unclear(&format!("a limit is a number from 1 to {LIMIT_MAX}")));
        }
        let descending = sort.as_ref().is_some_and(|sort| sort.starts_with('-'));
        let sort = sort.map(|sort| sort.trim_start_matches('-').to_owned());
        if let Some(unknown) = sort.as_deref().filter(|sort| !T::SORTS.contains(sort)) {
            let known = T::SORTS.join(", ");
            return Err(unclear(&format!("it cannot be sorted by {}; there are {known}", unknown.escape_debug())));
        }
        let after = cursor.map(|cursor| parse_cursor(&cursor).ok_or_else(|| unclear("the cursor is none of ours")));
        let search = search.filter(|search| !search.is_empty()).map(|search| search.to_lowercase());
        Ok(Self { limit, after: after.transpose()?, search, sort, descending })
    }

    /// What the query may say.
    pub(super) fn describe<T: Listed>(taken: &mut Taken) {
        let orders: Vec<String> = T::SORTS.iter().flat_map(|sort| [(*sort).to_owned(), format!("-{sort}")]).collect();
        let mut may = |key: &str, schema| taken.query.push((key.to_owned(), schema, false));
        may(
            "limit",
            json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX,
            "description": "At most so many; all when absent." }),
        );
        may(
            "cursor",
            json!({ "type": "string", "pattern": "^([0-9a-f]{2})+$",
            "description": "Those behind a page, as its `next` says; the same search and sort go with it." }),
        );
        may(
            "search",
            json!({ "type": "string",
            "description": "Only those with this text in one of their words, whatever the case." }),
        );
        may(
            "sort",
            json!({ "type": "string", "enum": orders,
            "description": "In this order; with - in front, the largest first." }),
        );
    }

    /// What is on the page, how many there are on all pages, and the cursor of the next page, where there is one.
    pub(super) fn cut<T: Listed>(&self, mut all: Vec<T>) -> (Vec<T>, usize, Option<String>) {
        if let Some(search) = &self.search {
            let has = |word: Cow<'_, str>| word.to_lowercase().contains(search.as_str());
            all.retain(|item| item.words().into_iter().any(has));
        }
        let total = all.len();
        let mut keyed: Vec<(Key, T)> = all.into_iter().map(|item| (self.key_of(&item), item)).collect();
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        if self.descending {
            keyed.reverse();
        }
        if let Some(after) = &self.after {
            let is_behind = |key: &Key| if self.descending { key < after } else { key > after };
            let first = keyed.partition_point(|(key, _)| !is_behind(key));
            keyed.drain(..first);
        }
        let more = self.limit.is_some_and(|limit| limit < keyed.len());
        keyed.truncate(self.limit.unwrap_or(usize::MAX));
        let next = keyed.last().filter(|_| more).map(|(key, _)| cursor_of(key));
        (keyed.into_iter().map(|(_, item)| item).collect(), total, next)
    }

    fn key_of<T: Listed>(&self, item: &T) -> Key {
        let by = self.sort.as_ref().map(|sort| item.sort(sort));
        by.into_iter().chain(item.order()).collect()
    }
}

/// The key as a cursor: opaque to whoever asks, and good for as long as it is kept.
fn cursor_of(key: &Key) -> String {
    let text = serde_json::to_string(key).unwrap_or_default();
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_cursor(text: &str) -> Option<Key> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let (pairs, odd) = digits.as_ref()?.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect();
    serde_json::from_slice(&bytes.filter(|_| odd.is_empty())?).ok()
}

#[cfg(test)]
mod tests;

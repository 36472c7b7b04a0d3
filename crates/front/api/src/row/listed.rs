//! Lists: stable order, search, sorting and paging.

use super::part::{RowInput, RowRequest, unclear};
use axum::extract::Query;
use model::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;

/// Items on one page at most.
const LIMIT_MAX: usize = 10_000;

/// Query parameters of a page.
const KEYS: [&str; 4] = ["limit", "cursor", "search", "sort"];

/// An item of a list.
pub(crate) trait Listed {
    /// Keys by which a list can be sorted, beside its natural order.
    const SORTS: &'static [&'static str];

    /// Natural order and identity of the item.
    fn order(&self) -> Key;

    /// Value by which the item is sorted for `sort`, one of [`Listed::SORTS`].
    fn sort(&self, sort: &str) -> Atom;

    /// Texts that a search covers.
    fn words(&self) -> Vec<Cow<'_, str>>;
}

/// Sort key; earlier atoms take precedence.
pub(crate) type Key = Vec<Atom>;

/// Element of a sort key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Atom {
    /// Sorted by number.
    Number(u64),
    /// Sorted by text.
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

/// Key of a single text.
pub(crate) fn key(text: impl ToString) -> Key {
    vec![Atom::Text(text.to_string())]
}

/// Selected part of a list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    limit: Option<usize>,
    after: Option<Key>,
    search: Option<String>,
    sort: Option<String>,
    descending: bool,
}

/// Query parameters of a page.
#[derive(Deserialize)]
struct Wanted {
    limit: Option<usize>,
    cursor: Option<String>,
    search: Option<String>,
    sort: Option<String>,
}

impl Page {
    /// Parses the page from the query; without parameters it is the whole list.
    ///
    /// *Errors*: the sort key is unknown, the limit is out of range, or the cursor does not belong to this list.
    pub(super) fn take<T: Listed>(question: &mut RowRequest) -> Result<Self, Refusal> {
        let uri = question.pairs_of(&KEYS);
        let Query(wanted) = Query::<Wanted>::try_from_uri(&uri).map_err(|error| unclear(&error.body_text()))?;
        let Wanted { limit, cursor, search, sort } = wanted;
        if limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
            return Err(unclear(&format!("limit must be a number from 1 to {LIMIT_MAX}")));
        }
        // A leading minus sorts in descending order.
        let descending = sort.as_ref().is_some_and(|sort| sort.starts_with('-'));
        let sort = sort.map(|sort| sort.trim_start_matches('-').to_owned());
        if let Some(unknown) = sort.as_deref().filter(|sort| !T::SORTS.contains(sort)) {
            let known = T::SORTS.join(", ");
            return Err(unclear(&format!("it cannot be sorted by {}; the keys are {known}", unknown.escape_debug())));
        }
        let after = cursor.map(|cursor| parse_cursor(&cursor).ok_or_else(|| unclear("the cursor is invalid")));
        // Case is folded once here and not for each item.
        let search = search.filter(|search| !search.is_empty()).map(|search| search.to_lowercase());
        Ok(Self { limit, after: after.transpose()?, search, sort, descending })
    }

    /// Describes the query parameters.
    pub(super) fn describe<T: Listed>(taken: &mut RowInput) {
        let orders: Vec<String> = T::SORTS.iter().flat_map(|sort| [(*sort).to_owned(), format!("-{sort}")]).collect();
        let mut may = |key: &str, schema| taken.query.push((key.to_owned(), schema, false));
        may(
            "limit",
            json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX,
            "description": "Maximum number of rows; all if absent." }),
        );
        may(
            "cursor",
            json!({ "type": "string", "pattern": "^([0-9a-f]{2})+$",
            "description": "Cursor from `next` of the previous page; use the same search and sort." }),
        );
        may(
            "search",
            json!({ "type": "string",
            "description": "Only rows with this text in one of their words, ignoring case." }),
        );
        may(
            "sort",
            json!({ "type": "string", "enum": orders,
            "description": "Sort key; a leading - sorts in descending order." }),
        );
    }

    /// Items of the page, the number of items on all pages, and the cursor of the next page if there is one.
    pub(super) fn cut<T: Listed>(&self, mut all: Vec<T>) -> (Vec<T>, usize, Option<String>) {
        if let Some(search) = &self.search {
            let has = |word: Cow<'_, str>| word.to_lowercase().contains(search.as_str());
            all.retain(|item| item.words().into_iter().any(has));
        }
        // The total counts the matches on all pages.
        let total = all.len();
        let mut keyed: Vec<(Key, T)> = all.into_iter().map(|item| (self.key_of(&item), item)).collect();
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        if self.descending {
            keyed.reverse();
        }
        // Continues after a key instead of a position: items may come and go between pages.
        if let Some(after) = &self.after {
            // A descending order continues below the key.
            let is_behind = |key: &Key| if self.descending { key < after } else { key > after };
            let first = keyed.partition_point(|(key, _)| !is_behind(key));
            keyed.drain(..first);
        }
        // There is a next page only if something was cut off.
        let more = self.limit.is_some_and(|limit| limit < keyed.len());
        keyed.truncate(self.limit.unwrap_or(usize::MAX));
        let next = keyed.last().filter(|_| more).map(|(key, _)| cursor_of(key));
        (keyed.into_iter().map(|(_, item)| item).collect(), total, next)
    }

    fn key_of<T: Listed>(&self, item: &T) -> Key {
        let by = self.sort.as_ref().map(|sort| item.sort(sort));
        // The natural order breaks ties, which makes every key unique.
        by.into_iter().chain(item.order()).collect()
    }
}

/// Cursor of a key: opaque to clients, and valid without any state here.
fn cursor_of(key: &Key) -> String {
    // Hexadecimal digits need no escaping in a URL.
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

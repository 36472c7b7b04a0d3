//! Enumerations in sentences, limited to a few items.

use std::fmt::Display;

/// Returns the first `most` items and the number of the remaining ones: `a, b and 3 more`.
#[must_use]
pub fn first_few(items: impl ExactSizeIterator<Item: Display>, most: usize) -> String {
    // Counted before `take` consumes the iterator.
    let more = items.len().saturating_sub(most);
    let named: Vec<String> = items.take(most).map(|item| item.to_string()).collect();
    // Without a count the reader would take the named items for all of them.
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_names_a_few_and_counts_the_rest() {
        let listed = |count: usize| first_few((0..count).map(|at| format!("v{at}")), 2);
        assert_eq!([0, 1, 2, 3, 12].map(listed), ["", "v0", "v0, v1", "v0, v1 and 1 more", "v0, v1 and 10 more"]);
    }
}

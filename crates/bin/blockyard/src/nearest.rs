//! Suggestions for a mistyped word: the nearest of the words that are valid in its place.
//!
//! Used in the sentences of usage errors. Only the words of the command itself are considered, so that a typo in a verb
//! of one noun never leads to another noun.

use strsim::osa_distance;

/// Returns the entries of `words` with the fewest typos from `word`; none if there is more than one typo per three
/// letters.
pub(crate) fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typos_max = (word.chars().count() / 3).max(1);
    // Optimal string alignment counts two exchanged letters as one typo.
    let mut found: Vec<(usize, &str)> = words.map(|known| (osa_distance(word, known), known)).collect();
    let least = found.iter().map(|(typos, _)| *typos).min().unwrap_or(usize::MAX);
    found.retain(|(typos, _)| *typos == least && least <= typos_max);
    found.into_iter().map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_a_typo_away_and_others_are_none() {
        let verbs = ["create", "list", "show", "trace", "resize", "reservations", "delete"];
        let of = |word| nearest(word, verbs.into_iter());
        for (word, meant) in
            [("craete", "create"), ("creat", "create"), ("lst", "list"), ("shwo", "show"), ("dlete", "delete")]
        {
            assert_eq!(of(word), [meant], "{word}");
        }
        for word in ["destroy", "present", "rm", "", "alert", "größe"] {
            assert!(of(word).is_empty(), "{word}: {:?}", of(word));
        }
        assert_eq!(nearest("sot", ["set", "show", "sit"].into_iter()), ["set", "sit"]);
    }
}

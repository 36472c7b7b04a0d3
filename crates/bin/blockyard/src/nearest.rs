//! The word that was meant: the nearest of those that can stand in its place.
//!
//! The sentences of usage errors ask it. It is given only what the command itself has, so that a typo in a verb of one noun never leads to
//! another noun.

/// Those of `words` that the fewest typos turn into `word`; none where it takes more than one typo for every three letters.
pub fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typos_max = (word.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &str)> = words.map(|known| (typos(word, known), known)).collect();
    let least = found.iter().map(|(typos, _)| *typos).min().unwrap_or(usize::MAX);
    found.retain(|(typos, _)| *typos == least && least <= typos_max);
    found.into_iter().map(|(_, known)| known).collect()
}

/// How many letters are missing, too many, wrong, or swapped with the next one. *Source*: optimal string alignment distance.
fn typos(word: &str, known: &str) -> usize {
    let (word, known): (Vec<char>, Vec<char>) = (word.chars().collect(), known.chars().collect());
    // Rows of the table, one for each beginning of `word`; a column for each beginning of `known`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=known.len()).collect()];
    for i in 1..=word.len() {
        let mut row = vec![i];
        for j in 1..=known.len() {
            let wrong = usize::from(word[i - 1] != known[j - 1]);
            let mut least = (rows[i - 1][j - 1] + wrong).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && word[i - 1] == known[j - 2] && word[i - 2] == known[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[word.len()][known.len()]
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

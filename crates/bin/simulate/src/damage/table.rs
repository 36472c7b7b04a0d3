//! Findings of a campaign as a table, one line per structure.

use super::{Corruption, RoundResult, Structure};
use std::fmt::Write;

/// Counts of one structure.
#[derive(Default)]
struct Line {
    whole: u64,
    errors: u64,
    refused: u64,
    known: u64,
    wrong: u64,
}

/// Formats the rounds of a campaign; a round with two corrupted structures counts for both.
#[must_use]
pub fn table(rounds: &[(Corruption, RoundResult)]) -> String {
    let mut text = format!(
        "{:20} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
        "STRUCTURE", "ROUNDS", "WHOLE", "ERRORS", "REFUSED", "KNOWN", "WRONG"
    );
    let is_of = |damage: &Corruption, structure| damage.blocks.iter().any(|strike| strike.structure == structure);
    for structure in Structure::all() {
        let mut line = Line::default();
        for (_, found) in rounds.iter().filter(|(damage, _)| is_of(damage, structure)) {
            let count = match found {
                RoundResult::Whole | RoundResult::Nothing => &mut line.whole,
                RoundResult::Errors(_) => &mut line.errors,
                RoundResult::Refused(_) => &mut line.refused,
                RoundResult::Known(_) => &mut line.known,
                RoundResult::Wrong(_) => &mut line.wrong,
            };
            *count += 1;
        }
        let Line { whole, errors, refused, known, wrong } = line;
        let all = whole + errors + refused + known + wrong;
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{structure:20} {all:7} {whole:7} {errors:7} {refused:7} {known:7} {wrong:7}");
    }
    text
}

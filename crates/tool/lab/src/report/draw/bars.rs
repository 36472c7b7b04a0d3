//! Bar charts: a group at each label, with a bar for each series.

use super::super::chart::{Chart, Panel};
use super::super::markup::Markup;
use super::super::scale::short;
use super::lines::whisker;
use super::{COLOURS, Frame, Slots, round, text, width};

pub(super) fn draw(body: &mut Markup, chart: &Chart<'_>, panel: &Panel<'_>, slots: &Slots, frame: &Frame) {
    let count = chart.series.len().max(1) as f64;
    let thick = (slots.room * 0.8 / count).min(48.0);
    let floor = frame.bottom();
    for (index, values) in panel.values.iter().enumerate() {
        for (&middle, value) in slots.middles.iter().zip(values) {
            let x = middle + (index as f64 - count / 2.0) * thick;
            let Some(spread) = value else { continue };
            let top = frame.y(spread.middle);
            // One unit on each side separates neighboring bars.
            let (at, wide) = (round(x + 1.0), round((thick - 2.0).max(1.0)));
            // A value near zero remains visible as a thin bar.
            let high = round((floor - top).max(0.5));
            let class = class(index);
            body.empty(
                "rect",
                &[("class", &class), ("x", &at), ("y", &round(floor - high)), ("width", &wide), ("height", &high)],
            );
            let (least, most) = (frame.y(spread.low), frame.y(spread.high));
            // A whisker shorter than its caps, or wider than its bar, would be unreadable.
            if least - most > 2.0 && thick > 7.0 {
                body.empty("path", &[("class", &"whisker"), ("d", &whisker(x + thick / 2.0, least, most))]);
            }
            let label = short(three_digits(spread.middle));
            // A label that is wider than its bar would overlap the next one.
            if width(&label, 10.0) < thick {
                text(body, "value", x + thick / 2.0, most.min(top) - 4.0, &label);
            }
        }
    }
}

/// Draws the bar of the legend.
pub(super) fn sample(body: &mut Markup, index: usize, x: f64, y: f64) {
    body.empty(
        "rect",
        &[("class", &class(index)), ("x", &(x + 10.0)), ("y", &(y - 5.0)), ("width", &14), ("height", &11)],
    );
}

fn class(index: usize) -> String {
    // Beyond the colors, fainter variants distinguish series.
    let turn = ["", " pale", " faint"][index / COLOURS % 3];
    format!("bar s{}{turn}", index % COLOURS)
}

/// Rounds a value to three digits.
fn three_digits(value: f64) -> f64 {
    if value <= 0.0 {
        return value;
    }
    let unit = 10_f64.powf(value.log10().floor() - 2.0);
    (value / unit).round() * unit
}

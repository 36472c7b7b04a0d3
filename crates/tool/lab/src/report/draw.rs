//! Drawing of a chart as SVG: title, legend, panels above a common axis, remarks.

mod bars;
mod heat;
mod lines;

use super::chart::{Bottom, Chart, Panel};
use super::markup::Markup;
use super::scale::{Scale, short};
use crate::figure::{Form, Measure};
use std::f64::consts::PI;

/// Colors of drawings, for light and dark themes.
pub(super) const STYLE: &str = include_str!("drawing.css");

const WIDTH: f64 = 780.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const PANEL: f64 = 168.0;
/// Distance between panels.
const BETWEEN: f64 = 40.0;
const LINE: f64 = 18.0;
/// Angle of labels that are too wide for their space.
const SLANT: f64 = 35.0 * PI / 180.0;
/// Number of colors of series, as in the style sheet.
const COLOURS: usize = 8;

/// Returns the drawing. A standalone one includes its colors; those of a page share the page's.
pub(super) fn svg(chart: &Chart<'_>, alone: bool) -> String {
    let mut body = Markup::default();
    let mut y = heading(&mut body, chart);
    let slots = Slots::of(&chart.bottom);
    match chart.figure.form {
        Form::Heat => y = heat::draw(&mut body, chart, &slots, y),
        Form::Lines | Form::Bars => {
            for panel in &chart.panels {
                let frame = Frame::of(panel.extent(), chart.figure.log_y, y + 20.0);
                let log = if chart.figure.log_y { ", log scale" } else { "" };
                frame.draw(&mut body, &format!("{}{log}", caption(panel.measure)));
                match chart.figure.form {
                    Form::Bars => bars::draw(&mut body, chart, panel, &slots, &frame),
                    Form::Lines | Form::Heat => lines::draw(&mut body, chart, panel, &slots, &frame),
                }
                printed(&mut body, panel, &slots, &frame);
                y = frame.bottom() + BETWEEN - 20.0;
            }
            // The last panel is followed by the axis, and not by another panel.
            y += 20.0 - BETWEEN;
        }
    }
    let y = slots.draw(&mut body, &chart.bottom, y);
    // The height is known only after everything is placed, so the body is drawn first.
    let height = (remarks(&mut body, chart, y) + 8.0).ceil();
    let mut svg = Markup::default();
    let view = format!("0 0 {WIDTH} {height}");
    // As an image with a label, the drawing is one item for a screen reader, and the table has its values.
    let names: [(&str, &dyn std::fmt::Display); 7] = [
        ("xmlns", &"http://www.w3.org/2000/svg"),
        ("class", &"drawing"),
        ("viewBox", &view),
        ("width", &WIDTH),
        ("height", &height),
        ("role", &"img"),
        ("aria-label", &chart.figure.title),
    ];
    svg.element("svg", &names, |svg| {
        svg.leaf("title", &[], &chart.figure.title);
        if alone {
            svg.style(STYLE);
        }
        svg.empty("rect", &[("class", &"ground"), ("width", &WIDTH), ("height", &height)]);
        svg.append(&body);
    });
    svg.finish()
}

/// Returns the caption of a panel.
fn caption(measure: Measure) -> String {
    match measure.unit() {
        "" => measure.title().to_owned(),
        unit => format!("{} ({unit})", measure.title()),
    }
}

/// Estimates the width of a text, slightly above that in any common font.
fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

fn text(body: &mut Markup, class: &str, x: f64, y: f64, text: &str) {
    body.leaf("text", &[("class", &class), ("x", &round(x)), ("y", &round(y))], text);
}

/// Rounds to a tenth of a unit, finer than a screen.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Draws title and legend, and returns their lower end.
fn heading(body: &mut Markup, chart: &Chart<'_>) -> f64 {
    let mut y = 24.0;
    for line in wrapped(&chart.figure.title, 15.0, WIDTH - 40.0) {
        text(body, "title", 12.0, y, &line);
        y += 20.0;
    }
    let mut x = 12.0;
    // A heat map has a panel for each series, with its name above it, and needs no legend.
    if chart.figure.form != Form::Heat {
        for (index, series) in chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()) {
            let needs = 34.0 + width(&series.name, 12.0) + 14.0;
            // At the beginning of a line there is nothing to gain by another line.
            if x + needs > WIDTH && x > 12.0 {
                (x, y) = (12.0, y + LINE);
            }
            match chart.figure.form {
                Form::Bars => bars::sample(body, index, x, y - 4.0),
                Form::Lines | Form::Heat => lines::sample(body, index, series.baseline, x, y - 4.0),
            }
            text(body, "legend", x + 32.0, y, &series.name);
            x += needs;
        }
    }
    y = if x > 12.0 { y + LINE } else { y };
    // Numbers of other measures are skipped below, and not before, so that each letter is the one in its panel.
    for (letter, number) in ('a'..='z').zip(chart.printed.iter().flat_map(|printed| &printed.numbers)) {
        let paper = chart.printed.map(|printed| printed.paper.as_str()).unwrap_or_default();
        if !chart.figure.measures.contains(&number.measure) {
            continue;
        }
        let told = format!("{letter}: {paper}, {}: {}", number.what, number.said());
        match number.x {
            Some(_) => body.empty("path", &[("class", &"printed"), ("d", &diamond(25.0, y - 4.0))]),
            None => body.empty("path", &[("class", &"printed everywhere"), ("d", &format!("M12 {}h26", y - 4.0))]),
        }
        for line in wrapped(&told, 12.0, WIDTH - 60.0) {
            text(body, "legend", 44.0, y, &line);
            y += LINE;
        }
    }
    y
}

/// Breaks a text into lines that fit, unless a single word does not.
fn wrapped(told: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in told.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if width(line, size) + width(word, size) + width(" ", size) <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Draws the remarks, and returns their lower end.
fn remarks(body: &mut Markup, chart: &Chart<'_>, mut y: f64) -> f64 {
    for remark in &chart.remarks {
        for line in wrapped(remark, 12.0, WIDTH - 40.0) {
            y += LINE;
            text(body, "remark", 12.0, y, &line);
        }
    }
    y
}

fn diamond(x: f64, y: f64) -> String {
    format!("M{} {}l6 6l-6 6l-6 -6z", round(x), round(y - 6.0))
}

/// Draws the published values: hollow diamonds at their place, or dashed lines across.
fn printed(body: &mut Markup, panel: &Panel<'_>, slots: &Slots, frame: &Frame) {
    let mut everywhere = 0.0;
    for mark in &panel.marks {
        let y = frame.y(mark.value);
        let x = mark.x.and_then(|x| slots.named(x));
        if let Some(x) = x {
            body.empty("path", &[("class", &"printed"), ("d", &diamond(x, y))]);
        } else {
            let line = format!("M{LEFT} {}H{}", round(y), WIDTH - RIGHT);
            body.empty("path", &[("class", &"printed everywhere"), ("d", &line)]);
        }
        // Letters are beside their diamond, on the side with space; those of lines are beside each other.
        let at =
            x.map_or(WIDTH - RIGHT - 10.0 - everywhere, |x| if x + 22.0 > WIDTH - RIGHT { x - 17.0 } else { x + 9.0 });
        everywhere += if x.is_none() { 9.0 + width(&mark.letters, 11.0) } else { 0.0 };
        // Not above the panel, where its caption is.
        text(body, "letter", at, (y - 5.0).max(frame.top + 11.0), &mark.letters);
    }
}

/// Position and vertical axis of a panel.
struct Frame {
    top: f64,
    scale: Scale,
}

impl Frame {
    fn of(values: impl Iterator<Item = f64> + Clone, log: bool, top: f64) -> Self {
        // From zero where possible, so that the lengths of bars are in proportion.
        Self { top, scale: if log { Scale::log(values) } else { Scale::from_zero(values) } }
    }

    fn bottom(&self) -> f64 {
        self.top + PANEL
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.scale.place(value) * PANEL
    }

    /// Draws caption, grid and tick labels.
    fn draw(&self, body: &mut Markup, caption: &str) {
        text(body, "caption", LEFT, self.top - 8.0, caption);
        for tick in self.scale.ticks(4) {
            let y = self.y(tick);
            body.empty("path", &[("class", &"grid"), ("d", &format!("M{LEFT} {}H{}", round(y), WIDTH - RIGHT))]);
            text(body, "tick left", LEFT - 8.0, y + 4.0, &short(tick));
        }
        let floor = round(self.bottom());
        body.empty("path", &[("class", &"axis"), ("d", &format!("M{LEFT} {floor}H{}", WIDTH - RIGHT))]);
    }
}

/// Positions of the labels along the bottom.
struct Slots {
    /// Center of each label.
    middles: Vec<f64>,
    /// Width of each label's space, if equal.
    room: f64,
    scale: Option<Scale>,
    labels: Vec<String>,
}

impl Slots {
    fn of(bottom: &Bottom) -> Self {
        let room = (WIDTH - LEFT - RIGHT) / bottom.labels.len().max(1) as f64;
        let scale = bottom.scale();
        let middles = match (scale, &bottom.numbers) {
            (Some(scale), Some(numbers)) => numbers.iter().map(|number| along(scale, *number)).collect(),
            _ => (0..bottom.labels.len()).map(|slot| LEFT + room * (slot as f64 + 0.5)).collect(),
        };
        Self { middles, room, scale, labels: bottom.labels.clone() }
    }

    /// Returns the position of a published label, which on a numeric axis need not be a measured one.
    fn named(&self, label: &str) -> Option<f64> {
        let ours = self.labels.iter().position(|known| known == label).map(|slot| self.middles[slot]);
        ours.or_else(|| Some(along(self.scale?, super::chart::quantity(label)?)))
    }

    /// Draws labels and title of the axis, and returns their lower end.
    fn draw(&self, body: &mut Markup, bottom: &Bottom, floor: f64) -> f64 {
        let y = if self.scale.is_some() { self.numbers(body, floor) } else { self.names(body, floor) };
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let title = if bottom.log { format!("{} (log scale)", bottom.title) } else { bottom.title.clone() };
        text(body, "caption middle", middle, y + 22.0, &title);
        y + 28.0
    }

    /// Draws the numeric labels that have space, and returns their lower end.
    fn numbers(&self, body: &mut Markup, floor: f64) -> f64 {
        let mut end = f64::NEG_INFINITY;
        for (label, &x) in self.labels.iter().zip(&self.middles) {
            let half = width(label, 12.0) / 2.0;
            // A label that would overlap the previous one is omitted.
            if x - half > end {
                text(body, "tick middle", x, floor + 17.0, label);
                end = x + half + 6.0;
            }
        }
        floor + 17.0
    }

    /// Draws text labels, wrapped to their space or else slanted, and returns their lower end.
    fn names(&self, body: &mut Markup, floor: f64) -> f64 {
        let lines: Vec<Vec<String>> = self.labels.iter().map(|label| wrapped(label, 12.0, self.room - 6.0)).collect();
        let upright = lines.iter().flatten().all(|line| width(line, 12.0) <= self.room - 4.0);
        let mut end = floor + 17.0;
        for ((label, lines), &x) in self.labels.iter().zip(&lines).zip(&self.middles) {
            if upright {
                for (index, line) in lines.iter().enumerate() {
                    let y = floor + 17.0 + index as f64 * 15.0;
                    text(body, "tick middle", x, y, line);
                    end = end.max(y);
                }
            } else {
                // A slanted label ends at its tick, so its space reaches to the left edge of the drawing.
                let (x, y) = (round(x + 4.0), round(floor + 14.0));
                let shown = cut(label, (x - 6.0) / SLANT.cos());
                let turn = format!("rotate({} {x} {y})", round(-SLANT.to_degrees()));
                body.leaf("text", &[("class", &"tick left"), ("x", &x), ("y", &y), ("transform", &turn)], &shown);
                end = end.max(y + width(&shown, 12.0) * SLANT.sin());
            }
        }
        end
    }
}

/// Truncates a label to its space. The table has it in full.
fn cut(label: &str, room: f64) -> String {
    if width(label, 12.0) <= room {
        return label.to_owned();
    }
    let kept = (room / width("x", 12.0)).max(1.0) as usize;
    label.chars().take(kept.saturating_sub(1)).chain(['…']).collect()
}

fn along(scale: Scale, number: f64) -> f64 {
    LEFT + scale.place(number) * (WIDTH - LEFT - RIGHT)
}

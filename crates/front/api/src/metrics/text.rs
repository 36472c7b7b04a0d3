//! Text format of Prometheus.
//!
//! *Source*: Prometheus, "Exposition formats", text-based format 0.0.4.

use std::fmt::{Display, Write};

/// Media type of the text.
pub(crate) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows while the daemon runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by their size.
    Histogram,
}

/// Text of all families.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// A family that is being written. All of its samples are consecutive.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

/// Label names and values of a sample.
pub(crate) type Labels<'a> = [(&'static str, &'a str)];

impl Text {
    /// Starts a family. `name` is the full name with its unit, and `_total` for a counter.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Escapes of the text format.
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.0, name }
    }

    /// Complete text.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Writes one sample.
    ///
    /// # Panics
    ///
    /// In debug builds, if a label has a name that summaries and histograms reserve.
    pub(crate) fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        debug_assert!(
            labels.iter().all(|(name, _)| !matches!(*name, "quantile" | "le")),
            "a reserved label: {labels:?}"
        );
        self.line("", labels, None, value);
    }

    /// Writes a histogram: cumulative counts by upper bound, the total count, and the sum.
    pub(crate) fn histogram(&mut self, labels: &Labels<'_>, buckets: &[(f64, u64)], count: u64, sum: f64) {
        for (bound, below) in buckets {
            self.line("_bucket", labels, Some(&bound.to_string()), below);
        }
        // The bucket `+Inf` is mandatory and equals the count.
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: &Labels<'_>, le: Option<&str>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut open = '{';
        for (name, value) in labels.iter().copied().chain(le.map(|bound| ("le", bound))) {
            let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.text, "{open}{name}=\"{value}\"");
            open = ',';
        }
        let _ = writeln!(self.text, "{} {value}", if open == ',' { "}" } else { "" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_families_labels_and_histograms_as_prometheus_reads_them() {
        let mut text = Text::default();
        text.family("blockyard_up", Kind::Gauge, "One.\nTwo.").sample(&[], 1);
        let mut family = text.family("blockyard_x_total", Kind::Counter, "X.");
        family.sample(&[("volume", "a\"b\\c\nd"), ("op", "read")], 7u64);
        let mut family = text.family("blockyard_s_seconds", Kind::Histogram, "S.");
        family.histogram(&[("volume", "v")], &[(0.001, 2), (0.002, 3)], 4, 0.5);
        let wanted = "# HELP blockyard_up One.\\nTwo.\n# TYPE blockyard_up gauge\nblockyard_up 1\n\
            # HELP blockyard_x_total X.\n# TYPE blockyard_x_total counter\n\
            blockyard_x_total{volume=\"a\\\"b\\\\c\\nd\",op=\"read\"} 7\n\
            # HELP blockyard_s_seconds S.\n# TYPE blockyard_s_seconds histogram\n\
            blockyard_s_seconds_bucket{volume=\"v\",le=\"0.001\"} 2\nblockyard_s_seconds_bucket{volume=\"v\",le=\"0.002\"} 3\n\
            blockyard_s_seconds_bucket{volume=\"v\",le=\"+Inf\"} 4\nblockyard_s_seconds_sum{volume=\"v\"} 0.5\n\
            blockyard_s_seconds_count{volume=\"v\"} 4\n";
        assert_eq!(text.into_string(), wanted);
    }
}

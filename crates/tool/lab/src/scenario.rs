//! Scenarios: a base point, the axes that vary it, and its figures.

use crate::figure::Figure;
use crate::label_filter::LabelFilter;
use crate::point::{Build, Peer, Point};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Scenario file of `lab/scenarios`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name on the command line.
    pub name: String,
    /// Title.
    pub title: String,
    /// Papers and requirements that it covers: `S1: IOmeter`, `N9`.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Number of rounds.
    #[serde(default = "three")]
    pub rounds: u32,
    /// Settings that all points share.
    #[serde(default)]
    pub base: Table,
    /// Axes; the last one varies fastest.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// Figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// Measurements of the papers that are not possible here; printed on every drawing.
    #[serde(default)]
    pub unmeasured: Vec<String>,
    /// Further notes: duration, interpretation.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Axis: values of a key of the point, or labeled sets of several keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Key of the point, or a name for the sets in `values`.
    pub name: String,
    /// Values of the key, or tables with a `label` and several keys.
    pub values: Vec<Value>,
}

/// Name of the axis of two builds that are measured alternately.
pub const BUILD: &str = "build";

/// Describes the position of a point: `the point at depth = 8, peer = tgt`.
#[must_use]
pub fn place(labels: &BTreeMap<String, String>) -> String {
    let at: Vec<String> = labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
    if at.is_empty() { "the point".to_owned() } else { format!("the point at {}", at.join(", ")) }
}

fn three() -> u32 {
    3
}

impl Scenario {
    /// Parses a scenario.
    ///
    /// *Errors*: the line with its problem.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario = toml::from_str::<Self>(text)
            .map_err(|error| anyhow!(bounded::complaint(text, error.span(), error.message())))?;
        ensure!(scenario.rounds > 0, "rounds = 0 measures nothing");
        // All points and figures are checked here: a run of hours must not fail at its last point.
        scenario.points()?;
        scenario.figures.iter().try_for_each(|figure| figure.check(&scenario.axes))?;
        Ok(scenario)
    }

    /// Keeps only the selected points.
    ///
    /// *Errors*: an axis or a label does not exist.
    pub fn keep(&mut self, only: &LabelFilter) -> Result<()> {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let names = names.join(", ");
        for (name, wanted) in only.axes() {
            let axis = self.axes.iter_mut().find(|each| each.name == name);
            let axis = axis.with_context(|| format!("there is no axis \"{name}\", only {names}"))?;
            let labels = axis.labels();
            if let Some(label) = wanted.iter().find(|label| !labels.contains(label)) {
                bail!("the axis \"{name}\" has no \"{label}\", only {}", labels.join(", "));
            }
            let values = std::mem::take(&mut axis.values).into_iter();
            axis.values =
                // `parse` has checked that every value has a label, so both lists correspond.
                values.zip(labels).filter(|(_, label)| wanted.contains(label)).map(|(value, _)| value).collect();
        }
        Ok(())
    }

    /// Adds an axis of both builds, which varies fastest, so that every point of this product is measured with them
    /// alternately.
    ///
    /// *Errors*: there is such an axis already.
    pub fn in_turn(&mut self) -> Result<()> {
        ensure!(self.axes.iter().all(|axis| axis.name != BUILD), "the scenario has an axis \"{BUILD}\" of its own");
        let values = [Build::This, Build::Other].map(|build| Value::String(build.to_string()));
        self.axes.push(Axis { name: BUILD.to_owned(), values: values.to_vec() });
        Ok(())
    }

    /// Returns the product of the axes: labels by axis, with the point there. The last axis varies fastest. Targets
    /// other than this product have one build, and occur once.
    ///
    /// *Errors*: an axis without values, an unknown key, or an invalid point.
    pub fn points(&self) -> Result<Vec<(BTreeMap<String, String>, Point)>> {
        let mut tables = vec![(BTreeMap::new(), self.base.clone())];
        for axis in &self.axes {
            ensure!(!axis.values.is_empty(), "the axis \"{}\" has no values", axis.name);
            let mut next = Vec::new();
            for (labels, table) in &tables {
                for value in &axis.values {
                    let (label, set) = axis.at(value)?;
                    let (mut labels, mut table) = (labels.clone(), table.clone());
                    labels.insert(axis.name.clone(), label);
                    // An axis overrides the base, and a later axis overrides an earlier one.
                    table.extend(set);
                    next.push((labels, table));
                }
            }
            // Each axis multiplies the points of the axes before it, so the last one varies fastest.
            tables = next;
        }
        let point = |(labels, table): (BTreeMap<String, String>, Table)| {
            let point: Result<Point, _> = table.try_into();
            let point = point.with_context(|| place(&labels))?;
            point.check().with_context(|| place(&labels))?;
            Ok((labels, point))
        };
        let points: Result<Vec<_>> = tables.into_iter().map(point).collect();
        let twice = |labels: &BTreeMap<String, String>, point: &Point| {
            labels.contains_key(BUILD) && point.build == Build::Other && point.peer != Peer::Blockyard
        };
        Ok(points?.into_iter().filter(|(labels, point)| !twice(labels, point)).collect())
    }
}

impl Axis {
    /// Returns the labels of the axis, in order.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.values.iter().filter_map(|value| self.at(value).ok()).map(|(label, _)| label).collect()
    }

    /// Returns the label of a value, and the keys that it sets.
    fn at(&self, value: &Value) -> Result<(String, Table)> {
        let mut set = match value {
            Value::Table(set) => set.clone(),
            // The label of a text is without the quotes that TOML would print.
            Value::String(text) => return Ok((text.clone(), Table::from_iter([(self.name.clone(), value.clone())]))),
            other => return Ok((other.to_string(), Table::from_iter([(self.name.clone(), other.clone())]))),
        };
        let label =
            set.remove("label").with_context(|| format!("a value of the axis \"{}\" has no label", self.name))?;
        let label = label.as_str().with_context(|| format!("a label of the axis \"{}\" is no text", self.name))?;
        Ok((label.to_owned(), set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::holds;
    use crate::references::PAPERS;
    use std::collections::BTreeSet;
    use std::fs;

    const TEXT: &str = r#"
        name = "x"
        title = "X"
        [base]
        block = "8KiB"
        [[axis]]
        name = "peer"
        values = ["blockyard", "tgt"]
        [[axis]]
        name = "load"
        values = [{ label = "read", reads = 100 }, { label = "mixed", reads = 70, pattern = "sequential" }]
        [[axis]]
        name = "depth"
        values = [1, 8]
    "#;

    #[test]
    fn points_are_the_product_of_the_axes() {
        let points = Scenario::parse(TEXT).expect("it is right").points().expect("it is right");
        assert_eq!(points.len(), 8);
        let (labels, point) = &points[3];
        assert_eq!(labels.values().map(String::as_str).collect::<Vec<_>>(), ["8", "mixed", "blockyard"]);
        assert_eq!((point.depth, point.reads, point.block.bytes()), (8, 70, 8192));
    }

    #[test]
    fn some_labels_are_kept_and_others_are_named() {
        let mut scenario = Scenario::parse(TEXT).expect("it is right");
        let only = |texts: &[&str]| {
            LabelFilter::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
                .expect("they are right")
        };
        let error = scenario.keep(&only(&["depth=1", "depth=2"])).expect_err("no such depth");
        assert_eq!(error.to_string(), "the axis \"depth\" has no \"2\", only 1, 8");
        let error = scenario.keep(&only(&["dept=1"])).expect_err("no such axis");
        assert_eq!(error.to_string(), "there is no axis \"dept\", only peer, load, depth");
        scenario.keep(&only(&["depth=8", "depth=1", "load=mixed"])).expect("they are there");
        let points = scenario.points().expect("it is right");
        assert_eq!(
            points.iter().map(|(_, point)| (point.depth, point.reads)).collect::<Vec<_>>(),
            [(1, 70), (8, 70)].repeat(2)
        );
    }

    #[test]
    fn builds_in_turn_are_measured_one_after_the_other_and_peers_once() {
        let mut scenario = Scenario::parse(TEXT).expect("it is right");
        scenario.in_turn().expect("it has no such axis");
        let points = scenario.points().expect("it is right");
        let builds: Vec<(Peer, Build)> = points.iter().map(|(_, point)| (point.peer, point.build)).collect();
        assert_eq!(
            builds[..3].iter().map(|(_, build)| *build).collect::<Vec<_>>(),
            [Build::This, Build::Other, Build::This]
        );
        assert_eq!((builds.len(), builds[8..].iter().all(|at| *at == (Peer::Tgt, Build::This))), (12, true));
        assert!(scenario.in_turn().is_err());
    }

    #[test]
    fn what_a_point_does_not_have_is_named() {
        let error = Scenario::parse(&TEXT.replace("name = \"depth\"", "name = \"dept\"")).expect_err("no such key");
        assert!(format!("{error:#}").contains("dept"), "{error:#}");
        let error = Scenario::parse(&TEXT.replace("label = \"read\", ", "")).expect_err("no label");
        assert!(format!("{error:#}").contains("no label"), "{error:#}");
    }

    #[test]
    fn figures_name_axes_and_labels_that_exist() {
        let figure = "[[figure]]\ntitle = \"F\"\nform = \"lines\"\nx = \"depth\"\nmeasures = [\"iops\"]\nonly = { peer = \"tgt\" }\nbaseline = \"mixed\"\n";
        Scenario::parse(&format!("{TEXT}{figure}")).expect("it is right");
        for (right, wrong) in [
            ("\"depth\"\nm", "\"dept\"\nm"),
            ("\"tgt\" }", "\"lio\" }"),
            ("[\"iops\"]", "[]"),
            ("\"mixed\"", "\"write\""),
        ] {
            let text = format!("{TEXT}{}", figure.replace(right, wrong));
            let error = Scenario::parse(&text).expect_err(wrong);
            assert!(error.to_string().contains("the figure \"F\""), "{error:#}");
        }
    }

    /// Every file of the folder: its name is the scenario's, the papers that its figures name exist, and the labels of
    /// their numbers belong to some point.
    #[test]
    fn scenarios_of_the_lab_are_right() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../lab/scenarios");
        let mut printed = BTreeSet::new();
        for entry in fs::read_dir(folder).expect("it is part of the tree") {
            let path = entry.expect("it is part of the tree").path();
            let text = fs::read_to_string(&path).expect("it is text");
            let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            assert_eq!(path.file_stem().and_then(|stem| stem.to_str()), Some(scenario.name.as_str()));
            assert!(!scenario.sources.is_empty() && !scenario.figures.is_empty(), "{}", scenario.name);
            let points = scenario.points().expect("it was parsed");
            for figure in scenario.figures.iter().filter(|figure| figure.paper.is_some()) {
                let beside = PAPERS.printed(figure).unwrap_or_else(|| panic!("{}: {:?}", scenario.name, figure.paper));
                let shown: Vec<_> =
                    points.iter().map(|(labels, _)| labels).filter(|labels| figure.shows(labels)).collect();
                let claims = beside.claims.iter().flat_map(|claim| [&claim.of, &claim.over]);
                for part in beside.numbers.iter().map(|number| &number.at).chain(claims) {
                    assert!(
                        shown.iter().any(|labels| holds(labels, part)),
                        "{}: {}: {part:?}",
                        scenario.name,
                        beside.name
                    );
                }
                printed.insert(beside.name.clone());
            }
        }
        let all = PAPERS.figures.iter().map(|figure| figure.name.clone()).collect();
        assert_eq!(printed, all, "every printed figure is drawn in some scenario");
    }
}

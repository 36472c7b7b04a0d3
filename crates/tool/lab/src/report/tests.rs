use super::*;
use crate::synthetic;

/// Parses the text, and checks that no attribute or text contains NaN or infinity.
fn parsed(text: &str) -> roxmltree::Document<'_> {
    assert!(!["NaN", "inf\"", "-inf", "infinity"].iter().any(|wrong| text.contains(wrong)), "{text}");
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn with_class<'a>(document: &'a roxmltree::Document<'a>, class: &str) -> Vec<roxmltree::Node<'a, 'a>> {
    let has = |node: &roxmltree::Node<'_, '_>| {
        node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
    };
    document.descendants().filter(has).collect()
}

#[test]
fn lines_have_every_point_of_every_series_that_was_measured() {
    let run = synthetic::run();
    let text = draw::svg(&Chart::of(&run, &run.scenario.figures[0], &PAPERS), true);
    let document = parsed(&text);
    // Two measured peers and two loads, three panels, and the legend.
    assert_eq!(with_class(&document, "line").len(), 4 * 3 + 4);
    assert_eq!(with_class(&document, "mark").len(), 4 * 4 * 3 + 4);
    let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for wanted in ["blockyard, 100 % read", "tgt, 80:20", "outstanding commands (log scale)", "Mean latency (µs)", "64"]
    {
        assert!(told.contains(&wanted), "{wanted}: {told:?}");
    }
    assert!(
        told.iter().any(|text| text.starts_with("Not measured here: peer spdk (8 points): the path of a")),
        "{told:?}"
    );
    assert!(told.iter().any(|text| text.contains("2 Gb Fibre Channel")), "{told:?}");
    assert!(!with_class(&document, "printed").is_empty(), "the paper's numbers are drawn");
}

#[test]
fn bars_stand_on_the_axis_as_high_as_their_values() {
    let run = synthetic::run();
    let document_text = draw::svg(&Chart::of(&run, &run.scenario.figures[1], &PAPERS), true);
    let document = parsed(&document_text);
    let bars = with_class(&document, "bar");
    // Two peers above two labels in three panels, and two in the legend.
    assert_eq!(bars.len(), 2 * 2 * 3 + 2);
    let heights: Vec<f64> = bars.iter().map(|bar| bar.attribute("height").unwrap().parse().unwrap()).collect();
    let (ours, theirs) = (heights[2], heights[4]);
    assert!((7.0..9.5).contains(&(ours / theirs)), "{heights:?}");
}

#[test]
fn cells_of_a_heat_map_lie_within_their_panel() {
    let run = synthetic::run();
    let text = draw::svg(&Chart::of(&run, &run.scenario.figures[2], &PAPERS), true);
    let document = parsed(&text);
    let cells = with_class(&document, "cell");
    assert_eq!(cells.len(), 2 * 4 * 4, "two loads, four depths, four latencies");
    let value = |node: &roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
    assert!(cells.iter().all(|cell| (0.0..=1.0).contains(&value(cell, "fill-opacity")) && value(cell, "height") > 0.0));
}

#[test]
fn what_a_run_left_out_is_said() {
    let mut run = synthetic::run();
    run.complete = false;
    run.points.truncate(2);
    run.points[1].samples.clear();
    let page = html::page(std::slice::from_ref(&run));
    let document = parsed(&page);
    let named = |node: &roxmltree::Node<'_, '_>| node.text() == Some("blockyard, 100 % read");
    assert!(document.descendants().any(|node| named(&node)), "a line that is alone has its name");
    assert!(page.contains("This run was ended before every round was made."));
    assert!(page.contains("the run was ended before 1 of 2 points."));
    assert!(page.contains("The run has none of the points of this figure."), "the bars are of depth 16");
}

#[test]
fn page_is_whole_and_asks_for_nothing() {
    let run = synthetic::run();
    let text = html::page(&[run.clone(), run]);
    let document = parsed(&text);
    assert_eq!(document.descendants().filter(|node| node.tag_name().name() == "svg").count(), 6);
    for name in ["script", "img", "link", "iframe", "object"] {
        assert!(!document.descendants().any(|node| node.tag_name().name() == name), "{name}");
    }
    let outside = |value: &str| value.starts_with("http") && !value.starts_with("http://www.w3.org/");
    assert!(document.descendants().flat_map(|node| node.attributes()).all(|attribute| !outside(attribute.value())));
    assert!(!text.contains("url(") && !text.contains("@import"));
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let links = document.descendants().filter_map(|node| node.attribute("href")?.strip_prefix('#'));
    assert!(links.clone().count() == 6 && links.into_iter().all(|link| ids.contains(&link)));
    for wanted in
        ["Nothing at 0 GHz", "what &lt;nobody&gt; measured", "no difference shown", "ours / paper", "over distance"]
    {
        assert!(text.contains(wanted), "{wanted}");
    }
}

#[test]
fn files_are_written_and_csv_has_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let run = synthetic::run();
    let written = write(std::slice::from_ref(&run), &folder.path().join("new")).expect("there is room");
    let names: Vec<_> =
        written.files.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for wanted in ["report.html", "synthetic.csv", "synthetic.json", "synthetic-1.svg", "synthetic-3.svg"] {
        assert!(names.iter().any(|name| name == wanted), "{names:?}");
    }
    assert!(
        names.contains(&"synthetic-1.png".to_owned()) || written.remarks[0].contains("librsvg2-bin"),
        "{written:?}"
    );
    let samples: usize = run.points.iter().map(|point| point.samples.len()).sum();
    let csv = fs::read_to_string(folder.path().join("new/synthetic.csv")).unwrap();
    let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), samples + 1);
    assert!(
        lines[0].starts_with("peer,load,depth,round,seconds,reads,") && lines[0].ends_with(",beside-p50 (µs)"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("blockyard,100 % read,1,1,1,"), "{}", lines[1]);
    let columns = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(lines[0])));
    let read: Run =
        serde_json::from_str(&fs::read_to_string(folder.path().join("new/synthetic.json")).unwrap()).unwrap();
    assert_eq!(read, run);
    assert!(write(&[], folder.path()).is_err());
}

#[test]
fn numbers_have_the_digits_that_say_something() {
    let written = [0.0, 1_234_567.8, 100.0, 61.53, 8.0, 0.0421, -1234.0].map(number);
    assert_eq!(written, ["0", "1,234,568", "100", "61.5", "8", "0.042", "-1,234"]);
}

/// Returns the contrast of two colors from 1 to 21 (WCAG 2.2).
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn colours_stand_out_from_the_ground_in_both_themes() {
    let (light, dark) = draw::STYLE.split_once("@media").expect("there are two themes");
    for theme in [light, dark] {
        let fill = |name: &str| {
            let rule = theme
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split("fill:").nth(1))
                .unwrap_or_else(|| panic!("{name}"));
            rule[..7].to_owned()
        };
        let ground = fill(".ground{");
        for series in 0..8 {
            let colour = fill(&format!(".s{series}{{"));
            assert!(contrast(&colour, &ground) >= 3.0, "{colour} on {ground}: WCAG 2.2, 1.4.11");
        }
        for text in ["text{", ".tick,.remark{"] {
            assert!(contrast(&fill(text), &ground) >= 4.5, "{text} on {ground}: WCAG 2.2, 1.4.3");
        }
    }
    assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 0.01);
}

#[test]
fn page_says_what_limits_each_point_that_was_metered() {
    let mut run = synthetic::run();
    assert!(!html::page(std::slice::from_ref(&run)).contains("What limits each point"), "nobody looked");
    let load = Some(crate::seen::Thread { name: "load".into(), cpu_seconds: 0.97, ..crate::seen::Thread::default() });
    run.points[0].samples[0].seen = Some(crate::seen::Readings { load, ..crate::seen::Readings::default() });
    run.points[0].samples.truncate(1);
    let text = html::page(&[run]);
    let document = parsed(&text);
    let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for wanted in ["What limits each point", "the initiator's CPU"] {
        assert!(told.contains(&wanted), "{wanted}: {told:?}");
    }
    assert!(told.iter().any(|text| text.starts_with("the initiator's thread ran 97 % of the time")), "{told:?}");
}

/// Regression: findings of axe in headless Chromium.
#[test]
fn page_can_be_walked_without_seeing_it() {
    let run = synthetic::run();
    let text = html::page(&[run.clone(), run]);
    let document = parsed(&text);
    let all = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
    let main = all("main").next().expect("everything is in the main landmark");
    assert!(all("main").count() == 1 && all("section").all(|section| section.ancestors().any(|above| above == main)));
    assert!(all("th").all(|head| head.text().is_some_and(|text| !text.is_empty())), "a column has a name");
    let titled = |heading: &roxmltree::Node<'_, '_>| heading.text().is_some_and(|text| !text.is_empty());
    assert!(all("h1").count() == 1 && all("h2").chain(all("h3")).all(|heading| titled(&heading)));
    let scrolls = document.descendants().filter(|node| node.attribute("tabindex").is_some());
    assert!(scrolls.clone().count() > 4 && scrolls.clone().all(|node| node.attribute("aria-label").is_some()));
    assert!(scrolls.into_iter().all(|node| node.attribute("role") != Some("region")), "no landmark stands there twice");
}

#[test]
fn two_builds_that_were_measured_in_turn_stand_beside_each_other() {
    let mut run = synthetic::run();
    assert!(!html::page(std::slice::from_ref(&run)).contains("This build through the other"));
    run.scenario.in_turn().expect("it has no such axis");
    let at = |build: &'static str| {
        run.points.clone().into_iter().map(move |mut point| {
            point.labels.insert("build".to_owned(), build.to_owned());
            point
        })
    };
    run.points = at("this").chain(at("other")).collect();
    run.scenario.notes = vec!["Measured by `lab run`.".to_owned()];
    let text = html::page(&[run]);
    let document = parsed(&text);
    let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(told.contains(&"This build through the other, measured in turn"));
    let same = "no difference shown: 1.000 times (1.000 to 1.000, 97 % of 6 rounds)";
    assert!(told.contains(&same) && told.contains(&"not measured in both"), "{told:?}");
    assert!(document.descendants().any(|node| node.tag_name().name() == "code" && node.text() == Some("lab run")));
}

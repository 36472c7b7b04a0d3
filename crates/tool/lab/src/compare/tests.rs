use super::*;
use crate::synthetic;
use proptest::prelude::*;

/// Returns how often the interval contains the true ratio in 400 comparisons of `rounds` rounds.
fn coverage(rounds: usize, scatters: &[f64], ratio: f64) -> f64 {
    // Each comparison has its own part of the random values.
    let mut scatters = scatters.chunks_exact(2 * rounds).map(|one| one.split_at(rounds));
    let held = scatters.by_ref().take(400).filter(|(one, other)| {
        let first: Vec<f64> = one.iter().map(|scatter| 100.0 * ratio * scatter.exp()).collect();
        let second: Vec<f64> = other.iter().map(|scatter| 100.0 * scatter.exp()).collect();
        let found = Ratio::of(&first, &second).expect("all are positive");
        found.low <= ratio && ratio <= found.high
    });
    held.count() as f64 / 400.0
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::with_cases(24) })]

    /// A share of 400 varies by chance; in 24 cases none is off by five standard deviations.
    #[test]
    fn interval_holds_the_true_ratio_as_often_as_it_says(
        rounds in 2_usize..24,
        scatters in proptest::collection::vec(-0.3..0.3, 2 * 24 * 400),
        ratio in 0.5..2.0,
    ) {
        let (_, said) = rank(rounds);
        let held = coverage(rounds, &scatters, ratio);
        let wobble = (said * (1.0 - said) / 400.0).sqrt();
        prop_assert!((held - said).abs() < 5.0 * wobble + 0.0025, "{rounds} rounds: said {said}, held {held}");
    }

    #[test]
    fn a_ratio_turned_over_is_the_ratio_of_the_others(pairs in proptest::collection::vec((1.0..1e6, 1.0..1e6), 1..40)) {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let there = Ratio::of(&first, &second).expect("all are positive");
        let back = Ratio::of(&second, &first).expect("all are positive");
        prop_assert!(there.low <= there.median && there.median <= there.high);
        prop_assert!((back.low * there.high - 1.0).abs() < 1e-9 && (back.high * there.low - 1.0).abs() < 1e-9);
    }
}

#[test]
fn intervals_are_those_of_the_sign_test() {
    // Tables of the sign test: the lower end's rank, counted from 0, and the confidence in thousandths.
    for (rounds, index, thousandths) in
        [(1, 0, 0), (2, 0, 500), (3, 0, 750), (5, 0, 938), (6, 0, 969), (9, 1, 961), (20, 5, 959)]
    {
        let (found, confidence) = rank(rounds);
        assert_eq!((found, (confidence * 1000.0).round() as u32), (index, thousandths), "{rounds}");
    }
    let (index, confidence) = rank(5000);
    assert!((2420..2440).contains(&index) && (0.95..0.953).contains(&confidence), "{index} {confidence}");
}

#[test]
fn verdict_depends_on_what_is_measured() {
    let more = Ratio::of(&[12.0, 12.5, 11.8, 12.1, 12.2, 12.3], &[10.0; 6]).expect("all are positive");
    assert_eq!(more.sentence(Measure::Iops), "faster: 1.215 times (1.180 to 1.250, 97 % of 6 rounds)");
    assert!(more.sentence(Measure::P99).starts_with("slower: "), "{}", more.sentence(Measure::P99));
    assert!(more.sentence(Measure::ServerPerCommand).starts_with("dearer: "));
    let either = Ratio::of(&[12.0, 8.0, 11.0, 9.0, 10.5, 9.5], &[10.0; 6]).expect("all are positive");
    assert!(either.sentence(Measure::Iops).starts_with("no difference shown: "));
}

#[test]
fn few_rounds_say_how_little_they_show() {
    let three = Ratio::of(&[12.0, 13.0, 14.0], &[10.0; 3]).expect("all are positive");
    let sentence = "faster: 1.300 times (1.200 to 1.400, 75 % of 3 rounds); 6 rounds are the fewest for 95 %";
    assert_eq!(three.sentence(Measure::Iops), sentence);
    let one = Ratio::of(&[12.0], &[10.0]).expect("all are positive");
    assert_eq!(one.verdict(Measure::Iops), Verdict::NotShown);
    assert_eq!((Ratio::of(&[], &[]), Ratio::of(&[1.0], &[0.0])), (None, None));
}

#[test]
fn labels_are_compared_at_the_same_other_labels() {
    let run = synthetic::run();
    let rows = labels(&run, "peer", "blockyard", "tgt", &[Measure::Iops, Measure::P99]).expect("both are there");
    assert_eq!(rows.len(), 2 * 2 * 4);
    let first = rows[0].ratio.as_ref().expect("both were measured");
    assert!(rows[0].labels.keys().eq(["depth", "load"]), "{:?}", rows[0].labels);
    assert!((7.0..9.0).contains(&first.median), "{first}");
    let error = labels(&run, "peer", "blockyard", "lio", &[]).expect_err("no such label");
    assert_eq!(error.to_string(), "the axis \"peer\" has no \"lio\", but: blockyard, tgt, spdk");
    assert!(labels(&run, "pear", "a", "b", &[]).is_err());
}

#[test]
fn a_run_is_as_fast_as_itself() {
    let run = synthetic::run();
    let rows = runs(&run, &run, &[Measure::Bandwidth]);
    assert_eq!(rows.len(), run.points.len());
    let measured: Vec<_> = rows.iter().filter_map(|row| row.ratio.as_ref()).collect();
    assert!(
        !measured.is_empty() && measured.iter().all(|ratio| ratio.verdict(Measure::Bandwidth) == Verdict::NotShown)
    );
}

use super::*;
use crate::{choice, xor};
use proptest::prelude::*;

type Bytes = Vec<Vec<u8>>;

/// Two to twelve columns of equal length, in most cases not a multiple of the vector size.
fn data() -> impl Strategy<Value = Bytes> {
    (2usize..12, 0usize..5000).prop_flat_map(|(columns, len)| {
        prop::collection::vec(any::<u64>(), columns)
            .prop_map(move |seeds| seeds.into_iter().map(|s| noise(s, len)).collect())
    })
}

/// Pseudo-random bytes, cheaper than a proptest strategy for byte vectors.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}

fn columns(data: &Bytes) -> Vec<Option<&[u8]>> {
    data.iter().map(|column| Some(&column[..])).collect()
}

fn slices(data: &Bytes) -> Vec<&[u8]> {
    data.iter().map(|column| &column[..]).collect()
}

fn parity_of(data: &Bytes) -> (Vec<u8>, Vec<u8>) {
    let len = data[0].len();
    let (mut p, mut q) = (vec![0xee; len], vec![0xee; len]);
    pq(&columns(data), &mut p, &mut q);
    (p, q)
}

#[test]
fn parity_of_single_bytes_by_hand() {
    let data: Bytes = vec![vec![0x01], vec![0x80], vec![0xff]];
    // P = 01 ^ 80 ^ ff. Q = 01 ^ 2·80 ^ 4·ff, where 2·80 = 1d, 2·ff = fe ^ 1d = e3 and 4·ff = c6 ^ 1d = db.
    assert_eq!(parity_of(&data), (vec![0x7e], vec![0x01 ^ 0x1d ^ 0xdb]));
}

#[test]
fn recover_refuses_more_losses_than_parity() {
    let lost: [Option<&[u8]>; 3] = [None, None, Some(&[1])];
    let mut out = [0];
    assert_eq!(recover(&lost, Some(&[1]), None, 0, &mut out), Err(Unrecoverable));
    assert_eq!(recover(&lost, None, Some(&[1]), 0, &mut out), Err(Unrecoverable));
    assert_eq!(recover(&[None, Some(&[1])], None, None, 0, &mut out), Err(Unrecoverable));
    assert_eq!(recover(&[None, None, None], Some(&[1]), Some(&[1]), 0, &mut out), Err(Unrecoverable));
    assert_eq!(recover(&lost, Some(&[1]), Some(&[1]), 0, &mut out), Ok(()));
}

#[test]
#[should_panic(expected = "only a lost column is recovered")]
fn recover_of_a_column_that_is_there_is_a_bug() {
    let _ = recover(&[Some(&[1]), Some(&[1])], Some(&[0]), None, 0, &mut [0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn parity_is_what_an_independent_implementation_says(data in data()) {
        let len = data[0].len();
        let (mut p, mut q, mut sum) = (vec![1; len], vec![1; len], vec![1; len]);
        rusty_erasure::raid::pq_gen(&slices(&data), &mut p, &mut q).expect("well-formed");
        prop_assert_eq!(parity_of(&data), (p.clone(), q));
        xor::xor(&slices(&data), &mut sum);
        prop_assert_eq!(sum, p);
    }

    #[test]
    fn kernels_all_compute_what_the_scalar_one_does(
        data in data(), skew in 0usize..8, hole in any::<prop::sample::Index>(), c in any::<u8>(),
    ) {
        let skew = skew.min(data[0].len());
        let cut: Vec<&[u8]> = data.iter().map(|column| &column[skew..]).collect();
        let len = cut[0].len();
        let mut holed: Vec<Option<&[u8]>> = cut.iter().copied().map(Some).collect();
        holed[hole.index(data.len())] = None;
        let results = choice::available().map(|kernel| {
            let (mut p, mut q, mut sum) = (vec![1; len], vec![2; len], vec![3; len]);
            kernel.pq(&holed, &mut p, &mut q);
            kernel.xor(&cut, &mut sum);
            let mut product = cut[0].to_vec();
            kernel.multiply_into(&mut product, cut[1], c);
            let mut scaled = cut[0].to_vec();
            (kernel.scale)(&mut scaled, c);
            (kernel.xor_into)(&mut scaled, cut[1]);
            (p, q, sum, product, scaled)
        });
        let results: Vec<_> = results.collect();
        for result in &results {
            prop_assert_eq!(result, &results[0]);
        }
    }

    #[test]
    fn update_q_gives_what_computing_anew_gives(mut data in data(), at in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let column = at.index(data.len());
        let (mut p, mut q) = parity_of(&data);
        let new = noise(seed, p.len());
        let mut delta = std::mem::replace(&mut data[column], new);
        xor::xor_into(&mut delta, &data[column]);
        xor::xor_into(&mut p, &delta);
        update_q(&mut q, &delta, column);
        prop_assert_eq!((p, q), parity_of(&data));
    }

    /// Cases: one data column by P, one by Q (P missing, too), two data columns, and a data column with either parity.
    #[test]
    fn recover_returns_every_tolerated_loss(
        data in data(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
    ) {
        let (x, y) = (a.index(data.len()), b.index(data.len()));
        let (p, q) = parity_of(&data);
        let mut lost = columns(&data);
        lost[x] = None;
        let mut out = vec![0xee; p.len()];
        for (p, q) in [(Some(&p[..]), None), (None, Some(&q[..])), (Some(&p[..]), Some(&q[..]))] {
            out.fill(0xee);
            prop_assert_eq!(recover(&lost, p, q, x, &mut out), Ok(()));
            prop_assert_eq!(&out, &data[x]);
        }
        lost[y] = None;
        prop_assert_eq!(recover(&lost, Some(&p), Some(&q), x, &mut out), Ok(()));
        prop_assert_eq!(&out, &data[x]);
    }
}

//! Prints the throughput of each kernel of this CPU: `cargo run --release -p simd --example parity_speed`.
//!
//! Bytes of data (not of parity) per second on one core, with the data in the cache.

#![expect(clippy::disallowed_types, reason = "a measurement reads the clock")]

use simd::{choice, crc32c};
use std::hint::black_box;
use std::time::{Duration, Instant};

const COLUMNS: usize = 6;

/// Returns the throughput of `work`, which processes `bytes`, in GB/s: the best of five runs.
fn speed(bytes: usize, mut work: impl FnMut()) -> f64 {
    let rounds = (256 << 20) / bytes;
    let once = |_| {
        let begin = Instant::now();
        (0..rounds).for_each(|_| work());
        begin.elapsed()
    };
    let best = (0..5).map(once).min().unwrap_or(Duration::MAX);
    (bytes * rounds) as f64 / best.as_secs_f64() / 1e9
}

fn main() {
    println!("{COLUMNS} data columns; GB/s of data");
    println!("{:<12} {:>9} {:>8} {:>8} {:>10}", "kernel", "chunk", "xor", "p+q", "q update");
    for kernel in choice::available() {
        for chunk in [4096, 65536] {
            let data: Vec<Vec<u8>> = (0..COLUMNS).map(|n| vec![n as u8 + 1; chunk]).collect();
            let slices: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
            let columns: Vec<Option<&[u8]>> = slices.iter().copied().map(Some).collect();
            let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
            let xor = speed(chunk * COLUMNS, || kernel.xor(black_box(&slices), &mut p));
            let both = speed(chunk * COLUMNS, || kernel.pq(black_box(&columns), &mut p, &mut q));
            let update = speed(chunk, || kernel.multiply_into(&mut q, black_box(&data[3]), 8));
            println!("{:<12} {chunk:>9} {xor:>8.1} {both:>8.1} {update:>10.1}", kernel.name());
        }
    }
    for len in [48, 4096, 65536] {
        let bytes = vec![7; len];
        let crc = speed(len, || _ = black_box(crc32c::crc32c(black_box(&bytes))));
        println!("crc32c of {len:>6} bytes {crc:>8.1} GB/s");
    }
}

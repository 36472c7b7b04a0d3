//! Cost of encryption, measured over memory: `cargo run --release -p volume --example encryption_speed`.

#![expect(clippy::disallowed_types, reason = "a measurement needs a clock; nothing here is reproduced from a seed")]

use block::memory::Ram;
use block::{BlockDevice, Blocks, Buf, Extent, Lba, View, Written};
use std::hint::black_box;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use volume::{CreatePool, GroupPlan, NewDisk, NewKey, Pool, PoolKey, Provisioning, ThinPlan, ThinVolume, Uuid};

type Disk = Rc<Ram>;
type TestVolume = Rc<ThinVolume<Disk, Disk>>;

/// Size of a volume in blocks: 64 MiB.
const BLOCKS: u64 = 16 << 10;
const ROUNDS: usize = 9;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, mut cx) = (pin!(future), Context::from_waker(Waker::noop()));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
}

fn pool() -> Pool<Disk, Disk> {
    let disk = Rc::new(Ram::new(4096, Blocks(128 << 10)));
    let group = Rc::new(Ram::new(4096, Blocks(96 << 10)));
    let members = vec![NewDisk { id: Uuid::from_u128(2), device: disk }];
    let member_blocks = Blocks(96 << 10);
    let id = Uuid::from_u128(3);
    let group_plan = GroupPlan { id, level: 0, protected: false, chunk_bytes: 65536, member_blocks, members };
    let plan = CreatePool {
        id: Uuid::from_u128(1),
        name: "speed".into(),
        slab_bytes: 0,
        groups: vec![group_plan],
        now: 0,
        created_by: "encryption_speed".into(),
        force: true,
    };
    let pool = block_on(Pool::create(plan, vec![group])).expect("memory is a good disk");
    pool.set_key(PoolKey::of([1; 32]));
    pool
}

fn create(pool: &Pool<Disk, Disk>, number: u128, encryption: Option<NewKey>) -> TestVolume {
    let plan = ThinPlan {
        id: Uuid::from_u128(number),
        name: format!("v{number}"),
        size_bytes: BLOCKS * 4096,
        block_bytes: 4096,
        granule_bytes: 0,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        encryption,
        created_at: 0,
    };
    block_on(pool.create_thin_volume(plan)).expect("there is room")
}

/// Median over all rounds, in nanoseconds, of an operation on each run of `blocks` of the volume.
fn median_ns(blocks: u64, mut operate: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            (0..BLOCKS / blocks).for_each(|at| operate(at * blocks));
            begin.elapsed().as_nanos() as f64 / (BLOCKS / blocks) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let pool = pool();
    let key = NewKey::from_random(&[7; NewKey::BYTES]);
    let volumes = [create(&pool, 10, None), create(&pool, 11, Some(key))];
    for kib in [4, 64, 1024] {
        let blocks = kib / 4;
        let data: View = Buf::copy_of(&vec![7; kib as usize * 1024]).freeze();
        let [plain, encrypted] = volumes.each_ref().map(|volume| {
            let write = |at| drop::<Written>(block_on(volume.write(Lba(at), data.clone())).expect("there is room"));
            let read = |at| drop(black_box(block_on(volume.read(Extent::new(at, blocks))).expect("it is there")));
            (median_ns(blocks, write), median_ns(blocks, read))
        });
        let more = |with: f64, without: f64| {
            format!("+{:.2} us, {:.1} GB/s", (with - without) / 1e3, kib as f64 * 1024.0 / with)
        };
        println!("write {kib} KiB: plain {:.2} us, encrypted {}", plain.0 / 1e3, more(encrypted.0, plain.0));
        println!("read  {kib} KiB: plain {:.2} us, encrypted {}", plain.1 / 1e3, more(encrypted.1, plain.1));
    }
}

//! Cost of a family's map, measured over memory: `cargo run --release -p volume --example families_speed`.

#![expect(clippy::disallowed_types, reason = "a measurement needs a clock; nothing here is reproduced from a seed")]

use block::memory::Ram;
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use std::hint::black_box;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use volume::{
    CreatePool, GroupPlan, Lock, NewDisk, Pool, Provisioning, SnapshotPlan, ThinPlan, ThinVolume, Uuid, assemble, probe,
};

const MIB: u64 = 256;

/// Group that stores maps, and data only when `keeps_data` is set.
struct Group {
    ram: Ram,
    keeps_data: bool,
}

impl BlockDevice for Group {
    fn geometry(&self) -> Geometry {
        Geometry { optimal_bytes: 256 << 10, ..self.ram.geometry() }
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.ram.read(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        // All map blocks begin with this magic; data of the measurement does not.
        if self.keeps_data || data.starts_with(b"BLKYD") {
            self.ram.write(start, data).await
        } else {
            Ok(Written::attest())
        }
    }
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.ram.flush(after).await
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.ram.discard(extent).await
    }
}

type Disk = Rc<Ram>;
type TestPool = Pool<Disk, Rc<Group>>;
type TestVolume = Rc<ThinVolume<Disk, Rc<Group>>>;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
}

fn pool(data_mib: u64, keeps_data: bool) -> (Disk, Rc<Group>, TestPool) {
    let disk = Rc::new(Ram::new(4096, Blocks((data_mib + 32) * MIB)));
    let group = Rc::new(Group { ram: Ram::new(4096, Blocks(data_mib * MIB)), keeps_data });
    let member_blocks = Blocks(data_mib * MIB);
    let members = vec![NewDisk { id: Uuid::from_u128(2), device: disk.clone() }];
    let plan =
        GroupPlan { id: Uuid::from_u128(3), level: 0, protected: false, chunk_bytes: 65536, member_blocks, members };
    let plan = CreatePool {
        id: Uuid::from_u128(1),
        name: "speed".into(),
        slab_bytes: 0,
        groups: vec![plan],
        now: 0,
        created_by: "families_speed".into(),
        force: true,
    };
    let pool = block_on(Pool::create(plan, vec![group.clone()])).expect("memory is a good disk");
    (disk, group, pool)
}

fn create(pool: &TestPool, mib: u64) -> TestVolume {
    let plan = ThinPlan {
        id: Uuid::from_u128(9),
        name: "v".into(),
        size_bytes: mib << 20,
        block_bytes: 4096,
        granule_bytes: 0,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        encryption: None,
        created_at: 0,
    };
    block_on(pool.create_thin_volume(plan)).expect("there is room")
}

fn fill(volume: &TestVolume, mib: u64) {
    let data = View::zeroed(1 << 20);
    for at in 0..mib {
        let _: Written = block_on(volume.write(Lba(at * MIB), data.clone())).expect("there is room");
    }
    flush(volume);
}

fn flush(volume: &TestVolume) {
    let _: Stable = block_on(volume.flush(Written::attest())).expect("memory does not fail");
}

fn snapshot(pool: &TestPool, number: u128) {
    let (id, volume) = (Uuid::from_u128(1000 + number), Uuid::from_u128(9));
    let plan = SnapshotPlan { id, volume, name: format!("s{number}"), lock: Lock::Open, created_at: 0 };
    block_on(pool.create_snapshots(&[plan])).expect("there is room");
}

/// Median of nine rounds, in nanoseconds, of a random 4 KiB write.
fn write_ns(device: &impl BlockDevice, blocks: u64, count: u64, seed: &mut u64) -> f64 {
    let data = Buf::copy_of(&[7; 4096]).freeze();
    let mut rounds: Vec<f64> = (0..9)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..count {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = (*seed >> 33) % blocks;
                let _: Written = block_on(device.write(Lba(block), data.clone())).expect("there is room");
            }
            begin.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn open_million() {
    let granules_mib = 65_536;
    let (disk, group, pool) = pool(granules_mib + 2048, false);
    let volume = create(&pool, granules_mib);
    let begin = Instant::now();
    fill(&volume, granules_mib);
    let filled = begin.elapsed();
    let status = pool.status();
    drop((volume, pool));
    let begin = Instant::now();
    let found = [block_on(probe(&*disk))];
    let survey = assemble(&found);
    let again: TestPool =
        block_on(Pool::open(&survey.pools[0], |_| disk.clone(), vec![group], |_, _| true)).expect("it was made above");
    let opened: Duration = begin.elapsed();
    let volume = block_on(again.open_thin_volume(Uuid::from_u128(9))).expect("it was made above");
    let both = begin.elapsed();
    black_box(block_on(volume.read(Extent::new(1 << 20, 1))).expect("it is mapped"));
    let mapped = again.status().families[0].volumes[0].mapped_bytes.unwrap_or(0) >> 16;
    println!("{mapped} granules of 64 KiB mapped in {filled:.2?}; map {} MiB", status.families[0].map_bytes >> 20);
    println!("pool opened in {opened:.2?}, its volume in {:.2?}", both - opened);
}

fn random_writes() {
    let mib = 512;
    let (_, group, pool) = pool(4096, true);
    let volume = create(&pool, mib);
    fill(&volume, mib);
    let (blocks, count, mut seed) = (mib * MIB, 20_000, 1);
    // The reference memory is touched first, as the volume's is.
    let bare = Ram::new(4096, Blocks(blocks));
    write_ns(&bare, blocks, blocks, &mut seed);
    let below = write_ns(&bare, blocks, count, &mut seed);
    let before = write_ns(&*volume, blocks, count, &mut seed);
    println!(
        "random 4 KiB writes: memory {below:.0} ns, thin volume over it {before:.0} ns (+{:.0} ns)",
        before - below
    );
    snapshot(&pool, 0);
    let begin = Instant::now();
    for granule in 0..mib * 16 {
        let data = Buf::copy_of(&[7; 4096]).freeze();
        let _: Written = block_on(volume.write(Lba(granule * 16 + 3), data)).expect("there is room");
    }
    let copy_ns = begin.elapsed().as_nanos() as f64 / (mib * 16) as f64;
    flush(&volume);
    let after = write_ns(&*volume, blocks, count, &mut seed);
    println!(
        "after a snapshot: {copy_ns:.0} ns for a first write (copies 64 KiB), then {after:.0} ns: {:.0} %",
        100.0 * before / after
    );
    for number in 1..1000 {
        snapshot(&pool, number);
        write_ns(&*volume, 16, 1, &mut seed);
    }
    for granule in 0..mib * 16 {
        let data = Buf::copy_of(&[7; 4096]).freeze();
        let _: Written = block_on(volume.write(Lba(granule * 16 + 3), data)).expect("there is room");
    }
    flush(&volume);
    let one = after;
    let thousand = write_ns(&*volume, blocks, count, &mut seed);
    println!("with 1,000 snapshots: {thousand:.0} ns: {:+.1} % against one", 100.0 * (thousand / one - 1.0));
    drop(group);
}

fn main() {
    open_million();
    random_writes();
}

use crate::rig::*;
use crate::*;
use futures_util::FutureExt;
use std::future::Future;
use std::pin::Pin;

fn compare_and_write(lba: u64, count: u8) -> [u8; 16] {
    let mut cdb = cdb16(0x89, 0, lba, 0);
    cdb[13] = count;
    cdb
}

fn pair(old: u8, new: u8, count: usize) -> Vec<u8> {
    [vec![old; count * BLOCK], vec![new; count * BLOCK]].concat()
}

#[test]
fn compare_and_write_writes_several_blocks_when_all_are_equal() {
    let unit = unit();
    for count in [1, 2, 127] {
        unit.device().bytes.borrow_mut().fill(b'A');
        tell(&unit, &compare_and_write(1, count), &pair(b'A', b'B', usize::from(count)));
        assert_eq!(blocks(&unit, 1, u64::from(count)), vec![b'B'; usize::from(count) * BLOCK]);
        assert_eq!(
            (blocks(&unit, 0, 1), blocks(&unit, u64::from(count) + 1, 1)),
            (vec![b'A'; BLOCK], vec![b'A'; BLOCK])
        );
    }
}

#[test]
fn compare_and_write_that_differs_says_at_which_byte_and_writes_nothing() {
    let unit = unit();
    unit.device().bytes.borrow_mut().fill(b'A');
    let mut data = pair(b'A', b'B', 4);
    data[4 * BLOCK - 27] = b'C';
    let outcome = run(&unit, HOST, &compare_and_write(BLOCKS - 4, 4), &data);
    assert_eq!(sense(&outcome), (0xE, 0x1D, 0));
    assert_eq!(outcome.sense.expect("sense").information, Some(4 * BLOCK as u64 - 27));
    assert_eq!(ops(&unit), [Op::Read(BLOCKS - 4, 4)]);
}

#[test]
fn compare_and_write_takes_exactly_twice_its_blocks() {
    let unit = unit();
    for (count, data_blocks) in [(1, 4), (3, 4), (1, 1), (0, 2), (2, 0)] {
        let data = vec![0; data_blocks * BLOCK];
        assert_eq!(pointed(&unit, &compare_and_write(0, count), &data), (13, None));
    }
    tell(&unit, &compare_and_write(0, 0), &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn compare_and_write_longer_than_announced_is_refused() {
    let unit = unit_with(Options { transfer_bytes_max: 8 * BLOCK as u32, ..Options::default() });
    assert_eq!(ask(&unit, &[0x12, 1, 0xB0, 0, 64, 0])[5], 4);
    tell(&unit, &compare_and_write(0, 4), &pair(0, 1, 4));
    assert_eq!(pointed(&unit, &compare_and_write(0, 5), &pair(0, 1, 5)), (13, None));
}

type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// Completes one operation of the device, then polls the running commands from index `first` on.
fn step(unit: &LogicalUnit<Bench>, running: &mut Vec<(usize, Running<'_>)>, first: usize) -> Vec<(usize, Outcome)> {
    unit.device().permits.set(1);
    let mut ended = Vec::new();
    let count = running.len();
    running.rotate_left(first % count);
    running.retain_mut(|(nth, future)| match future.as_mut().now_or_never() {
        Some(outcome) => {
            ended.push((*nth, outcome));
            false
        }
        None => true,
    });
    ended
}

#[test]
fn compare_and_write_is_atomic_in_every_interleaving() {
    // Sixteen nexuses increment one block, each from every value: each value is won exactly once.
    const HOSTS: u8 = 16;
    for seed in 0..64_usize {
        let unit = unit();
        let mut running: Vec<(usize, Running<'_>)> = Vec::new();
        unit.device().permits.set(0);
        for nth in 0..HOSTS {
            let value = nth % 4;
            let command = command(&compare_and_write(7, 1), &pair(value, value + 1, 1));
            running.push((usize::from(nth), Box::pin(unit.execute(NexusId(u64::from(nth)), command))));
        }
        let mut won = Vec::new();
        let mut turn = seed;
        while !running.is_empty() {
            turn = turn.wrapping_mul(1_103_515_245).wrapping_add(12345) >> 3;
            for (nth, outcome) in step(&unit, &mut running, turn) {
                match outcome.status {
                    Status::Good => won.push(nth as u8 % 4),
                    _ => assert_eq!(sense(&outcome), (0xE, 0x1D, 0)),
                }
            }
        }
        assert_eq!(won, (0..won.len() as u8).collect::<Vec<_>>(), "seed {seed}: each value is won once, in order");
        assert!(!won.is_empty());
        assert_eq!(blocks(&unit, 7, 1), vec![won.len() as u8; BLOCK]);
        unit.device().permits.set(usize::MAX);
    }
}

#[test]
fn compare_and_write_lets_nobody_write_between_its_read_and_its_write() {
    let unit = unit();
    unit.device().permits.set(0);
    let mut compare = Box::pin(unit.execute(HOST, command(&compare_and_write(7, 2), &pair(0, 1, 2))));
    assert!(compare.as_mut().now_or_never().is_none());
    let mut write = Box::pin(unit.execute(OTHER, command(&cdb10(0x2A, 0, 8, 1), &[9; BLOCK])));
    let mut beside = Box::pin(unit.execute(OTHER, command(&cdb10(0x2A, 0, 9, 1), &[9; BLOCK])));
    for running in [&mut write, &mut beside] {
        assert!(running.as_mut().now_or_never().is_none());
    }
    unit.device().permits.set(3);
    assert!(write.as_mut().now_or_never().is_none(), "it waits for the comparison");
    good(compare.now_or_never().expect("permits"));
    unit.device().permits.set(usize::MAX);
    good(write.now_or_never().expect("permits"));
    good(beside.now_or_never().expect("permits"));
    assert_eq!(ops(&unit)[..3], [Op::Read(7, 2), Op::Write(7, 2), Op::Flush]);
    assert_eq!(blocks(&unit, 7, 3), [[1; BLOCK], [9; BLOCK], [9; BLOCK]].concat());
}

#[test]
fn or_write_merges_bits_and_keeps_its_blocks_to_itself() {
    let unit = unit();
    unit.device().bytes.borrow_mut().fill(0x0F);
    tell(&unit, &cdb16(0x8B, 0x18, 3, 2), &[0xA0; 2 * BLOCK]);
    assert_eq!(ops(&unit), [Op::Read(3, 2), Op::Write(3, 2), Op::Flush]);
    assert_eq!(blocks(&unit, 2, 4), [vec![0x0F; BLOCK], vec![0xAF; 2 * BLOCK], vec![0x0F; BLOCK]].concat());
    tell(&unit, &cdb16(0x8B, 0, BLOCKS, 0), &[]);
    assert_eq!(ops(&unit), []);
}

#[test]
fn commands_that_run_alone_keep_every_other_kind_off_their_blocks() {
    let thin = Options { provisioning: Provisioning::Thin, ..Options::default() };
    let list = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &7_u64.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let alone: [(&[u8], Vec<u8>); 5] = [
        (&compare_and_write(7, 1), pair(0, 1, 1)),
        (&cdb16(0x8B, 0, 7, 1), vec![1; BLOCK]),
        (&cdb10(0x2E, 0x02, 7, 1), vec![1; BLOCK]),
        (&cdb12(0xAE, 0x02, 7, 1), vec![1; BLOCK]),
        (&cdb16(0x8E, 0x02, 7, 1), vec![1; BLOCK]),
    ];
    let others: [(&[u8], Vec<u8>); 5] = [
        (&cdb10(0x28, 0, 7, 1), Vec::new()),
        (&cdb10(0x2A, 0, 6, 2), vec![9; 2 * BLOCK]),
        (&cdb16(0x93, 0, 0, 9), vec![9; BLOCK]),
        (&cdb10(0x2F, 0, 7, 1), Vec::new()),
        (&cdb10(0x42, 0, 0, 24), list),
    ];
    for (cdb, data) in &alone {
        for (other, other_data) in &others {
            let unit = unit_with(thin);
            unit.device().permits.set(1);
            let mut running = Box::pin(unit.execute(HOST, command(cdb, data)));
            assert!(running.as_mut().now_or_never().is_none());
            unit.device().permits.set(usize::MAX);
            let mut late = Box::pin(unit.execute(OTHER, command(other, other_data)));
            assert!(late.as_mut().now_or_never().is_none(), "{:?} came between", Cdb::new(other));
            good(running.as_mut().now_or_never().expect("permits"));
            good(late.now_or_never().expect("the blocks are free"));
        }
    }
}

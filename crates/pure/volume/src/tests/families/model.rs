//! Random lives of families, checked against the same model and with the same power losses.

use super::crash::{Script, Tally, assert_clean, check_some};
use super::rig::*;
use crate::Provisioning;
use crate::tests::disk::{Image, Random};

/// Limit of the numbers of volumes and snapshots of a random life.
const NUMBERS: u64 = 9;

/// Life of `steps` random steps from a seed.
pub(super) fn random_life(seed: u64, steps: usize) -> (Vec<Image>, Script) {
    let mut random = Random(seed);
    let mut script = Script::begin(seed.is_multiple_of(3));
    let base = script.world.images();
    let provisioning = if random.below(4) == 0 { Provisioning::Thick } else { Provisioning::Thin };
    script.create(0, 200, provisioning);
    for _ in 0..steps {
        step(&mut script, &mut random);
    }
    (base, script)
}

fn step(script: &mut Script, random: &mut Random) {
    let volumes: Vec<(u64, u64)> = script.known.volumes.iter().map(|(&volume, (size, _))| (volume, *size)).collect();
    let snapshots: Vec<u64> = script.known.snapshots.keys().copied().collect();
    let (volume, size) = volumes[random.below(volumes.len() as u64) as usize];
    let start = random.below(size);
    let most = if random.below(3) == 0 { 60 } else { 6 };
    let count = (1 + random.below(most)).min(size - start);
    let picked = (!snapshots.is_empty()).then(|| snapshots[random.below(snapshots.len() as u64) as usize]);
    let free_snapshot = (0..NUMBERS).find(|number| !script.known.snapshots.contains_key(number));
    match (random.below(20), picked) {
        (0..=6, _) => script.write(volume, start, count),
        (7..=8, _) => script.discard(volume, start, count * 3 % (size - start) + 1),
        (9..=11, _) => script.flush(volume),
        (12..=13, _) => {
            let Some(number) = free_snapshot else { return script.flush(volume) };
            let other = (number + 1..NUMBERS).find(|number| !script.known.snapshots.contains_key(number));
            match (other, volumes.iter().find(|(one, _)| *one != volume)) {
                (Some(other), Some(&(second, _))) if random.below(2) == 0 => {
                    script.snapshots(&[(number, volume), (other, second)]);
                }
                _ => script.snapshots(&[(number, volume)]),
            }
        }
        (14, Some(snapshot)) => {
            let of = script.owner(snapshot);
            script.roll_back(of, snapshot);
        }
        (15, Some(snapshot)) => {
            if !script.is_cloned(snapshot) {
                script.delete_snapshot(snapshot);
            }
        }
        (16, Some(snapshot)) if volumes.len() < 3 => {
            // The UUID of a volume being deleted is not free yet.
            let number = 100 + script.acknowledged.len() as u64;
            script.clone_of(number, snapshot);
        }
        (17, _) if volume != 0 && script.snapshots_of(volume) == 0 => script.delete(volume),
        (18, _) => script.resize(volume, size + random.below(40)),
        _ => script.run_maintenance(),
    }
}

/// Random lives from `first` on, each cut at some of its events.
pub(super) fn live(first: u64, lives: u64, steps: usize, cuts: u64) -> Tally {
    let mut all = Tally::default();
    for seed in first..first + lives {
        let (base, script) = random_life(seed, steps);
        assert_sound(&script.opened.pool);
        let tally = check_some(&script, &base, seed, 64, cuts);
        all.states += tally.states;
        all.second += tally.second;
        all.wrong.extend(tally.wrong.into_iter().map(|what| format!("seed {seed}: {what}")));
        if !all.wrong.is_empty() {
            break;
        }
    }
    all
}

/// `FAMILY_LIVES=first..count` selects other seeds.
#[test]
fn random_lives_survive_power_cuts() {
    let Ok(chosen) = std::env::var("FAMILY_LIVES") else {
        return assert_clean(&live(1, 4, 40, 6), 200);
    };
    let (first, lives) = chosen.split_once("..").expect("first..count");
    assert_clean(&live(first.parse().unwrap(), lives.parse().unwrap(), 60, 2), 1);
}

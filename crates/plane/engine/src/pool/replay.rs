//! Replay of the log device when a pool is opened: each volume gets its logged writes before it serves, or does not
//! serve.

use super::OpenPool;
use super::log::Keeper;
use super::volumes::Found;
use cache::{LogId, Recovery, Replayed, WriteLog};
use futures_util::future::join_all;
use model::{Refusal, Size, event};
use shard::World;
use std::collections::BTreeMap;
use std::rc::Rc;
use volume::{BLOCK_BYTES, LogRecord, LogState, Uuid};

/// A log that cannot be used, and the volumes that are held back, with the reason of each.
struct Lost {
    why: String,
    held: BTreeMap<Uuid, String>,
}

impl Lost {
    /// Holds back all volumes that may have writes in the log.
    fn altogether(names: &[Uuid], why: &str) -> Self {
        let reason =
            format!("its last acknowledged writes are in the log device of its pool, which cannot be used: {why}");
        Self { why: why.to_owned(), held: names.iter().map(|&volume| (volume, reason.clone())).collect() }
    }
}

/// Replay of the log of a pool that is being opened, or whose log device has returned.
pub(super) struct LogReplay<'a, W: World> {
    pub(super) pool: &'a Rc<OpenPool<W>>,
    /// Volumes that do not serve yet.
    pub(super) volumes: &'a [Found<W>],
}

impl<W: World> LogReplay<'_, W> {
    /// Replays the log into the volumes, or holds them back; then takes the log into service. `refused` is the reason
    /// why its disks cannot be used, if so.
    pub(super) async fn run(&self, refused: Option<Refusal>) {
        let Some(place) = self.pool.pool.write_log().group().map(usize::from) else { return };
        let names = self.names();
        let is_there = self.pool.groups.get(place).is_some();
        let why = refused.map_or_else(|| "no disk of it was found".to_owned(), |refusal| refusal.message);
        let lost = match self.pool.pool.write_log().record() {
            // It was just being added, or has failed and all of its content is on the disks: a new log is formatted.
            None | Some(LogRecord { state: LogState::Abandoned, .. }) if is_there && names.is_empty() => {
                match self.pool.make_log(place).await {
                    Ok(()) => return,
                    Err(refusal) => Lost { why: refusal.message, held: BTreeMap::new() },
                }
            }
            // A group without a log record: nothing was ever acknowledged from it.
            None => Lost { why, held: BTreeMap::new() },
            Some(record) if record.state == LogState::Abandoned && names.is_empty() => Lost {
                why: "it failed, and its contents are on the disks of the pool".to_owned(),
                held: BTreeMap::new(),
            },
            Some(record) if record.state == LogState::Abandoned => {
                Lost::altogether(&names, "it failed, and the daemon stopped before its contents were destaged")
            }
            Some(_) if !is_there => Lost::altogether(&names, &why),
            Some(record) => match self.replay(place, &record, names).await {
                Ok(log) => return self.pool.log.begin(record.id, log),
                Err(lost) => lost,
            },
        };
        let mut sentence = format!("the log device of pool {} cannot be used: {}", self.pool.name, lost.why);
        if !lost.held.is_empty() {
            sentence = format!(
                "{sentence}; attach its disks and open the pool again, or discard the last acknowledged writes \
                 with blockyard pool remove-log {} --lost",
                self.pool.name
            );
        }
        self.pool.raise(event::LOG_LOST, sentence);
        // Volumes that were never in the log are not concerned and serve.
        lost.held.iter().for_each(|(volume, why)| self.pool.block_volume(*volume, why));
        // From here on `enter_log` refuses write-back with this reason.
        self.pool.log.lose(lost.why);
    }

    /// Volumes that may have writes in the log, without those that are being deleted.
    fn names(&self) -> Vec<Uuid> {
        let named = self.pool.pool.write_log().record().map(|log| log.volumes).unwrap_or_default();
        self.pool.known_volumes().into_iter().map(|volume| volume.id).filter(|id| named.contains(id)).collect()
    }

    /// Replays the log into every volume.
    async fn replay(&self, place: usize, record: &LogRecord, names: Vec<Uuid>) -> Result<WriteLog, Lost> {
        let (device, world) = (self.pool.groups[place].array.clone(), self.pool.shard.world.clone());
        let opened = WriteLog::open(device, LogId(record.id.as_u128()), world, Keeper::of(self.pool, record.id)).await;
        let mut recovery = opened.map_err(|error| Lost::altogether(&names, &error.to_string()))?;
        let (mut held, mut damaged) = (BTreeMap::new(), BTreeMap::new());
        let mut total = (0, Replayed::default());
        for volume in recovery.volumes() {
            let id = Uuid::from_u128(volume.0);
            // A volume without an entry in the record has all of its writes, or is deleted; it may have been written
            // directly since.
            if !names.contains(&id) {
                recovery.give_up(volume);
                continue;
            }
            // The log keeps its writes until the volume can be opened.
            let Some(found) = self.volumes.iter().find(|found| found.id == id) else {
                held.insert(id, "it cannot be opened, and the log device of its pool has data for it".to_owned());
                continue;
            };
            match recovery.replay(volume, &found.device).await {
                Ok(replayed) => {
                    total = (total.0 + 1, sum(total.1, &replayed));
                    if let Some(first) = replayed.lost.first() {
                        let blocks: u64 = replayed.lost.iter().map(|extent| extent.len.0).sum();
                        let amount = Size::new(blocks * u64::from(BLOCK_BYTES)).iec();
                        let at = first.start.0 * u64::from(BLOCK_BYTES);
                        let why =
                            format!("{amount} of acknowledged data are damaged in the log, the first at byte {at}");
                        damaged.insert(id, why);
                    }
                }
                Err(error) => {
                    held.insert(id, format!("its data in the log device cannot be written: {error}"));
                }
            }
        }
        // A damaged batch may have been about any volume of the record, so none of them can be trusted to be complete.
        if recovery.damaged_batches() > 0 {
            let why = "a part of the log that may hold its data is damaged";
            for &id in &names {
                damaged.entry(id).or_insert_with(|| why.to_owned());
            }
        }
        assert!(total.0 as usize <= names.len(), "a volume gets once what the log holds for it");
        self.report_replayed(total.0, &total.1);
        self.go_on(recovery, record.id, &names, held, damaged).await
    }

    /// Removes the volumes that are complete from the record of the log. The log is used further if these are all.
    async fn go_on<L: block::BlockDevice + 'static>(
        &self,
        recovery: Recovery<L, W>,
        log: Uuid,
        names: &[Uuid],
        mut held: BTreeMap<Uuid, String>,
        damaged: BTreeMap<Uuid, String>,
    ) -> Result<WriteLog, Lost> {
        // The record must be durable before the log is reused: otherwise a second replay could write old data.
        let whole = names.iter().filter(|id| !held.contains_key(id) && !damaged.contains_key(id));
        let leave = async |id: &Uuid| (*id, self.pool.pool.write_log().remove_volume(*id).await);
        for (id, left) in join_all(whole.map(leave)).await {
            if let Err(error) = left {
                held.insert(id, format!("the end of its log replay cannot be recorded: {error}"));
            }
        }
        if held.is_empty() && damaged.is_empty() {
            return recovery.finish().await.map_err(|error| Lost { why: error.to_string(), held });
        }
        let why = if held.is_empty() { "it is damaged" } else { "volumes wait for its data" }.to_owned();
        if held.is_empty() {
            // The volumes have everything that is readable; the damaged log must not be replayed again.
            let abandoned = self.pool.pool.write_log().abort(log, damaged.keys().copied().collect()).await;
            if let Err(error) = abandoned {
                tracing::error!(pool = %self.pool.name, %error, "a damaged log could not be given up");
            }
        }
        // Both kinds stay offline; they differ in the reason that operators see.
        held.extend(damaged);
        Err(Lost { why, held })
    }

    fn report_replayed(&self, volumes: u32, replayed: &Replayed) {
        if replayed.records == 0 {
            return;
        }
        let amount = Size::new(replayed.bytes).iec();
        let (count, name) =
            (if volumes == 1 { "a volume".to_owned() } else { format!("{volumes} volumes") }, &self.pool.name);
        let sentence =
            format!("{amount} in {} records replayed from the log device of pool {name} to {count}", replayed.records);
        tracing::info!("{sentence}");
        self.pool.raise(event::LOG_REPLAYED, sentence);
    }
}

fn sum(mut sum: Replayed, other: &Replayed) -> Replayed {
    sum.records += other.records;
    sum.bytes += other.bytes;
    sum
}

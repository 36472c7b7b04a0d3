//! Every bound of the data plane, computed once at start. Nothing else in this crate invents a bound.

// What documents are judged by is what the format holds.
const _: () = assert!(model::POOL_VOLUMES_MAX == volume::catalog::VOLUMES_MAX);

/// What an operator gives to the daemon; everything else follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How many shards there are: one per core unless told otherwise.
    pub shards: usize,
    /// Bytes that all shards together may keep in idle buffers and promise to commands under way.
    pub buffer_bytes: u64,
    /// Bytes that all shards together may keep of what was read, and of the maps of volumes.
    pub cache_bytes: u64,
}

/// The bounds of one shard and of the daemon as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shards, each a thread.
    pub shards: usize,
    /// Sessions in full feature phase, over all shards.
    pub sessions_max: usize,
    /// Connections that have not finished their login, over all shards.
    pub logins_max: usize,
    /// Connections that have not finished their login, from one address.
    pub logins_per_address_max: usize,
    /// Volumes that can be presented.
    pub units_max: usize,
    /// The largest volume, in bytes.
    pub volume_bytes_max: u64,
    /// Commands of one session that may be under way: what MaxCmdSN advertises.
    pub commands_per_session: u32,
    /// Connections that one session may have.
    pub connections_per_session: u16,
    /// The longest transfer of one command, in bytes (VPD B0).
    pub transfer_bytes_max: u32,
    /// Free buffer bytes that one shard keeps for the next commands.
    pub pooled_bytes_per_shard: usize,
    /// Bytes of buffers that may be in use, over all shards; beyond it a command is answered TASK SET FULL.
    pub buffer_bytes_max: u64,
    /// Bytes of data that one shard keeps because it was read, or will be.
    pub read_cache_bytes_per_shard: u64,
    /// Bytes of acknowledged writes of one shard that may not be on the disks yet. They are taken buffers, too.
    pub write_cache_bytes_per_shard: u64,
    /// Bytes of the maps of one pool that are kept.
    pub map_cache_bytes_per_pool: u64,
    /// Bytes that pools which may not be written keep of what their logs hold, over all shards.
    pub read_only_bytes_max: u64,
    /// Commands of one shard's volumes under way below while some volume has a guarantee or another priority.
    pub line_depth: usize,
    /// Bytes of memory that one disk group keeps sums of its blocks in.
    pub sums_bytes_per_group: usize,
    /// Recordings of what goes over the wire that may run at once.
    pub recordings_max: usize,
    /// Bytes of each that may wait to be written down; what comes beyond is not recorded.
    pub recording_bytes_max: usize,
    /// Commands that the traces of all volumes together may keep: 56 bytes each.
    pub traced_commands_max: u32,
    /// Events that may wait until somebody asks for them.
    pub events_max: usize,
    /// How long a login may take, in milliseconds.
    pub login_ms: u64,
    /// How long a connection may be silent before it is asked whether it lives, in milliseconds.
    pub idle_ms: u64,
    /// How long it may take to answer that, in milliseconds.
    pub answer_ms: u64,
}

impl Limits {
    /// The bounds that follow from `budget`.
    #[must_use]
    pub fn of(budget: Budget) -> Self {
        let shards = budget.shards.max(1);
        let per_shard = budget.buffer_bytes / shards as u64;
        Self {
            shards,
            sessions_max: 16_384,
            logins_max: 1024,
            logins_per_address_max: 64,
            units_max: model::VOLUMES_MAX,
            volume_bytes_max: 64 << 40,
            commands_per_session: 128,
            connections_per_session: 8,
            transfer_bytes_max: 4 << 20,
            pooled_bytes_per_shard: usize::try_from(per_shard / 4).unwrap_or(usize::MAX),
            buffer_bytes_max: budget.buffer_bytes,
            read_cache_bytes_per_shard: read_cache_bytes_per_shard(budget.cache_bytes, shards),
            write_cache_bytes_per_shard: per_shard / 4,
            map_cache_bytes_per_pool: (budget.cache_bytes / 8).max(4 << 20),
            read_only_bytes_max: 512 << 20,
            line_depth: 64,
            sums_bytes_per_group: usize::try_from((budget.buffer_bytes / 16).clamp(4 << 20, 64 << 20))
                .unwrap_or(4 << 20),
            recordings_max: 4,
            recording_bytes_max: 8 << 20,
            traced_commands_max: model::TRACE_COMMANDS_MAX,
            events_max: 1024,
            login_ms: 15_000,
            idle_ms: 15_000,
            answer_ms: 15_000,
        }
    }

    /// What the read cache of one shard may have when all caches together have `cache_bytes`.
    #[must_use]
    pub fn read_cache_bytes_of(&self, cache_bytes: u64) -> u64 {
        read_cache_bytes_per_shard(cache_bytes, self.shards)
    }
}

/// An eighth is for the maps of volumes.
fn read_cache_bytes_per_shard(cache_bytes: u64, shards: usize) -> u64 {
    assert!(shards > 0, "an engine has a shard");
    cache_bytes / shards as u64 / 8 * 7
}

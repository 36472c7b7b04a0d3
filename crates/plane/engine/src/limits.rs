//! Bounds of the engine and its front ends, computed once at start. No other module of this crate invents a bound.

// The state documents are validated against the limit of the model, the catalog holds that of the format: they must
// agree.
const _: () = assert!(model::POOL_VOLUMES_MAX == volume::catalog::VOLUMES_MAX);

/// Memory and shards that the operator grants to the daemon; all other bounds are derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Number of shards; the default is one per core.
    pub shards: usize,
    /// Bytes that all shards together may use for idle buffers and for commands in flight.
    pub buffer_bytes: u64,
    /// Bytes that all shards together may use for the read cache and for the maps of volumes.
    pub cache_bytes: u64,
}

/// Bounds of one shard and of the daemon as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of shards; each is a thread.
    pub shards: usize,
    /// Sessions in full feature phase, over all shards.
    pub sessions_max: usize,
    /// Connections that have not finished their login, over all shards.
    pub logins_max: usize,
    /// Connections that have not finished their login, from one address.
    pub logins_per_address_max: usize,
    /// Volumes that can be presented.
    pub units_max: usize,
    /// Size of the largest volume, in bytes.
    pub volume_bytes_max: u64,
    /// Commands of one session in flight: the window that `MaxCmdSN` advertises (RFC 7143 §4.2.2.1).
    pub commands_per_session: u32,
    /// Connections of one session.
    pub connections_per_session: u16,
    /// Longest transfer of one command, in bytes (VPD page B0h).
    pub transfer_bytes_max: u32,
    /// Free buffer bytes that one shard keeps for the next commands.
    pub pooled_bytes_per_shard: usize,
    /// Bytes of buffers in use, over all shards. A command beyond it is answered with TASK SET FULL.
    pub buffer_bytes_max: u64,
    /// Read cache of one shard in bytes, including prefetched data.
    pub read_cache_bytes_per_shard: u64,
    /// Acknowledged writes of one shard that may not be on disk yet, in bytes. They count as buffers in use.
    pub write_cache_bytes_per_shard: u64,
    /// Cached maps of the volumes of one pool, in bytes.
    pub map_cache_bytes_per_pool: u64,
    /// Memory of all pools that are open read-only for what recovery would write to their disks, in bytes, over all
    /// shards.
    pub read_only_bytes_max: u64,
    /// Queue depth of one shard below the caches, applied while a volume has a minimum IOPS or another priority.
    pub line_depth: usize,
    /// Memory of one disk group for checksums of its blocks, in bytes.
    pub sums_bytes_per_group: usize,
    /// Wire recordings that may run at the same time.
    pub recordings_max: usize,
    /// Buffer of each recording in bytes; data that comes while it is full is not recorded.
    pub recording_bytes_max: usize,
    /// Commands in the traces of all volumes together; each takes 56 bytes.
    pub traced_commands_max: u32,
    /// Events that may be queued until the control plane fetches them.
    pub events_max: usize,
    /// Login timeout in milliseconds.
    pub login_ms: u64,
    /// Idle time of a connection before it is probed, in milliseconds.
    pub idle_ms: u64,
    /// Timeout for the answer to that probe, in milliseconds.
    pub answer_ms: u64,
}

impl Limits {
    /// Derives all bounds from `budget`.
    #[must_use]
    pub fn of(budget: Budget) -> Self {
        // Zero shards would divide by zero below; an engine has at least one.
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
            // Dirty data occupies buffers, so it comes out of the same budget.
            write_cache_bytes_per_shard: per_shard / 4,
            // At least 4 MiB, however small the cache is.
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

    /// Read cache of one shard in bytes if all caches together have `cache_bytes`.
    #[must_use]
    pub fn read_cache_bytes_of(&self, cache_bytes: u64) -> u64 {
        read_cache_bytes_per_shard(cache_bytes, self.shards)
    }
}

/// Seven eighths of the cache; one eighth is for the maps of volumes.
fn read_cache_bytes_per_shard(cache_bytes: u64, shards: usize) -> u64 {
    assert!(shards > 0, "an engine has a shard");
    // Divided first, so that no product can overflow.
    cache_bytes / shards as u64 / 8 * 7
}

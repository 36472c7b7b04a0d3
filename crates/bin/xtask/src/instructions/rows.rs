//! Table of the measured loads.

/// Measured load.
pub(super) struct Row {
    /// Name in the output and in the file of references.
    pub name: &'static str,
    /// Arguments of the example.
    pub arguments: &'static [&'static str],
    /// Row that may be exceeded by at most a tenth: the additional sessions, units or shards must not affect a command.
    pub against: Option<&'static str>,
}

const ONE: &str = "null, 4 KiB reads";
const SIXTEEN: &str = "16 sessions";

/// Table of loads: 4 KiB at depth 32 over one session, one unit and one shard, unless the name says otherwise.
pub(super) const ROWS: [Row; 23] = [
    row(ONE, &[]),
    row("null, 4 KiB writes", &["--writes"]),
    row("RAM, 4 KiB reads", &["--below", "ram"]),
    row("RAM, 4 KiB writes", &["--below", "ram", "--writes"]),
    row("RAM, 128 KiB reads at depth 8", &["--below", "ram", "--bytes", "131072", "--depth", "8", "--commands", "200"]),
    row(
        "RAM, 128 KiB writes at depth 8",
        &["--below", "ram", "--bytes", "131072", "--depth", "8", "--commands", "200", "--writes"],
    ),
    row("RAID-10, 4 KiB reads from the cache", &["--below", "cached"]),
    row("null, 4 KiB reads, both digests", &["--digests"]),
    row("null, 4 KiB writes, both digests", &["--digests", "--writes"]),
    row("null, 4 KiB reads at depth 1", &["--depth", "1"]),
    row("null, 4 KiB reads, traced", &["--traced"]),
    row("RAM, 4 KiB writes, traced", &["--below", "ram", "--writes", "--traced"]),
    against(SIXTEEN, &["--sessions", "16", "--commands", "320"], ONE),
    against("64 sessions", &["--sessions", "64", "--commands", "160"], ONE),
    against("256 sessions", &["--sessions", "256", "--commands", "64"], ONE),
    against("1,024 sessions that do nothing beside", &["--idle", "1024"], ONE),
    against("16 units", &["--luns", "16", "--commands", "2048"], ONE),
    against("256 units", &["--luns", "256", "--commands", "2048"], ONE),
    against("256 units, writes", &["--luns", "256", "--commands", "2048", "--writes"], "null, 4 KiB writes"),
    against(
        "2 shards, 16 sessions, units at home there",
        &["--shards", "2", "--luns", "2", "--aim", "own", "--sessions", "16", "--commands", "320"],
        SIXTEEN,
    ),
    against(
        "8 shards, 16 sessions, units at home there",
        &["--shards", "8", "--luns", "8", "--aim", "own", "--sessions", "16", "--commands", "320"],
        SIXTEEN,
    ),
    row(
        "2 shards, 16 sessions, units at home elsewhere",
        &["--shards", "2", "--luns", "2", "--aim", "next", "--sessions", "16", "--commands", "320"],
    ),
    against(
        "8 shards, 16 sessions, units at home elsewhere",
        &["--shards", "8", "--luns", "8", "--aim", "next", "--sessions", "16", "--commands", "320"],
        "2 shards, 16 sessions, units at home elsewhere",
    ),
];

const fn row(name: &'static str, arguments: &'static [&'static str]) -> Row {
    Row { name, arguments, against: None }
}

const fn against(name: &'static str, arguments: &'static [&'static str], against: &'static str) -> Row {
    Row { name, arguments, against: Some(against) }
}

//! What control asks of the privileged helper (docs/adr/0019-process-model.md).
//!
//! A daemon that is not confined has no helper, and does all of it itself. Nothing here judges whether a request is allowed: the helper does.

use model::MeasureReport;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

/// A program that looks at a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `smartctl --json --nocheck=standby --all`, for the whole device behind the path.
    Smartctl,
    /// `wipefs --no-act --json`
    Wipefs,
    /// `blkid --probe --output export`
    Blkid,
}

/// How a program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// What it printed.
    pub output: Vec<u8>,
}

/// Who has the privileges that the daemon gave up. Each call may block for as long as what it does.
pub trait Privileged: Send + Sync {
    /// The program has looked at the disk or file at `path`.
    ///
    /// *Errors*: `NotFound` where it is not installed; it does not end in time, or prints too much; the helper refuses.
    fn run(&self, program: Program, path: &Path) -> io::Result<Ran>;

    /// A sparse file of `bytes` is at `path`, which was free, and survives power loss.
    ///
    /// *Errors*: as open(2); the helper refuses.
    fn create(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// A file that was made by [`Privileged::create`] is gone.
    ///
    /// *Errors*: as unlink(2); the helper did not make it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A socket that does not block listens at `address`.
    ///
    /// *Errors*: as bind(2); the helper refuses.
    fn bind(&self, address: SocketAddr) -> io::Result<TcpListener>;
}

/// The helper of this daemon, and what the daemon has given up.
#[derive(Clone, Default)]
pub struct Confinement {
    /// Who does what the daemon has no privilege for; none where it has.
    pub privileged: Option<Arc<dyn Privileged>>,
    /// Each measure, and whether it is in force.
    pub measures: Vec<MeasureReport>,
}

/// As [`Privileged::run`], without blocking this thread.
pub(crate) async fn run(helper: Arc<dyn Privileged>, program: Program, path: &Path) -> io::Result<Ran> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || helper.run(program, &path)).await.map_err(io::Error::other)?
}

//! Interface to the privileged helper (docs/adr/0019-process-model.md).
//!
//! A daemon that is not confined has no helper, and does all of it itself. No request is authorized here: the
//! helper decides.

use model::MeasureReport;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

/// A program that inspects a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `smartctl --json --nocheck=standby --all`, for the whole device behind the path.
    Smartctl,
    /// `wipefs --no-act --json`
    Wipefs,
    /// `blkid --probe --output export`
    Blkid,
}

/// Result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOutput {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub output: Vec<u8>,
}

/// The privileged helper. Each call may block for as long as the operation takes.
pub trait Privileged: Send + Sync {
    /// Runs the program on the disk or file at `path`.
    ///
    /// *Errors*: `NotFound` where it is not installed; it exceeds its time or output limit; the helper refuses.
    fn run(&self, program: Program, path: &Path) -> io::Result<ProgramOutput>;

    /// Creates a sparse file of `bytes` at `path`, which must be free; it survives power loss.
    ///
    /// *Errors*: as open(2); the helper refuses.
    fn create(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Removes a file that [`Privileged::create`] has created.
    ///
    /// *Errors*: as unlink(2); the helper did not create it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Opens a non-blocking socket that listens at `address`.
    ///
    /// *Errors*: as bind(2); the helper refuses.
    fn bind(&self, address: SocketAddr) -> io::Result<TcpListener>;
}

/// The helper of this daemon, and the measures that confine the daemon.
#[derive(Clone, Default)]
pub struct Confinement {
    /// The privileged helper; `None` where the daemon has the privileges itself.
    pub privileged: Option<Arc<dyn Privileged>>,
    /// Each measure, and whether it is in force.
    pub measures: Vec<MeasureReport>,
}

/// Calls [`Privileged::run`] on a blocking thread.
pub(crate) async fn run(helper: Arc<dyn Privileged>, program: Program, path: &Path) -> io::Result<ProgramOutput> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || helper.run(program, &path)).await.map_err(io::Error::other)?
}

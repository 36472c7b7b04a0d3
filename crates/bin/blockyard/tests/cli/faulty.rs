//! Disk that hangs, fails or is slow on demand: a loop device over a file that this process serves through FUSE.
//!
//! Each disk has a mount of its own, so that a hanging one does not affect another. A request that hangs is kept and
//! carried out late, when the disk answers again, as real disks do. Needs root for the mount, `/dev/fuse` and loop
//! devices.
//!
//! *Source*: the kernel's `include/uapi/linux/fuse.h`, version 7.31.

use rustix::fs::{FallocateFlags, Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Behavior of the disk for requests to its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Reads, writes, flushes and discards stay unanswered until the disk is well.
    Hangs,
    /// Only flushes stay unanswered.
    HangsOnFlush,
    /// Every request fails.
    Fails,
}

/// Faulty disk of this machine, at [`FaultyDisk::path`].
pub(crate) struct FaultyDisk {
    served: Arc<Served>,
    device: Option<String>,
    mount: PathBuf,
}

/// State shared by the serving thread and the test.
struct Served {
    channel: File,
    content: File,
    bytes: u64,
    state: Mutex<State>,
}

struct State {
    mood: Mood,
    kept: Vec<Vec<u8>>,
}

const FILE_NODE: u64 = 2;
const HEADER_BYTES: usize = 40;
/// Longest transfer announced to the kernel, and space for its header.
const TRANSFER_BYTES: u32 = 128 << 10;
const REQUEST_BYTES: usize = TRANSFER_BYTES as usize + (64 << 10);
const DIRECT_IO: u32 = 1;
const ASYNC_READ: u32 = 1;

impl FaultyDisk {
    /// Creates a disk of `bytes` bytes in the folder; none where this machine cannot have one, with the reason printed.
    pub(crate) fn new(folder: &Path, name: &str, bytes: u64) -> Option<Self> {
        match Self::attach(folder, name, bytes) {
            Ok(disk) => Some(disk),
            Err(error) => {
                println!(
                    "no disk that hangs on order can be made here, which needs root, /dev/fuse and /dev/loop: {error}"
                );
                None
            }
        }
    }

    fn attach(folder: &Path, name: &str, bytes: u64) -> std::io::Result<Self> {
        // An unlinked file: the daemon's disk search must not find its content.
        let content = tempfile::tempfile_in(folder)?;
        content.set_len(bytes)?;
        let point = folder.join(format!("{name}.mount"));
        std::fs::create_dir(&point)?;
        let channel = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", channel.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("it has no zero");
        mount("faulty", &point, "fuse", MountFlags::NOSUID | MountFlags::NODEV, &*options)?;
        let state = Mutex::new(State { mood: Mood::Well, kept: Vec::new() });
        let served = Arc::new(Served { channel: File::from(channel), content, bytes, state });
        let mut disk = Self { served: served.clone(), device: None, mount: point };
        std::thread::Builder::new().name("faulty".to_owned()).spawn(move || served.serve())?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(disk.mount.join("disk")).output()?;
        if !made.status.success() {
            return Err(std::io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        disk.device = Some(String::from_utf8_lossy(&made.stdout).trim().to_owned());
        Ok(disk)
    }

    /// Returns the path of the block device.
    pub(crate) fn path(&self) -> &str {
        self.device.as_deref().expect("it is attached")
    }

    /// Changes the behavior. Requests that hung are carried out now unless they hang further.
    pub(crate) fn be(&self, mood: Mood) {
        let mut state = self.served.state();
        state.mood = mood;
        let kept = if mood == Mood::Hangs { Vec::new() } else { std::mem::take(&mut state.kept) };
        drop(state);
        kept.iter().for_each(|request| self.served.perform(request, mood));
    }

    /// Returns the number of hanging requests.
    pub(crate) fn hanging(&self) -> usize {
        self.served.state().kept.len()
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.be(Mood::Fails);
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        let _ = unmount(&self.mount, UnmountFlags::DETACH);
    }
}

/// Reads a number of a request.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Operation codes of requests.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
}

impl Served {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers requests until the file system is unmounted.
    fn serve(&self) {
        let mut request = vec![0; REQUEST_BYTES];
        loop {
            let len = match (&self.channel).read(&mut request) {
                Ok(len) => len,
                // The sender of the request was killed.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted) => continue,
                Err(_) => return,
            };
            self.take(&request[..len]);
        }
    }

    fn take(&self, request: &[u8]) {
        let code = u32_at(request, 4);
        let mood = {
            let mut state = self.state();
            let of_disk = matches!(code, opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FALLOCATE);
            let hangs = match state.mood {
                Mood::Hangs => of_disk,
                Mood::HangsOnFlush => code == opcode::FSYNC,
                _ => false,
            };
            if hangs {
                state.kept.push(request.to_vec());
                return;
            }
            if of_disk { state.mood } else { Mood::Well }
        };
        self.perform(request, mood);
    }

    fn perform(&self, request: &[u8], mood: Mood) {
        let answer = if mood == Mood::Fails { Err(Errno::IO) } else { self.answer(request) };
        let answer = match answer {
            Ok(None) => return,
            Ok(Some(body)) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let mut bytes = Vec::with_capacity(16 + answer.1.len());
        bytes.extend((16 + answer.1.len() as u32).to_le_bytes());
        bytes.extend(answer.0.to_le_bytes());
        bytes.extend(&request[8..16]);
        bytes.extend(&answer.1);
        // The answer is lost if the file system is unmounted.
        let _ = (&self.channel).write(&bytes);
    }

    /// Returns the body of the answer; none for a request without an answer.
    fn answer(&self, request: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let (code, node, body) = (u32_at(request, 4), u64_at(request, 16), &request[HEADER_BYTES..]);
        let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        let mut said = Vec::new();
        match code {
            opcode::INIT => {
                for number in [7, 31, u32_at(body, 8), ASYNC_READ, 64 | 48 << 16, TRANSFER_BYTES, 1, 32] {
                    said.extend(u32::to_le_bytes(number));
                }
                said.resize(64, 0);
            }
            opcode::LOOKUP if body.starts_with(b"disk\0") => {
                // Node, generation, and their validity: none, so that nothing is cached.
                [FILE_NODE, 0, 0, 0, 0].iter().for_each(|number: &u64| said.extend(number.to_le_bytes()));
                said.extend(self.attributes(FILE_NODE));
            }
            opcode::GETATTR | opcode::SETATTR => {
                said.resize(16, 0);
                said.extend(self.attributes(node));
            }
            opcode::OPEN => {
                said.extend(0_u64.to_le_bytes());
                said.extend(DIRECT_IO.to_le_bytes());
                said.resize(16, 0);
            }
            opcode::READ => {
                let mut data = vec![0; u32_at(body, 16) as usize];
                let len = self.content.read_at(&mut data, u64_at(body, 8)).map_err(errno)?;
                data.truncate(len);
                said = data;
            }
            opcode::WRITE => {
                let len = u32_at(body, 16);
                let data = &body[40..40 + len as usize];
                self.content.write_all_at(data, u64_at(body, 8)).map_err(errno)?;
                said.extend(len.to_le_bytes());
                said.resize(8, 0);
            }
            opcode::FSYNC => self.content.sync_data().map_err(errno)?,
            opcode::FALLOCATE => {
                let mode = FallocateFlags::from_bits_retain(u32_at(body, 24));
                rustix::fs::fallocate(&self.content, mode, u64_at(body, 8), u64_at(body, 16))?;
            }
            opcode::RELEASE => {}
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return Ok(None),
            opcode::LOOKUP => return Err(Errno::NOENT),
            _ => return Err(Errno::NOSYS),
        }
        Ok(Some(said))
    }

    /// Returns the attributes of the folder or of the file.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (bytes, mode): (u64, u32) = if node == FILE_NODE { (self.bytes, 0o100_600) } else { (0, 0o040_755) };
        let mut said = Vec::new();
        [node, bytes, bytes / 512, 0, 0, 0].iter().for_each(|number| said.extend(number.to_le_bytes()));
        // Nanoseconds of three times; then mode, links, user, group, device, block size, flags.
        [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].iter().for_each(|number: &u32| said.extend(number.to_le_bytes()));
        said
    }
}

#[test]
fn faulty_disk_keeps_what_it_was_asked_while_it_hangs() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(disk) = FaultyDisk::new(dir.path(), "d", 16 << 20) else { return };
    let file = OwnedFd::from(File::options().read(true).write(true).open(disk.path()).expect("it opens"));
    rustix::io::pwrite(&file, &[7; 4096], 8192).expect("it writes");
    rustix::fs::fdatasync(&file).expect("it flushes");
    let mut read = [0; 4096];
    disk.served.content.read_exact_at(&mut read, 8192).expect("it reads");
    assert_eq!(read, [7; 4096]);
    disk.be(Mood::HangsOnFlush);
    rustix::io::pwrite(&file, &[8; 4096], 8192).expect("it writes");
    let flush = std::thread::spawn(move || rustix::fs::fdatasync(&file));
    while disk.hanging() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!flush.is_finished());
    disk.be(Mood::Well);
    flush.join().expect("it ends").expect("it flushes");
    disk.be(Mood::Fails);
    let file = File::open(disk.path()).expect("it opens");
    assert!(file.read_exact_at(&mut read, 8 << 20).is_err());
}

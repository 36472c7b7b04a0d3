//! io_uring, made safe by ownership: an operation is moved in, and moved out when the kernel has completed it.

use crate::backend::WORKERS_MAX;
use crate::operation::{
    ALLOCATE_FLAGS, Done, Interest, Landed, Operation, PUNCH_FLAGS, TRANSFER_BYTES_MAX, Token, Wait,
};
use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, opcode, register::Restriction};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// User data of requests that have no operation, such as cancellations.
const NO_TOKEN: u64 = u64::MAX;

/// Limit on the wait for operations in flight when a ring is dropped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Ring with the operations in flight.
///
/// Invariant of this module: **from the push of an entry until its completion is reaped, the operation stays in
/// `in_flight` and is not accessed.** Its buffers are heap memory that does not move with it, its files stay open, and
/// a `View` has no writers. Operations that have not landed when the ring is dropped are leaked, never freed.
pub(crate) struct Ring {
    ring: IoUring,
    in_flight: Vec<Option<Operation>>,
    in_flight_count: usize,
    /// Completions that were reaped while a full submission queue was emptied.
    early: Vec<Done>,
}

impl Ring {
    /// Creates a ring and checks that it executes a request. A restricted ring refuses every operation that is not in
    /// [`ALLOWED_OPCODES`].
    ///
    /// *Errors*: those of the kernel where io_uring is forbidden, missing or too old.
    pub fn new(entries: u32, restricted: bool) -> io::Result<Self> {
        Self::over(build(entries, restricted)?)
    }

    fn over(ring: IoUring) -> io::Result<Self> {
        // `EXT_ARG` gives waits a timeout, and `NODROP` keeps completions when their queue is full.
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring of Linux 5.11 or later is required"));
        }
        let mut ring = Self { ring, in_flight: Vec::new(), in_flight_count: 0, early: Vec::new() };
        // A seccomp filter may allow the setup and forbid the rest.
        ring.push(&opcode::Nop::new().build().user_data(NO_TOKEN));
        ring.ring.submit_and_wait(1)?;
        ring.reap_early();
        Ok(ring)
    }

    /// Submits `operation` with the next turn; it is returned once, under `token`.
    ///
    /// *Panics*: when `token` is in flight already.
    pub fn start(&mut self, token: Token, operation: Operation) {
        let place = token as usize;
        if self.in_flight.len() <= place {
            self.in_flight.resize_with(place + 1, || None);
        }
        assert!(self.in_flight[place].is_none(), "operation {token} is already in flight");
        let operation = self.in_flight[place].insert(operation);
        let entry = entry_of(operation).user_data(u64::from(token));
        self.in_flight_count += 1;
        self.push(&entry);
    }

    /// Asks the kernel to cancel waiting for a socket. The operation lands as usual, soon.
    pub fn cancel_poll(&mut self, token: Token) {
        // Not POLL_REMOVE: it leaves a poll armed forever when its event arrives at the same moment and the bytes are
        // read elsewhere (seen with a stream that moved to another shard).
        self.push(&opcode::AsyncCancel::new(u64::from(token)).build().user_data(NO_TOKEN));
    }

    /// Submits started operations, waits up to `wait`, and appends completions to `done`.
    pub fn turn(&mut self, wait: Wait, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.early);
        // Completions that are already known must not wait for the next one.
        let wait = if done.is_empty() { wait } else { Wait::No };
        match self.enter(wait) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        self.reap(done);
        Ok(())
    }

    /// True when a turn would find completions without waiting. Makes no system call.
    pub fn has_news(&mut self) -> bool {
        let submission = self.ring.submission();
        let waiting = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        waiting || !self.ring.completion().is_empty()
    }

    fn enter(&mut self, wait: Wait) -> io::Result<usize> {
        match wait {
            Wait::No => {
                let submission = self.ring.submission();
                // With deferred task work the completion queue is filled only inside a system call, hence the flags.
                let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
                drop(submission);
                if idle { Ok(0) } else { self.ring.submit() }
            }
            Wait::AtMost(duration) => {
                let timeout = Timespec::from(duration);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            Wait::Forever => self.ring.submit_and_wait(1),
        }
    }

    fn push(&mut self, entry: &Entry) {
        loop {
            // SAFETY: every pointer and descriptor of an entry belongs to the operation in `in_flight` under the user
            // data of the entry (entries with `NO_TOKEN` have neither). It stays there, unmoved and untouched, until
            // `reap` has seen its completion; see the invariant of the type.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                return;
            }
            match self.ring.submit() {
                Ok(_) => {}
                // The completion queue is full, too: it is drained first.
                Err(error) if is_passing(&error) => self.reap_early(),
                Err(error) => panic!("io_uring accepts no more submissions: {error}"),
            }
        }
    }

    fn reap_early(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        self.reap(&mut early);
        self.early = early;
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        for completion in self.ring.completion() {
            if completion.user_data() == NO_TOKEN {
                continue;
            }
            let token = Token::try_from(completion.user_data()).expect("user data is a token of ours");
            let operation = self.in_flight[token as usize].take().expect("an operation completes once");
            self.in_flight_count -= 1;
            let result = usize::try_from(completion.result())
                // A negative result is the negated errno.
                .map_err(|_| Errno::from_raw_os_error(completion.result().saturating_neg()));
            done.push(Done { token, landed: Landed { operation, result } });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Polls may never land by themselves; disk operations are only waited for.
        let polls: Vec<Token> =
            (0..).zip(&self.in_flight).filter(|(_, flying)| is_poll(flying)).map(|(at, _)| at).collect();
        for token in polls {
            self.cancel_poll(token);
        }
        // Bounded: a disk that hangs must not keep the process from ending.
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        let mut done = Vec::new();
        while self.in_flight_count > 0 && Instant::now() < deadline {
            if self.turn(Wait::AtMost(Duration::from_millis(100)), &mut done).is_err() {
                break;
            }
            done.clear();
        }
        if self.in_flight_count > 0 {
            tracing::warn!(
                operations = self.in_flight_count,
                "disk operations did not complete before shutdown; their buffers are leaked"
            );
            // The kernel may still write to this memory.
            std::mem::forget(std::mem::take(&mut self.in_flight));
        }
    }
}

fn is_poll(flying: &Option<Operation>) -> bool {
    flying.as_ref().is_some_and(|operation| !operation.is_disk())
}

/// Ring setups, the best first.
const SHAPES: [fn(&mut Builder); 3] = [
    // Linux 6.1: completions are processed only when the shard asks for them.
    |builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    },
    // Linux 5.19: completions at least do not interrupt the shard.
    |builder| {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    },
    |_| {},
];

/// Builds a ring with the best setup that this kernel supports.
fn build(entries: u32, restricted: bool) -> io::Result<IoUring> {
    let mut last = None;
    for shape in SHAPES {
        match build_as(shape, entries, restricted) {
            Ok(ring) => return Ok(ring),
            // EINVAL: an older kernel does not know a flag.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("there are shapes to try"))
}

/// Operations that [`entry_of`] and the ring itself use.
const ALLOWED_OPCODES: [u8; 7] = [
    opcode::Nop::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

fn build_as(shape: fn(&mut Builder), entries: u32, restricted: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // Four completions per submission entry: more operations are in flight than fit into one submission.
    // `setup_submit_all`: an entry that fails must not hold back those behind it.
    builder.setup_clamp().setup_submit_all().setup_cqsize(entries.saturating_mul(4));
    shape(&mut builder);
    if !restricted {
        let ring = builder.build(entries)?;
        bound_workers(&ring);
        return Ok(ring);
    }
    // A ring accepts restrictions only while it is disabled.
    let ring = builder.setup_r_disabled().build(entries)?;
    bound_workers(&ring);
    // The list contains no registration and no entry flag, so none is possible from here on.
    ring.submitter().register_restrictions(&mut ALLOWED_OPCODES.map(Restriction::sqe_op))?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Raises the limit on workers of this ring, for each of the two kinds. The kernel's default is a few per core, which
/// one hanging disk can occupy alone.
fn bound_workers(ring: &IoUring) {
    let mut most = [WORKERS_MAX; 2];
    // Since Linux 5.15; older kernels keep their own limit.
    if let Err(error) = ring.submitter().register_iowq_max_workers(&mut most) {
        tracing::debug!("io_uring workers keep the kernel's default limit: {error}");
    }
}

/// Builds the request for `operation`; its pointers refer to memory that the operation owns.
fn entry_of(operation: &mut Operation) -> Entry {
    match operation {
        Operation::Poll { socket, interest } => {
            let flags = match interest {
                // The end of the stream ends the wait as well.
                Interest::Read => PollFlags::IN | PollFlags::RDHUP,
                Interest::Write => PollFlags::OUT,
            };
            opcode::PollAdd::new(fd(socket), u32::from(flags.bits())).build()
        }
        Operation::Read { file, offset, buf, filled } => {
            let at = *offset + *filled as u64;
            let into = &mut buf[*filled..];
            // Longer reads are continued by the caller.
            let len = into.len().min(TRANSFER_BYTES_MAX) as u32;
            opcode::Read::new(fd(file), into.as_mut_ptr(), len).offset(at).build()
        }
        Operation::Write { file, offset, data, written } => {
            let at = *offset + *written as u64;
            let from = &data[*written..];
            let len = from.len().min(TRANSFER_BYTES_MAX) as u32;
            opcode::Write::new(fd(file), from.as_ptr(), len).offset(at).build()
        }
        // As `fdatasync` of the workers.
        Operation::Flush { file } => opcode::Fsync::new(fd(file)).flags(FsyncFlags::DATASYNC).build(),
        Operation::Punch { file, offset, len } => {
            let mode = PUNCH_FLAGS.bits().cast_signed();
            opcode::Fallocate::new(fd(file), *len).offset(*offset).mode(mode).build()
        }
        Operation::Allocate { file, offset, len } => {
            let mode = ALLOCATE_FLAGS.bits().cast_signed();
            opcode::Fallocate::new(fd(file), *len).offset(*offset).mode(mode).build()
        }
    }
}

fn fd(file: &OwnedFd) -> Fd {
    Fd(file.as_raw_fd())
}

/// True for an error without a loss: the wait ended early, or the completion queue was full. The next turn continues.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::TIME, Errno::INTR, Errno::BUSY, Errno::AGAIN];
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Buf;
    use std::sync::Arc;

    /// Starts `operation` and turns the ring until it lands.
    fn carry(ring: &mut Ring, operation: Operation) -> Landed {
        let mut done = Vec::new();
        ring.start(7, operation);
        while done.is_empty() {
            ring.turn(Wait::Forever, &mut done).expect("the ring turns");
        }
        done.remove(0).landed
    }

    #[test]
    fn every_shape_of_ring_carries_operations() {
        let file: Arc<OwnedFd> = Arc::new(std::fs::File::open("/proc/self/exe").expect("this program").into());
        for (shape, restricted) in SHAPES.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            // Missing support in the kernel or a sandbox is covered by another test.
            let Ok(ring) = build_as(shape, 4, restricted) else { continue };
            let mut ring = Ring::over(ring).expect("what can be built works");
            for _ in 0..20 {
                let buf = Buf::zeroed(4096);
                let landed = carry(&mut ring, Operation::Read { file: file.clone(), offset: 0, buf, filled: 0 });
                let Operation::Read { buf, .. } = landed.operation else { panic!("a read lands as a read") };
                assert_eq!((landed.result, &buf[1..4]), (Ok(4096), &b"ELF"[..]));
            }
        }
    }

    /// Returns the kernel's result for an operation that the reactor does not use.
    fn foreign(ring: &mut IoUring, entry: Entry) -> i32 {
        // SAFETY: the callers' entries lead to memory that lives for the whole test, and the completion is awaited
        // here.
        unsafe { ring.submission().push(&entry) }.expect("there is room");
        ring.submit_and_wait(1).expect("it is submitted");
        ring.completion().next().expect("it has completed").result()
    }

    #[test]
    fn restricted_ring_opens_nothing_connects_nowhere_and_takes_no_registration() {
        let address =
            libc::sockaddr_in { sin_family: 2, sin_port: 0, sin_addr: libc::in_addr { s_addr: 0 }, sin_zero: [0; 8] };
        let socket = Fd(-1);
        let (path, address_bytes) = (c"/etc/passwd".as_ptr(), size_of_val(&address) as u32);
        let entries = || {
            [
                opcode::OpenAt::new(Fd(libc::AT_FDCWD), path).build(),
                opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
                opcode::Connect::new(socket, (&raw const address).cast(), address_bytes).build(),
            ]
        };
        let denied = -libc::EACCES;
        let Ok(mut open) = build(4, false) else { return };
        for entry in entries() {
            assert_ne!(foreign(&mut open, entry), denied, "an open ring does it, or fails for another reason");
        }
        open.submitter().register_files_sparse(1).expect("an open ring takes registrations");
        let mut restricted = build(4, true).expect("this kernel has rings, so it restricts them");
        for entry in entries() {
            assert_eq!(foreign(&mut restricted, entry), denied);
        }
        let refused = restricted.submitter().register_files_sparse(1).expect_err("it is restricted");
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    }
}

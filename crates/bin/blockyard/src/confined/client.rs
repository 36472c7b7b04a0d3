//! Daemon's client of the helper: a request waits for the answer with its number.

use control::{Program, ProgramOutput};
use privilege::{ANSWER_BYTES_MAX, Answer, Mode, Outcome, Request, Verb};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Timeout of an answer, which exceeds that of the helper's programs.
const PATIENCE: Duration = Duration::from_secs(90);
/// Limit in bytes of a program's output that is read.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

type Answered = (Outcome, Option<OwnedFd>);

/// Client of the privileged helper.
pub(crate) struct Client {
    socket: OwnedFd,
    number: AtomicU32,
    waiting: Mutex<HashMap<u32, Sender<Answered>>>,
}

impl Client {
    /// Starts the client and the thread that reads answers. The process exits when the helper closes its end.
    ///
    /// *Errors*: no thread.
    pub(crate) fn start(tie: super::PrivilegedConnection) -> io::Result<Arc<Self>> {
        let client = Arc::new(Self { socket: tie.socket, number: AtomicU32::new(1), waiting: Mutex::default() });
        let reader = client.clone();
        std::thread::Builder::new().name("helper".to_owned()).spawn(move || {
            let why = reader.read().map_or_else(|error| error.to_string(), |()| "it has exited".to_owned());
            tracing::error!(why, "the privileged helper has exited; the daemon stops");
            // Without the helper no further disk can be opened.
            std::process::exit(1);
        })?;
        Ok(client)
    }

    /// Dispatches answers until the helper is gone.
    fn read(&self) -> io::Result<()> {
        loop {
            let Some((bytes, descriptor)) = receive(&self.socket)? else { return Ok(()) };
            // A malformed answer ends the daemon: a helper that is broken must not decide which disks are opened.
            let answer = Answer::parse(&bytes).map_err(io::Error::other)?;
            let waiting = self.waiting().remove(&answer.number);
            // The request may have timed out; its receiver is gone then.
            let _ = waiting.map(|waiting| waiting.send((answer.outcome, descriptor)));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, Sender<Answered>>> {
        // Each holder makes one call on the map, so a panic leaves nothing half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the verb and waits for its outcome. Blocks the calling thread.
    ///
    /// *Errors*: the system's error at the helper, or `PermissionDenied` if its policy forbids the request.
    pub(crate) fn ask(&self, verb: Verb) -> io::Result<(Outcome, Option<OwnedFd>)> {
        // Only uniqueness matters, which needs no ordering between threads.
        let request = Request { number: self.number.fetch_add(1, Ordering::Relaxed), verb };
        if !request.has_valid_path() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the path is empty, too long or has a zero"));
        }
        let (tell, told) = channel();
        // Registered before it is sent: the answer may arrive before `send` returns.
        self.waiting().insert(request.number, tell);
        let bytes = request.emit();
        let sent = loop {
            match send(&self.socket, &bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        let answered = sent.map_err(io::Error::from).and_then(|_| {
            told.recv_timeout(PATIENCE).map_err(|_| io::Error::new(ErrorKind::TimedOut, "the helper does not respond"))
        });
        // A request that failed is forgotten, so that a late answer is dropped.
        let answered = answered.inspect_err(|_| drop(self.waiting().remove(&request.number)))?;
        match answered {
            (Outcome::Failed { errno }, _) => Err(io::Error::from_raw_os_error(errno)),
            (Outcome::Refused { reason: why }, _) => {
                tracing::warn!(why, "the privileged helper denied a request");
                Err(io::Error::new(ErrorKind::PermissionDenied, why))
            }
            done => Ok(done),
        }
    }

    /// Returns true if the helper answers. Blocks the calling thread.
    pub(crate) fn answers(&self) -> bool {
        // `/dev/null` is not a disk: a helper that works answers EINVAL.
        let asked = self.ask(Verb::Open { path: "/dev/null".into(), mode: Mode { write: false, direct: false } });
        asked.err().and_then(|error| error.raw_os_error()) == Some(Errno::INVAL.raw_os_error())
    }

    fn descriptor(&self, verb: Verb) -> io::Result<OwnedFd> {
        self.ask(verb)?.1.ok_or_else(|| io::Error::other("the helper sent no descriptor"))
    }
}

impl uring::Privileged for Client {
    fn open(&self, path: &str, write: bool, direct: bool) -> io::Result<OwnedFd> {
        self.descriptor(Verb::Open { path: path.into(), mode: Mode { write, direct } }).map_err(|error| {
            let errno = error.raw_os_error().map(Errno::from_raw_os_error);
            let why = match errno {
                Some(Errno::ALREADY) => "an earlier open of it has not returned",
                Some(Errno::AGAIN) => "too many disks are being opened and do not respond",
                // 8 s is the timeout of the helper's worker threads.
                Some(Errno::TIMEDOUT) => "it could not be opened within 8 s",
                _ => return error,
            };
            io::Error::new(ErrorKind::TimedOut, format!("{path} does not respond: {why}"))
        })
    }

    fn bind(&self, address: SocketAddr, takes_ipv4: bool) -> io::Result<OwnedFd> {
        self.descriptor(Verb::Bind { address, takes_ipv4 })
    }

    fn locate(&self, path: &str, on: bool) -> io::Result<()> {
        self.ask(Verb::Locate { path: path.into(), on }).map(drop).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::OPNOTSUPP.raw_os_error() => {
                io::Error::new(ErrorKind::Unsupported, "its enclosure has no known locate light")
            }
            _ => error,
        })
    }
}

impl control::Privileged for Client {
    fn run(&self, program: Program, path: &Path) -> io::Result<ProgramOutput> {
        let contents = |program| Verb::Contents { path: path.into(), program };
        let verb = match program {
            Program::Smartctl => Verb::Health { path: path.into() },
            Program::Wipefs => contents(privilege::Program::Wipefs),
            Program::Blkid => contents(privilege::Program::Blkid),
        };
        let (Outcome::Ran { code }, Some(descriptor)) = self.ask(verb)? else {
            return Err(io::Error::other("the helper sent no output"));
        };
        let mut output = Vec::new();
        // The helper enforces the same limit; a compromised one must not fill the memory either.
        File::from(descriptor).take(OUTPUT_BYTES_MAX).read_to_end(&mut output)?;
        // A negative code stands for a program that was ended by a signal.
        Ok(ProgramOutput { code: Some(code).filter(|&code| code >= 0), output })
    }

    fn create(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.ask(Verb::Create { path: path.into(), bytes }).map(drop)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask(Verb::Remove { path: path.into() }).map(drop)
    }

    fn bind(&self, address: SocketAddr) -> io::Result<TcpListener> {
        // Same as the default of the system: an IPv6 socket on the unspecified address also accepts IPv4.
        let takes_ipv4 = address.is_ipv6() && address.ip().is_unspecified();
        self.descriptor(Verb::Bind { address, takes_ipv4 }).map(TcpListener::from)
    }
}

/// Receives the next packet, with its descriptor if it has one; none at the end of the stream.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    // One byte more than the longest answer, so that a longer one is refused instead of cut off.
    let mut bytes = vec![0; ANSWER_BYTES_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    // The helper sends no empty packet, so this is the end of the stream.
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // This process has too many open files: the caller gets an error for the missing descriptor.
        descriptor = None;
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptor)))
}

//! The helper's end of the socket pair: packets with descriptors.

use privilege::{Answer, REQUEST_BYTES_MAX, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Descriptors of one packet that are closed here; the kernel closes the rest.
const DESCRIPTORS_MAX: usize = 8;

/// The end of the socket pair. Tokio has no type for packets in order, and that for streams waits for any socket.
pub(super) struct Line(UnixStream);

/// What came in one packet.
pub(super) struct Packet {
    /// One byte more than the longest request, so that a longer one is seen.
    bytes: Vec<u8>,
    has_descriptors: bool,
}

impl Line {
    /// Over a socket that does not block.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        UnixStream::from_std(socket.into()).map(Self)
    }

    /// The next packet; none once the daemon has closed its end. Descriptors that came with it are closed.
    pub(super) async fn receive(&self) -> io::Result<Option<Packet>> {
        loop {
            self.0.readable().await?;
            match self.0.try_io(Interest::READABLE, || receive(&self.0)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An empty packet looks like the end, but the other end is still open.
                Ok(packet) if packet.bytes.is_empty() && is_closed(&self.0) => return Ok(None),
                received => return received.map(Some),
            }
        }
    }

    /// The answer has been sent, or the daemon is gone. Requests wait while the daemon does not read.
    pub(super) async fn send(&self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        let bytes = answer.emit();
        while self.0.writable().await.is_ok() {
            match self.0.try_io(Interest::WRITABLE, || send(&self.0, &bytes, descriptor)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _sent_or_gone => return,
            }
        }
    }
}

impl Packet {
    /// The request that it is; else its number and why it is refused.
    pub(super) fn request(&self) -> Result<Request, (u32, String)> {
        let request = Request::parse(&self.bytes).map_err(|damaged| (damaged.number, damaged.violation.to_string()))?;
        if self.has_descriptors {
            return Err((request.number, "a request has no descriptor".to_owned()));
        }
        Ok(request)
    }
}

fn is_closed(socket: &impl AsFd) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    // What cannot be asked for any more is as good as closed.
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() || asked[0].revents().contains(PollFlags::HUP)
}

fn receive(socket: &impl AsFd) -> io::Result<Packet> {
    let mut bytes = vec![0; REQUEST_BYTES_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut has_descriptors = received.flags.contains(rustix::net::ReturnFlags::CTRUNC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            has_descriptors |= descriptors.count() > 0;
        }
    }
    bytes.truncate(received.bytes);
    Ok(Packet { bytes, has_descriptors })
}

fn send(socket: &impl AsFd, bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let descriptors = descriptor.map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.as_slice().is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors.as_slice())), "there is space for one");
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

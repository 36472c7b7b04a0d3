//! Helper's end of the socket pair: packets with descriptors.

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

/// Number of descriptors in one packet that are received here in order to be closed; the kernel drops further ones.
const DESCRIPTORS_MAX: usize = 8;

/// Socket of the helper. Tokio has no type for sequenced packets; its stream type only waits for readiness here.
pub(super) struct RequestSocket(UnixStream);

/// Packet as received.
pub(super) struct Packet {
    /// Content, read with one byte more than the longest request, so that a longer one is detected.
    bytes: Vec<u8>,
    has_descriptors: bool,
}

impl RequestSocket {
    /// Wraps a socket that does not block.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        UnixStream::from_std(socket.into()).map(Self)
    }

    /// Receives the next packet; none once the daemon has closed its end. Descriptors in it are closed.
    pub(super) async fn receive(&self) -> io::Result<Option<Packet>> {
        loop {
            self.0.readable().await?;
            match self.0.try_io(Interest::READABLE, || receive(&self.0)) {
                // Readiness can be outdated; `WouldBlock` clears it, and the loop waits again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An empty packet reads like the end of the stream, but the other end is still open.
                Ok(packet) if packet.bytes.is_empty() && is_closed(&self.0) => return Ok(None),
                received => return received.map(Some),
            }
        }
    }

    /// Sends the answer, or returns when the daemon is gone. Waits while the daemon does not read.
    pub(super) async fn send(&self, answer: &Answer, descriptor: Option<&OwnedFd>) {
        let bytes = answer.emit();
        while self.0.writable().await.is_ok() {
            match self.0.try_io(Interest::WRITABLE, || send(&self.0, &bytes, descriptor)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An error means that the daemon is gone; `receive` reports that.
                _sent_or_gone => return,
            }
        }
    }
}

impl Packet {
    /// Parses the request.
    ///
    /// *Errors*: its number, and the reason for the refusal.
    pub(super) fn request(&self) -> Result<Request, (u32, String)> {
        let request = Request::parse(&self.bytes).map_err(|damaged| (damaged.number, damaged.violation.to_string()))?;
        if self.has_descriptors {
            // No verb takes a descriptor, so one can only be an attack or a bug.
            return Err((request.number, "a request has no descriptor".to_owned()));
        }
        Ok(request)
    }
}

fn is_closed(socket: &impl AsFd) -> bool {
    // HUP is reported without being requested (poll(2)).
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    // A socket that cannot be polled counts as closed.
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
    // `CTRUNC`: there were more descriptors than fit, and the kernel has closed them.
    let mut has_descriptors = received.flags.contains(rustix::net::ReturnFlags::CTRUNC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // `count` drops the descriptors, which closes them.
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

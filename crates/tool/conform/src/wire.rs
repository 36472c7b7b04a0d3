//! TCP connection that sends and receives single PDUs; it adds nothing and tolerates no error.

use crate::{CheckResult, Finding, TestTarget};
use iscsi::pdu::{Bhs, SegmentLengths, TargetPdu};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Listening time after which silence counts as no answer.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);
/// Upper bound of a received data segment, in bytes.
const DATA_BYTES_MAX: usize = 1 << 20;

/// TCP connection to a portal.
pub(crate) struct Wire {
    stream: TcpStream,
    /// Response timeout.
    patience: Duration,
    /// Digests of the PDUs in both directions, off during the login.
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
}

/// PDU received from the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdu {
    pub(crate) header: Bhs,
    pub(crate) data: Vec<u8>,
}

/// Result of listening.
#[derive(Debug)]
pub(crate) enum Received {
    Pdu(Pdu),
    Closed,
    Silence,
}

impl Pdu {
    pub(crate) fn parse(&self) -> CheckResult<TargetPdu> {
        TargetPdu::parse(&self.header)
            .map_err(|violation| Finding::Wrong(format!("its PDU breaks a rule: {violation}")))
    }
}

impl Wire {
    /// Connects to the portal of `aim`.
    pub(crate) fn connect(aim: &TestTarget) -> CheckResult<Self> {
        Self::connect_to(&aim.portal, aim.patience)
    }

    /// Connects to a portal; tries each of its addresses.
    pub(crate) fn connect_to(portal: &str, patience: Duration) -> CheckResult<Self> {
        let unreachable = |why: std::io::Error| Finding::Untried(format!("{portal} cannot be reached: {why}"));
        let mut last = Finding::Untried(format!("{portal} has no address"));
        for address in portal.to_socket_addrs().map_err(unreachable)? {
            // The timeout of the operating system for a host that is silent may be minutes.
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    // A small PDU must not wait for the acknowledgment of the one before it.
                    stream.set_nodelay(true).map_err(unreachable)?;
                    stream.set_write_timeout(Some(patience)).map_err(unreachable)?;
                    return Ok(Self { stream, patience, header_digest: false, data_digest: false });
                }
                Err(error) => last = unreachable(error),
            }
        }
        Err(last)
    }

    /// Sends a PDU with correct digests. Errors are ignored, because the next receive detects a closed connection.
    pub(crate) fn send(&mut self, header: &Bhs, data: &[u8]) {
        self.send_bytes(&self.framed(header, data));
    }

    /// Returns the bytes of a PDU with padding and digests.
    pub(crate) fn framed(&self, header: &Bhs, data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        if self.header_digest {
            bytes.extend_from_slice(&digest(header));
        }
        let from = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(from + data.len().next_multiple_of(4), 0);
        // A PDU without data has no data digest (RFC 7143 §11.2).
        if self.data_digest && !data.is_empty() {
            // The digest includes the padding.
            let digest = digest(&bytes[from..]);
            bytes.extend_from_slice(&digest);
        }
        bytes
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Returns the deadline of a response that is requested now.
    pub(crate) fn patience_ends(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Receives the next PDU within the response timeout.
    pub(crate) fn expect(&mut self) -> CheckResult<Pdu> {
        self.expect_by(self.patience_ends())
    }

    /// Receives the next PDU before `until`.
    pub(crate) fn expect_by(&mut self, until: Instant) -> CheckResult<Pdu> {
        // A read timeout of zero is an error of the socket API.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match self.listen(left)? {
            Received::Pdu(pdu) => Ok(pdu),
            Received::Closed => Err(Finding::Wrong("it closed the connection".to_owned())),
            Received::Silence => Err(Finding::Wrong(format!("it said nothing for {} s", self.patience.as_secs()))),
        }
    }

    /// Receives one PDU, or reports that none began within this time.
    pub(crate) fn listen(&mut self, within: Duration) -> CheckResult<Received> {
        let mut header = [0; 48];
        match self.fill(&mut header, within) {
            Ok(true) => {}
            Ok(false) => return Ok(Received::Closed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(Received::Silence);
            }
            // A reset is the end of the connection, too.
            Err(_) => return Ok(Received::Closed),
        }
        let lengths = SegmentLengths::parse(&header);
        if self.header_digest {
            let told = self.rest(4)?;
            crate::ensure(told == digest(&header), || "its header digest is wrong".to_owned())?;
        }
        // Before the memory is allocated: the length is the target's claim.
        crate::ensure(lengths.data_bytes <= DATA_BYTES_MAX, || {
            format!("it sends {} bytes at once", lengths.data_bytes)
        })?;
        let padded = self.rest(lengths.padded_data_bytes())?;
        if self.data_digest && !padded.is_empty() {
            let told = self.rest(4)?;
            crate::ensure(told == digest(&padded), || "its data digest is wrong".to_owned())?;
        }
        Ok(Received::Pdu(Pdu { header, data: padded[..lengths.data_bytes].to_vec() }))
    }

    /// Waits until the target closes the connection, ignoring PDUs; false when it stays silent and keeps it open.
    pub(crate) fn is_closed(&mut self) -> CheckResult<bool> {
        loop {
            match self.listen(self.patience)? {
                Received::Pdu(_) => {}
                Received::Closed => return Ok(true),
                Received::Silence => return Ok(false),
            }
        }
    }

    fn rest(&mut self, len: usize) -> CheckResult<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.fill(&mut bytes, self.patience) {
            Ok(true) => Ok(bytes),
            _ => Err(Finding::Wrong("a PDU of it has no end".to_owned())),
        }
    }

    /// Fills the buffer; returns false when the connection ends before the first byte.
    fn fill(&mut self, bytes: &mut [u8], within: Duration) -> std::io::Result<bool> {
        let mut at = 0;
        while at < bytes.len() {
            // Only the first byte may be late; the rest of a PDU follows within the response timeout.
            self.stream.set_read_timeout(Some(if at == 0 { within } else { self.patience }))?;
            match self.stream.read(&mut bytes[at..])? {
                0 if at == 0 => return Ok(false),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => at += len,
            }
        }
        Ok(true)
    }
}

/// Returns the CRC32C of `bytes` in the byte order of PDUs.
fn digest(bytes: &[u8]) -> [u8; 4] {
    simd::crc32c::crc32c(bytes).to_le_bytes()
}

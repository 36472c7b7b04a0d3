//! Packet recordings of iSCSI connections in pcapng format. The file is generated as it is read: nothing is
//! stored here, and the recording ends when its reader goes away.

mod pcapng;

use crate::Engine;
use crate::request::Record;
use crate::sessions::Sessions;
use crate::system::stopped;
use model::{Order, Recordable, Recordings, Refusal};
use pcapng::Pcapng;
pub use pcapng::Summary;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Default duration and size limit of a recording.
const TIME: Duration = Duration::from_secs(60);
const BYTES: u64 = 64 << 20;

/// A running recording; dropping it stops it.
pub struct Recording {
    number: u64,
    engine: Engine,
    stopping: watch::Receiver<bool>,
    file: Pcapng,
    /// Bytes of the file that were not read yet.
    unread: Vec<u8>,
    is_over: bool,
}

impl Sessions {
    /// Starts a recording of connections.
    ///
    /// *Errors*: neither session nor address is named, there is no such session, or too many recordings run.
    pub async fn record(&self, asked: Record) -> Result<Recording, Refusal> {
        let what = Recordable::one_of(asked.session, asked.from)?;
        let time = asked.time.map_or(TIME, |time| Duration::from_millis(time.millis()));
        let number = self.core.engine.recording(Order::Record { what, time }).await?;
        let (file, unread) = Pcapng::begin(asked.bytes_max.map_or(BYTES, |size| size.bytes()));
        Ok(Recording {
            number,
            engine: self.core.engine.clone(),
            stopping: self.core.stopping.subscribe(),
            file,
            unread,
            is_over: false,
        })
    }
}

impl Recording {
    /// Returns the next bytes of the file, waiting for them; `None` at its end.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        while self.unread.is_empty() && !self.is_over {
            let recording = self.number;
            let told = tokio::select! {
                told = self.engine.recorded(Order::NextRecorded { recording }) => Some(told),
                () = stopped(&mut self.stopping) => None,
            };
            // At shutdown the recording is stopped, and its rest still becomes part of the file.
            let told = match told {
                Some(told) => told,
                None => self.engine.recorded(Order::StopRecording { recording }).await,
            };
            // When the data plane is gone, the file ends with what was read so far.
            self.take(told.unwrap_or(Recordings { is_over: true, ..Recordings::default() }));
        }
        Some(std::mem::take(&mut self.unread)).filter(|bytes| !bytes.is_empty())
    }

    fn take(&mut self, told: Recordings) {
        self.is_over = told.is_over;
        for piece in &told.pieces {
            // The size limit is reached: the piece is left out, and the file is completed.
            match self.file.blocks(piece) {
                Some(blocks) => self.unread.extend(blocks),
                None => {
                    self.is_over = true;
                    break;
                }
            }
        }
        if self.is_over {
            // A clock before 1970 counts as 1970.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.unread.extend(self.file.end(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), told.lost));
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A destructor cannot wait, and the answer is not needed.
        self.engine.send(Order::StopRecording { recording: self.number });
    }
}

//! What goes over the wire of hosts, as a file for whoever asks. The file is made as it is read: nothing of it is kept here, and
//! when its reader is gone nothing is recorded any more.

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

/// How long is recorded, and how much, unless told otherwise.
const TIME: Duration = Duration::from_secs(60);
const BYTES: u64 = 64 << 20;

/// A recording that runs, until it is dropped.
pub struct Recording {
    number: u64,
    engine: Engine,
    stopping: watch::Receiver<bool>,
    file: Pcapng,
    /// What nobody has read.
    unread: Vec<u8>,
    is_over: bool,
}

impl Sessions {
    /// Connections are recorded from now on.
    ///
    /// *Errors*: nothing is named that could be, there is no such session, or too many recordings run.
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
    /// The next bytes of the file, as soon as there are some; none at its end.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        while self.unread.is_empty() && !self.is_over {
            let recording = self.number;
            let told = tokio::select! {
                told = self.engine.recorded(Order::NextRecorded { recording }) => Some(told),
                () = stopped(&mut self.stopping) => None,
            };
            let told = match told {
                Some(told) => told,
                None => self.engine.recorded(Order::StopRecording { recording }).await,
            };
            // What there is when the data plane is gone is all.
            self.take(told.unwrap_or(Recordings { is_over: true, ..Recordings::default() }));
        }
        Some(std::mem::take(&mut self.unread)).filter(|bytes| !bytes.is_empty())
    }

    fn take(&mut self, told: Recordings) {
        self.is_over = told.is_over;
        for piece in &told.pieces {
            match self.file.blocks(piece) {
                Some(blocks) => self.unread.extend(blocks),
                None => {
                    self.is_over = true;
                    break;
                }
            }
        }
        if self.is_over {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.unread.extend(self.file.end(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), told.lost));
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.engine.tell(Order::StopRecording { recording: self.number });
    }
}

//! A file that a command writes as it comes from the daemon.

use crate::failure::Failure;
use model::{Refusal, code};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A new file, or standard output. It is there when the first bytes are: what is refused leaves none.
pub(super) struct NewFile<'a> {
    path: &'a Path,
    out: Option<Box<dyn Write>>,
}

impl<'a> NewFile<'a> {
    /// The file `path`; `-` is standard output.
    pub(super) fn at(path: &'a Path) -> Self {
        Self { path, out: None }
    }

    /// True when what is written goes to standard output.
    pub(super) fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    /// The bytes are in the file.
    ///
    /// *Errors*: it is there already, it cannot be made, or it has no room.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.out.is_none() {
            let file = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path);
            self.out =
                Some(if self.is_stdout() { Box::new(io::stdout()) as Box<dyn Write> } else { Box::new(file()?) });
        }
        self.out.as_mut().map_or(Ok(()), |out| out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// True when all of it is `saved`, and false when a reader of standard output did not want the rest.
    pub(super) fn is_saved(&self, saved: io::Result<()>) -> Result<bool, Failure> {
        match saved {
            Ok(()) => Ok(true),
            Err(error) if self.is_stdout() && error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => {
                let message = format!("{} cannot be written: {error}", self.path.display());
                let hint = "name a new file, in a folder that has room";
                Err(Refusal::new(code::IO_FAILED, message, hint).into())
            }
        }
    }
}

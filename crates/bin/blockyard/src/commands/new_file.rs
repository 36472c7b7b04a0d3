//! Output file of a command that receives its content from the daemon.

use crate::failure::Failure;
use model::{Refusal, code};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// New file, or standard output. Created with the first bytes, so that a refused request leaves no file.
pub(super) struct NewFile<'a> {
    path: &'a Path,
    out: Option<Box<dyn Write>>,
}

impl<'a> NewFile<'a> {
    /// Names the file; `-` is standard output.
    pub(super) fn at(path: &'a Path) -> Self {
        Self { path, out: None }
    }

    /// Returns true for standard output.
    pub(super) fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Appends bytes, creating the file first.
    ///
    /// *Errors*: the file exists, cannot be created, or there is no space.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.out.is_none() {
            // Readable only by its owner: a recording holds the data of hosts, a key file a key.
            let file = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path);
            self.out =
                Some(if self.is_stdout() { Box::new(io::stdout()) as Box<dyn Write> } else { Box::new(file()?) });
        }
        // Flushed for a reader of the pipe, which would otherwise wait for a full buffer.
        self.out.as_mut().map_or(Ok(()), |out| out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// Converts the result of saving: true if everything was written, false if a reader of standard output closed the
    /// pipe.
    pub(super) fn is_saved(&self, saved: io::Result<()>) -> Result<bool, Failure> {
        match saved {
            Ok(()) => Ok(true),
            // A reader such as `head` has all that it wants, so this is no failure.
            Err(error) if self.is_stdout() && error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => {
                let message = format!("{} cannot be written: {error}", self.path.display());
                let hint = "give a new file in a folder with free space";
                Err(Refusal::new(code::IO_FAILED, message, hint).into())
            }
        }
    }
}

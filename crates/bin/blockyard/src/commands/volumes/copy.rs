//! Commands `blockyard volume copy` and `cancel-copy`.

use crate::commands::CommandContext;
use crate::failure::Failure;
use crate::progress::{WaitTimeout, sentence};
use control::request::NewCopy;
use model::{CopySource, Name, VolumeName, VolumeReport};

pub(super) fn begin(
    desk: &CommandContext,
    source: CopySource,
    pool: Name,
    name: Option<Name>,
    patience: Option<WaitTimeout>,
) -> Result<(), Failure> {
    let own = name.unwrap_or_else(|| source.volume().volume().clone());
    let name = VolumeName::in_pool(pool, own);
    let request = NewCopy { source, name: name.clone() };
    let answer = desk.client.post("/copies", &request, "volume")?;
    let text = format!("copying {} to {name}, see blockyard volume show {name}", request.source);
    desk.out.done(&answer, &text)?;
    patience.map_or(Ok(()), |patience| follow(desk, &request, patience))
}

pub(super) fn cancel(desk: &CommandContext, name: &VolumeName) -> Result<(), Failure> {
    desk.client.delete(&format!("/copies/{name}"))?;
    desk.out.said(&format!("copy to {name} canceled; the partial copy was deleted"))
}

/// Waits for the end of the copy; prints a line to stderr for every ten percent.
fn follow(desk: &CommandContext, request: &NewCopy, patience: WaitTimeout) -> Result<(), Failure> {
    let mut told = None;
    loop {
        let volumes: Vec<VolumeReport> = desk.client.get("/volumes", "volumes")?.decode()?;
        // A copy that failed is deleted together with its volume.
        let Some(volume) = volumes.into_iter().find(|volume| volume.name == request.name) else {
            eprintln!("blockyard: {} was not copied to {}; see blockyard event list", request.source, request.name);
            return Err(Failure::Said);
        };
        let Some(copy) = volume.copy else {
            return desk.out.said(&format!("volume {} is complete", request.name));
        };
        let step = copy.progress.percent() / 10;
        if !desk.out.is_quiet() && told != Some(step) {
            eprintln!("volume {}: {}", request.name, sentence("copy", &copy.progress));
            told = Some(step);
        }
        patience.pause(&format!("the copy to volume {}", request.name))?;
    }
}

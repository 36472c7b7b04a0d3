//! A state of an older form becomes one of ours: written anew beside the old one, whose bytes are then overwritten.

use super::vault::Vault;
use super::{EVENTS, META, SCHEMA, VERSIONS, damaged, open_database, open_private, sync_dir, unwritable};
use model::Refusal;
use redb::{Database, ReadableDatabase, ReadableTable};
use serde_json::Value;
use std::error::Error;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Every version that is kept has its secrets sealed, and the old file, which had them in plain, is overwritten and gone.
///
/// The old state is whole until the new one has its name. Copies that others have made of it, and what a disk keeps of blocks that
/// were overwritten, are out of reach: an operator who fears for them sets new secrets.
///
/// *Errors*: the old one cannot be read, the new one not be written. *Durability*: it survives power loss.
pub fn rewrite(old: Database, mut old_file: File, path: &Path, vault: &Vault) -> Result<Database, Refusal> {
    let beside = path.with_extension("redb.new");
    let _ = fs::remove_file(&beside);
    let file = open_private(&beside).map_err(|e| unwritable(&beside, &e))?;
    let new = open_database(file, &beside)?;
    copy(&old, &new, vault).map_err(|e| damaged(path, &*e))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::rename(&beside, path).and_then(|()| sync_dir(dir)).map_err(|e| unwritable(path, &e))?;
    drop(old);
    overwrite(&mut old_file).map_err(|e| unwritable(path, &e))?;
    tracing::info!(state = %path.display(), "secrets are sealed from now on");
    Ok(new)
}

fn copy(old: &Database, new: &Database, vault: &Vault) -> Result<(), Box<dyn Error>> {
    let from = old.begin_read()?;
    let to = new.begin_write()?;
    to.open_table(META)?.insert("schema", SCHEMA)?;
    for row in from.open_table(VERSIONS)?.iter()? {
        let (version, json) = row?;
        let mut state: Value = serde_json::from_slice(json.value())?;
        vault.seal(&mut state)?;
        to.open_table(VERSIONS)?.insert(version.value(), serde_json::to_vec(&state)?.as_slice())?;
    }
    match from.open_table(EVENTS) {
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        events => {
            for row in events?.iter()? {
                let (number, event) = row?;
                to.open_table(EVENTS)?.insert(number.value(), event.value())?;
            }
        }
    }
    Ok(to.commit()?)
}

fn overwrite(file: &mut File) -> std::io::Result<()> {
    let mut left = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let zeros = [0; 64 << 10];
    while left > 0 {
        let len = left.min(zeros.len() as u64);
        file.write_all(&zeros[..usize::try_from(len).unwrap_or(zeros.len())])?;
        left -= len;
    }
    file.sync_all()
}

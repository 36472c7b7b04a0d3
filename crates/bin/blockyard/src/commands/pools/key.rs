//! Key file of a pool: one line with the identifier of the key and the key.

use crate::commands::{CommandContext, pool_path};
use crate::failure::Failure;
use control::request::{PoolKeyText, SecretText};
use model::{Name, Refusal, code};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// First word of a key file.
const MAGIC: &str = "blockyard-pool-key-1";
/// Hexadecimal digits of a key: 256 bits.
const KEY_DIGITS: usize = 64;
/// Limit in bytes of a key file, which exceeds the length of one.
const FILE_BYTES_MAX: u64 = 256;

/// Writes the key of the pool to a new file.
pub(super) fn write(desk: &CommandContext, name: &Name, path: &Path) -> Result<(), Failure> {
    let answer = desk.client.post(&format!("{}/key", pool_path(name)), &(), "pool_key")?;
    let PoolKeyText { id, key } = answer.decode()?;
    let SecretText::Hex { hex } = key else { return Err(not_a_key(path, "the daemon sent no key")) };
    // The copy of the key in the line is wiped when it is dropped.
    let line = Zeroizing::new(format!("{MAGIC} {id} {hex}\n"));
    // Never overwrites: an existing file may be the only key of another pool.
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = written.and_then(|mut file| {
        file.write_all(line.as_bytes())?;
        // The key must be on the disk before the command reports success.
        file.sync_all()
    });
    written.map_err(|error| {
        let message = format!("the key of pool {name} cannot be written to {}: {error}", path.display());
        Refusal::new(code::POOL_KEY_WRONG, message, "give the path of a new file")
    })?;
    desk.out.said(&format!(
        "key {id} of pool {name} written to {}; keep it away from the disks of this node",
        path.display()
    ))
}

/// Reads the key from a key file.
pub(super) fn read(path: &Path) -> Result<SecretText, Failure> {
    let read = bounded::source(path, FILE_BYTES_MAX).and_then(bounded::text_of);
    let text = Zeroizing::new(read.map_err(|error| not_a_key(path, &error.to_string()))?);
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        // The identifier is for people. The daemon tests the key on the volumes of the pool.
        [MAGIC, _, hex] if hex.len() == KEY_DIGITS => Ok(SecretText::Hex { hex: hex.to_owned() }),
        _ => Err(not_a_key(path, "it is truncated or not a pool key")),
    }
}

fn not_a_key(path: &Path, why: &str) -> Failure {
    let message = format!("the key file {} cannot be used: {why}", path.display());
    Refusal::new(code::POOL_KEY_WRONG, message, "give the file that blockyard pool key wrote").into()
}

//! Embeds the files of the built console, `console/dist`, into the program, uncompressed and with gzip. Without them
//! the program has no console.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../../console/dist");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    if dist.is_dir() {
        walk(&dist, &mut files)?;
    }
    // Sorted, so that the same files give the same program.
    files.sort();
    let mut table = String::from("static FILES: &[File] = &[\n");
    for (number, file) in files.iter().enumerate() {
        let bytes = fs::read(file)?;
        let mut packed = packed(&bytes)?;
        if packed.len() >= bytes.len() {
            // An empty copy means that compression does not make the file smaller.
            packed.clear();
        }
        let beside = out.join(format!("console-{number}.gz"));
        fs::write(&beside, packed)?;
        let path = file.strip_prefix(&dist)?.to_string_lossy().replace('\\', "/");
        writeln!(
            table,
            "    File {{ path: {:?}, bytes: include_bytes!({:?}), gzip: include_bytes!({beside:?}), tag: {:?} }},",
            format!("/{path}"),
            fs::canonicalize(file)?,
            format!("\"{:016x}\"", fingerprint(&bytes)),
        )?;
    }
    table += "];\n";
    fs::write(out.join("console.rs"), table)?;
    Ok(())
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// FNV-1a hash of a file, used as its entity tag; it needs no cryptographic strength.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

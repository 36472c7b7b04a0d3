//! Fuzz target: arbitrary bytes as labels, slot headers and catalogs, as another machine's disks may contain them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volume::slot::Header;
use volume::{Catalog, Label};

fuzz_target!(|input: &[u8]| {
    let mut block = [0; 4096];
    let len = input.len().min(block.len());
    block[..len].copy_from_slice(&input[..len]);
    let _ = Label::parse(&block);
    let _ = Header::parse(&block);
    if let Ok(catalog) = Catalog::parse(input) {
        let bytes = catalog.emit();
        assert!(bytes.len() <= catalog.emitted_bytes_max());
        assert_eq!(Catalog::parse(&bytes), Ok(catalog), "a catalog that is written again means the same");
    }
});

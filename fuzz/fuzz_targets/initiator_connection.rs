//! Fuzz target: an initiator in full feature phase with outstanding commands receives arbitrary bytes in arbitrary
//! pieces.
#![no_main]

#[allow(dead_code, reason = "each of two targets uses its half")]
mod logged_in;

use block::Buf;
use iscsi::initiator::{Command, DataIn, Event};
use iscsi::pdu::{Lun, TaskAttribute, TaskFunction};
use libfuzzer_sys::fuzz_target;
use logged_in::{drain_initiator, feed_initiator, offer, pair};

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let (_, mut initiator) = pair(&offer());
    for n in 0..10usize {
        let command = Command {
            lun: Lun(0),
            cdb: [0; 16].into(),
            attribute: TaskAttribute::Simple,
            data_out: (n % 2 == 0).then(|| Buf::zeroed(n * 100_000).into()),
            data_in: if n % 3 == 0 { DataIn::Into(Buf::zeroed(50_000)) } else { DataIn::Discard(4096) },
        };
        let submitted = initiator.submit(command);
        if n == 4 {
            initiator.manage(TaskFunction::AbortTask, Lun(0), submitted.ok());
        }
    }
    initiator.ping(b"ping");
    initiator.send_targets("");
    for piece in bytes.chunks(usize::from(cut).pow(2) + 1) {
        feed_initiator(&mut initiator, piece);
        while let Some(event) = initiator.poll_event() {
            if let Event::Completed(done) = event {
                assert!(done.data_in.is_none_or(|data| data.len() == done.data_in_bytes as usize));
            }
        }
        drain_initiator(&mut initiator);
    }
    initiator.handle_peer_closed();
    assert!(initiator.is_closed());
});

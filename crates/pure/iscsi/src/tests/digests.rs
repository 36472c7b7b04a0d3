//! Header and data digests: valid ones pass, and each wrong bit is detected.

use super::rig::*;
use crate::receive::Digests;
use crate::target::{CloseReason, Event, Response};
use crate::{Negotiated, Violation};
use block::Buf;
use simd::crc32c::{crc32c, crc32c_append};

fn rig(digests: Digests) -> Rig {
    let Digests { header, data } = digests;
    let agreed =
        Negotiated { first_burst_bytes_max: 64 << 10, header_digest: header, data_digest: data, ..negotiated() };
    Rig::with(config(), agreed)
}

const BOTH: Digests = Digests { header: true, data: true };

/// Returns the PDU with its digests.
fn with_digests(bytes: &[u8], digests: Digests) -> Vec<u8> {
    let (header, data) = bytes.split_at(48);
    let mut out = header.to_vec();
    if digests.header {
        out.extend_from_slice(&crc32c(header).to_le_bytes());
    }
    out.extend_from_slice(data);
    if digests.data && !data.is_empty() {
        out.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    out
}

#[test]
fn digests_are_checked_and_sent_as_agreed() {
    for digests in [Digests { header: true, data: false }, Digests { header: false, data: true }, BOTH] {
        // One payload that fits the buffer, and one that is received into its destination.
        for len in [1001, 50_001] {
            let mut rig = rig(digests);
            let shape = writes(len as u32);
            rig.receive(&with_digests(&command(1, 1, shape, &pattern(len)), digests));
            rig.receive(&with_digests(&command(2, 2, reads(5), &[]), digests));
            assert_eq!(&rig.expect_command().data_out[..], &pattern(len)[..]);
            let task = rig.expect_command().task;
            rig.respond(task, Response::good(Buf::copy_of(b"hello").into()));
            let sent = rig.sent();
            let (header, rest) = sent.split_at(48);
            let rest = match digests.header {
                true => {
                    assert_eq!(rest[..4], crc32c(header).to_le_bytes());
                    &rest[4..]
                }
                false => rest,
            };
            assert_eq!(&rest[..8], b"hello\0\0\0");
            let expected: &[u8] = &crc32c_append(crc32c(b"hello"), &[0; 3]).to_le_bytes();
            assert_eq!(&rest[8..], if digests.data { expected } else { &[] });
        }
    }
}

#[test]
fn wrong_header_digest_ends_the_connection_without_a_word() {
    let right = with_digests(&command(1, 1, writes(100), &pattern(100)), BOTH);
    for at in 0..52 {
        let mut wrong = right.clone();
        wrong[at] ^= 0x10;
        if (4..8).contains(&at) {
            continue; // Another length is another PDU: it may wait for more.
        }
        let mut rig = rig(BOTH);
        rig.receive(&wrong);
        let events = rig.events();
        assert!(
            matches!(events[..], [Event::Closed(CloseReason::Violation(Violation::HeaderDigestWrong))]),
            "byte {at}: {events:?}"
        );
        assert!(rig.sent().is_empty() && rig.target.is_over());
    }
}

#[test]
fn wrong_data_digest_is_rejected_and_ends_the_connection() {
    for len in [100, 50_000] {
        let right = with_digests(&command(1, 1, writes(len as u32), &pattern(len)), BOTH);
        for at in [52, 52 + len / 2, 52 + len - 1, 52 + len, 52 + len + 3] {
            let mut wrong = right.clone();
            wrong[at] ^= 0x10;
            let mut rig = rig(BOTH);
            rig.receive(&wrong);
            let events = rig.events();
            assert!(
                matches!(events[..], [Event::Closed(CloseReason::Violation(Violation::DataDigestWrong))]),
                "byte {at} of {len}: {events:?}"
            );
            let sent = rig.sent();
            assert_eq!((sent[0], sent[2]), (0x3f, 2), "a Reject for a data digest error");
            assert_eq!(sent[52..100], right[..48], "it carries the header");
            rig.assert_idle();
        }
    }
}

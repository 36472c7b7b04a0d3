//! Fuzz target: an arbitrary header with arbitrary additional header segments, parsed, emitted, and parsed to an equal
//! value.
#![no_main]

use iscsi::pdu::{
    Ahs, AsyncMessage, BHS_BYTES, Bhs, DataIn, DataOut, InitiatorPdu, LoginRequest, LoginResponse, LogoutRequest,
    LogoutResponse, NopIn, NopOut, R2t, Reject, ScsiCommand, ScsiResponse, SegmentLengths, Snack, TargetPdu,
    TaskManagementRequest, TaskManagementResponse, TextRequest, TextResponse,
};
use libfuzzer_sys::fuzz_target;

/// Checks that a PDU which parses is equal after it is emitted and parsed again.
macro_rules! there_and_back {
    ($header:expr, $lengths:expr, $($kind:ident)*) => {
        $(if let Ok(pdu) = $kind::parse($header) {
            let mut again: Bhs = [0; BHS_BYTES];
            pdu.emit($lengths, &mut again);
            assert_eq!($kind::parse(&again), Ok(pdu));
            assert_eq!(SegmentLengths::parse(&again), $lengths);
        })*
    };
}

fuzz_target!(|input: &[u8]| {
    let Some((header, behind)) = input.split_first_chunk::<BHS_BYTES>() else { return };
    let lengths = SegmentLengths::parse(header);
    assert!(lengths.padded_data_bytes() >= lengths.data_bytes && lengths.padded_data_bytes().is_multiple_of(4));
    let both = (InitiatorPdu::parse(header), TargetPdu::parse(header));
    assert!(both.0.is_err() || both.1.is_err(), "a header belongs to one role");
    there_and_back!(header, lengths,
        AsyncMessage DataIn DataOut LoginRequest LoginResponse LogoutRequest LogoutResponse NopIn NopOut R2t Reject
        ScsiCommand ScsiResponse Snack TaskManagementRequest TaskManagementResponse TextRequest TextResponse);
    if let Ok(ahs) = Ahs::parse(behind) {
        let mut again = Vec::new();
        ahs.emit(&mut again);
        assert_eq!(again.len(), ahs.bytes());
        assert_eq!(Ahs::parse(&again), Ok(ahs));
    }
});

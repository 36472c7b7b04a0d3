//! Vectors written by hand from the figures of RFC 7143 §11, round trips, and random input.

use super::*;
use proptest::prelude::*;

/// Builds a header from twelve words in hexadecimal, in the layout of the RFC.
fn header(words: &str) -> Bhs {
    let digits: Vec<u8> = words.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    bytes.try_into().expect("twelve words")
}

/// Checks that `words` parse as `pdu`, and that `pdu` is emitted as `words`.
macro_rules! check_vector {
    ($kind:ident, $words:expr, $lengths:expr, $pdu:expr $(,)?) => {
        let bytes = header($words);
        let pdu = $pdu;
        assert_eq!($kind::parse(&bytes), Ok(pdu));
        assert_eq!(SegmentLengths::parse(&bytes), $lengths);
        let mut out = [0xee; BHS_BYTES];
        pdu.emit($lengths, &mut out);
        assert_eq!(out, bytes);
    };
}

const ITT: InitiatorTaskTag = InitiatorTaskTag(0x0000_0007);
const TTT: TargetTransferTag = TargetTransferTag(0x0000_002a);

// §11.3: a READ (10) of 8 blocks at 0x1000, immediate, simple, with an additional header of 8 bytes.
#[test]
fn scsi_command_vector() {
    check_vector!(
        ScsiCommand,
        "41e10000 02000010 00010000 00000000 00000007 00001000 00000011 00000021 28000000 10000000 08000000 00000000",
        SegmentLengths { ahs_bytes: 8, data_bytes: 16 },
        ScsiCommand {
            immediate: true,
            is_final: true,
            read: true,
            write: true,
            attribute: TaskAttribute::Simple,
            lun: Lun(0x0001_0000_0000_0000),
            initiator_task_tag: ITT,
            expected_data_transfer_bytes: 4096,
            cmd_sn: CmdSn(0x11),
            exp_stat_sn: StatSn(0x21),
            cdb: [0x28, 0, 0, 0, 0x10, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        }
    );
}

// §11.4: CHECK CONDITION with 20 bytes of sense data, an overflow of the read and an underflow.
#[test]
fn scsi_response_vector() {
    check_vector!(
        ScsiResponse,
        "21920002 00000014 00000000 00000000 00000007 00000000 00000030 00000012 00000052 00000003 00000200 00000100",
        SegmentLengths::data(20),
        ScsiResponse {
            response: ServiceResponse::Completed,
            status: 2,
            initiator_task_tag: ITT,
            snack_tag: 0,
            stat_sn: StatSn(0x30),
            exp_cmd_sn: CmdSn(0x12),
            max_cmd_sn: CmdSn(0x52),
            exp_data_sn: DataSn(3),
            read_residual: Residual::Overflow(512),
            residual: Residual::Underflow(256),
        }
    );
}

// §11.5: ABORT TASK of task 6, immediate.
#[test]
fn task_management_request_vector() {
    check_vector!(
        TaskManagementRequest,
        "42810000 00000000 00020000 00000000 00000007 00000006 00000013 00000022 00000010 00000000 00000000 00000000",
        SegmentLengths::NONE,
        TaskManagementRequest {
            immediate: true,
            function: TaskFunction::AbortTask,
            lun: Lun(2 << 48),
            initiator_task_tag: ITT,
            referenced_task_tag: InitiatorTaskTag(6),
            cmd_sn: CmdSn(0x13),
            exp_stat_sn: StatSn(0x22),
            ref_cmd_sn: CmdSn(0x10),
            exp_data_sn: DataSn(0),
        }
    );
}

// §11.6: task does not exist.
#[test]
fn task_management_response_vector() {
    check_vector!(
        TaskManagementResponse,
        "22800100 00000000 00000000 00000000 00000007 00000000 00000031 00000014 00000054 00000000 00000000 00000000",
        SegmentLengths::NONE,
        TaskManagementResponse {
            outcome: TaskFunctionOutcome::TaskDoesNotExist,
            initiator_task_tag: ITT,
            stat_sn: StatSn(0x31),
            exp_cmd_sn: CmdSn(0x14),
            max_cmd_sn: CmdSn(0x54),
        }
    );
}

// §11.7: the last 512 bytes of a burst, from 1024 on.
#[test]
fn data_out_vector() {
    check_vector!(
        DataOut,
        "05800000 00000200 00030000 00000000 00000007 0000002a 00000000 00000023 00000000 00000002 00000400 00000000",
        SegmentLengths::data(512),
        DataOut {
            is_final: true,
            lun: Lun(3 << 48),
            initiator_task_tag: ITT,
            target_transfer_tag: TTT,
            exp_stat_sn: StatSn(0x23),
            data_sn: DataSn(2),
            buffer_offset_bytes: 1024,
        }
    );
}

// §11.7: the last data with status GOOD and an underflow of 16 bytes.
#[test]
fn data_in_with_status_vector() {
    check_vector!(
        DataIn,
        "25830000 000001f0 00000000 00000000 00000007 ffffffff 00000032 00000015 00000055 00000001 00000800 00000010",
        SegmentLengths::data(0x1f0),
        DataIn {
            is_final: true,
            acknowledge: false,
            status: Some(DataInStatus { status: 0, stat_sn: StatSn(0x32), residual: Residual::Underflow(16) }),
            lun: Lun(0),
            initiator_task_tag: ITT,
            target_transfer_tag: TargetTransferTag::RESERVED,
            exp_cmd_sn: CmdSn(0x15),
            max_cmd_sn: CmdSn(0x55),
            data_sn: DataSn(1),
            buffer_offset_bytes: 2048,
        }
    );
}

// §11.7: data in the middle of a transfer, with a request for acknowledgement.
#[test]
fn data_in_without_status_vector() {
    check_vector!(
        DataIn,
        "25c00000 00000400 00040000 00000000 00000007 0000002a 00000000 00000015 00000055 00000000 00000000 00000000",
        SegmentLengths::data(1024),
        DataIn {
            is_final: true,
            acknowledge: true,
            status: None,
            lun: Lun(4 << 48),
            initiator_task_tag: ITT,
            target_transfer_tag: TTT,
            exp_cmd_sn: CmdSn(0x15),
            max_cmd_sn: CmdSn(0x55),
            data_sn: DataSn(0),
            buffer_offset_bytes: 0,
        }
    );
}

// §11.8: 64 KiB from 8 KiB on.
#[test]
fn r2t_vector() {
    check_vector!(
        R2t,
        "31800000 00000000 00030000 00000000 00000007 0000002a 00000033 00000016 00000056 00000001 00002000 00010000",
        SegmentLengths::NONE,
        R2t {
            lun: Lun(3 << 48),
            initiator_task_tag: ITT,
            target_transfer_tag: TTT,
            stat_sn: StatSn(0x33),
            exp_cmd_sn: CmdSn(0x16),
            max_cmd_sn: CmdSn(0x56),
            r2t_sn: R2tSn(1),
            buffer_offset_bytes: 8192,
            desired_data_transfer_bytes: 65536,
        }
    );
}

// §11.9: connection 1 is dropped; Time2Wait 2 s, tasks are retained for 20 s.
#[test]
fn async_message_vector() {
    check_vector!(
        AsyncMessage,
        "32800000 00000000 00000000 00000000 ffffffff 00000000 00000034 00000017 00000057 02000001 00020014 00000000",
        SegmentLengths::NONE,
        AsyncMessage {
            lun: Lun(0),
            stat_sn: StatSn(0x34),
            exp_cmd_sn: CmdSn(0x17),
            max_cmd_sn: CmdSn(0x57),
            event: AsyncEvent::ConnectionDropped { cid: 1, time2wait_s: 2, time2retain_s: 20 },
        }
    );
}

// §11.10: "SendTargets=All" with its NUL in one PDU.
#[test]
fn text_request_vector() {
    check_vector!(
        TextRequest,
        "04800000 00000010 00000000 00000000 00000007 ffffffff 00000018 00000024 00000000 00000000 00000000 00000000",
        SegmentLengths::data(16),
        TextRequest {
            immediate: false,
            is_final: true,
            continues: false,
            lun: Lun(0),
            initiator_task_tag: ITT,
            target_transfer_tag: TargetTransferTag::RESERVED,
            cmd_sn: CmdSn(0x18),
            exp_stat_sn: StatSn(0x24),
        }
    );
}

// §11.11: 8,192 bytes, with more to follow.
#[test]
fn text_response_vector() {
    check_vector!(
        TextResponse,
        "24400000 00002000 00000000 00000000 00000007 0000002a 00000035 00000019 00000059 00000000 00000000 00000000",
        SegmentLengths::data(8192),
        TextResponse {
            is_final: false,
            continues: true,
            lun: Lun(0),
            initiator_task_tag: ITT,
            target_transfer_tag: TTT,
            stat_sn: StatSn(0x35),
            exp_cmd_sn: CmdSn(0x19),
            max_cmd_sn: CmdSn(0x59),
        }
    );
}

// §11.12: leading login, from the security to the operational stage.
#[test]
fn login_request_vector() {
    check_vector!(
        LoginRequest,
        "43810000 00000040 00023d00 00010000 00000007 00010000 00000001 00000000 00000000 00000000 00000000 00000000",
        SegmentLengths::data(64),
        LoginRequest {
            transit: Transit::to(Stage::Security, Stage::Operational),
            version_max: 0,
            version_min: 0,
            isid: Isid([0, 2, 0x3d, 0, 0, 1]),
            tsih: Tsih(0),
            initiator_task_tag: ITT,
            cid: Cid(1),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(0),
        }
    );
}

// §11.13: last response of a login, which assigns the TSIH.
#[test]
fn login_response_vector() {
    check_vector!(
        LoginResponse,
        "23870000 00000000 00023d00 00010009 00000007 00000000 00000036 00000001 00000040 00000000 00000000 00000000",
        SegmentLengths::NONE,
        LoginResponse {
            transit: Transit::to(Stage::Operational, Stage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: Isid([0, 2, 0x3d, 0, 0, 1]),
            tsih: Tsih(9),
            initiator_task_tag: ITT,
            stat_sn: StatSn(0x36),
            exp_cmd_sn: CmdSn(1),
            max_cmd_sn: CmdSn(0x40),
            status: crate::LoginStatus::Success,
        }
    );
}

// §11.14: close connection 1.
#[test]
fn logout_request_vector() {
    check_vector!(
        LogoutRequest,
        "46810000 00000000 00000000 00000000 00000007 00010000 0000001a 00000025 00000000 00000000 00000000 00000000",
        SegmentLengths::NONE,
        LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseConnection,
            initiator_task_tag: ITT,
            cid: Cid(1),
            cmd_sn: CmdSn(0x1a),
            exp_stat_sn: StatSn(0x25),
        }
    );
}

// §11.15: closed; Time2Wait 2 s, tasks are retained for 20 s.
#[test]
fn logout_response_vector() {
    check_vector!(
        LogoutResponse,
        "26800000 00000000 00000000 00000000 00000007 00000000 00000037 0000001b 0000005b 00000000 00020014 00000000",
        SegmentLengths::NONE,
        LogoutResponse {
            outcome: LogoutOutcome::Closed,
            initiator_task_tag: ITT,
            stat_sn: StatSn(0x37),
            exp_cmd_sn: CmdSn(0x1b),
            max_cmd_sn: CmdSn(0x5b),
            time2wait_s: 2,
            time2retain_s: 20,
        }
    );
}

// §11.16: retransmission of statuses 5 and 6.
#[test]
fn snack_vector() {
    check_vector!(
        Snack,
        "10810000 00000000 00000000 00000000 ffffffff ffffffff 00000000 00000026 00000000 00000000 00000005 00000002",
        SegmentLengths::NONE,
        Snack {
            kind: SnackType::Status,
            lun: Lun(0),
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            target_transfer_tag: TargetTransferTag::RESERVED,
            exp_stat_sn: StatSn(0x26),
            beg_run: 5,
            run_length: 2,
        }
    );
}

// §11.17: protocol error; the refused header follows.
#[test]
fn reject_vector() {
    check_vector!(
        Reject,
        "3f800400 00000030 00000000 00000000 ffffffff 00000000 00000038 0000001c 0000005c 00000000 00000000 00000000",
        SegmentLengths::data(48),
        Reject {
            reason: RejectReason::ProtocolError,
            stat_sn: StatSn(0x38),
            exp_cmd_sn: CmdSn(0x1c),
            max_cmd_sn: CmdSn(0x5c),
            data_sn: DataSn(0),
        }
    );
}

// §11.18: a ping of four bytes.
#[test]
fn nop_out_vector() {
    check_vector!(
        NopOut,
        "40800000 00000004 00000000 00000000 00000007 ffffffff 0000001d 00000027 00000000 00000000 00000000 00000000",
        SegmentLengths::data(4),
        NopOut {
            immediate: true,
            lun: Lun(0),
            initiator_task_tag: ITT,
            target_transfer_tag: TargetTransferTag::RESERVED,
            cmd_sn: CmdSn(0x1d),
            exp_stat_sn: StatSn(0x27),
        }
    );
}

// §11.19: a ping of the target.
#[test]
fn nop_in_vector() {
    check_vector!(
        NopIn,
        "20800000 00000000 00000000 00000000 ffffffff 0000002a 00000039 0000001e 0000005e 00000000 00000000 00000000",
        SegmentLengths::NONE,
        NopIn {
            lun: Lun(0),
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            target_transfer_tag: TTT,
            stat_sn: StatSn(0x39),
            exp_cmd_sn: CmdSn(0x1e),
            max_cmd_sn: CmdSn(0x5e),
        }
    );
}

/// Header of `opcode` with `flags` as second byte, and otherwise zero.
fn blank(opcode: u8, flags: u8) -> Bhs {
    let mut header = [0; BHS_BYTES];
    header[0] = opcode;
    header[1] = flags;
    header
}

#[test]
fn initiator_pdu_refuses_what_only_targets_send() {
    for opcode in [0x20, 0x21, 0x25, 0x31, 0x3f] {
        assert_eq!(InitiatorPdu::parse(&blank(opcode, 0x80)), Err(Violation::OpcodeOfTheOtherRole));
    }
    for opcode in [0x07, 0x0f, 0x1c, 0x1e, 0x3e] {
        assert_eq!(InitiatorPdu::parse(&blank(opcode, 0x80)), Err(Violation::OpcodeUnknown));
    }
    assert_eq!(TargetPdu::parse(&blank(0x01, 0x80)), Err(Violation::OpcodeOfTheOtherRole));
}

#[test]
fn additional_headers_are_refused_outside_scsi_commands() {
    let mut ping = blank(0x40, 0x80);
    ping[4] = 1;
    assert_eq!(InitiatorPdu::parse(&ping), Err(Violation::AhsOutsideScsiCommand));
}

#[test]
fn scsi_command_bits_that_exclude_each_other_are_refused() {
    assert_eq!(ScsiCommand::parse(&blank(1, 0x40)), Err(Violation::FinalClearWithoutWrite));
    for attribute in 5..8 {
        assert_eq!(ScsiCommand::parse(&blank(1, 0x80 | attribute)), Err(Violation::TaskAttributeReserved));
    }
}

#[test]
fn residual_both_ways_is_refused() {
    assert_eq!(ScsiResponse::parse(&blank(0x21, 0x86)), Err(Violation::ResidualBothWays));
    assert_eq!(ScsiResponse::parse(&blank(0x21, 0x98)), Err(Violation::ResidualBothWays));
    assert_eq!(DataIn::parse(&blank(0x25, 0x87)), Err(Violation::ResidualBothWays));
    assert_eq!(DataIn::parse(&blank(0x25, 0x01)), Err(Violation::StatusBeforeFinalData));
}

#[test]
fn r2t_of_nothing_is_refused() {
    assert_eq!(R2t::parse(&blank(0x31, 0x80)), Err(Violation::R2tOfNothing));
    let mut untagged = blank(0x31, 0x80);
    untagged[20..24].fill(0xff);
    assert_eq!(R2t::parse(&untagged), Err(Violation::R2tWithoutTransferTag));
}

#[test]
fn login_stages_that_are_reserved_or_go_back_are_refused() {
    for (flags, broken) in [
        (0x08, Violation::StageReserved),
        (0x82, Violation::StageReserved),
        (0x0c, Violation::StageDoesNotAdvance),
        (0x80, Violation::StageDoesNotAdvance),
        (0x84, Violation::StageDoesNotAdvance),
        (0x85, Violation::StageDoesNotAdvance),
        (0xc1, Violation::TransitTextContinues),
    ] {
        assert_eq!(LoginRequest::parse(&blank(0x43, flags)), Err(broken), "flags {flags:02x}");
    }
    assert!(LoginRequest::parse(&blank(0x43, 0x83)).is_ok());
    assert!(LoginRequest::parse(&blank(0x43, 0x02)).is_ok(), "without T, NSG is reserved and ignored");
}

#[test]
fn login_response_that_refuses_is_read_whatever_its_flags_say() {
    let mut refusal = blank(0x23, 0xff);
    refusal[36..38].copy_from_slice(&[2, 1]);
    assert_eq!(LoginResponse::parse(&refusal).unwrap().status, crate::LoginStatus::AuthenticationFailure);
}

#[test]
fn text_that_is_final_and_goes_on_is_refused() {
    assert_eq!(TextRequest::parse(&blank(4, 0xc0)), Err(Violation::FinalTextContinues));
    assert_eq!(TextResponse::parse(&blank(0x24, 0xc0)), Err(Violation::FinalTextContinues));
}

#[test]
fn codes_that_no_standard_assigns_are_told() {
    assert_eq!(Snack::parse(&blank(0x10, 0x84)), Err(Violation::SnackTypeUnknown));
    assert_eq!(LogoutRequest::parse(&blank(6, 0x83)), Err(Violation::LogoutReasonUnknown));
    assert_eq!(TaskManagementRequest::parse(&blank(2, 0x8d)).unwrap().function, TaskFunction::Other(13));
    assert_eq!(TaskManagementRequest::parse(&blank(2, 0x80)).unwrap().function, TaskFunction::Other(0));
    let mut untagged = blank(0, 0x80);
    untagged[16..20].fill(0xff);
    assert_eq!(NopOut::parse(&untagged), Err(Violation::PingWithoutTagNotImmediate));
}

// §11.2.2.3 and §11.2.2.4: a CDB of 32 bytes, and 512 bytes to read.
#[test]
fn ahs_vector() {
    let cdb: Vec<u8> = (16..32).collect();
    let mut bytes = vec![0x00, 0x11, 0x01, 0x00];
    bytes.extend_from_slice(&cdb);
    bytes.extend_from_slice(&[0x00, 0x05, 0x02, 0x00, 0x00, 0x00, 0x02, 0x00]);
    let ahs = Ahs { extended_cdb: Some(&cdb), expected_read_bytes: Some(512) };
    assert_eq!(Ahs::parse(&bytes), Ok(ahs));
    let mut out = Vec::new();
    ahs.emit(&mut out);
    assert_eq!((out.len(), out), (ahs.bytes(), bytes));
}

#[test]
fn ahs_that_is_cut_short_anywhere_is_refused() {
    let mut whole = vec![0x00, 0x11, 0x01, 0x00];
    whole.extend(16..32);
    let first = whole.len();
    whole.extend([0x00, 0x05, 0x02, 0x00, 0x00, 0x00, 0x02, 0x00]);
    for end in (1..whole.len()).filter(|&end| end != first) {
        assert_eq!(Ahs::parse(&whole[..end]), Err(Violation::AhsLength), "{end} bytes");
    }
    assert!(Ahs::parse(&whole[..first]).is_ok_and(|ahs| ahs.expected_read_bytes.is_none()));
}

#[test]
fn ahs_that_lies_about_its_length_or_type_is_refused() {
    for (bytes, broken) in [
        (&[0, 0, 1, 0][..], Violation::AhsLength),
        (&[0, 2, 1, 0], Violation::AhsLength),
        (&[0xff, 0xff, 1, 0, 0, 0, 0, 0], Violation::AhsLength),
        (&[0, 1], Violation::AhsLength),
        (&[0, 4, 2, 0, 0, 0, 0, 0], Violation::AhsLength),
        (&[0, 1, 3, 0], Violation::AhsTypeUnknown),
        (&[0, 1, 1, 0, 0, 1, 1, 0], Violation::AhsRepeated),
    ] {
        assert_eq!(Ahs::parse(bytes), Err(broken), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_header_that_parses_is_emitted_to_parse_the_same(bytes in any::<[[u8; 24]; 2]>(), opcode in 0u8..64) {
        let mut header: Bhs = bytes.concat().try_into().unwrap();
        header[0] = header[0] & 0xc0 | opcode;
        header[4] = 0;
        let lengths = SegmentLengths::parse(&header);
        let mut again = [0; BHS_BYTES];
        if let Ok(pdu) = InitiatorPdu::parse(&header) {
            match &pdu {
                InitiatorPdu::NopOut(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::ScsiCommand(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::TaskManagement(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::Login(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::Text(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::DataOut(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::Logout(pdu) => pdu.emit(lengths, &mut again),
                InitiatorPdu::Snack(pdu) => pdu.emit(lengths, &mut again),
            }
            prop_assert_eq!(InitiatorPdu::parse(&again), Ok(pdu));
            prop_assert_eq!(SegmentLengths::parse(&again), lengths);
        }
    }

    #[test]
    fn any_response_that_parses_is_emitted_to_parse_the_same(bytes in any::<[[u8; 24]; 2]>(), opcode in 0x20u8..64) {
        let mut header: Bhs = bytes.concat().try_into().unwrap();
        header[0] = opcode;
        header[4] = 0;
        let lengths = SegmentLengths::parse(&header);
        let mut again = [0; BHS_BYTES];
        if let Ok(pdu) = TargetPdu::parse(&header) {
            match &pdu {
                TargetPdu::NopIn(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::ScsiResponse(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::TaskManagement(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::Login(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::Text(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::DataIn(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::Logout(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::R2t(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::Async(pdu) => pdu.emit(lengths, &mut again),
                TargetPdu::Reject(pdu) => pdu.emit(lengths, &mut again),
            }
            let again = TargetPdu::parse(&again);
            // Residual counts without their bit are dropped; everything else is preserved.
            prop_assert_eq!(again, Ok(pdu));
        }
    }

    #[test]
    fn ahs_of_any_bytes_never_panics_and_what_parses_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(ahs) = Ahs::parse(&bytes) {
            let mut out = Vec::new();
            ahs.emit(&mut out);
            prop_assert_eq!(Ahs::parse(&out), Ok(ahs));
        }
    }
}

//! Protocol violations of a peer: one variant per rule, with the rule and its section in the doc line.
//!
//! Errors of the medium are `block::IoError`, errors of the operator are sentences, errors of our own are asserts.

use crate::pdu::RejectReason;

/// Rule of the protocol that the peer has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    // ── Headers (RFC 7143 §11) ──
    /// The opcode is one of those that are assigned; vendor-specific ones need an agreement (§11.2.1.2).
    #[error("the opcode is not assigned")]
    OpcodeUnknown,
    /// An initiator sends initiator opcodes only, a target target opcodes only (§11.2.1.2).
    #[error("the opcode belongs to the other role")]
    OpcodeOfTheOtherRole,
    /// Only a SCSI Command has additional header segments (§11.2.1.5).
    #[error("a PDU that is no SCSI Command has additional header segments")]
    AhsOutsideScsiCommand,
    /// Additional header segments fill exactly the length that the header gives them (§11.2.2.1).
    #[error("an additional header segment does not fit its length")]
    AhsLength,
    /// The type of an additional header segment is an assigned one (§11.2.2.1).
    #[error("the type of an additional header segment is not assigned")]
    AhsTypeUnknown,
    /// A command has at most one additional header segment of each type (§11.2.2).
    #[error("an additional header segment appears twice")]
    AhsRepeated,
    /// A SCSI Command never has both the W and the F bit clear (§11.3.1).
    #[error("a SCSI Command that writes nothing promises more data")]
    FinalClearWithoutWrite,
    /// A task attribute is one of the five that are assigned (§11.3.1).
    #[error("the task attribute is reserved")]
    TaskAttributeReserved,
    /// Overflow and underflow of one direction exclude each other (§11.4.1).
    #[error("a residual is both an overflow and an underflow")]
    ResidualBothWays,
    /// A Data-In that carries the status is the final one (§11.7.1).
    #[error("a status came with data that is not the last")]
    StatusBeforeFinalData,
    /// An R2T names a transfer (§11.8.5).
    #[error("an R2T names no transfer")]
    R2tWithoutTransferTag,
    /// An R2T asks for at least one byte (§11.8.4).
    #[error("an R2T asks for no byte")]
    R2tOfNothing,
    /// A text PDU never has both the F and the C bit set (§11.10.2, §11.11.2).
    #[error("a final text PDU promises more text")]
    FinalTextContinues,
    /// A login PDU never has both the T and the C bit set (§11.12.2, §11.13.7).
    #[error("a login PDU leaves its stage and promises more text")]
    TransitTextContinues,
    /// Stages 0, 1 and 3 are assigned (§11.12.3).
    #[error("the login stage is reserved")]
    StageReserved,
    /// A login PDU belongs to a stage before full feature, and the next stage lies behind its own (§11.12.3).
    #[error("the login stages do not advance")]
    StageDoesNotAdvance,
    /// A logout closes a session, closes a connection or removes it for recovery (§11.14.1).
    #[error("the logout reason is reserved")]
    LogoutReasonUnknown,
    /// The type of a SNACK is one of the four that are assigned (§11.16.1).
    #[error("the SNACK type is reserved")]
    SnackTypeUnknown,
    /// A NOP-Out that wants no answer is immediate (§11.18.1).
    #[error("a ping without a task tag is not immediate")]
    PingWithoutTagNotImmediate,

    // ── Text (RFC 7143 §6.1) ──
    /// Every pair ends with a NUL byte (§6.1).
    #[error("a key=value pair has no end")]
    PairWithoutEnd,
    /// Every pair has a key, and an "=" behind it (§6.1).
    #[error("a key=value pair has no \"=\"")]
    PairWithoutEquals,
    /// A key has 1 to 63 characters, the first a capital letter (§6.1).
    #[error("a key is malformed")]
    KeyMalformed,
    /// A value is UTF-8 without control characters (§6.1).
    #[error("a value is not text")]
    ValueNotText,
    /// One login PDU has at most the default MaxRecvDataSegmentLength of text: 8,192 bytes (§6.2).
    #[error("a text segment is longer than its receiver takes")]
    TextSegmentTooLong,
    /// The text of one exchange has a bound of the receiver's choice (§6.2).
    #[error("a text exchange is longer than its receiver takes")]
    TextTooLong,
    /// The text of one exchange has a bounded number of pairs, so that answers are bounded, too (§6.2).
    #[error("a text exchange has too many keys")]
    TooManyKeys,
    /// A PDU that promises more text carries some (§6.2).
    #[error("a PDU without text promises more")]
    ContinuesWithoutText,
    /// While the text of the peer continues over several PDUs, the response is empty (§6.2).
    #[error("text came where an empty PDU was due")]
    TextWhileContinuing,

    // ── Negotiation (RFC 7143 §6.2, §6.3, §13) ──
    /// A key is declared or negotiated once in a login, unless it says otherwise (§6.3).
    #[error("a key came twice in one login")]
    KeyRepeated,
    /// An answer lies within the offer that it answers (§6.2.1, §6.2.2).
    #[error("an answer is not one that the offer allows")]
    AnswerOutsideOffer,
    /// FirstBurstLength is at most MaxBurstLength (§13.14).
    #[error("FirstBurstLength is greater than MaxBurstLength")]
    FirstBurstBeyondMaxBurst,
    /// A side that cannot accept the negotiated value of a key ends the login (§6.2.2).
    #[error("no value of a key suits both sides")]
    NothingInCommon,

    // ── Login (RFC 7143 §6.3, §11.12, §11.13, §12.1.3) ──
    /// Nothing but a login comes before full feature phase (§6.3).
    #[error("something else came where a login was due")]
    LoginExpected,
    /// A login is a dialogue: one request, one response (§6.3).
    #[error("a login request came before the one before it was answered")]
    LoginOutOfTurn,
    /// ISID, TSIH, CID, CmdSN and task tag are the same through a whole login (§11.12).
    #[error("a login changed its identifiers on the way")]
    LoginIdentifiersChanged,
    /// CSG is the stage in which both sides are (§11.12.3).
    #[error("a login PDU belongs to another stage")]
    LoginStageWrong,
    /// A stage of a login ends after a bounded number of PDUs: a bound of the receiver's choice (§6.3).
    #[error("a login does not come to an end")]
    LoginTooLong,
    /// The version in force is one that both sides speak: 0 (§11.12.4, §11.13.2).
    #[error("no protocol version is common")]
    VersionUnknown,
    /// Only a side that was asked to leave a stage leaves it, and only for the requested stage (§6.3).
    #[error("the target left a stage that it was not asked to leave")]
    TransitUnasked,
    /// The last login response names the session (§11.13.3).
    #[error("the target gave the session no handle")]
    SessionWithoutHandle,
    /// The steps of CHAP come in their order, each whole (§12.1.3).
    #[error("a step of CHAP is incomplete or out of turn")]
    ChapOutOfTurn,
    /// The chosen authentication method and algorithm are among the offered ones (§12.1, §12.1.3).
    #[error("an authentication was chosen that was not offered")]
    AuthNotOffered,
    /// Neither side returns the challenge of the other (§9.2.1).
    #[error("our own challenge came back")]
    ChallengeReflected,
    /// A side that is asked to authenticate does so (§12.1.3).
    #[error("the target did not prove that it knows its secret")]
    TargetNotAuthenticated,

    // ── Full feature phase (RFC 7143 §4.2, §7, §11, §13) ──
    /// The header digest is the CRC32C of the header and its additional segments (§7.8).
    #[error("a header digest does not match")]
    HeaderDigestWrong,
    /// The data digest is the CRC32C of the data and its padding (§7.8).
    #[error("a data digest does not match")]
    DataDigestWrong,
    /// A data segment is no longer than the receiver's MaxRecvDataSegmentLength (§13.12).
    #[error("a data segment is longer than its receiver takes")]
    DataSegmentTooLong,
    /// The reserved tag 0xffffffff is not valid for a task (§11.2.1.8).
    #[error("a task has the reserved tag")]
    TaskTagReserved,
    /// The tag of a task is unique while the task is active (§11.2.1.8).
    #[error("a task has the tag of another one that lives")]
    TaskTagInUse,
    /// A PDU that the target sends for a task has the tag of an active task (§11.2.1.8).
    #[error("there is no task with this tag")]
    TaskTagUnknown,
    /// The number of immediate requests at once is limited (§4.2.2.1).
    #[error("too many immediate requests wait at once")]
    TooManyImmediate,
    /// A command that moves data both ways says how much it reads (§11.3.4).
    #[error("a bidirectional command does not say how much it reads")]
    BidirectionalWithoutReadLength,
    /// Only a command that writes brings data (§11.3.4).
    #[error("a command that writes nothing brings data")]
    DataWithoutWrite,
    /// The PDUs of a command come on the connection that the command came on (§4.2.2).
    #[error("data came on another connection than its command")]
    AllegianceWrong,
    /// Immediate data comes only where ImmediateData=Yes was agreed (§13.11).
    #[error("immediate data came where none was agreed")]
    UnexpectedImmediateData,
    /// Unsolicited Data-Out comes only where InitialR2T=No was agreed, and only when announced (§13.10).
    #[error("unsolicited data came where none was agreed or announced")]
    UnexpectedUnsolicitedData,
    /// Unsolicited data, with the immediate part, fits FirstBurstLength (§13.14).
    #[error("unsolicited data passes FirstBurstLength")]
    FirstBurstTooLong,
    /// Data does not pass the expected data transfer length (§11.3.4).
    #[error("data passes the expected transfer length")]
    DataTooLong,
    /// DataSN counts the PDUs of a sequence from zero (§7.9, §11.7.5).
    #[error("a DataSN is out of sequence")]
    DataSnWrong,
    /// Data comes in the order of its offsets, without holes (§11.7.6, §13.18, §13.19).
    #[error("a buffer offset is out of order")]
    BufferOffsetWrong,
    /// The data of a sequence does not exceed the length that the R2T requested (§11.8.4).
    #[error("a data sequence is longer than was asked for")]
    SequenceTooLong,
    /// The F bit is set in the last PDU of a sequence and in no other (§11.7.1).
    #[error("the F bit is set too early or missing")]
    FinalBitWrong,
    /// A transfer tag is one that the target gave out and still waits for (§11.7.4).
    #[error("there is no transfer with this tag")]
    TransferTagUnknown,
    /// With a transfer tag comes the LUN that the target named with it (§11.7.4).
    #[error("the LUN is not the one that belongs to the transfer tag")]
    LunOfTransferWrong,
    /// Nothing but login happens before full feature phase, and no login in it (§11.12).
    #[error("a Login Request came in full feature phase")]
    LoginInFullFeature,
    /// A discovery session has text, pings and a logout only (§4.3).
    #[error("a discovery session was asked for more than discovery")]
    OnlyDiscovery,
    /// SNACK is not permitted at ErrorRecoveryLevel 0 (§11.16).
    #[error("a SNACK came at ErrorRecoveryLevel 0")]
    SnackWithoutRecovery,
    /// A SNACK requests only PDUs that were sent and are not acknowledged (§11.16).
    #[error("a SNACK asks for what was not sent, or is there no more")]
    SnackOfNothing,
    /// Data is acknowledged when the target asks for it (§11.16.1).
    #[error("data was acknowledged that nobody had asked about")]
    DataAckUnasked,
    /// StatSN counts the statuses of a connection without holes (§4.2.2.2).
    #[error("a StatSN is out of sequence")]
    StatSnWrong,
    /// R2TSN counts the R2Ts of a command from zero (§11.8.1).
    #[error("an R2TSN is out of sequence")]
    R2tSnWrong,
    /// An R2T asks for data of a write that was not asked for before, within MaxBurstLength (§11.8.4).
    #[error("an R2T asks for what the command does not have")]
    R2tOutOfRange,
    /// No more R2Ts are open at once than MaxOutstandingR2T (§13.17).
    #[error("more R2Ts are open than were agreed")]
    TooManyR2ts,
}

impl Violation {
    /// True when the connection cannot continue. At error recovery level 0, a violation of the format or the sequence
    /// of PDUs ends the session; only one that leaves both intact is answered with a Reject alone. A failed text
    /// exchange ends alone.
    ///
    /// *Source*: RFC 7143 §6.4, §7.3, §7.7, §7.11, §7.13.
    #[must_use]
    pub fn ends_connection(self) -> bool {
        !matches!(
            self,
            Self::OpcodeUnknown
                | Self::TaskTagInUse
                | Self::TooManyImmediate
                | Self::OnlyDiscovery
                | Self::SnackWithoutRecovery
                | Self::SnackOfNothing
                | Self::DataAckUnasked
                | Self::KeyRepeated
                | Self::TextWhileContinuing
        )
    }

    /// Returns a clause that states the violation, with the section of the rule where a login can break it.
    #[must_use]
    pub fn rule(self) -> String {
        let section = self.section_of_login();
        section.map_or_else(|| self.to_string(), |section| format!("{self} (RFC 7143 §{section})"))
    }

    /// Section of the rule, for violations that a login can commit.
    fn section_of_login(self) -> Option<&'static str> {
        Some(match self {
            Self::OpcodeUnknown | Self::OpcodeOfTheOtherRole => "11.2.1.2",
            Self::TransitTextContinues => "11.12.2",
            Self::StageReserved | Self::StageDoesNotAdvance | Self::LoginStageWrong => "11.12.3",
            Self::LoginIdentifiersChanged => "11.12",
            Self::VersionUnknown => "11.12.4",
            Self::PairWithoutEnd | Self::PairWithoutEquals | Self::KeyMalformed | Self::ValueNotText => "6.1",
            Self::TextSegmentTooLong
            | Self::TextTooLong
            | Self::TooManyKeys
            | Self::ContinuesWithoutText
            | Self::TextWhileContinuing => "6.2",
            Self::AnswerOutsideOffer | Self::NothingInCommon => "6.2.2",
            Self::KeyRepeated | Self::LoginExpected | Self::LoginOutOfTurn | Self::LoginTooLong => "6.3",
            Self::FirstBurstBeyondMaxBurst => "13.14",
            Self::DataSegmentTooLong => "13.12",
            _ => return None,
        })
    }

    /// Returns the reason code of the Reject in full feature phase.
    #[must_use]
    pub fn reject_reason(self) -> RejectReason {
        match self {
            Self::OpcodeUnknown => RejectReason::CommandNotSupported,
            Self::DataDigestWrong => RejectReason::DataDigestError,
            Self::TooManyImmediate => RejectReason::TooManyImmediateCommands,
            Self::SnackWithoutRecovery | Self::SnackOfNothing => RejectReason::SnackReject,
            Self::DataAckUnasked => RejectReason::InvalidDataAck,
            Self::TaskTagReserved
            | Self::TaskTagInUse
            | Self::TransferTagUnknown
            | Self::LunOfTransferWrong
            | Self::BufferOffsetWrong
            | Self::BidirectionalWithoutReadLength
            | Self::AhsOutsideScsiCommand
            | Self::AhsLength
            | Self::AhsTypeUnknown
            | Self::AhsRepeated
            | Self::FinalClearWithoutWrite
            | Self::TaskAttributeReserved
            | Self::LogoutReasonUnknown
            | Self::SnackTypeUnknown
            | Self::PingWithoutTagNotImmediate => RejectReason::InvalidPduField,
            _ => RejectReason::ProtocolError,
        }
    }
}

//! Outcome of a command: status, data, residual and sense.

use crate::wire::Pdu;
use crate::{CheckResult, ensure};
use iscsi::pdu::{DataIn, Residual, ScsiResponse};
use scsi::ParsedSense;

/// Outcome of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    pub(crate) residual: Residual,
    pub(crate) sense: Vec<u8>,
    /// Data-In PDUs of the command, with their data lengths.
    pub(crate) pieces: Vec<(DataIn, usize)>,
}

impl CommandResult {
    /// Returns the parsed sense data, if there is any.
    pub(crate) fn sensed(&self) -> Option<ParsedSense> {
        ParsedSense::parse(&self.sense)
    }

    pub(crate) fn sense_key(&self) -> Option<u8> {
        self.sensed().map(|sensed| sensed.key)
    }

    /// Checks that data and residual of a read that ended GOOD add up to the expected length.
    ///
    /// *Source*: RFC 7143 §11.4.5.1.
    pub(crate) fn is_settled(&self, expected: u32) -> CheckResult {
        let came = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        let adds_up = match self.residual {
            Residual::None | Residual::Overflow(_) => came == expected,
            Residual::Underflow(missing) => came.checked_add(missing) == Some(expected),
        };
        ensure(self.status != 0 || adds_up, || {
            format!("{came} bytes came of {expected}, and the residual is {:?}", self.residual)
        })
    }

    /// Takes status, residual and sense from a SCSI Response.
    pub(crate) fn of(response: &ScsiResponse, pdu: &Pdu) -> Self {
        let (status, residual) = (response.status, response.residual);
        // The first two bytes are SenseLength (RFC 7143 §11.4.7).
        let sense = pdu.data.get(2..).unwrap_or_default().to_vec();
        Self { status, data: Vec::new(), residual, sense, pieces: Vec::new() }
    }
}

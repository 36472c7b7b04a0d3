//! Simulated session and reservation reports, for tests that need exact figures without a login.

use model::{
    CommandWindow, LatencyReport, Order, Recordable, Recordings, Refusal, RefusedLogin, Report, ReservationReport,
    SessionDetail, SessionEnd, SessionReport, VolumeName, VolumeReport, code,
};
use std::collections::BTreeMap;

/// Reports that replace those of the front end.
#[derive(Default)]
pub struct Hosts {
    /// Sessions to report. With at least one, orders about sessions do not reach the front end.
    pub sessions: Vec<SessionReport>,
    /// Denied logins to report.
    pub refused: Vec<RefusedLogin>,
    /// Reservations to report, by volume.
    pub reservations: BTreeMap<VolumeName, ReservationReport>,
}

impl Hosts {
    /// Answers an order about simulated sessions; `None` for every other order.
    pub fn answer(&mut self, order: &Order) -> Option<Result<Report, Refusal>> {
        match order {
            Order::RefusedLogins if !self.refused.is_empty() => Some(Ok(Report::Refused(self.refused.clone()))),
            Order::RememberRefused(logins) if !self.refused.is_empty() => {
                self.refused.clone_from(logins);
                Some(Ok(Report::Done))
            }
            _ if self.sessions.is_empty() => None,
            _ => self.answer_of_sessions(order),
        }
    }

    fn answer_of_sessions(&mut self, order: &Order) -> Option<Result<Report, Refusal>> {
        Some(match order {
            Order::Sessions => Ok(Report::Sessions(self.sessions.clone())),
            Order::Session { id } => self.session(*id).map(|detail| Report::Session(Box::new(detail))),
            Order::EndSession { id, .. } => self.session(*id).map(|_| {
                self.sessions.retain(|session| session.id != *id);
                Report::SessionEnd(SessionEnd::LoggedOut)
            }),
            Order::EndConnection { id, .. } => self.session(*id).map(|_| Report::Done),
            Order::Record { what: Recordable::Session(id), .. } => self.session(*id).map(|_| Report::Recording(1)),
            Order::Record { what: Recordable::From(_), .. } => Ok(Report::Recording(1)),
            Order::NextRecorded { .. } | Order::StopRecording { .. } => {
                // Nothing is recorded, so each recording is over at once.
                Ok(Report::Recorded(Recordings { is_over: true, ..Recordings::default() }))
            }
            Order::Latencies { .. } => Ok(Report::Latencies(latencies())),
            _ => return None,
        })
    }

    fn session(&self, id: u32) -> Result<SessionDetail, Refusal> {
        let session = self.sessions.iter().find(|session| session.id == id).cloned();
        let window = Some(CommandWindow { exp_cmd_sn: 1_250_001, max_cmd_sn: 1_250_128 });
        session.map(|session| SessionDetail { session, window, latencies: latencies() }).ok_or_else(|| {
            Refusal::new(code::SESSION_UNKNOWN, format!("there is no session {id}"), "see blockyard session list")
        })
    }

    /// Adds the simulated reservation to the report of a volume.
    pub fn amend(&self, volume: &mut VolumeReport) {
        if let Some(reservation) = self.reservations.get(&volume.name) {
            volume.reservation = Some(Box::new(reservation.clone()));
        }
    }
}

fn latencies() -> Vec<LatencyReport> {
    let of = |operation: &str, commands, [p50_us, p99_us, p999_us, longest_us]: [u64; 4]| LatencyReport {
        operation: operation.to_owned(),
        commands,
        p50_us,
        p99_us,
        p999_us,
        longest_us,
    };
    vec![of("READ (10)", 1_000_000, [95, 319, 1_151, 20_411]), of("WRITE (10)", 250_000, [239, 895, 2_303, 41_007])]
}

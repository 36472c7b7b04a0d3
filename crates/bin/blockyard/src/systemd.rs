//! Notifications to systemd: starting, ready, watchdog and stopping.
//!
//! Called by `serve`. Nothing is sent without `NOTIFY_SOCKET`. *Source*: sd_notify(3).

use crate::confined::Client;
use control::Engine;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use model::Order;
use sd_notify::NotifyState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval at which more start time is requested while pools open, and the time requested each time.
const STEP: Duration = Duration::from_secs(10);
const MORE: Duration = Duration::from_secs(40);

/// Watchdog client: checks that the daemon works before it notifies systemd.
pub(crate) struct Watchdog {
    engine: Engine,
    socket: PathBuf,
    helper: Option<Arc<Client>>,
}

/// Requests more start time as long as the data plane answers. Never completes; dropped once the daemon has started.
pub(crate) async fn starting(engine: &Engine) {
    tell(&[NotifyState::Status("opening disks and pools")]);
    let mut ticks = interval(STEP);
    loop {
        ticks.tick().await;
        // A data plane that hangs gets no extension, so that systemd restarts the daemon after its start timeout.
        if matches!(timeout(STEP, engine.status(Order::Status)).await, Ok(Ok(_))) {
            let more_us = u32::try_from(MORE.as_micros()).expect("less than an hour");
            tell(&[NotifyState::ExtendTimeoutUsec(more_us)]);
        }
    }
}

/// Reports that the daemon is ready, so that systemd starts the units that depend on it.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Reports that the daemon is stopping.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

impl Watchdog {
    /// Creates the client for a daemon with this data plane and with its API at `socket`.
    pub(crate) fn new(engine: Engine, socket: PathBuf) -> Self {
        Self { engine, socket, helper: None }
    }

    /// Adds the helper to the checks: without it no disk can be opened.
    pub(crate) fn with_privileged(self, helper: Option<Arc<Client>>) -> Self {
        Self { helper, ..self }
    }

    /// Notifies the watchdog, if there is one, as long as data plane, API and helper answer. While the daemon stops
    /// nothing is checked. Never completes.
    pub(crate) async fn feed(self, stopping: watch::Receiver<bool>) {
        let Some(period) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
        // Three attempts in one watchdog period, so that a single late answer does not restart the daemon.
        // A period of zero would panic.
        let step = (period / 3).max(Duration::from_millis(1));
        let mut ticks = interval(step);
        // After a delay the ticks must not come in a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let stops = *stopping.borrow();
            // Services are expected not to answer during a stop; the deadline of the stop limits that case.
            if stops || timeout(step, self.is_healthy()).await.unwrap_or_default() {
                tell(&[NotifyState::Watchdog]);
            } else {
                tracing::error!(within = ?step, "the daemon does not respond to its own health check; the systemd \
                     watchdog is not notified");
            }
        }
    }

    /// Returns true if every shard, the API and the helper answer.
    async fn is_healthy(&self) -> bool {
        self.engine.activity(Order::Activity).await.is_ok()
            && answers(&self.socket).await.unwrap_or_default()
            && self.privileged_answers().await
    }

    async fn privileged_answers(&self) -> bool {
        let Some(helper) = self.helper.clone() else { return true };
        // The client blocks its thread until the helper answers.
        tokio::task::spawn_blocking(move || helper.answers()).await.unwrap_or_default()
    }
}

/// Returns true if the API at `socket` answers a status request.
async fn answers(socket: &Path) -> anyhow::Result<bool> {
    let stream = UnixStream::connect(socket).await?;
    let request = Request::get("/api/v1/status").header("host", "blockyard").body(Full::default())?;
    let response = http_client::send(stream, request).await?;
    let status = response.status();
    response.into_body().collect().await?;
    Ok(status == StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Activity, Call, Report};
    use shard::mailbox::{self, Receiver};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    /// Data plane that answers.
    async fn engine(calls: Receiver<Call>) {
        while let Some(call) = calls.receive().await {
            call.answer(Ok(Report::Activity(Activity::default())));
        }
    }

    /// API that answers every request with `answer`.
    async fn door(listener: UnixListener, answer: &'static [u8]) {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut asked = [0; 1024];
            let len = stream.read(&mut asked).await.expect("a request");
            assert!(asked[..len].starts_with(b"GET /api/v1/status "));
            stream.write_all(answer).await.expect("writes");
        }
    }

    #[tokio::test]
    async fn pulse_beats_only_while_both_planes_answer() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("socket");
        let (post, calls) = mailbox::channel();
        let pulse = Watchdog::new(Engine::new(post), socket.clone());
        let beats = || async { timeout(Duration::from_millis(300), pulse.is_healthy()).await };

        let ok: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let serving = tokio::spawn(door(UnixListener::bind(&socket).expect("binds"), ok));
        assert!(beats().await.is_err(), "the data plane is silent");
        let data_plane = tokio::spawn(engine(calls));
        assert_eq!(beats().await, Ok(true));

        serving.abort();
        let _ = serving.await;
        assert_eq!(beats().await, Ok(false), "nobody listens");
        std::fs::remove_file(&socket).expect("removes");
        let silent = UnixListener::bind(&socket).expect("binds");
        assert!(beats().await.is_err(), "somebody listens and does not answer");
        drop(silent);
        std::fs::remove_file(&socket).expect("removes");
        let ill: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
        let failing = tokio::spawn(door(UnixListener::bind(&socket).expect("binds"), ill));
        assert_eq!(beats().await, Ok(false), "control is ill");
        failing.abort();
        data_plane.abort();
        let _ = data_plane.await;
        assert_eq!(beats().await, Ok(false), "the data plane is gone");
    }
}

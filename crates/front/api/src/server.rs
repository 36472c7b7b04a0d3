//! Server of the local socket, and start and stop of everything that serves requests.

use crate::audit::{Audit, Forward};
use crate::gate::Gate;
use crate::log::LastLines;
use crate::peer::Peer;
use crate::people::Users;
use crate::routes;
use crate::web::{Web, WebOptions};
use axum::middleware;
use control::Control;
use model::{Refusal, code};
use std::fs;
use std::future::Future;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

/// Time for requests in flight to end after the daemon was told to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listening {
    listener: Option<UnixListener>,
    path: PathBuf,
    owner: u32,
    web: Option<Arc<Web>>,
    log: LastLines,
}

impl Listening {
    /// Serves the API and the console over the network as well. A certificate that cannot be used or an address that
    /// cannot be bound raises an event and is retried; everything else is served in the meantime.
    #[must_use]
    pub fn with_web(mut self, options: WebOptions) -> Self {
        self.web = Some(Arc::new(Web::new(options)));
        self
    }

    /// Sets the buffer of recent log lines, which admins may read.
    #[must_use]
    pub fn with_log(mut self, log: LastLines) -> Self {
        self.log = log;
        self
    }

    /// Network server, if there is one.
    #[cfg(test)]
    pub(crate) fn web(&self) -> Option<Arc<Web>> {
        self.web.clone()
    }
}

/// Creates and binds the socket, accessible to its owner only.
///
/// A socket file left by a killed daemon is removed. *Errors*: another daemon answers there, another kind of file is
/// there, or the operating system refuses. *Panics*: outside of a tokio runtime.
pub fn listen(path: &Path) -> Result<Listening, Refusal> {
    let refused = |why: &dyn std::fmt::Display| {
        let message = format!("the socket {} cannot be created: {why}", path.display());
        Refusal::new(code::IO_FAILED, message, "choose another --socket, at most 107 bytes long")
    };
    // The folder may be public; only the socket itself is private.
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|error| refused(&error))?;
    }
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(refused(&"another file has this path"));
        }
        // A socket that nobody answers was left by a daemon that was killed.
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let message = format!("another daemon listens at {}", path.display());
            return Err(Refusal::new(code::STATE_LOCKED, message, "stop it first, or choose another --socket"));
        }
        fs::remove_file(path).map_err(|error| refused(&error))?;
    }
    let listener = UnixListener::bind(path).map_err(|error| refused(&error))?;
    // The mode keeps other users out; each request is checked by its peer credentials as well.
    let private = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).and_then(|()| fs::metadata(path));
    // The owner of the file is the user of the daemon, whom the gate admits.
    let owner = private.map_err(|error| refused(&error))?.uid();
    Ok(Listening { listener: Some(listener), path: path.to_path_buf(), owner, web: None, log: LastLines::default() })
}

/// Serves requests until `stop` is ready; those in flight then have [`DRAIN`] to end.
///
/// *Errors*: the socket failed.
pub async fn serve(
    control: Arc<Control>,
    mut listening: Listening,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Refusal> {
    let owner = listening.owner;
    let tending = tokio::spawn(control.reconciler.clone().run());
    let asking = tokio::spawn(control.health.clone().watch());
    let registering = tokio::spawn(control.isns.clone().keep_registered());
    let listening_again = tokio::spawn(control.portals.clone().keep_open());
    let listener = listening.listener.take().expect("a listening socket is served once");
    let core = control.core.clone();
    let web = listening.web.take();
    // Before anything is served, so that each request can be recorded.
    let audit = Arc::new(Audit::open(control.clone()));
    let auditing = tokio::spawn(audit.clone().watch());
    let alerts = Arc::new(alert::Alerts::open(control.clone())?);
    let forward = Arc::new(Forward::open(control.clone(), audit.clone())?);
    let forwarding = tokio::spawn(forward.clone().watch());
    let alerting = tokio::spawn(alerts.clone().watch());
    let people = Arc::new(Users::open(control.clone())?);
    if web.is_some() && people.users().is_empty() {
        tracing::info!("the console has no users yet: run blockyard web link to get a link for the first admin");
    }
    let log = listening.log.clone();
    let door = Arc::new(Gate::new(control.clone(), people, web.clone(), audit, alerts, forward, owner).with_log(log));
    let api = routes::router(control.clone());
    // The mark with the row comes before the gate, which decides by it.
    let guarded = routes::marked(api.layer(middleware::from_fn(move |request, next| door.clone().pass(request, next))));
    let (end_web, web_ends) = tokio::sync::watch::channel(false);
    let web = web.map(|web| tokio::spawn(web.serve(control, guarded.clone(), web_ends)));
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let stop = async move {
        stop.await;
        // Ends streams, which would otherwise use up the drain time.
        core.announce_stop();
        end_web.send_replace(true);
        // The receiver lives as long as the `select!` below, so this cannot fail.
        let _ = stopping.send(());
    };
    let service = guarded.into_make_service_with_connect_info::<Peer>();
    let served = axum::serve(listener, service).with_graceful_shutdown(stop);
    // The timeout starts with the stop, not with the start of serving.
    let overtime = async {
        let _ = stopped.await;
        tokio::time::sleep(DRAIN).await;
    };
    let ended = tokio::select! {
        served = served => served.map_err(|error| {
            Refusal::new(code::IO_FAILED, format!("the socket failed: {error}"), "restart the daemon")
        }),
        () = overtime => {
            tracing::warn!("running requests were aborted");
            Ok(())
        }
    };
    if let Some(web) = web
        && let Err(error) = web.await
    {
        tracing::error!(%error, "the console failed unexpectedly");
    }
    // Awaited rather than aborted, because it withdraws the registration at its end.
    if tokio::time::timeout(DRAIN, registering).await.is_err() {
        tracing::warn!("the iSNS server does not respond; the registration will expire");
    }
    tending.abort();
    asking.abort();
    listening_again.abort();
    alerting.abort();
    forwarding.abort();
    auditing.abort();
    ended
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The file is removed so that no client tries to connect; otherwise the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

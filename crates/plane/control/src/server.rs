//! The local socket: who may speak, and until when.

use crate::{Control, api};
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use model::{Refusal, code};
use std::fs;
use std::future::Future;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

/// How long requests under way may take once the daemon is told to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// A socket that listens. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listening {
    listener: Option<UnixListener>,
    path: PathBuf,
    owner: u32,
}

/// The socket listens, for its owner alone.
///
/// What a daemon that was killed left at `path` is removed. *Errors*: another daemon answers there,
/// something else is there, or the operating system refuses. *Panics*: outside of a tokio runtime.
pub fn listen(path: &Path) -> Result<Listening, Refusal> {
    let refused = |why: &dyn std::fmt::Display| {
        let message = format!("the socket {} cannot be made: {why}", path.display());
        Refusal::new(code::IO_FAILED, message, "choose another --socket, at most 107 bytes long")
    };
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|error| refused(&error))?;
    }
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(refused(&"something else is there"));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let message = format!("another daemon answers at {}", path.display());
            return Err(Refusal::new(code::STATE_LOCKED, message, "stop it first, or choose another --socket"));
        }
        fs::remove_file(path).map_err(|error| refused(&error))?;
    }
    let listener = UnixListener::bind(path).map_err(|error| refused(&error))?;
    let private = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).and_then(|()| fs::metadata(path));
    let owner = private.map_err(|error| refused(&error))?.uid();
    Ok(Listening { listener: Some(listener), path: path.to_path_buf(), owner })
}

/// Requests are served until `stop` is ready; those under way then have [a while](DRAIN) to end.
///
/// *Errors*: the socket broke.
pub async fn serve(
    control: Arc<Control>,
    mut listening: Listening,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Refusal> {
    let owner = listening.owner;
    let tending = tokio::spawn(control.clone().tend());
    let registering = tokio::spawn(control.clone().keep_registered());
    let listener = listening.listener.take().expect("a listening socket is served once");
    let told = control.clone();
    let guarded = api::router(control).layer(middleware::from_fn(move |request, next| admit(owner, request, next)));
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let stop = async move {
        stop.await;
        told.stopping.send_replace(true);
        // The receiver lives as long as the select below.
        let _ = stopping.send(());
    };
    let service = guarded.into_make_service_with_connect_info::<Peer>();
    let served = axum::serve(listener, service).with_graceful_shutdown(stop);
    let overtime = async {
        let _ = stopped.await;
        tokio::time::sleep(DRAIN).await;
    };
    let ended = tokio::select! {
        served = served => served.map_err(|error| {
            Refusal::new(code::IO_FAILED, format!("the socket broke: {error}"), "start the daemon again")
        }),
        () = overtime => {
            tracing::warn!("requests under way were given up");
            Ok(())
        }
    };
    if tokio::time::timeout(DRAIN, registering).await.is_err() {
        tracing::warn!("the iSNS server does not answer; it forgets us by itself");
    }
    tending.abort();
    ended
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Without the file nobody is misled; with it the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whose process is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
struct Peer {
    user: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { user: stream.io().peer_cred().ok().map(|peer| peer.uid()) }
    }
}

/// Admits requests of root and of the daemon's own user.
async fn admit(owner: u32, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>().and_then(|info| info.0.user);
    if peer.is_some_and(|user| user == 0 || user == owner) {
        return next.run(request).await;
    }
    let message = "only root and the daemon's own user may speak to it";
    api::Problem(Refusal::new(code::FORBIDDEN, message, "use sudo")).into_response()
}

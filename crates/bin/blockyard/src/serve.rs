//! `blockyard serve`: the daemon put together.

use crate::args::ServeOptions;
use crate::config::Config;
use crate::engine;
use crate::failure::Failure;
use control::{Control, Store};
use model::{Refusal, code};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// The daemon has run until it was told to stop, and has stopped cleanly.
pub fn serve(options: &ServeOptions, socket: Option<PathBuf>) -> Result<(), Failure> {
    let config = Config::load(options, socket)?;
    start_log(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Refusal::new(code::IO_FAILED, format!("the system gives no event queue: {error}"), "close other programs")
    })?;
    Ok(runtime.block_on(run(config))?)
}

async fn run(config: Config) -> Result<(), Refusal> {
    // The store goes first: whoever has it has the disks.
    let store = Store::open_with(&config.settings.state_dir, &config.key)?;
    let listening = control::listen(&config.settings.socket)?;
    let stop = stop_signal()?;
    let node = store.identity(&config.settings.node)?;
    let (engine, shards) = engine::start(&config, &node)?;
    let control = Arc::new(Control::start(config.settings, store, engine).await?);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %control.settings().socket.display(), "serving");
    control::serve(control.clone(), listening, stop).await?;
    tracing::info!("stopping");
    control.stop().await?;
    shards.join()?;
    tracing::info!("stopped");
    Ok(())
}

/// Ready on SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Refusal> {
    let refused = |error| Refusal::new(code::IO_FAILED, format!("signals cannot be taken: {error}"), "start again");
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Log lines go to stderr, filtered as asked.
fn start_log(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        let message = format!("\"{filter}\" is not a log filter: {error}");
        Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "write info, or info,dataplane=debug"))
    })?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

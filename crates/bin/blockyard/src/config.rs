//! Static configuration: `blockyard.toml`, the options of `serve` that override it, and the defaults.
//!
//! Called once at the start of the daemon. Desired state (pools, volumes, hosts) is never read from here.

use crate::args::{IoChoice, LogForm, ServeOptions, WEB_PORT, WebListen};
use crate::failure::Failure;
use crate::tune::{Cpus, Root};
use crate::user::User;
use api::{Source, WebOptions};
use control::{Settings, StoreOptions};
use model::{ISCSI_PORT, Iqn, Name, PortalAddress, Refusal, Size, Span, code};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uring::FilesLike;

/// Default path of the daemon's socket.
pub(crate) const SOCKET: &str = "/run/blockyard/blockyard.sock";

/// Default prefix of the targets' iSCSI names.
const TARGET_BASE: &str = "iqn.2026-11.io.blockyard";

/// Default and minimum of the buffer memory.
pub(crate) const BUFFERS: Size = Size::mib(256);
pub(crate) const BUFFERS_MIN: Size = Size::mib(16);

/// Largest configuration file that is read. For comparison: a thousand portals take 40 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Limits of the setting `silence`.
const SILENCE_MIN: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// Fields of the file. An unknown key is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    state_dir: Option<PathBuf>,
    key_file: Option<PathBuf>,
    socket: Option<PathBuf>,
    node: Option<Name>,
    target_base: Option<String>,
    shards: Option<u16>,
    cpus: Option<Cpus>,
    io: Option<IoChoice>,
    busy_poll: Option<bool>,
    buffers: Option<Size>,
    cache: Option<Size>,
    log: Option<String>,
    log_form: Option<LogForm>,
    silence: Option<Span>,
    disk_search: Option<Vec<PathBuf>>,
    sandbox: Option<bool>,
    user: Option<String>,
    portal: Vec<PortalEntry>,
    web: WebEntry,
}

/// Section `[web]`: the console and the API over the network.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WebEntry {
    listen: Option<Vec<WebListen>>,
    names: Vec<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortalEntry {
    address: PortalAddress,
}

/// Complete configuration of the daemon.
#[derive(Debug)]
pub(crate) struct Config {
    /// Settings that control needs.
    pub settings: Settings,
    /// Options for opening the state folder, and the path of the key.
    pub opening: StoreOptions,
    /// Number of shards; none means one per core.
    pub shards: Option<u16>,
    /// Cores that shards are pinned to, in order; none leaves the choice to the kernel.
    pub cpus: Option<Cpus>,
    /// I/O back end for disks and sockets.
    pub io: IoChoice,
    /// Shards poll for work a little longer before they sleep.
    pub busy_poll: bool,
    /// Bytes of buffer memory; none means as much as the memory limit allows, up to [`BUFFERS`].
    pub buffers: Option<Size>,
    /// Bytes of the read cache; none means a share of the memory limit.
    pub cache: Option<Size>,
    /// Folders whose files are delayed like disks of a medium, for measurements.
    pub media: Vec<FilesLike>,
    /// Filter of the log.
    pub log: String,
    /// Format of the log.
    pub log_form: LogForm,
    /// Time after which a silent host's connection is closed; the host is probed at half of it.
    pub silence: Span,
    /// Listeners of the console and the API over the network; none serves only the socket.
    pub web: Option<WebOptions>,
    /// Run the daemon confined, beside a privileged helper.
    pub sandbox: bool,
    /// User of the confined daemon; none keeps the user that started it.
    pub user: Option<User>,
    /// Path of the configuration file.
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads the file and merges it: options of the command line first, then the file, then the defaults.
    ///
    /// *Errors*: one sentence with the line of the file.
    pub(crate) fn load(options: &ServeOptions, socket: Option<PathBuf>) -> Result<Self, Failure> {
        let file = options.config.as_deref().map_or_else(|| Ok(File::default()), read)?;
        // A list of the command line replaces the list of the file, so that an option can also remove a portal.
        let portals: Vec<SocketAddr> = match (options.portals.is_empty(), file.portal.is_empty()) {
            (false, _) => options.portals.iter().map(|portal| portal.0).collect(),
            (true, false) => file.portal.iter().map(|portal| portal.address.0).collect(),
            (true, true) => vec![SocketAddr::from(([0, 0, 0, 0], ISCSI_PORT))],
        };
        // Stable names: `/dev/sdX` may name another disk after a restart.
        let by_id = || vec![PathBuf::from("/dev/disk/by-id")];
        let state_dir = options.state_dir.clone().or(file.state_dir).unwrap_or_else(|| "/var/lib/blockyard".into());
        let key_path = options.key_file.clone().or(file.key_file);
        let key = key_path.as_deref().map(absolute).transpose()?;
        let opening = StoreOptions { key, forget_secrets: options.forget_secrets, new: options.new };
        let settings = Settings {
            // Absolute paths, since the helper refuses relative ones and the daemon may change its working directory.
            state_dir: absolute(&state_dir)?,
            socket: absolute(&socket.or(file.socket).unwrap_or_else(default_socket))?,
            node: options.node.clone().or(file.node).unwrap_or_else(machine),
            target_base: file.target_base.unwrap_or_else(|| TARGET_BASE.to_owned()),
            portals,
            disk_search: file.disk_search.unwrap_or_else(by_id),
        };
        let web = web(options, file.web, &settings)?;
        let config = Self {
            settings,
            web,
            opening,
            shards: options.shards.or(file.shards),
            cpus: options.cpus.clone().or(file.cpus),
            io: options.io.or(file.io).unwrap_or_default(),
            busy_poll: options.busy_poll || file.busy_poll.unwrap_or_default(),
            buffers: file.buffers,
            cache: options.cache.or(file.cache),
            media: options.disks_like.clone(),
            log: options.log.clone().or(file.log).unwrap_or_else(|| "info".to_owned()),
            log_form: options.log_form.or(file.log_form).unwrap_or_default(),
            silence: file.silence.unwrap_or(Span::from_millis(30_000)),
            sandbox: !options.no_sandbox && file.sandbox.unwrap_or(true),
            user: file.user.as_deref().map(User::find).transpose().map_err(|refusal| Failure::usage(&refusal))?,
            file: options.config.as_deref().map(absolute).transpose()?,
        };
        // Only the merged result must be valid: an option may replace a bad value of the file.
        config.admit()?;
        Ok(config)
    }

    /// Returns the configured files outside the state folder: the configuration file and the certificate and key of
    /// `[web]`.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let own = self.web.iter().filter_map(|web| match &web.source {
            Source::Own { certificate, key } => Some([certificate.clone(), key.clone()]),
            Source::Generated { .. } => None,
        });
        self.file.iter().cloned().chain(own.flatten()).collect()
    }

    /// Checks that the settings are valid and consistent.
    fn admit(&self) -> Result<(), Failure> {
        let wrong = |message: String, hint: &str| {
            Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint.to_owned())))
        };
        let settings = &self.settings;
        // The names of targets begin with both, so both are checked together.
        if format!("{}:{}", settings.target_base, settings.node).parse::<Iqn>().is_err() {
            let message = format!("target_base \"{}\" is not the beginning of an iSCSI name", settings.target_base);
            return wrong(message, "write, for example, iqn.2026-11.com.example");
        }
        if let Some(buffers) = self.buffers.filter(|&buffers| buffers < BUFFERS_MIN) {
            return wrong(format!("buffers = {buffers} is too small"), "give at least 16MiB");
        }
        if !(SILENCE_MIN..=SILENCE_MAX).contains(&self.silence.duration()) {
            return wrong(format!("a timeout of {} is out of range", self.silence), "give 2s to 10m");
        }
        if self.shards == Some(0) {
            return wrong("shards = 0 is not possible".to_owned(), "give at least 1, or leave it out for one per core");
        }
        self.admit_cpus()?;
        // Port 0 lets the system choose a port, so it may occur several times.
        let mut seen = std::collections::BTreeSet::new();
        match settings.portals.iter().find(|portal| portal.port() != 0 && !seen.insert(**portal)) {
            Some(twice) => wrong(format!("portal {twice} is listed twice"), "list each portal once"),
            None => Ok(()),
        }
    }

    /// Checks that the pinned cores exist, and that there is one for each shard.
    fn admit_cpus(&self) -> Result<(), Failure> {
        let Some(cpus) = &self.cpus else { return Ok(()) };
        let wrong =
            |message: String, hint: String| Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint)));
        let online = Cpus::online(&Root::new("/"));
        if !online.contains_all(cpus) {
            return wrong(
                format!("cpus = {cpus} names cores that do not exist"),
                format!("choose from the online cores: {online}"),
            );
        }
        match self.shards.map(usize::from) {
            Some(shards) if shards > cpus.len() => {
                let message = format!("{shards} shards do not match the number of cores in cpus = {cpus}");
                wrong(message, "list one core for each shard in cpus, or remove shards".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the listeners of the console with their certificate. By default only this machine reaches it.
fn web(options: &ServeOptions, file: WebEntry, settings: &Settings) -> Result<Option<WebOptions>, Failure> {
    let here = || vec![WebListen(SocketAddr::from(([127, 0, 0, 1], WEB_PORT)))];
    let listen = match (options.web.is_empty(), options.no_web) {
        (_, true) => Vec::new(),
        (false, _) => options.web.clone(),
        (true, _) => file.listen.unwrap_or_else(here),
    };
    let listen: Vec<SocketAddr> = listen.into_iter().map(|address| address.0).collect();
    let names = names(&listen, &file.names, settings)?;
    // A certificate without its key, or a key without its certificate, is a mistake: a generated one would hide it.
    let source = match (file.certificate, file.key) {
        (Some(certificate), Some(key)) => Source::Own { certificate: absolute(&certificate)?, key: absolute(&key)? },
        (None, None) => Source::Generated { folder: settings.state_dir.join("web"), names: names.clone() },
        _ => {
            let message = "[web] needs both certificate and key";
            return Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "set both, or neither")));
        }
    };
    Ok((!listen.is_empty()).then_some(WebOptions { listen, names, source }))
}

/// Returns the names and addresses for the certificate of a node that listens at `listen`; `more` is from the
/// configuration.
///
/// *Errors*: an entry of `more` is neither a DNS name nor an address.
fn names(listen: &[SocketAddr], more: &[String], settings: &Settings) -> Result<BTreeSet<String>, Failure> {
    let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    for name in [settings.node.to_string(), machine].into_iter().filter(|name| api::is_host_name(name)) {
        // The short name as well: administrators type it within the domain.
        names.extend(name.split_once('.').map(|(first, _)| first.to_owned()));
        names.insert(name);
    }
    // An unspecified address stands for every address of the machine, which are looked up now.
    names.extend(listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    if listen.iter().any(|address| address.ip().is_unspecified()) {
        match uring::addresses() {
            Ok(local) => names.extend(local.into_iter().map(|local| local.address.to_string())),
            // The log has not been started yet.
            Err(error) => {
                eprintln!("blockyard: the addresses of this machine could not be added to the certificate: {error}")
            }
        }
    }
    if let Some(wrong) = more.iter().find(|name| !api::is_host_name(name)) {
        let message = format!("{} in names of [web] is neither a DNS name nor an address", bounded::quoted(wrong));
        let hint = "write it without https:// and port, such as array1.example.com";
        return Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint)));
    }
    names.extend(more.iter().cloned());
    Ok(names)
}

/// Returns the socket that the environment names, or the default.
pub(crate) fn default_socket() -> PathBuf {
    std::env::var_os("BLOCKYARD_SOCKET").map_or_else(|| SOCKET.into(), PathBuf::from)
}

fn read(path: &Path) -> Result<File, Failure> {
    let refused = |message: String, hint: &str| Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint));
    let text = bounded::text_file(path, FILE_BYTES_MAX).map_err(|error| {
        let hint = "give a text file of less than 1 MiB with --config, or omit the option";
        refused(format!("{} cannot be read: {error}", path.display()), hint)
    })?;
    toml::from_str(&text).map_err(|error| {
        let message = format!("{} {}", path.display(), bounded::complaint(&text, error.span(), error.message()));
        refused(message, "correct the line, see docs/operate/configuration.md")
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let message = format!("the path \"{}\" cannot be used: {error}", path.display());
        Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "write an absolute path, which starts with /"))
    })
}

/// Returns the host name reduced to the characters and the length that a [`Name`] may have.
fn machine() -> Name {
    let full = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let kept: String = full.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(63).collect();
    let name = kept.trim_start_matches(['-', '.']).parse();
    name.unwrap_or_else(|_| "blockyard".parse().expect("our own name is a name"))
}

#[cfg(test)]
mod tests;

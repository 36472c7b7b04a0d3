//! `blockyard.toml`: the static facts, and what holds without them.

use crate::args::{IoChoice, LogForm, ServeOptions, WEB_PORT, WebListen};
use crate::failure::Failure;
use crate::tune::{Cpus, Root};
use crate::user::User;
use api::{Source, WebOptions};
use control::{Opening, Settings};
use model::{ISCSI_PORT, Iqn, Name, PortalAddress, Refusal, Size, Span, code};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uring::FilesLike;

/// Where the daemon's socket is unless told otherwise.
pub(crate) const SOCKET: &str = "/run/blockyard/blockyard.sock";

/// What targets' iSCSI names begin with unless told otherwise.
const TARGET_BASE: &str = "iqn.2026-11.io.blockyard";

/// Bytes for buffers where there is memory enough, and the least that serves.
pub(crate) const BUFFERS: Size = Size::mib(256);
pub(crate) const BUFFERS_MIN: Size = Size::mib(16);

/// The largest configuration file that is read: a thousand portals have 40 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How long hosts may be silent, at the least and at the most.
const SILENCE_MIN: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// The file as it is written. A key that is not here is refused.
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

/// The console and the API over the network.
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

/// Everything that the daemon is started with.
#[derive(Debug)]
pub(crate) struct Config {
    /// What control needs.
    pub settings: Settings,
    /// How the state is opened, and where its key is.
    pub opening: Opening,
    /// How many shards; none for one per core.
    pub shards: Option<u16>,
    /// The cores that shards are kept on, the first shard on the first; none where the kernel chooses.
    pub cpus: Option<Cpus>,
    /// How disks and sockets are driven.
    pub io: IoChoice,
    /// Shards look for work a little longer before they sleep.
    pub busy_poll: bool,
    /// Bytes for buffers; none for what the memory that is found allows, [`BUFFERS`] at most.
    pub buffers: Option<Size>,
    /// Bytes for what was read; none for a share of the machine's memory.
    pub cache: Option<Size>,
    /// Files that take as long as disks would.
    pub media: Vec<FilesLike>,
    /// What to log.
    pub log: String,
    /// In which form.
    pub log_form: LogForm,
    /// How long a host may be silent before its connection is given up; it is asked whether it lives at half of it.
    pub silence: Span,
    /// The console and the API over the network; none where only the socket is served.
    pub web: Option<WebOptions>,
    /// The daemon is confined, beside a privileged helper.
    pub sandbox: bool,
    /// Who the confined daemon is; none for the user that starts it.
    pub user: Option<User>,
    /// The file that all this was read from.
    pub file: Option<PathBuf>,
}

impl Config {
    /// The facts of the file, of the command line before it, and of the defaults behind it.
    ///
    /// *Errors*: one sentence with the line of the file.
    pub(crate) fn load(options: &ServeOptions, socket: Option<PathBuf>) -> Result<Self, Failure> {
        let file = options.config.as_deref().map_or_else(|| Ok(File::default()), read)?;
        let portals: Vec<SocketAddr> = match (options.portals.is_empty(), file.portal.is_empty()) {
            (false, _) => options.portals.iter().map(|portal| portal.0).collect(),
            (true, false) => file.portal.iter().map(|portal| portal.address.0).collect(),
            (true, true) => vec![SocketAddr::from(([0, 0, 0, 0], ISCSI_PORT))],
        };
        let by_id = || vec![PathBuf::from("/dev/disk/by-id")];
        let state_dir = options.state_dir.clone().or(file.state_dir).unwrap_or_else(|| "/var/lib/blockyard".into());
        let key_path = options.key_file.clone().or(file.key_file);
        let key = key_path.as_deref().map(absolute).transpose()?;
        let opening = Opening { key, forget_secrets: options.forget_secrets, new: options.new };
        let settings = Settings {
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
        config.admit()?;
        Ok(config)
    }

    /// The files that it names beside the state: itself, and those of `[web]`.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let own = self.web.iter().filter_map(|web| match &web.source {
            Source::Own { certificate, key } => Some([certificate.clone(), key.clone()]),
            Source::Generated { .. } => None,
        });
        self.file.iter().cloned().chain(own.flatten()).collect()
    }

    /// Admits facts that fit together.
    fn admit(&self) -> Result<(), Failure> {
        let wrong = |message: String, hint: &str| {
            Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint.to_owned())))
        };
        let settings = &self.settings;
        if format!("{}:{}", settings.target_base, settings.node).parse::<Iqn>().is_err() {
            let message = format!("target_base \"{}\" begins no iSCSI name", settings.target_base);
            return wrong(message, "write it like iqn.2026-11.com.example");
        }
        if let Some(buffers) = self.buffers.filter(|&buffers| buffers < BUFFERS_MIN) {
            return wrong(format!("buffers of {buffers} are too few"), "give at least 16MiB");
        }
        if !(SILENCE_MIN..=SILENCE_MAX).contains(&self.silence.duration()) {
            return wrong(format!("a silence of {} is not possible", self.silence), "give 2s to 10m");
        }
        if self.shards == Some(0) {
            return wrong("0 shards serve nobody".to_owned(), "give at least 1, or leave it out for one per core");
        }
        self.admit_cpus()?;
        let mut seen = std::collections::BTreeSet::new();
        match settings.portals.iter().find(|portal| portal.port() != 0 && !seen.insert(**portal)) {
            Some(twice) => wrong(format!("portal {twice} is named twice"), "name each once"),
            None => Ok(()),
        }
    }

    /// Admits cores that are there, one for each shard.
    fn admit_cpus(&self) -> Result<(), Failure> {
        let Some(cpus) = &self.cpus else { return Ok(()) };
        let wrong =
            |message: String, hint: String| Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint)));
        let online = Cpus::online(&Root::new("/"));
        if !online.contains_all(cpus) {
            return wrong(format!("not all cores of cpus {cpus} are there"), format!("this machine has {online}"));
        }
        match self.shards.map(usize::from) {
            Some(shards) if shards > cpus.len() => {
                let message = format!("{shards} shards cannot be kept on the cores {cpus}");
                wrong(message, "give as many cores in cpus, or leave shards out".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Where the console is served, and with which certificate. Unless told otherwise it is this machine alone that reaches it.
fn web(options: &ServeOptions, file: WebEntry, settings: &Settings) -> Result<Option<WebOptions>, Failure> {
    let here = || vec![WebListen(SocketAddr::from(([127, 0, 0, 1], WEB_PORT)))];
    let listen = match (options.web.is_empty(), options.no_web) {
        (_, true) => Vec::new(),
        (false, _) => options.web.clone(),
        (true, _) => file.listen.unwrap_or_else(here),
    };
    let listen: Vec<SocketAddr> = listen.into_iter().map(|address| address.0).collect();
    let names = names(&listen, &file.names, settings)?;
    let source = match (file.certificate, file.key) {
        (Some(certificate), Some(key)) => Source::Own { certificate: absolute(&certificate)?, key: absolute(&key)? },
        (None, None) => Source::Generated { folder: settings.state_dir.join("web"), names: names.clone() },
        _ => {
            let message = "certificate and key of [web] belong together";
            return Err(Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "name both, or neither")));
        }
    };
    Ok((!listen.is_empty()).then_some(WebOptions { listen, names, source }))
}

/// The names and addresses of a node that listens there; `more` are the configuration's.
///
/// *Errors*: one of `more` is neither a DNS name nor an address.
fn names(listen: &[SocketAddr], more: &[String], settings: &Settings) -> Result<BTreeSet<String>, Failure> {
    let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    for name in [settings.node.to_string(), machine].into_iter().filter(|name| api::is_host_name(name)) {
        names.extend(name.split_once('.').map(|(first, _)| first.to_owned()));
        names.insert(name);
    }
    names.extend(listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    if listen.iter().any(|address| address.ip().is_unspecified()) {
        match uring::addresses() {
            Ok(local) => names.extend(local.into_iter().map(|local| local.address.to_string())),
            Err(error) => eprintln!("blockyard: the certificate lacks this machine's addresses: {error}"),
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

/// The socket that the environment names, or the usual one.
pub(crate) fn default_socket() -> PathBuf {
    std::env::var_os("BLOCKYARD_SOCKET").map_or_else(|| SOCKET.into(), PathBuf::from)
}

fn read(path: &Path) -> Result<File, Failure> {
    let refused = |message: String, hint: &str| Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, hint));
    let text = bounded::text_file(path, FILE_BYTES_MAX).map_err(|error| {
        let hint = "name a text file of less than 1 MiB with --config, or leave it out";
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
        Failure::usage(&Refusal::new(code::CONFIG_INVALID, message, "write it from / on"))
    })
}

/// The machine's name, as far as it is a name of ours.
fn machine() -> Name {
    let full = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let kept: String = full.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(63).collect();
    let name = kept.trim_start_matches(['-', '.']).parse();
    name.unwrap_or_else(|_| "blockyard".parse().expect("our own name is a name"))
}

#[cfg(test)]
mod tests;

//! Request bodies for presentations.

use model::{Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Present a volume to a host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPresentation {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Name of the host or group, or `everyone`.
    pub host: Name,
    /// Name of the target; `default` when absent.
    #[serde(default)]
    pub target: Option<Name>,
    /// LUN; when absent, the one that the volume had for this host, or the lowest that no other volume had.
    #[serde(default)]
    pub lun: Option<u16>,
    /// True to take this LUN although the host knew another volume under it.
    #[serde(default)]
    pub force: bool,
    /// True to reject write commands.
    #[serde(default)]
    pub read_only: bool,
    /// Portal groups through which it is mapped; all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
}

/// Present one volume through several targets, or distribute several volumes over them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Names of the volumes.
    pub volumes: Vec<VolumeName>,
    /// Name of the host or group, or `everyone`.
    pub host: Name,
    /// Number of targets.
    pub targets: u16,
    /// True to reject write commands.
    #[serde(default)]
    pub read_only: bool,
    /// Portal groups through which they are mapped; all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
}

/// End a presentation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unpresent {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Name of the host or group, or `everyone`.
    pub host: Name,
    /// Name of the target; every target when absent.
    #[serde(default)]
    pub target: Option<Name>,
    /// True to end it although sessions lose the volume.
    #[serde(default)]
    pub force: bool,
}

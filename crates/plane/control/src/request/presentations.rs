//! What a host is shown, and no more.

use model::{Name, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Show a volume to a host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPresentation {
    /// The volume.
    pub volume: VolumeName,
    /// The host.
    pub host: Name,
    /// The target; `default` when absent.
    #[serde(default)]
    pub target: Option<Name>,
    /// The logical unit number; when absent, the one that the volume had for this host, or the lowest that no other volume had.
    #[serde(default)]
    pub lun: Option<u16>,
    /// True to take this number though the host knew another volume under it.
    #[serde(default)]
    pub force: bool,
    /// True when the host may not write.
    #[serde(default)]
    pub read_only: bool,
    /// Through portals of which groups; through all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
}

/// Show a host one volume through several targets, or several volumes shared out to them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The volumes.
    pub volumes: Vec<VolumeName>,
    /// The host.
    pub host: Name,
    /// Over how many targets.
    pub targets: u16,
    /// True when the host may not write.
    #[serde(default)]
    pub read_only: bool,
    /// Through portals of which groups; through all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
}

/// Which presentation to end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unpresent {
    /// The volume.
    pub volume: VolumeName,
    /// The host.
    pub host: Name,
    /// Only through this target; through every target when absent.
    #[serde(default)]
    pub target: Option<Name>,
    /// True though sessions lose the volume.
    #[serde(default)]
    pub force: bool,
}

//! Profiles: the kinds of runs.

mod disks;
mod families;
mod full;
mod growth;
mod misbehaving;
mod network;
mod power_cut;
mod refusing;
mod write_back;

pub(crate) use power_cut::volumes as power_cut_volumes;

use crate::planted::InjectedBug;
use crate::stage::{CheckResult, Stage};
use model::Order;
use std::fmt;
use std::str::FromStr;

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Delays, splits at every byte, stalls, resets, and session reinstatement.
    Network,
    /// Crashes under load, with disks that keep any part of what was not flushed.
    PowerCut,
    /// Failing, erroneous and slow disks with replacement; creation, growth and deletion of pools and volumes.
    Disks,
    /// Crashes while writes are acknowledged from the log device of a pool.
    WriteBack,
    /// Snapshots, clones and rollbacks during writes and power failures.
    Families,
    /// Full pools: refused writes, reclaimed space, and power failures.
    Full,
    /// Growth of pools and copies of volumes during writes and power failures.
    Growth,
    /// Members that refuse writes for a while, some or all of them.
    Refusing,
    /// Members that hang, respond slowly, fail, disappear and return, with copies, rebuilds, snapshots and crashes.
    Misbehaving,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 9] = [
        Self::Network,
        Self::PowerCut,
        Self::Disks,
        Self::WriteBack,
        Self::Families,
        Self::Full,
        Self::Growth,
        Self::Refusing,
        Self::Misbehaving,
    ];

    /// Runs the profile; at its end the data plane must stop on request.
    pub(crate) async fn play(self, stage: &Stage) -> CheckResult<()> {
        match self {
            Self::Network => network::play(stage).await,
            Self::PowerCut => power_cut::play(stage).await,
            Self::Disks => disks::play(stage).await,
            Self::WriteBack => write_back::play(stage).await,
            Self::Families => families::play(stage).await,
            Self::Full => full::play(stage).await,
            Self::Growth => growth::play(stage).await,
            Self::Refusing => refusing::play(stage).await,
            Self::Misbehaving => misbehaving::play(stage).await,
        }?;
        // A run also fails if the data plane cannot stop cleanly at its end.
        stage.order(Order::Stop).await.map(drop)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Network => "network",
            Self::PowerCut => "power-cut",
            Self::Disks => "disks",
            Self::WriteBack => "write-back",
            Self::Families => "families",
            Self::Full => "full",
            Self::Growth => "growth",
            Self::Refusing => "refusing",
            Self::Misbehaving => "misbehaving",
        })
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|profile| profile.to_string() == text);
        known.ok_or_else(|| format!("{text} is none of {}", Self::ALL.map(|profile| profile.to_string()).join(", ")))
    }
}

impl InjectedBug {
    /// Returns the profile whose runs detect the bug.
    #[must_use]
    pub fn profile(self) -> Profile {
        match self {
            Self::FlushSkipped
            | Self::FlushNotAwaited
            | Self::WriteNotAwaited
            | Self::WriteLost
            | Self::WriteElsewhere
            | Self::WriteHalf
            | Self::WriteTwice
            | Self::ReadOld
            | Self::CatalogLost
            | Self::LabelsLost
            | Self::CacheOutlivesRestart => Profile::PowerCut,
            Self::WriteErrorHidden
            | Self::ReadErrorIsZeros
            | Self::ZerosSkipped
            | Self::RebuildLeavesGaps
            | Self::CatalogInOneSlot => Profile::Disks,
            Self::RefusalNotTold => Profile::Refusing,
            Self::SilenceHidden | Self::SilenceNotSeen | Self::ReturnLeavesGaps | Self::CopyLeavesGaps => {
                Profile::Misbehaving
            }
            Self::LogWriteLost => Profile::WriteBack,
            Self::NewRoomLost => Profile::Growth,
            Self::ReadsAnotherBlock
            | Self::WritesAnotherBlock
            | Self::WriteSameStopsEarly
            | Self::AbortEndsMore
            | Self::AbortEndsLater
            | Self::ErrorHidden
            | Self::MiscompareHidden
            | Self::ResponseTwice
            | Self::DataInRepeated
            | Self::CapacityWrong => Profile::Network,
            Self::RefusalHidden => Profile::Full,
        }
    }
}

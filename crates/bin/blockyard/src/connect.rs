//! Commands to type on a host in order to connect it, for each operating system. Secrets are never printed.

mod esxi;
mod linux;
mod portal;
mod proxmox;
mod qemu;
mod windows;

use crate::args::System;
use control::PresentationReport;
use model::{Iqn, VolumeName};
use portal::Portal;
use serde::Serialize;
use std::collections::BTreeMap;

/// Logical unit as seen by a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub volume: VolumeName,
    pub lun: u16,
    pub read_only: bool,
}

/// Target as seen by a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub iqn: Iqn,
    portals: Vec<Portal>,
    /// Units in the order of their LUNs.
    pub units: Vec<Unit>,
}

/// Mappings of a host, with its identity and CHAP names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Initiator name to log in with; none unless the host has exactly one.
    pub initiator: Option<Iqn>,
    pub chap_user: Option<String>,
    pub mutual_chap_user: Option<String>,
    /// Targets in the order of their names.
    pub targets: Vec<Target>,
}

/// Step on the host: its purpose, and the commands.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    /// Purpose, as a sentence.
    pub description: String,
    /// Commands, or lines of a file.
    pub lines: Vec<String>,
}

impl Step {
    pub(crate) fn new(what: impl Into<String>, lines: impl IntoIterator<Item = String>) -> Self {
        Self { description: what.into(), lines: lines.into_iter().collect() }
    }
}

impl View {
    /// Builds the view of a host with these initiators and CHAP names from its presentations.
    pub(crate) fn new(
        initiators: &[Iqn],
        chap: (Option<String>, Option<String>),
        presentations: &[PresentationReport],
    ) -> Self {
        let mut targets: BTreeMap<&Iqn, (Vec<&str>, Vec<Unit>)> = BTreeMap::new();
        for seen in presentations {
            let (portals, units) = targets.entry(&seen.iqn).or_default();
            for portal in &seen.portals {
                // Every volume of a target repeats its portals.
                if !portals.contains(&portal.as_str()) {
                    portals.push(portal);
                }
            }
            units.push(Unit { volume: seen.volume.clone(), lun: seen.lun, read_only: seen.read_only });
        }
        let target = |(iqn, (portals, mut units)): (&Iqn, (Vec<&str>, Vec<Unit>))| {
            units.sort_by_key(|unit| unit.lun);
            Target { iqn: iqn.clone(), portals: Portal::all(&portals), units }
        };
        // With several initiators it is not known which one this host is.
        let initiator = if let [only] = initiators { Some(only.clone()) } else { None };
        let targets = targets.into_iter().map(target).collect();
        Self { initiator, chap_user: chap.0, mutual_chap_user: chap.1, targets }
    }

    /// Returns the steps for this operating system, in their order.
    pub(crate) fn steps(&self, system: System) -> Vec<Step> {
        match system {
            System::Linux => linux::steps(self),
            System::Windows => windows::steps(self),
            System::Esxi => esxi::steps(self),
            System::Proxmox => proxmox::steps(self),
            System::Qemu => qemu::steps(self),
        }
    }

    /// Returns true if a volume can be reached over more than one path.
    pub(crate) fn has_paths(&self) -> bool {
        let mut volumes: Vec<&VolumeName> =
            self.targets.iter().flat_map(|target| &target.units).map(|unit| &unit.volume).collect();
        let all = volumes.len();
        volumes.sort();
        volumes.dedup();
        // The same volume through two targets, or one target with several portals.
        volumes.len() < all || self.targets.iter().any(|target| target.portals.len() > 1)
    }

    /// Explains the placeholders in capitals.
    pub(crate) fn notes(&self) -> Vec<&'static str> {
        let anywhere = self.targets.iter().flat_map(|target| &target.portals).any(|portal| portal.wildcard);
        let notes = [
            anywhere.then_some("ADDRESS stands for any address of this node that the host can reach."),
            self.chap_user.is_some().then_some("SECRET stands for the CHAP secret of the host."),
            self.mutual_chap_user.is_some().then_some("OURS stands for the mutual CHAP secret of the array."),
        ];
        notes.into_iter().flatten().collect()
    }

    /// Returns a comment line for each volume, with its LUN and target.
    fn units(&self) -> Vec<String> {
        let line = |target: &Target, unit: &Unit| {
            let access = if unit.read_only { ", read-only" } else { "" };
            format!("# LUN {} of {}: volume {}{access}", unit.lun, target.iqn, unit.volume)
        };
        self.targets.iter().flat_map(|target| target.units.iter().map(move |unit| line(target, unit))).collect()
    }
}

impl Target {
    /// Returns the portal for discovery.
    fn portal(&self) -> Portal {
        // One portal suffices for discovery: SendTargets returns the others.
        self.portals.first().cloned().unwrap_or_else(Portal::anywhere)
    }
}

/// Returns short login commands for open-iscsi, Windows, ESXi and qemu.
pub(crate) fn lines(seen: &PresentationReport) -> String {
    let chap = (seen.chap_user.clone(), seen.mutual_chap_user.clone());
    // Without initiators and host the lines keep their placeholders.
    let view = View::new(&[], chap, std::slice::from_ref(seen));
    let blocks = [
        ("Linux (open-iscsi)", linux::log_in(&view)),
        ("Windows (PowerShell)", windows::log_in(&view, false)),
        ("ESXi (HBA is your software adapter, such as vmhba64)", esxi::log_in(&view)),
        ("qemu", qemu::log_in(&view)),
    ];
    let block = |(title, lines): &(&str, Vec<String>)| {
        lines.iter().fold(format!("\n{title}:\n"), |text, line| text + "  " + line + "\n")
    };
    let notes = view.notes();
    let text: String = blocks.iter().map(block).collect();
    if notes.is_empty() { text } else { format!("{text}\n{}\n", notes.join(" ")) }
}

#[cfg(test)]
mod tests;

//! Presentation through several targets: a host gets several sessions where a single one is the bottleneck.

use crate::access::Confirmation;
use crate::change::copies::admit_whole;
use crate::change::presentations::{Presentations, admit_presentation};
use crate::change::volumes;
use crate::request::{NewPresentation, Spread};
use crate::state::{DEFAULT_TARGET, State, TargetRecord};
use crate::view::PresentationReport;
use model::{Name, Refusal, code};
use std::collections::BTreeMap;

/// Limit on targets per request: each is one more session of every host.
const TARGETS_MAX: u16 = 32;

impl Presentations {
    /// Maps one volume to the host through each of the given number of targets, or distributes several volumes
    /// over them. Missing targets are created. The change is atomic.
    ///
    /// *Errors*: as [`Presentations::present`], or the number of targets is out of range.
    pub async fn spread(&self, request: Spread) -> Result<Vec<PresentationReport>, Refusal> {
        let turn = self.core.lock_changes().await;
        if !(1..=TARGETS_MAX).contains(&request.targets) {
            let message = format!("{} targets is out of range", request.targets);
            return Err(Refusal::new(code::NUMBER_INVALID, message, format!("choose 1 to {TARGETS_MAX}")));
        }
        let mut ids = BTreeMap::new();
        for name in &request.volumes {
            let volume = self.volumes.opened(name).await?.ok_or_else(|| volumes::unknown(name))?;
            admit_whole(&volume)?;
            ids.insert(name.clone(), volume.id);
        }
        // Built on a copy of the state, which is committed as a whole or not at all.
        let mut next = State::clone(&self.core.state());
        let targets: Vec<Name> =
            (1..=request.targets).map(|n| self.spread_target(&mut next, n)).collect::<Result<_, _>>()?;
        let pairs: Vec<_> = match request.volumes.as_slice() {
            [] => return Err(Refusal::new(code::VALUE_MISSING, "no volume was given", "give at least one")),
            // One volume in every target is multipathing; several are dealt round-robin.
            [one] => targets.iter().map(|target| (one, target)).collect(),
            several => several.iter().zip(targets.iter().cycle()).collect(),
        };
        let mut records = Vec::new();
        for (volume, target) in pairs {
            let one = NewPresentation {
                volume: volume.clone(),
                host: request.host.clone(),
                target: Some(target.clone()),
                lun: None,
                force: false,
                read_only: request.read_only,
                groups: request.groups.clone(),
            };
            // Every volume was looked up above, so the index cannot fail.
            let record = admit_presentation(&next, one, ids[volume], target.clone())?;
            // Before the next one is admitted, which must not get the same LUN.
            next.presentations.push(record.clone());
            records.push(record);
        }
        self.access.commit(&turn, Confirmation::forced(false), |state| *state = next).await?;
        Ok(records.iter().map(|record| self.report_of(record)).collect())
    }

    /// Returns the target of this number, creating it if missing; number 1 is the default target.
    fn spread_target(&self, state: &mut State, number: u16) -> Result<Name, Refusal> {
        let name = if number == 1 { DEFAULT_TARGET.to_owned() } else { format!("{DEFAULT_TARGET}-{number}") };
        let name: Name = name.parse()?;
        if !state.targets.contains_key(&name) {
            let iqn = state.target_iqn(&self.core.settings, Some(&name))?;
            // An operator may have given this iSCSI name to a target of another name.
            if let Some((other, _)) = state.targets.iter().find(|(_, record)| record.iqn == iqn) {
                let message = format!("target {other} has the iSCSI name {iqn}");
                return Err(Refusal::new(code::NAME_TAKEN, message, "remove that target, or use fewer targets"));
            }
            state.targets.insert(name.clone(), TargetRecord { iqn });
        }
        Ok(name)
    }
}

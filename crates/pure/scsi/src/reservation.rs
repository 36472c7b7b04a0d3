//! Reservations of a logical unit: who may do what while somebody has reserved it (SPC-4, SPC-2).
//!
//! `state.rs` is what each service action makes of the registrations; `out.rs` reads its parameter list, has the
//! outcome kept and tells the others; `access.rs` has the tables of what conflicts with what.

mod kept;
mod out;
mod report;
mod reserve;
mod state;

pub(crate) use out::check_list_length;

use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::conflict::{Access, ReservationType, Standing};
use crate::failure::Failure;
use crate::identity::TargetPort;
use crate::keeper::{Forgetful, Keeper, NotKept, keeping_failure};
use crate::nexus::{InitiatorPort, ItNexus};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Extent};
use state::Change;
pub(crate) use state::State;
use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::rc::Rc;

/// No block, and the place where changes of reservations wait for each other in the task set.
pub(crate) const TURN: Extent = Extent { start: block::Lba(u64::MAX - 1), len: block::Blocks(1) };

/// The reservations of one logical unit.
pub(crate) struct Reservations {
    state: RefCell<State>,
    /// Who has reserved the unit with RESERVE (6) or (10).
    reserved_by: Cell<Option<NexusId>>,
    /// False while nobody has reserved the unit: a command looks at this and no further.
    restricts: Cell<bool>,
    keeper: Rc<dyn Keeper>,
}

/// The reservations of a logical unit, for its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationStatus {
    /// PRgeneration.
    pub generation: u32,
    /// True when it all survives power loss.
    pub persists: bool,
    /// The type of the persistent reservation, if there is one.
    pub kind: Option<ReservationType>,
    /// Who is registered.
    pub registrations: Vec<RegistrationStatus>,
    /// Who has reserved the unit with RESERVE (6) or (10), and through which target.
    pub reserved_by: Option<(InitiatorPort, String)>,
}

/// One registration, for the owner of the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationStatus {
    /// Who is registered.
    pub initiator: InitiatorPort,
    /// The target through which it is.
    pub target_name: String,
    /// The reservation key.
    pub key: u64,
    /// True when it holds the reservation.
    pub is_holder: bool,
}

impl Default for Reservations {
    fn default() -> Self {
        Self::kept_by(Rc::new(Forgetful))
    }
}

impl fmt::Debug for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservations").field("state", &self.state).field("reserved_by", &self.reserved_by).finish()
    }
}

impl Reservations {
    fn kept_by(keeper: Rc<dyn Keeper>) -> Self {
        Self { state: RefCell::default(), reserved_by: Cell::default(), restricts: Cell::default(), keeper }
    }

    fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub(crate) fn install(&self, state: State) {
        self.state.replace(state);
        self.look_for_restrictions();
    }

    fn reserved_by(&self) -> Option<NexusId> {
        self.reserved_by.get()
    }

    pub(crate) fn set_reserved_by(&self, nexus: Option<NexusId>) {
        self.reserved_by.set(nexus);
        self.look_for_restrictions();
    }

    fn look_for_restrictions(&self) {
        self.restricts.set(self.state.borrow().held.is_some() || self.reserved_by.get().is_some());
    }

    pub(crate) fn standing(&self, nexus: &ItNexus) -> Standing {
        self.state.borrow().standing(nexus)
    }

    /// What of the reservations survives power loss, as bytes.
    pub(crate) fn kept(&self) -> Vec<u8> {
        self.state.borrow().kept()
    }

    /// True when what is to survive power loss has a place.
    pub(crate) fn can_keep(&self) -> bool {
        self.keeper.is_able()
    }

    /// Has `kept` survive, where anything does.
    pub(crate) async fn keep(&self, kept: Vec<u8>) -> Result<(), NotKept> {
        if self.keeper.is_able() { self.keeper.keep(kept).await } else { Ok(()) }
    }

    /// The target ports through which the unit can be reached.
    pub(crate) fn target_ports(&self) -> Vec<TargetPort> {
        self.keeper.target_ports()
    }
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// The unit, whose reservations `keeper` keeps and knows the ports for.
    #[must_use]
    pub fn with_keeper(self, keeper: Rc<dyn Keeper>) -> Self {
        Self { reservations: Reservations::kept_by(keeper), ..self }
    }

    /// The initiator port from which `nexus` comes, while it is attached.
    pub fn initiator(&self, nexus: NexusId) -> Option<InitiatorPort> {
        self.nexuses.names(nexus).map(|(name, _)| name.initiator.clone())
    }

    /// Who has reserved the unit, and who is registered.
    pub fn reservations(&self) -> ReservationStatus {
        let state = self.reservations.state();
        let registration = |(nexus, registration): (&Rc<ItNexus>, &state::Registration)| RegistrationStatus {
            initiator: nexus.initiator.clone(),
            target_name: nexus.target_name.clone(),
            key: registration.key,
            is_holder: state.standing(nexus) == Standing::Holder,
        };
        let names = self.reservations.reserved_by().and_then(|nexus| self.nexuses.names(nexus));
        ReservationStatus {
            generation: state.generation,
            persists: state.persists,
            kind: state.held.as_ref().map(|held| held.kind),
            registrations: state.registrations.iter().map(registration).collect(),
            reserved_by: names.map(|(nexus, _)| (nexus.initiator.clone(), nexus.target_name.clone())),
        }
    }

    /// Nobody has reserved the unit or is registered any more, by order of its owner; who was registered is told (2A/03).
    ///
    /// *Durability*: when it returns. *Errors*: what was kept cannot be taken back; nothing has changed then.
    pub async fn clear_reservations(&self) -> Result<(), NotKept> {
        let _turn = self.owner_turn(TURN).await;
        let change = self.reservations.state().cleared(None);
        self.keep_and_install(change).await?;
        self.reservations.set_reserved_by(None);
        Ok(())
    }

    /// Refuses what `nexus` may not do while another has reserved the unit.
    #[inline]
    pub(crate) fn check_reservation(&self, nexus: NexusId, access: Access, cdb: Cdb) -> Result<(), Status> {
        if self.reservations.restricts.get() { self.check_reserved(nexus, access, cdb) } else { Ok(()) }
    }

    fn check_reserved(&self, nexus: NexusId, access: Access, cdb: Cdb) -> Result<(), Status> {
        let access = match access {
            // START without a power condition.
            Access::Starts if cdb.bit(4, 0) && cdb.u8_at(4) >> 4 == 0 => Access::Persistent,
            Access::Prevents if !cdb.bit(4, 0) => Access::Persistent,
            access => access,
        };
        let is_kept_out = self.is_kept_out(nexus, access, || self.nexuses.standing(nexus));
        if is_kept_out { Err(Status::ReservationConflict) } else { Ok(()) }
    }

    /// True when another has reserved the unit against what the nexus of this standing is about to do.
    pub(crate) fn is_kept_out(&self, nexus: NexusId, access: Access, standing: impl Fn() -> Standing) -> bool {
        let is_allowed = match self.reservations.reserved_by() {
            Some(holder) => access.is_allowed_under_reserve(holder == nexus),
            None => self
                .reservations
                .state()
                .held
                .as_ref()
                .is_none_or(|held| access.is_allowed_under(held.kind) || standing().shares(held.kind)),
        };
        !is_allowed
    }

    /// What is to survive power loss does, then the change holds, and whom it concerns hears of it.
    async fn commit_reservations(&self, change: Change) -> Result<(), Failure> {
        self.keep_and_install(change).await.map_err(keeping_failure)
    }

    async fn keep_and_install(&self, change: Change) -> Result<(), NotKept> {
        let kept = change.after.kept();
        let is_same = kept == self.reservations.state().kept();
        if !is_same {
            self.keep_reservations(kept).await?;
        }
        self.reservations.install(change.after);
        self.nexuses.set_standings(|nexus| self.reservations.standing(nexus));
        let told = self.nexuses.called(&change.told).into_iter();
        told.for_each(|(nexus, attention)| self.nexuses.establish(nexus, attention));
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Login of a path: identity of the unit, reservation key, access state.
//!
//! Called by [`super::Paths`] at open and at every reconnect, and by [`crate::disk`] when the target reports a change.
//! It must never admit a path that leads to another unit, or whose unit another initiator has registered with.

use super::{Connected, LOGIN_LIMIT, Paths};
use crate::disk::config::{OpenError, OpenMode};
use crate::disk::unit::{UnitFacts, access_of};
use crate::fence::{FenceError, UnitFence};
use crate::login::{Login, log_in};
use crate::page::AccessState;
use crate::session::Session;
use iscsi::pdu::Isid;
use shard::World;
use std::rc::Rc;

impl<W: World> Paths<W> {
    /// Logs in over the path, verifies the unit, and registers a key of the path.
    pub(super) async fn connect(&self, path: usize) -> Result<Connected<W>, OpenError> {
        let login = self.login(path);
        let entered = log_in(&self.world, &login).await.map_err(OpenError::NoPath)?;
        let session = Session::start(&self.world, entered);
        match self.prepare(path, &session).await {
            Ok((key, access)) => Ok(Connected { session, key, access }),
            Err(error) => {
                session.close().await;
                Err(error)
            }
        }
    }

    /// Verifies that the path leads to the opened unit and that its key is registered; otherwise ends its session.
    ///
    /// A registration that was lost with the mapping of the LUN is renewed. One that was preempted is not: another
    /// initiator may have written and left since, so the disk fails.
    pub(in crate::disk) async fn revalidate(self: &Rc<Self>, path: usize, session: &Session<W>, is_preempted: bool) {
        if std::mem::replace(&mut self.entries.borrow_mut()[path].is_validating, true) {
            // Another command is verifying; this one must not pass before the result is known.
            return self
                .changed
                .until(|| !self.entries.borrow()[path].is_validating || session.ended().is_some())
                .await;
        }
        let looked = match is_preempted {
            true => self.still_registered(path, session).await,
            false => self.prepare(path, session).await,
        };
        {
            let entry = &mut self.entries.borrow_mut()[path];
            entry.is_validating = false;
            // Not if the session has ended since: the entry may belong to its successor.
            if let (Ok((key, access)), None) = (&looked, session.ended()) {
                (entry.key, entry.access) = (*key, *access);
            }
        }
        match looked {
            Err(OpenError::Fence(FenceError::Foreign { key })) => {
                self.fail(&format!("another initiator has taken the unit, with the key {key:#018x}"));
            }
            Err(error) => self.drop_session(path, session, &error.to_string()),
            Ok(_) => self.choose(),
        }
        self.changed.raise();
    }

    /// Verifies that the key of the path is still registered: a preempted one may be that of a lost path, which we
    /// fenced ourselves.
    ///
    /// *Errors*: the session failed. The disk fails when the key is no longer registered.
    async fn still_registered(&self, path: usize, session: &Session<W>) -> Result<(u64, AccessState), OpenError> {
        let (key, access) = {
            let entry = &self.entries.borrow()[path];
            (entry.key, entry.access)
        };
        // An inspection has no registration that could be preempted.
        if self.config.usage != OpenMode::Inspect
            && !self.fence().is_registered(session, key).await?
            && session.ended().is_none()
        {
            self.fail("another initiator has preempted our registration with the unit");
        }
        Ok((key, access))
    }

    /// Handles a reservation conflict. Fails the disk when another initiator has taken the unit; otherwise the path
    /// logs in and registers again, as the target has lost its registration (LIO does so just before it unmaps a LUN).
    pub(in crate::disk) async fn resolve_conflict(self: &Rc<Self>, path: usize, session: &Session<W>) {
        let fence = self.fence();
        let foreign = fence.foreign_key(session, |key| self.is_own_key(key)).await;
        match foreign {
            Ok(Some(key)) => {
                self.fail(&format!(
                    "another initiator has taken the reservation of the unit, with the key {key:#018x}"
                ));
            }
            // Without keys the owner of the reservation cannot be identified.
            Ok(None) if matches!(fence, UnitFence::Reset { .. }) => {
                self.fail("another initiator has reserved the unit");
            }
            Ok(None) => {
                self.drop_session(path, session, "the target does not know the registration of the path any more")
            }
            Err(error) => self.drop_session(path, session, &error.to_string()),
        }
    }

    async fn prepare(&self, path: usize, session: &Session<W>) -> Result<(u64, AccessState), OpenError> {
        let facts = UnitFacts::of(session, self.config.lun, self.lun).await?;
        let (portal, lun) = (session.portal(), self.lun);
        // A unit that does not equal itself has no identity at all.
        if !facts.is_same_unit(&facts) {
            return Err(OpenError::NoIdentity(self.config.lun));
        }
        // Checked before the registration, which must not happen for an unusable unit.
        facts.factor(self.config.block_bytes)?;
        let port_group = facts.port_group;
        // The first path sets the identity; every later one, also after a reconnect, has to match it.
        let unit = self.unit.get_or_init(|| facts.clone());
        if !unit.is_same_unit(&facts) || unit.capacity.block_bytes != facts.capacity.block_bytes {
            return Err(OpenError::OtherUnit { portal, found: facts.name(), expected: unit.name() });
        }
        let fence = match self.fence.get() {
            Some(fence) => *fence,
            None => {
                let fence = UnitFence::of(session, lun).await?;
                *self.fence.get_or_init(|| fence)
            }
        };
        let force = match self.config.usage {
            OpenMode::Inspect => {
                self.foreign.set(fence.foreign_key(session, |key| self.is_own_key(key)).await?);
                return Ok((0, AccessState::default()));
            }
            // Only during the open: a later login must not preempt an initiator that took the unit over.
            OpenMode::ReadWrite { force } => force && self.path_tasks.get() == 0,
        };
        let key = self.register(path, session, fence, force).await?;
        let access = match port_group {
            Some(group) => access_of(session, lun, group).await?,
            None => AccessState::default(),
        };
        Ok((key, access))
    }

    /// Registers a new key for the path; returns zero where the unit does not support reservations.
    async fn register(
        &self,
        path: usize,
        session: &Session<W>,
        fence: UnitFence,
        force: bool,
    ) -> Result<u64, OpenError> {
        if let UnitFence::Reset { .. } = fence {
            return Ok(0);
        }
        let foreign = async || fence.foreign_key(session, |key| self.is_own_key(key)).await;
        // Before the registration, which the present owner would see as a foreign key.
        if !force && let Some(key) = foreign().await? {
            return Err(FenceError::Foreign { key }.into());
        }
        let key = self.new_key(path);
        match fence.register(session, key).await {
            // A reservation of another type is preempted first.
            Err(FenceError::Foreign { .. }) if force => {
                // Permitted, because the key is registered already: only RESERVE has failed.
                fence.preempt(session, key, |other| !self.is_own_key(other)).await?;
                fence.register(session, key).await?;
            }
            entered => entered?,
        }
        // Another array may have registered at the same moment: the one that sees the other key withdraws.
        if !force && let Some(other) = foreign().await? {
            let _ = fence.unregister(session, key).await;
            return Err(FenceError::Foreign { key: other }.into());
        }
        Ok(key)
    }

    fn login(&self, path: usize) -> Login {
        let config = &self.config;
        // Derived from owner, target and LUN, so that the ISID is the same after a restart.
        let mut seed = config.owner.to_vec();
        seed.extend_from_slice(config.target.as_str().as_bytes());
        seed.extend_from_slice(&config.lun.to_be_bytes());
        let [_, a, b, c] = simd::crc32c::crc32c(&seed).to_be_bytes();
        let qualifier = match config.usage {
            // Stable ISID: a new login ends the commands in flight of an earlier session of this path (session
            // reinstatement).
            OpenMode::ReadWrite { .. } => path as u16,
            // A random one, so that an inspection never reinstates the session of an owner.
            OpenMode::Inspect => 0x8000 | (self.random() as u16 & 0x7fff),
        };
        let [high, low] = qualifier.to_be_bytes();
        let mut login = Login::new(config.portals[path], config.target.clone(), config.initiator.clone());
        // ISID type 10b, "random" (RFC 7143 §11.12.5).
        // Fields B and C have 24 bits of the checksum, D is the qualifier.
        login.isid = Isid([0x80, a, b, c, high, low]);
        login.auth = config.auth.clone();
        login.digests = config.digests;
        login.time_limit = LOGIN_LIMIT;
        login.ping_interval = config.ping_interval;
        login
    }

    /// Returns a new key: 32 bits identify the array, 8 bits the path, 24 bits are random.
    fn new_key(&self, path: usize) -> u64 {
        // The random bits keep a path that logs in again from using the key that is being preempted.
        let key = u64::from(self.key_prefix()) << 32 | (path as u64) << 24 | u64::from(self.random() & 0x00ff_ffff);
        // Key 0 means "not registered".
        key.max(1)
    }

    fn key_prefix(&self) -> u32 {
        simd::crc32c::crc32c(&self.config.owner)
    }

    pub(super) fn is_own_key(&self, key: u64) -> bool {
        key >> 32 == u64::from(self.key_prefix())
    }

    fn random(&self) -> u32 {
        let mut bytes = [0; 4];
        self.world.random(&mut bytes);
        u32::from_be_bytes(bytes)
    }
}

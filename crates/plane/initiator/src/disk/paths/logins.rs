//! How a path logs in: identity, reservation key, access state.
//!
//! Called by [`super::Paths`] at open and at every reconnect. It must never let a path take part that leads to another
//! unit, or whose unit another initiator has registered with.

use super::{Connected, LOGIN_LIMIT, Paths};
use crate::disk::config::{OpenError, Use};
use crate::disk::unit::{UnitFacts, access_of};
use crate::fence::{FenceError, UnitFence};
use crate::login::{Login, log_in};
use crate::page::AccessState;
use crate::session::Session;
use iscsi::pdu::Isid;
use shard::World;

impl<W: World> Paths<W> {
    /// The path is logged in, leads to the unit that was opened, and has registered a key of its own.
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

    async fn prepare(&self, path: usize, session: &Session<W>) -> Result<(u64, AccessState), OpenError> {
        let facts = UnitFacts::of(session, self.config.lun, self.lun).await?;
        let (portal, lun) = (session.portal(), self.lun);
        if !facts.is_same_unit(&facts) {
            return Err(OpenError::NoIdentity(self.config.lun));
        }
        facts.factor(self.config.block_bytes)?;
        let port_group = facts.port_group;
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
            Use::Look => {
                self.foreign.set(fence.foreign(session, |key| self.is_own_key(key)).await?);
                return Ok((0, AccessState::default()));
            }
            Use::Own { force } => force && self.keepers.get() == 0,
        };
        let key = self.register(path, session, fence, force).await?;
        let access = match port_group {
            Some(group) => access_of(session, lun, group).await?,
            None => AccessState::default(),
        };
        Ok((key, access))
    }

    /// A new key is registered for the path; zero where the unit knows none.
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
        let foreign = async || fence.foreign(session, |key| self.is_own_key(key)).await;
        if !force && let Some(key) = foreign().await? {
            return Err(FenceError::Foreign { key }.into());
        }
        let key = self.new_key(path);
        match fence.enter(session, key).await {
            // A reservation of another kind has to go first.
            Err(FenceError::Foreign { .. }) if force => {
                fence.preempt(session, key, |other| !self.is_own_key(other)).await?;
                fence.enter(session, key).await?;
            }
            entered => entered?,
        }
        // Another array may have registered at the same moment: the one that sees the other steps back.
        if !force && let Some(other) = foreign().await? {
            let _ = fence.leave(session).await;
            return Err(FenceError::Foreign { key: other }.into());
        }
        Ok(key)
    }

    fn login(&self, path: usize) -> Login {
        let config = &self.config;
        let mut seed = config.owner.to_vec();
        seed.extend_from_slice(config.target.as_str().as_bytes());
        seed.extend_from_slice(&config.lun.to_be_bytes());
        let [_, a, b, c] = simd::crc32c::crc32c(&seed).to_be_bytes();
        let qualifier = match config.usage {
            // The same one again: a login ends what an earlier session of this path had under way.
            Use::Own { .. } => path as u16,
            Use::Look => 0x8000 | (self.random() as u16 & 0x7fff),
        };
        let [high, low] = qualifier.to_be_bytes();
        let mut login = Login::new(config.portals[path], config.target.clone(), config.initiator.clone());
        // Type 10b, "random" (RFC 7143 §11.12.5).
        login.isid = Isid([0x80, a, b, c, high, low]);
        login.auth = config.auth.clone();
        login.digests = config.digests;
        login.time_limit = LOGIN_LIMIT;
        login.ping_interval = config.ping_interval;
        login
    }

    /// A key that says whose it is: 32 bits of the array, 8 of the path, 24 that are new each time.
    fn new_key(&self, path: usize) -> u64 {
        let key = u64::from(self.key_prefix()) << 32 | (path as u64) << 24 | u64::from(self.random() & 0x00ff_ffff);
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

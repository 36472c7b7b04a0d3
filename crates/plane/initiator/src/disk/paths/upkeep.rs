//! Upkeep of one path: it is logged in again after each loss, until the disk is closed; then its key is unregistered.

use super::{ACCESS_INTERVAL, Connected, Path, Paths, RECONNECT_PAUSE_MAX, RECONNECT_PAUSE_MIN};
use crate::disk::config::{DiskEvent, OpenMode};
use crate::fence::{FenceError, UnitFence};
use crate::page::AccessState;
use crate::session::Session;
use futures_util::future::{Either, select};
use shard::World;
use std::pin::pin;
use std::rc::Rc;

impl<W: World> Paths<W> {
    /// Keeps the path logged in until the disk is closed; then unregisters its key and logs out.
    pub(super) async fn keep(self: Rc<Self>, path: usize) {
        let mut pause = RECONNECT_PAUSE_MIN;
        while !self.is_closed.get() {
            let session = self.entries.borrow()[path].session.clone();
            match session {
                Some(session) => {
                    // The login succeeded: the next loss starts with a short pause again.
                    pause = RECONNECT_PAUSE_MIN;
                    self.watch(path, &session).await;
                }
                None => {
                    let connecting = pin!(self.connect(path));
                    // A login in progress must not delay a close.
                    match select(connecting, pin!(self.changed.until(|| self.is_closed.get()))).await {
                        Either::Left((Ok(connected), _)) => self.restore(path, connected),
                        Either::Left((Err(error), _)) => {
                            self.note_reason(path, &error.to_string());
                            let closed = pin!(self.changed.until(|| self.is_closed.get()));
                            select(closed, self.world.sleep(pause)).await;
                            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
                        }
                        Either::Right(_) => {}
                    }
                }
            }
        }
        self.leave(path).await;
        assert!(self.path_tasks.get() > 0, "each path has one keeper");
        self.path_tasks.set(self.path_tasks.get() - 1);
        self.changed.raise();
    }

    fn restore(self: &Rc<Self>, path: usize, connected: Connected<W>) {
        let (portal, key) = (self.config.portals[path], connected.key);
        self.install(path, connected);
        (self.config.events)(DiskEvent::PathRestored { portal, key });
    }

    /// Waits until the session has ended, the disk is closed, or the access state was read again.
    async fn watch(self: &Rc<Self>, path: usize, session: &Session<W>) {
        let ended = pin!(session.until_ended());
        let closed = pin!(self.changed.until(|| self.is_closed.get()));
        let over = select(ended, closed);
        if let Either::Right(_) = select(over, self.world.sleep(ACCESS_INTERVAL)).await
            && session.ended().is_none()
            && self.entries.borrow()[path].access != AccessState::Optimized
        {
            self.refresh_access(path, session).await;
        }
        self.collect_ended();
    }

    pub(super) async fn leave(&self, path: usize) {
        let (session, key) = {
            let entry = &mut self.entries.borrow_mut()[path];
            // Both at once: without its key the path does not count as one that is down in `unregister`.
            (entry.session.take(), std::mem::take(&mut entry.key))
        };
        let Some(session) = session.filter(|session| session.ended().is_none()) else {
            // The session has ended: another path removes the key with its own.
            self.entries.borrow_mut()[path].key = key;
            return;
        };
        if let (OpenMode::ReadWrite { .. }, Some(fence)) = (self.config.usage, self.fence.get())
            && let Err(error) = self.unregister(&session, *fence, key).await
        {
            tracing::info!(target = %self.config.address(), %error, "a key stays registered");
        }
        session.close().await;
    }

    /// Unregisters the key of the path, and the keys of paths that are down.
    async fn unregister(&self, session: &Session<W>, fence: UnitFence, key: u64) -> Result<(), FenceError> {
        let is_down = |entry: &&Path<W>| entry.session.is_none() && entry.key != 0;
        let down: Vec<u64> = self.entries.borrow().iter().filter(is_down).map(|entry| entry.key).collect();
        // A path that is down cannot unregister its own key.
        if !down.is_empty() {
            fence.preempt(session, key, |other| down.contains(&other)).await?;
        }
        fence.unregister(session, key).await
    }
}

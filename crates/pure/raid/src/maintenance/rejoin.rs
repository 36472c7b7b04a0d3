//! Return of a member whose content is unchanged since it left.

use crate::array::Array;
use crate::bug_injection::{self, InjectedBug};
use crate::error::{Rejected, RejoinError};
use crate::members::{MemberState, admit};
use crate::redo::anchors::newest_on;
use block::BlockDevice;
use std::ops::Range;

impl<D: BlockDevice + 'static> Array<D> {
    /// Stripes that members out of service have missed, in ascending order; empty for a plain array.
    #[must_use]
    pub fn missed(&self) -> Vec<Range<u64>> {
        let path = self.path();
        path.protected().map(|array| array.log.state.missed.stripes(&array.layout)).unwrap_or_default()
    }

    /// Puts `device`, the returned `member`, into its place, and returns the stripes that it has missed, for
    /// [`Array::rebuild`]. All other stripes are read from it at once.
    ///
    /// *Errors*: see [`RejoinError`].
    pub async fn rejoin(&self, member: u16, device: D) -> Result<Vec<Range<u64>>, RejoinError> {
        let path = self.path();
        let (Some(protected), Some(place)) = (path.protected(), path.members().find(member)) else {
            return Err(RejoinError::NoSuchMember(member));
        };
        if path.is_reshaping() {
            return Err(RejoinError::Reshaping);
        }
        // Nothing is written to the device before it is accepted.
        admit(path.member_blocks(), member, &device.geometry())?;
        let found = newest_on(&device).await.map_err(RejoinError::NotTheOne)?;
        let own = protected.log.state.anchor.borrow().clone();
        match found {
            found if found.id != own.id => return Err(RejoinError::NotTheOne(Rejected::OtherArray)),
            // The array has grown or been reshaped without it.
            found if (found.shape, found.sizes) != (own.shape, own.sizes) => {
                return Err(RejoinError::NotTheOne(Rejected::Stale));
            }
            found if found.member != member => {
                return Err(RejoinError::NotTheOne(Rejected::OtherMember(found.member)));
            }
            found => {
                let (epoch, number) = own.last_anchor[usize::from(member)];
                // The last anchor may or may not have reached it when it left.
                let is_as_it_left = found.epoch <= epoch && found.number.abs_diff(number) <= 1;
                if !is_as_it_left && !bug_injection::is_injected(InjectedBug::StaleMember) {
                    return Err(RejoinError::NotTheOne(Rejected::Stale));
                }
            }
        }
        // Judged after the reads of the device: the place may have another one by now.
        match place.state() {
            MemberState::InService | MemberState::Rebuilding { .. } => return Err(RejoinError::InUse(member)),
            MemberState::Failed | MemberState::Missing => {}
        }
        let missed = protected.log.state.missed.stripes(&protected.layout);
        place.rejoin(device, &missed);
        Ok(missed)
    }
}

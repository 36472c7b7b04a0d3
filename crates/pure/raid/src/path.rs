//! Dispatch of commands to the plain, protected or reshaping implementation of an array.

use crate::geometry::Layout;
use crate::members::Members;
use crate::plain::Plain;
use crate::protected::Protected;
use crate::reshaping::Reshaping;
use crate::stripes::Stripes;
use block::{BlockDevice, Blocks};
use shard::{Detached, RangeGuard};
use std::cell::RefCell;
use std::rc::Rc;

/// Implementation that serves the commands of an array. A command keeps the one that it started with.
pub(crate) enum Path<D> {
    Plain(Rc<Plain<D>>),
    Protected(Rc<Protected<D>>),
    /// Splits commands at the reshape position. Boxed, because only then a command consists of two.
    Reshaping(Rc<Reshaping<D>>),
}

/// The path that new commands take; growth and reshape replace it.
pub(crate) type Current<D> = Rc<RefCell<Path<D>>>;

/// Runs a command on whichever array the path leads to: the only match on the path for commands.
///
/// A macro and not a function: every level of futures within futures costs compile time and run time.
macro_rules! on_path {
    ($path:expr, $array:ident => $command:expr) => {
        match $path {
            Path::Plain($array) => $command.await,
            Path::Protected($array) => $command.await,
            Path::Reshaping($array) => Box::pin($command).await,
        }
    };
}
pub(crate) use on_path;

impl<D> Clone for Path<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Plain(array) => Self::Plain(array.clone()),
            Self::Protected(array) => Self::Protected(array.clone()),
            Self::Reshaping(array) => Self::Reshaping(array.clone()),
        }
    }
}

impl<D: BlockDevice + 'static> Path<D> {
    /// The stripes in the current layout, during a reshape in the new one.
    pub(crate) fn stripes(&self) -> &Rc<Stripes<D>> {
        match self {
            Self::Plain(array) => &array.stripes,
            Self::Protected(array) => &array.stripes,
            Self::Reshaping(array) => &array.new.stripes,
        }
    }

    pub(crate) fn members(&self) -> &Rc<Members<D>> {
        &self.stripes().members
    }

    pub(crate) fn background(&self) -> &Rc<Detached> {
        &self.stripes().background
    }

    /// The protected array, during a reshape in its new layout; `None` for a plain array.
    pub(crate) fn protected(&self) -> Option<&Rc<Protected<D>>> {
        match self {
            Self::Plain(_) => None,
            Self::Protected(array) => Some(array),
            Self::Reshaping(array) => Some(&array.new),
        }
    }

    pub(crate) fn reshaping(&self) -> Option<&Rc<Reshaping<D>>> {
        if let Self::Reshaping(array) = self { Some(array) } else { None }
    }

    /// Layout that hosts see: during a reshape the old one.
    pub(crate) fn served(&self) -> Layout {
        // The new size is announced only when the reshape has finished.
        self.reshaping().map_or(self.stripes().layout, |array| array.old.layout)
    }

    /// True while members may neither be added, replaced nor copied, because the array changes its shape.
    pub(crate) fn is_reshaping(&self) -> bool {
        self.reshaping().is_some() || self.protected().is_some_and(|array| array.commands.growing.get())
    }

    /// Blocks that the array needs of each member.
    pub(crate) fn member_blocks(&self) -> Blocks {
        let of_layout = self.stripes().layout.member_blocks();
        // Pages and log take space beside the stripes, which only the segments count.
        self.protected().map_or(of_layout, |array| array.checksums.pages.segments.member_blocks())
    }

    /// Prevents a reshape from moving blocks until the guard is dropped; `None` without a reshape.
    pub(crate) async fn pause_moves(&self) -> Option<RangeGuard> {
        match self.reshaping() {
            Some(array) => Some(array.pause_moves().await),
            None => None,
        }
    }
}

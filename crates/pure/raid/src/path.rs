//! How an array serves its commands: as a plain array, a protected one, or one that is being reshaped.

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

/// The way that commands take. They keep the one that they began with.
pub(crate) enum Path<D> {
    Plain(Rc<Plain<D>>),
    Protected(Rc<Protected<D>>),
    /// Commands are cut where the layouts meet, and boxed: only then a command is two.
    Reshaping(Rc<Reshaping<D>>),
}

/// The path that commands begin with; growth and reshape exchange it.
pub(crate) type Current<D> = Rc<RefCell<Path<D>>>;

/// What the command gives, of whichever array the path leads to: the only match on the path for commands.
///
/// No function, for each level of futures within futures costs the compiler and the command.
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
    /// The stripes, as they are or will be laid out.
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

    /// The array with checksums and log, as it is or will be laid out; none where it is plain.
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

    /// The layout that hosts see: while the array is reshaped, the one that it had.
    pub(crate) fn served(&self) -> Layout {
        self.reshaping().map_or(self.stripes().layout, |array| array.old.layout)
    }

    /// True while members may not come and go, for the array takes another shape.
    pub(crate) fn is_reshaping(&self) -> bool {
        self.reshaping().is_some() || self.protected().is_some_and(|array| array.commands.growing.get())
    }

    /// Blocks that the array needs of each member.
    pub(crate) fn member_blocks(&self) -> Blocks {
        let of_layout = self.stripes().layout.member_blocks();
        self.protected().map_or(of_layout, |array| array.checksums.pages.segments.member_blocks())
    }

    /// Nothing is moved as long as the result lives.
    pub(crate) async fn hold_still(&self) -> Option<RangeGuard> {
        match self.reshaping() {
            Some(array) => Some(array.hold_still().await),
            None => None,
        }
    }
}

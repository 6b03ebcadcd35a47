//! No companion: feature `tokio-compat` is off.

use std::{convert::Infallible, io, marker::PhantomData, sync::Arc, time::Instant};

use crate::engine::shared::Shared;

/// Nothing.
#[derive(Debug)]
pub(crate) struct Companion;

/// A guard that does not exist.
#[derive(Debug)]
pub(crate) struct EnteredCompanion<'a>(Infallible, PhantomData<&'a ()>);

/// The methods do what they do for a runtime without a companion.
impl Companion {
    pub(crate) fn new(_is_everywhere: bool) -> Self {
        Self
    }

    pub(crate) fn start_if_enabled(&self, _shared: &Arc<Shared>) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    pub(crate) fn enter_if_enabled(&self) -> Option<EnteredCompanion<'_>> {
        None
    }

    #[inline]
    pub(crate) fn with_budget<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "facade")]
        return crate::util::budget_hooks::with_budget(f);
        #[cfg(not(feature = "facade"))]
        f()
    }

    pub(crate) fn is_of_this_thread(&self) -> bool {
        false
    }

    pub(crate) fn end_after(&self, _shared: &Arc<Shared>) {}

    pub(crate) fn wait_for_end(&self, _deadline: Option<Instant>) -> bool {
        true
    }

    #[inline]
    pub(crate) fn pause_by(&self, pause: impl FnOnce()) {
        pause();
    }
}

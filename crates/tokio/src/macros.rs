//! What the output of tokio's macros names.

/// The same, by tokio's path.
pub mod support {
    pub use real::macros::support::*;
    #[cfg(all(tokio_unstable, feature = "macros"))]
    pub use real::select as __real_select;

    #[cfg(all(tokio_unstable, feature = "macros"))]
    pub use crate::rng::thread_rng_n;
}

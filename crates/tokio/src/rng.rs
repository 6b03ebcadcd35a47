//! The numbers by which `select!` begins at one of its branches, with a seed of the runtime's.
//!
//! The real tokio's `select!` takes them from a generator that only a runtime of the real tokio
//! seeds. So with `--cfg tokio_unstable`, `select!` is that of tokio but for this number.

use std::{
    cell::Cell,
    hash::{DefaultHasher, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tourbillon::facade::AroundPolls;

/// A seed of the random numbers of a runtime. The numbers are not those of tokio with this seed.
#[derive(Clone, Debug)]
pub struct RngSeed(u64);

impl RngSeed {
    /// Makes a seed of bytes, always the same of the same ones.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        // This hasher begins with the same state each time.
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        Self(hasher.finish())
    }
}

thread_local! {
    /// The generator of this thread, if it is in a runtime with a seed.
    static GENERATOR: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Gives each worker and each `block_on` a generator, with a seed of its own, in the order in which
/// they begin.
pub(crate) fn seeded(seed: &RngSeed) -> AroundPolls {
    struct Reset(Option<u64>);
    impl Drop for Reset {
        fn drop(&mut self) {
            GENERATOR.set(self.0);
        }
    }
    let seeds = AtomicU64::new(seed.0);
    std::sync::Arc::new(move |polls| {
        let seed = mixed(seeds.fetch_add(STEP, Relaxed));
        let _reset = Reset(GENERATOR.replace(Some(seed)));
        polls();
    })
}

/// Returns a number below `n`.
#[cfg(feature = "macros")]
pub fn thread_rng_n(n: u32) -> u32 {
    let Some(state) = GENERATOR.get() else {
        return real::macros::support::thread_rng_n(n);
    };
    GENERATOR.set(Some(state.wrapping_add(STEP)));
    // The upper half of the product is below `n`.
    (((mixed(state) >> 32) * u64::from(n)) >> 32) as u32
}

/// The step of a generator's state: SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// tokio's `select!`, whose first branch is decided by the runtime's seed, if it has one.
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! select {
    (else $($t:tt)*) => {
        $crate::macros::support::__real_select!(else $($t)*)
    };
    (biased; $($t:tt)*) => {
        $crate::macros::support::__real_select!(biased; $($t)*)
    };
    ($p:pat = $($t:tt)*) => {
        $crate::macros::support::__real_select!(
            @{ start={ $crate::macros::support::thread_rng_n(BRANCHES) }; () } $p = $($t)*
        )
    };
    () => {
        $crate::macros::support::__real_select!()
    };
}

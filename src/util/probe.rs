//! Probes that a tracer attaches to while the program runs (USDT). Without the feature `probes`,
//! they are nothing.
//!
//! `docs/reference/probes.md` lists them. Each is one instruction that does nothing, and a note in
//! the program's file that says where it is and which registers hold its arguments. No thread
//! waits, and no memory is read, so a probe may stand anywhere.

/// Marks a place for tracers, with up to six integers.
macro_rules! probe {
    ($name:ident, $($arg:expr),+ $(,)?) => {{
        // Miri runs no assembly.
        #[cfg(all(feature = "probes", not(miri)))]
        {
            ::probe::probe!(tourbillon, $name, $($arg as u64),+);
        }
        #[cfg(not(all(feature = "probes", not(miri))))]
        {
            // The arguments are compiled, and not computed.
            let _ = || {
                $(_ = $arg;)+
            };
        }
    }};
}

pub(crate) use probe;

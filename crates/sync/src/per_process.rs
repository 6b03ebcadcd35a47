//! Statics of which each process has its own.

/// Declares a `static` whose value begins with a constant.
///
/// That is all, but for simulations: there, several processes share the memory of one, and each of
/// them has a value of its own. So what is declared by this macro must be used by its methods and
/// by references alone.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// tourbillon_sync::per_process! {
///     /// The number of calls.
///     static CALLS: AtomicU64 = AtomicU64::new(0);
/// }
/// CALLS.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(CALLS.load(Ordering::Relaxed), 1);
/// ```
#[macro_export]
macro_rules! per_process {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(tourbillon_sim))]
        $(#[$meta])*
        static $name: $type = $value;
        #[cfg(tourbillon_sim)]
        $(#[$meta])*
        static $name: $crate::sim::PerProcess<$type> =
            $crate::sim::PerProcess::new($value, || $value);
    };
}

//! The attributes of [Tourbillon](https://docs.rs/tourbillon): `#[tourbillon::main]` and
//! `#[tourbillon::test]`.
//!
//! Use them through `tourbillon`, with its feature `macros`.

mod expand;
mod options;

use proc_macro::TokenStream;

/// Runs an `async fn main` on a [`Runtime`] that is built for it, by its `block_on`.
///
/// ```
/// use std::time::Duration;
///
/// #[tourbillon::main(worker_threads = 2)]
/// async fn main() -> std::io::Result<()> {
///     tourbillon::time::sleep(Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
///
/// The runtime is dropped, and waits for its workers, before the function returns. Without options it is
/// what `Runtime::new()` makes.
///
/// # Options
///
/// | option | value | |
/// |---|---|---|
/// | `worker_threads` | a number from 1 on | how many workers there are |
/// | `start_paused` | `true` or `false` | whether the clock is paused from the start |
/// | `flavor` | `"multi_thread"` | there is no other; for those who come from tokio |
/// | `crate` | a path in quotes | where `tourbillon` is, if it goes by another name |
///
/// # Errors
///
/// It does not compile if the function is not `async`, has arguments or is generic, or if an option is
/// unknown, of the wrong type, or given twice.
///
/// ```compile_fail
/// #[tourbillon::main]
/// fn main() {}
/// ```
///
/// ```compile_fail
/// #[tourbillon::main]
/// async fn main(args: Vec<String>) {}
/// ```
///
/// ```compile_fail
/// #[tourbillon::main(flavor = "current_thread")]
/// async fn main() {}
/// ```
///
/// # Panics
///
/// The function panics if the runtime cannot be built.
///
/// [`Runtime`]: https://docs.rs/tourbillon/latest/tourbillon/runtime/struct.Runtime.html
#[proc_macro_attribute]
pub fn main(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(expand::Attribute::Main, options.into(), function.into()).into()
}

/// Makes a test of an `async fn`, which runs on a [`Runtime`] of its own, by its `block_on`.
///
/// The options are those of [`macro@main`]. Without any there is one worker; and it is not pinned, for
/// tests run side by side.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, sleep};
///
/// #[tourbillon::test(start_paused = true)]
/// async fn a_day_passes() {
///     let start = Instant::now();
///     sleep(Duration::from_secs(86_400)).await;
///     assert_eq!(start.elapsed(), Duration::from_secs(86_400));
/// }
/// ```
///
/// Attributes such as `#[ignore]` and `#[should_panic]` go beside it, and a test may return a
/// `Result`. A clock that is paused is explained at `tourbillon::time::pause`.
///
/// # Errors
///
/// It does not compile for the reasons for which [`macro@main`] does not, and if the function is marked
/// as a test already.
///
/// ```compile_fail
/// #[tourbillon::test(worker_threads = "two")]
/// async fn works() {}
/// ```
///
/// # Panics
///
/// The test fails if the runtime cannot be built.
///
/// [`Runtime`]: https://docs.rs/tourbillon/latest/tourbillon/runtime/struct.Runtime.html
#[proc_macro_attribute]
pub fn test(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::expand(expand::Attribute::Test, options.into(), function.into()).into()
}

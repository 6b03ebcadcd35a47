//! Attribute macros of [Tourbillon](https://docs.rs/tourbillon): `#[tourbillon::main]` and
//! `#[tourbillon::test]`.
//!
//! Use them through `tourbillon`, with its feature `macros`.

mod expand;
mod options;
mod sim;

use proc_macro::TokenStream;

/// Builds a [`Runtime`] and runs an `async fn` on it, by `block_on`: `main`, or any other function.
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
/// Before the function returns, it drops the runtime, which waits for its workers. Without options
/// the runtime is that of `Runtime::new()`.
///
/// A function other than `main` may have arguments, also `self`, and generics. Each call builds a
/// runtime.
///
/// ```
/// struct Doubler(u32);
///
/// impl Doubler {
///     #[tourbillon::main(worker_threads = 1)]
///     async fn run<T: Into<u32>>(&self, number: T) -> u32 {
///         tourbillon::task::yield_now().await;
///         self.0 * number.into()
///     }
/// }
///
/// assert_eq!(Doubler(2).run(21_u8), 42);
/// ```
///
/// # Options
///
/// | option | value | meaning |
/// |---|---|---|
/// | `worker_threads` | a number from 1 | number of workers; an error with `"current_thread"` |
/// | `start_paused` | `true` or `false` | whether the clock is paused at the start |
/// | `name` | a text in quotes | name of the runtime |
/// | `flavor` | `"multi_thread"` or `"current_thread"` | the second has no threads of its own |
/// | `crate` | a path in quotes | path to `tourbillon`, if it has another name |
///
/// # Errors
///
/// A compile error is reported if the function is not `async`, or is `main` and has arguments or
/// generics, or if an option is unknown, has the wrong type or is given twice.
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
/// #[tourbillon::main(flavor = "local")]
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

/// Turns an `async fn` into a test, which runs on its own [`Runtime`], by `block_on`.
///
/// The options are those of [`macro@main`]. By default there is one worker. Workers are not pinned
/// to cores, because tests run in parallel.
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
/// It can be combined with attributes such as `#[ignore]` and `#[should_panic]`. The function may
/// have arguments if another attribute supplies them, as `rstest`'s does. A test may return a
/// `Result`. `tourbillon::time::pause` explains the paused clock.
///
/// # Errors
///
/// A compile error is reported in the cases of [`macro@main`], and if the function already is a
/// test.
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

/// Turns a function into a test that runs under many seeds. Use it as `tourbillon_sim::test`.
///
/// An `async fn` without arguments is the program of the only host. A function with the argument
/// `&mut Simulation` describes the hosts itself.
///
/// ```ignore
/// #[tourbillon_sim::test(seeds = 1_000, workers = 2)]
/// async fn two_tasks_count() {
///     // ...
/// }
///
/// #[tourbillon_sim::test]
/// fn a_client_reads_what_it_wrote(sim: &mut tourbillon_sim::Simulation) {
///     sim.host("server", || async { /* ... */ });
///     sim.client("client", || async { /* ... */ });
/// }
/// ```
///
/// # Options
///
/// | option | value | meaning |
/// |---|---|---|
/// | `seeds` | a number from 1, at first 200 | how many seeds run |
/// | `seconds` | a number from 1, at first 60 | no seed begins later than that |
/// | `workers` | a number from 1, at first 2 | number of workers of each host |
/// | `crate` | a path in quotes | path to `tourbillon_sim`, if it has another name |
///
/// # Errors
///
/// A compile error is reported if the function has other arguments or is generic, or if an option is
/// unknown, has the wrong type or is given twice.
///
/// # Panics
///
/// The test fails if a seed fails, or if a seed that runs twice goes two ways.
#[proc_macro_attribute]
pub fn sim_test(options: TokenStream, function: TokenStream) -> TokenStream {
    sim::expand(options.into(), function.into()).into()
}

//! Assertions over one seed, and over all of them.

use crate::world::with;

/// Fails the seed if the condition does not hold.
///
/// It is `assert!`, but the program cannot catch the failure, and it does not unwind.
///
/// ```
/// # #[cfg(tourbillon_sim)]
/// # async fn example(leaders: u32) {
/// tourbillon_sim::assert_always!(leaders <= 1, "{leaders} hosts lead");
/// # }
/// ```
#[macro_export]
macro_rules! assert_always {
    ($condition:expr $(,)?) => {
        $crate::assert_always!($condition, "{}", ::core::stringify!($condition))
    };
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            $crate::fail(&::std::format!(
                "{}:{}: {}",
                ::core::file!(),
                ::core::line!(),
                ::core::format_args!($($why)+),
            ));
        }
    };
}

/// Says that the condition should hold in some seed, each time that it is reached.
///
/// After all seeds, a test fails that reached such a place and in which the condition never held.
/// Then the test does not try what its author thinks: the fault never comes, or comes too late. A
/// test that passes tells of each condition in how many seeds it held.
///
/// A place that no seed reaches is not known, so a test passes without it. Put the macro where each
/// run comes by, such as the end of a client's program, and have the condition ask what happened
/// before.
///
/// ```
/// # #[cfg(tourbillon_sim)]
/// # async fn example(retries: u32) {
/// tourbillon_sim::assert_sometimes!(retries > 0, "a request is sent again");
/// # }
/// ```
#[macro_export]
macro_rules! assert_sometimes {
    ($condition:expr, $what:literal $(,)?) => {
        $crate::sometimes($what, $condition)
    };
}

/// Notes for [`assert_sometimes!`] whether a condition holds.
#[doc(hidden)]
pub fn sometimes(what: &'static str, holds: bool) {
    with(|world| {
        let mut state = world.lock();
        *state.sometimes.entry(what).or_default() += u64::from(holds);
    });
}

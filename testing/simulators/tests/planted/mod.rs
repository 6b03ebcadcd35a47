//! What the tests of all simulations share: a program with a bug, and the search for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, set_hook},
    time::Instant,
};

/// A program, what its failure says, and whether the simulation finds it.
pub struct Planted<D> {
    pub name: &'static str,
    pub describe: fn(&mut D),
    pub why: &'static str,
    pub is_found: bool,
}

macro_rules! planted {
    ($program:ident, $why:literal, $is_found:literal) => {
        Planted {
            name: stringify!($program),
            describe: programs::$program,
            why: $why,
            is_found: $is_found,
        }
    };
}
pub(crate) use planted;

/// Returns what the panic of `run` says, if it panics.
pub fn panic_of<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| match panic.downcast::<String>() {
        Ok(why) => *why,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or("?".into(), |it| (*it).into()),
    })
}

/// Checks that the simulation finds the bugs that it is said to find. `first_failure` returns the
/// first seed that fails, and what its failure says.
pub fn check<D>(all: &[Planted<D>], first_failure: impl Fn(fn(&mut D)) -> Option<(u64, String)>) {
    set_hook(Box::new(|_| {}));
    let mut wrong = Vec::new();
    for planted in all {
        let begin = Instant::now();
        let failure = first_failure(planted.describe);
        println!("{}: {failure:?} in {:?}", planted.name, begin.elapsed());
        let is_found = failure.is_some();
        let is_meant = failure.is_none_or(|(_, why)| why.contains(planted.why));
        if is_found != planted.is_found || !is_meant {
            wrong.push(planted.name);
        }
    }
    assert_eq!(wrong, [""; 0], "these were not as said");
}

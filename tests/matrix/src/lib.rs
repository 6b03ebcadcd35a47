//! The machinery of `tests/matrix/main.rs`: the servers that it needs, the two runtimes, and the
//! table.

mod case;
mod panics;
mod runtimes;
mod servers;
mod table;

pub use case::{Case, Expected};
pub use servers::{Addresses, Program};
pub use table::run;

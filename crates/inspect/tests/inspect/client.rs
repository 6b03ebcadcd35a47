//! A runtime whose live page is served.

use tourbillon::Handle;
use tourbillon_inspect::{Builder, Inspector};

use crate::common::net::ANY_PORT;
pub use crate::web::page::{
    Events, get, is_refused, listeners, request, snapshot, wait_for_listeners,
};

/// Serves the page of a runtime.
pub fn inspect(handle: &Handle) -> Inspector {
    inspect_with(handle, |builder| builder)
}

/// Serves the page of a runtime, with options.
pub fn inspect_with(handle: &Handle, options: impl FnOnce(Builder) -> Builder) -> Inspector {
    let builder = Inspector::builder(handle);
    options(builder).serve(ANY_PORT).unwrap()
}

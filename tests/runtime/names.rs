//! Names and numbers of runtimes, and tokio's names of builders.

use std::thread;

use crate::common::{alarm, on_worker, runtime};
use tourbillon::{BuildError, Handle, runtime::Builder};

#[test]
fn each_runtime_has_a_number_of_its_own() {
    let _alarm = alarm();
    let (one, other) = (runtime(1), runtime(2));
    let id = one.handle().id();
    assert_ne!(id, other.handle().id());
    assert_eq!(one.handle().clone().id(), id);
    assert_eq!(on_worker(&one, || Handle::current().id()), id);
    let handle = one.handle().clone();
    drop(one);
    assert_eq!(handle.id(), id, "also after its end");
    assert!(id.to_string().parse::<u64>().unwrap() > 0);
}

#[test]
fn a_runtime_can_have_a_name() {
    let _alarm = alarm();
    assert_eq!(runtime(1).handle().name(), None);
    let runtime = Builder::new().worker_threads(1).name("api").build();
    let runtime = runtime.unwrap();
    assert_eq!(runtime.name(), Some("api"));
    let (name, thread) = on_worker(&runtime, || {
        let name = Handle::current().name().map(str::to_owned);
        (name, thread::current().name().map(str::to_owned))
    });
    assert_eq!(name.as_deref(), Some("api"));
    // As in tokio, threads have names of their own.
    assert_eq!(thread.as_deref(), Some("tourbillon-0"));
}

#[test]
fn an_empty_name_is_an_error() {
    for name in ["", " ", "\t\n"] {
        let error = Builder::new().name(name).build().unwrap_err();
        assert!(matches!(error, BuildError::EmptyName));
        assert_eq!(error.to_string(), "the name of the runtime is empty");
        let tokios = std::panic::catch_unwind(|| {
            tokio::runtime::Builder::new_multi_thread().name(name);
        });
        assert!(tokios.is_err());
    }
}

#[test]
fn lines_of_tokios_builder_compile() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .enable_time()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(runtime.metrics().num_workers(), 2);
}

//! Names and numbers of runtimes, and tokio's names of builders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::common::{alarm, eventually, on_worker, runtime};
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

#[test]
fn one_builder_builds_several_runtimes() {
    let _alarm = alarm();
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let mut builder = Builder::new();
    builder.name("first").thread_name("of both");
    builder.on_thread_start(move || _ = count.fetch_add(1, SeqCst));
    // A builder whose build fails keeps its options, too.
    builder.worker_threads(0).build().unwrap_err();
    builder.worker_threads(1);
    let first = builder.build().unwrap();
    let second = builder.name("second").worker_threads(2).build().unwrap();
    for (runtime, name, workers) in [(&first, "first", 1), (&second, "second", 2)] {
        assert_eq!(runtime.name(), Some(name));
        assert_eq!(runtime.metrics().num_workers(), workers);
    }
    eventually("both call the hook", || started.load(SeqCst) == 3);
    // They share nothing else.
    drop(first);
    let name = on_worker(&second, || thread::current().name().map(str::to_owned));
    assert_eq!(name.as_deref(), Some("of both"));
}

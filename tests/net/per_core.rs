//! A listener for each worker: which worker is woken, how the kernel spreads connections, and what
//! happens when a worker is blocked, a socket cannot be made, or the runtime ends.

use std::{
    collections::HashSet,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use core_affinity::CoreId;
use tourbillon::{
    Runtime, Timer,
    net::{PerCoreListeners, TcpListener, TcpStream, tcp::PerCoreError},
    runtime::Builder,
    time::timeout,
};

use crate::common::{
    Gate, PATIENCE, alarm,
    blocked::{Blocked, REST},
    eventually,
    freed::{any_port_of_its_own, until_ok},
    net::ANY_PORT,
    runtime,
    told::worker_number,
};

/// The number of connections in a test. With two listeners, the hash gives none of them to a
/// certain listener with a probability of 2^-64.
const MANY: usize = 64;

/// An accepted connection: the index of its listener, and the worker that accepted it.
type Accepted = (usize, Option<usize>);

/// Spawns an accept loop for each listener. Returns a receiver of the accepted connections.
fn serve(runtime: &Runtime, listeners: PerCoreListeners) -> mpsc::Receiver<Accepted> {
    let (sender, accepted) = mpsc::channel();
    let started = Arc::new(AtomicUsize::new(0));
    let count = listeners.len();
    for (index, listener) in listeners.into_iter().enumerate() {
        let (sender, started) = (sender.clone(), started.clone());
        runtime.spawn(async move {
            started.fetch_add(1, SeqCst);
            // Keep the streams open: the port of a closed connection might be used again.
            let mut streams = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                streams.push(stream);
                let _ = sender.send((index, worker_number()));
            }
        });
    }
    eventually("all loops have begun", || started.load(SeqCst) == count);
    accepted
}

fn bind(runtime: &Runtime) -> (PerCoreListeners, SocketAddr) {
    let listeners = runtime
        .block_on(TcpListener::bind_per_core(ANY_PORT))
        .unwrap();
    let addr = listeners.local_addr().unwrap();
    (listeners, addr)
}

fn connect(addr: SocketAddr, count: usize) -> Vec<StdStream> {
    let connect = |_| StdStream::connect_timeout(&addr, PATIENCE).unwrap();
    (0..count).map(connect).collect()
}

fn receive(accepted: &mpsc::Receiver<Accepted>, count: usize) -> Vec<Accepted> {
    let receive = |_| accepted.recv_timeout(PATIENCE).expect("all are accepted");
    (0..count).map(receive).collect()
}

#[test]
fn each_worker_has_a_listener_at_the_shared_port() {
    let _alarm = alarm();
    for workers in [1, 2, 5] {
        let runtime = runtime(workers);
        let (listeners, addr) = bind(&runtime);
        assert_eq!(listeners.len(), workers);
        assert_ne!(addr.port(), 0);
        for listener in &listeners {
            assert_eq!(listener.local_addr().unwrap(), addr);
        }
        // The same user may bind more listeners at the same port.
        let more = runtime.block_on(TcpListener::bind_per_core(addr)).unwrap();
        assert_eq!(more.local_addr().unwrap(), addr);
    }
}

#[test]
fn connections_are_spread_over_all_listeners_and_none_is_lost() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (listeners, addr) = bind(&runtime);
    let accepted = serve(&runtime, listeners);
    let _clients = connect(addr, MANY);
    let accepted = receive(&accepted, MANY);
    let of: HashSet<_> = accepted.iter().map(|(listener, _)| *listener).collect();
    assert_eq!(of.len(), 2, "{accepted:?}");
}

/// With rescue turned off, a blocked worker delays the connections of its own listener, and no
/// others.
#[test]
fn each_worker_watches_its_own_listener() {
    let _alarm = alarm();
    for worker in 0..2 {
        let runtime = Builder::new()
            .worker_threads(2)
            .rescue_latency(Duration::MAX)
            .build()
            .unwrap();
        let (listeners, addr) = bind(&runtime);
        let accepted = serve(&runtime, listeners);
        let gate = Gate::new();
        let (sender, blocked) = mpsc::channel();
        let wait = gate.clone();
        let timer = Timer::after(Duration::ZERO).on(runtime.handle());
        timer.on_worker(worker).start(move || {
            let _ = sender.send(worker_number());
            wait.wait();
        });
        // A peer may have stolen the callback, so the callback reports which worker it blocks.
        let blocked = blocked.recv_timeout(PATIENCE).unwrap().unwrap();
        let _clients = connect(addr, MANY);
        let mut all = receive(&accepted, 1);
        thread::sleep(REST);
        all.extend(accepted.try_iter());
        assert!(all.iter().all(|it| it.0 != blocked), "{all:?}");
        gate.open();
        let rest = receive(&accepted, MANY - all.len());
        assert!(rest.iter().any(|it| it.0 == blocked), "{rest:?}");
    }
}

#[test]
fn connections_of_a_blocked_worker_are_accepted_while_it_is_blocked() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (listeners, addr) = bind(&runtime);
    let accepted = serve(&runtime, listeners);
    let blocked = Blocked::some(runtime.handle());
    let _clients = connect(addr, MANY);
    let accepted = receive(&accepted, MANY);
    let to_it = accepted.iter().filter(|it| it.0 == blocked.worker).count();
    assert!(to_it > 0, "the kernel gave it some");
    assert!(
        accepted.iter().all(|it| it.1 != Some(blocked.worker)),
        "it was blocked"
    );
}

/// Returns two cores that this process may use, or one core twice.
fn two_cores() -> [usize; 2] {
    let cores = core_affinity::get_core_ids().unwrap();
    [cores[0].id, cores[cores.len() - 1].id]
}

/// Connects from a thread that is pinned to `core`. The loopback interface handles packets on the
/// core that sends them.
fn connect_on(core: usize, addr: SocketAddr, count: usize) -> Vec<StdStream> {
    let client = thread::spawn(move || {
        assert!(core_affinity::set_for_current(CoreId { id: core }));
        connect(addr, count)
    });
    client.join().unwrap()
}

#[test]
fn connections_are_steered_to_the_worker_on_their_core() {
    let _alarm = alarm();
    let [first, last] = two_cores();
    // The cores are in ascending order, in descending order, and one core is named twice.
    for cores in [
        vec![first, last],
        vec![last, first],
        vec![last, last, first],
    ] {
        let runtime = Builder::new().cores(cores.clone()).build().unwrap();
        let (listeners, addr) = bind(&runtime);
        listeners.steer_by_cpu().unwrap();
        let accepted = serve(&runtime, listeners);
        for core in [first, last, first] {
            let _clients = connect_on(core, addr, 20);
            let worker = cores.iter().position(|&it| it == core).unwrap();
            for (listener, _) in receive(&accepted, 20) {
                assert_eq!(listener, worker, "core {core} of {cores:?}");
            }
        }
    }
}

#[test]
fn connections_from_a_core_without_a_worker_are_accepted() {
    let _alarm = alarm();
    let [first, last] = two_cores();
    for core in [first, last] {
        let runtime = Builder::new().cores([core]).build().unwrap();
        let (listeners, addr) = bind(&runtime);
        listeners.steer_by_cpu().unwrap();
        let accepted = serve(&runtime, listeners);
        let _clients = [connect_on(first, addr, 5), connect_on(last, addr, 5)];
        receive(&accepted, 10);
    }
}

fn inner(error: &std::io::Error) -> Option<&PerCoreError> {
    error.get_ref()?.downcast_ref()
}

#[test]
fn unpinned_workers_are_reported_and_the_listeners_work() {
    let _alarm = alarm();
    let runtime = Builder::new().worker_threads(2).pin(false).build().unwrap();
    let (listeners, addr) = bind(&runtime);
    let error = listeners.steer_by_cpu().unwrap_err();
    assert!(matches!(inner(&error), Some(PerCoreError::NotPinned)));
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    let accepted = serve(&runtime, listeners);
    let _clients = connect(addr, 10);
    receive(&accepted, 10);
}

#[test]
fn binding_is_all_or_nothing_and_the_error_names_the_worker() {
    let _alarm = alarm();
    let runtime = runtime(3);
    // This listener lacks SO_REUSEPORT, so the first of the others fails to bind.
    let taken = StdListener::bind(any_port_of_its_own()).unwrap();
    let addr = taken.local_addr().unwrap();
    let error = runtime
        .block_on(TcpListener::bind_per_core(addr))
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(matches!(
        inner(&error),
        Some(PerCoreError::Worker { worker: 0, .. })
    ));
    drop(taken);

    // The third listener fails. The first two must be closed, or the exclusive bind below would
    // fail.
    let prepared = AtomicUsize::new(0);
    let error = runtime
        .block_on(PerCoreListeners::bind_with(addr, 16, |_| {
            match prepared.fetch_add(1, SeqCst) {
                2 => Err(std::io::Error::other("no more")),
                _ => Ok(()),
            }
        }))
        .unwrap_err();
    assert!(matches!(
        inner(&error),
        Some(PerCoreError::Worker { worker: 2, .. })
    ));
    assert!(error.to_string().contains("worker 2"), "{error}");
    runtime.block_on(until_ok(async || StdListener::bind(addr)));
}

#[test]
fn binding_without_a_running_runtime_is_an_error() {
    let _alarm = alarm();
    let try_bind = || futures_lite::future::block_on(TcpListener::bind_per_core(ANY_PORT));
    assert!(try_bind().is_err());
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let (listeners, _) = bind(&runtime);
    drop(runtime);
    let entered = handle.enter();
    assert!(try_bind().is_err());
    drop(entered);
    for listener in listeners {
        assert!(futures_lite::future::block_on(listener.accept()).is_err());
    }
}

#[test]
fn ipv6_listeners_work() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let bound = runtime.block_on(TcpListener::bind_per_core("[::1]:0"));
    let listeners = match bound {
        Ok(listeners) => listeners,
        // This machine has no IPv6.
        Err(error) => {
            assert!(StdListener::bind("[::1]:0").is_err(), "{error}");
            return;
        }
    };
    let addr = listeners.local_addr().unwrap();
    assert!(addr.is_ipv6());
    let accepted = serve(&runtime, listeners);
    runtime.block_on(async {
        let connected = timeout(PATIENCE, TcpStream::connect(addr)).await;
        connected.unwrap().unwrap();
    });
    receive(&accepted, 1);
}

//! Types with tokio's names have at least its auto traits: `Send`, `Sync`, `Unpin`, `UnwindSafe`
//! and `RefUnwindSafe`.

use std::{
    future::Ready,
    marker::PhantomData,
    panic::{RefUnwindSafe, UnwindSafe},
    rc::Rc,
};

use tourbillon::{io, net, runtime, sync, task, time};

/// Tells which auto traits a type has. An inherent constant, if its bound holds, takes precedence
/// over the constant of `HasNot`.
struct Has<T>(PhantomData<T>);

trait HasNot {
    const SEND: bool = false;
    const SYNC: bool = false;
    const UNPIN: bool = false;
    const UNWIND_SAFE: bool = false;
    const REF_UNWIND_SAFE: bool = false;
}

impl<T> HasNot for Has<T> {}

impl<T: Send> Has<T> {
    const SEND: bool = true;
}

impl<T: Sync> Has<T> {
    const SYNC: bool = true;
}

impl<T: Unpin> Has<T> {
    const UNPIN: bool = true;
}

impl<T: UnwindSafe> Has<T> {
    const UNWIND_SAFE: bool = true;
}

impl<T: RefUnwindSafe> Has<T> {
    const REF_UNWIND_SAFE: bool = true;
}

macro_rules! traits {
    ($type:ty) => {
        [
            ("Send", Has::<$type>::SEND),
            ("Sync", Has::<$type>::SYNC),
            ("Unpin", Has::<$type>::UNPIN),
            ("UnwindSafe", Has::<$type>::UNWIND_SAFE),
            ("RefUnwindSafe", Has::<$type>::REF_UNWIND_SAFE),
        ]
    };
}

macro_rules! compare {
    ($($ours:ty, $theirs:ty;)*) => {{
        let mut missing = Vec::new();
        $(
            for ((name, ours), (_, theirs)) in traits!($ours).into_iter().zip(traits!($theirs)) {
                if theirs && !ours {
                    missing.push(format!("{}: {name}", stringify!($ours)));
                }
            }
        )*
        missing
    }};
}

/// A type that has no auto trait of the list except `Unpin`.
type Bare = *mut Rc<dyn Fn()>;

#[test]
fn the_comparison_detects_missing_traits() {
    let has = |traits: [(&str, bool); 5]| traits.map(|(_, has)| has);
    assert_eq!(has(traits!(u8)), [true; 5]);
    assert_eq!(
        has(traits!(std::marker::PhantomPinned)),
        [true, true, false, true, true]
    );
    assert_eq!(has(traits!(&mut u8)), [true, true, true, false, true]);
    assert_eq!(
        has(traits!(std::cell::Cell<u8>)),
        [true, false, true, true, false]
    );
    assert_eq!(has(traits!(Bare)), [false, false, true, false, false]);
    assert_eq!(
        compare!(std::cell::Cell<u8>, u8;),
        [
            "std::cell::Cell<u8>: Sync",
            "std::cell::Cell<u8>: RefUnwindSafe"
        ]
    );
}

#[test]
fn runtime_and_task_types_have_the_auto_traits_of_tokio() {
    use tokio::{runtime as their_runtime, sync as their_sync, task as their_task, time as theirs};
    let missing = compare!(
        runtime::Runtime, their_runtime::Runtime;
        runtime::Handle, their_runtime::Handle;
        runtime::Id, their_runtime::Id;
        runtime::Builder, their_runtime::Builder;
        runtime::EnterGuard<'static>, their_runtime::EnterGuard<'static>;
        tourbillon::metrics::RuntimeMetrics, their_runtime::RuntimeMetrics;
        tourbillon::NoRuntime, their_runtime::TryCurrentError;
        task::JoinHandle<()>, their_task::JoinHandle<()>;
        task::JoinHandle<Bare>, their_task::JoinHandle<Bare>;
        task::AbortHandle, their_task::AbortHandle;
        task::JoinSet<()>, their_task::JoinSet<()>;
        task::JoinSet<Bare>, their_task::JoinSet<Bare>;
        task::JoinError, their_task::JoinError;
        task::Id, their_task::Id;
        task::LocalSet, their_task::LocalSet;
        task::LocalEnterGuard, their_task::LocalEnterGuard;
        task::Unconstrained<()>, their_task::coop::Unconstrained<()>;
        task::coop::Coop<Ready<()>>, their_task::coop::Coop<Ready<()>>;
        task::coop::RestoreOnPending, their_task::coop::RestoreOnPending;
        task::LocalKey<Bare>, their_task::LocalKey<Bare>;
        task::TaskLocalFuture<(), Ready<()>>, their_task::futures::TaskLocalFuture<(), Ready<()>>;
        time::Sleep, theirs::Sleep;
        time::Timeout<Ready<()>>, theirs::Timeout<Ready<()>>;
        time::Interval, theirs::Interval;
        time::Instant, theirs::Instant;
        time::MissedTickBehavior, theirs::MissedTickBehavior;
        time::Elapsed, theirs::error::Elapsed;
        sync::Notify, their_sync::Notify;
        sync::Notified<'static>, their_sync::futures::Notified<'static>;
        sync::OwnedNotified, their_sync::futures::OwnedNotified;
    );
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn timer_types_have_all_auto_traits() {
    let all = |traits: [(&str, bool); 5]| traits.iter().all(|(_, has)| *has);
    assert!(all(traits!(tourbillon::Timer)));
    assert!(all(traits!(tourbillon::timer::WallTimer)));
    assert!(all(traits!(tourbillon::timer::BootTimer)));
    assert!(all(traits!(tourbillon::CancelOnDrop)));
}

#[test]
fn socket_types_have_the_auto_traits_of_tokio() {
    use tokio::{io as their_io, net as theirs};
    let missing = compare!(
        net::TcpListener, theirs::TcpListener;
        net::TcpSocket, theirs::TcpSocket;
        net::TcpStream, theirs::TcpStream;
        net::OwnedReadHalf, theirs::tcp::OwnedReadHalf;
        net::OwnedWriteHalf, theirs::tcp::OwnedWriteHalf;
        net::UdpSocket, theirs::UdpSocket;
        net::UnixListener, theirs::UnixListener;
        net::UnixStream, theirs::UnixStream;
        net::UnixDatagram, theirs::UnixDatagram;
        io::AsyncFd<std::net::TcpStream>, their_io::unix::AsyncFd<std::net::TcpStream>;
        io::Interest, their_io::Interest;
        io::Ready, their_io::Ready;
    );
    assert_eq!(missing, Vec::<String>::new());
}

//! A process without descriptors: a lack of them is an error wherever it occurs. Nothing panics,
//! hangs or leaks, and what is open continues to work.

use std::{
    error::Error,
    io::{self, Read, Write},
    os::linux::net::SocketAddrExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use tourbillon::{
    BuildError, Timer,
    io::AsyncFd,
    net::{
        TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
        unix::SocketAddr as UnixAddr,
    },
    runtime::Builder,
    signal::signal,
    time::{BootInstant, sleep, timeout},
};

use crate::{
    common::{PATIENCE, alarm, eventually, fds, process::alone, threads, use_up_descriptors},
    system_calls::{Faulty, call},
};

type Failed = Box<dyn Error + Send + Sync>;

/// Returns the result of a step of the program. Fails if it hangs.
async fn step<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, future).await.expect("it hangs")
}

/// Sends something from `one` end to the `other`.
async fn talk(one: &mut (impl AsyncWriteExt + Unpin), other: &mut (impl AsyncReadExt + Unpin)) {
    one.write_all(b"ping").await.unwrap();
    let mut heard = [0; 4];
    other.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"ping");
}

/// Opens and uses all that a program can, one thing after the other. All of them stay open until
/// the end.
async fn open_everything(opened: &AtomicUsize) -> Result<(), Failed> {
    let open = || _ = opened.fetch_add(1, SeqCst);
    let listener = step(TcpListener::bind("127.0.0.1:0")).await?;
    open();
    let addr = listener.local_addr()?;
    let mut client = step(TcpStream::connect(addr)).await?;
    open();
    // The connection waits in the listener's queue, and each call fails.
    let mut accepted = match step(listener.accept()).await {
        Ok((accepted, _)) => accepted,
        Err(error) => {
            let again = step(listener.accept()).await.map(drop).unwrap_err();
            assert_eq!(again.raw_os_error(), error.raw_os_error());
            return Err(error.into());
        }
    };
    open();
    talk(&mut client, &mut accepted).await;
    let per_core = step(TcpListener::bind_per_core("127.0.0.1:0")).await?;
    open();
    let _to_one_of_them = step(TcpStream::connect(per_core.local_addr()?)).await?;
    open();
    let udp = step(UdpSocket::bind("127.0.0.1:0")).await?;
    let other = step(UdpSocket::bind("127.0.0.1:0")).await?;
    open();
    udp.send_to(b"ping", other.local_addr()?).await?;
    assert_eq!(other.recv_from(&mut [0; 8]).await?.0, 4);
    let (mut one, mut two) = UnixStream::pair()?;
    open();
    talk(&mut one, &mut two).await;
    let (sender, receiver) = UnixDatagram::pair()?;
    open();
    sender.send(b"ping").await?;
    assert_eq!(receiver.recv(&mut [0; 8]).await?, 4);
    let name = format!("tourbillon-no-descriptors-{}", std::process::id());
    let name = <UnixAddr as SocketAddrExt>::from_abstract_name(name)?;
    let unix_listener = UnixListener::bind_addr(&name)?;
    open();
    let mut unix_client = step(UnixStream::connect_addr(&name)).await?;
    open();
    let (mut unix_accepted, _) = step(unix_listener.accept()).await?;
    open();
    talk(&mut unix_client, &mut unix_accepted).await;
    let mut signals = signal(libc::SIGUSR1)?;
    open();
    // SAFETY: a listener handles the signal, so that it does not end the process.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    step(signals.recv()).await?;
    let (reader, mut writer) = std::os::unix::net::UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    let reader = AsyncFd::new(reader)?;
    open();
    writer.write_all(b"ping")?;
    let mut guard = reader.readable().await?;
    let read = guard.try_io(|reader| reader.get_ref().read(&mut [0; 8]));
    assert_eq!(read.map_err(|_| "it is ready")??, 4);
    let job = tourbillon::task::spawn_blocking(|| std::fs::File::open("/dev/null"));
    job.await??;
    open();
    // Name them here, so that none is closed before.
    drop((client, accepted, one, two, unix_client, unix_accepted));
    Ok(())
}

/// Builds a runtime, uses it, and ends it. Returns the error of the first step that failed, if
/// any. `opened` counts the steps that succeeded.
fn program(opened: &AtomicUsize) -> Result<(), Failed> {
    let runtime = Builder::new().worker_threads(2).helpers(1..=1).build()?;
    opened.fetch_add(1, SeqCst);
    let fired = Arc::new(AtomicUsize::new(0));
    let fire = || {
        let fired = fired.clone();
        move || _ = fired.fetch_add(1, SeqCst)
    };
    let soon = Duration::from_millis(3);
    runtime.handle().after(soon, fire());
    Timer::at_wall(SystemTime::now() + soon)
        .on(runtime.handle())
        .start(fire());
    Timer::at_boot(BootInstant::now() + soon)
        .on(runtime.handle())
        .start(fire());
    let ticks = Arc::new(AtomicUsize::new(0));
    let ticking = {
        let ticks = ticks.clone();
        runtime.handle().every(Duration::from_micros(500), move || {
            ticks.fetch_add(1, SeqCst);
        })
    };
    let opening = runtime.block_on(open_everything(opened));
    // Timers work as before, even if other steps failed.
    eventually("what was armed fires", || fired.load(SeqCst) == 3);
    let before = ticks.load(SeqCst);
    eventually("what recurs goes on", || ticks.load(SeqCst) > before + 3);
    ticking.cancel();
    runtime.block_on(sleep(Duration::from_micros(200)));
    opening
}

/// Returns whether an error is, or comes from, that of a process that has no descriptors left.
fn is_emfile(error: &Failed) -> bool {
    if let Some(BuildError::Os { source, .. }) = error.downcast_ref() {
        return source.raw_os_error() == Some(libc::EMFILE);
    }
    let Some(error) = error.downcast_ref::<io::Error>() else {
        return false;
    };
    // For several sockets the error says more.
    let said = format!("{error:?}");
    error.raw_os_error() == Some(libc::EMFILE)
        || (error.get_ref().is_some() && said.contains(&format!("code: {}", libc::EMFILE)))
}

fn runs_out_of_descriptors_anywhere() {
    let _alarm = alarm();
    // This opens what a process opens once and keeps.
    drop(crate::common::runtime(1));
    let others = threads();
    let mut signals_are_there = false;
    let mut stops = Vec::new();
    for more in 0.. {
        let before = fds();
        let mut used_up = use_up_descriptors();
        used_up.truncate(used_up.len() - more);
        let opened = AtomicUsize::new(0);
        let ran = program(&opened);
        drop(used_up);
        let opened = opened.into_inner();
        eventually("its threads are gone", || threads() <= others);
        // One descriptor stays, which all signals share.
        let kept = fds() - before;
        assert!(kept <= usize::from(!signals_are_there), "leaks {kept}");
        signals_are_there |= kept == 1;
        match ran {
            Ok(()) => break,
            Err(error) => assert!(is_emfile(&error), "with {more}: {error:?}"),
        }
        stops.push(opened);
        assert!(more < 200, "it never has enough");
    }
    // With one more descriptor, the program comes as far as before, or further. It stopped at
    // every step.
    assert!(stops.is_sorted(), "{stops:?}");
    stops.dedup();
    let steps = stops.last().copied().unwrap();
    assert!(signals_are_there && steps >= 14, "{stops:?}");
    let missing: Vec<_> = (0..=steps).filter(|it| !stops.contains(it)).collect();
    assert!(missing.is_empty(), "never stopped at {missing:?}");
}

#[test]
fn a_lack_of_descriptors_anywhere_is_an_error_and_the_program_continues() {
    alone(|| {
        runs_out_of_descriptors_anywhere();
    });
}

/// If the user has reached `fs.epoll.max_user_watches`, a socket that cannot be watched is an
/// error, and is closed.
#[test]
fn a_socket_that_cannot_be_watched_is_an_error_and_is_closed() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = Faulty::calls(&[call(libc::SYS_epoll_ctl)]) else {
            return;
        };
        let runtime = crate::common::runtime(1);
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            // A listener outside of the runtime, whose queue does not matter.
            let others = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let others_addr = others.local_addr().unwrap();
            let open = fds();
            let mut tries = 0;
            for what in 0..4 {
                let failed = faulty.failed();
                faulty.after(0, 1, libc::ENOSPC);
                let error = match what {
                    0 => TcpListener::bind("127.0.0.1:0").await.map(drop),
                    1 => TcpStream::connect(others_addr).await.map(drop),
                    2 => UdpSocket::bind("127.0.0.1:0").await.map(drop),
                    _ => UnixStream::pair().map(drop),
                }
                .unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{what}: {error}");
                assert_eq!(faulty.failed(), failed + 1);
                assert_eq!(fds(), open, "{what} is left open");
                tries += 1;
            }
            assert_eq!(tries, 4);
            // An accepted socket is closed, too: its peer sees that.
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            faulty.after(0, 1, libc::ENOSPC);
            let error = step(listener.accept()).await.map(drop).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
            faulty.heal();
            let connect = TcpStream::connect(addr);
            let (client, accepted) = zip(connect, listener.accept()).await;
            talk(&mut client.unwrap(), &mut accepted.unwrap().0).await;
        });
    });
}

//! `io::select`: which of several descriptors are ready, in their order, or that the timeout is
//! over. A wait consumes nothing.

use std::{
    future::{Future, poll_fn},
    io::{self, ErrorKind, Read, Write},
    os::fd::OwnedFd,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use futures_lite::{AsyncWriteExt, future::zip};
use socket2::SockRef;
use tourbillon::{
    io::{AsyncFd, Interest, Ready, Select, Source, select},
    net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream},
    time::{Instant, sleep, timeout},
};

use crate::{
    common::{
        HOUR, PATIENCE, Random, alarm,
        blocked::{Blocked, REST, Says, all_come_elsewhere},
        eventually,
        net::{ANY_PORT, pair, pair_with_std},
        runtime,
        woken::Woken,
    },
    paused,
};

const SEC: Duration = Duration::from_secs(1);
const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;

type Found = io::Result<Vec<(usize, Ready)>>;

/// Returns the sources that are ready without waiting.
async fn now(sources: &[(&dyn Source, Interest)]) -> Vec<(usize, Ready)> {
    select(sources, Some(Duration::ZERO)).await.unwrap()
}

#[test]
fn sources_of_all_kinds_are_waited_for_with_one_timeout() {
    paused(async {
        let (tcp, mut tcp_peer) = pair().await;
        let (half, mut half_peer) = pair().await;
        let (half, _write_half) = half.into_split();
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let udp = UdpSocket::bind(ANY_PORT).await.unwrap();
        let udp_peer = UdpSocket::bind(ANY_PORT).await.unwrap();
        let (unix, mut unix_peer) = UnixStream::pair().unwrap();
        let path = std::env::temp_dir().join(format!("tourbillon-select-{}", std::process::id()));
        let unix_listener = UnixListener::bind(&path).unwrap();
        let (datagram, datagram_peer) = UnixDatagram::pair().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipe = AsyncFd::with_interest(OwnedFd::from(reader), READ).unwrap();
        let all: [(&dyn Source, Interest); 8] = [
            (&tcp, READ),
            (&half, READ),
            (&listener, READ),
            (&udp, READ),
            (&unix, READ),
            (&unix_listener, READ),
            (&datagram, READ),
            (&pipe, READ),
        ];
        let start = Instant::now();
        assert_eq!(select(&all, Some(5 * SEC)).await.unwrap(), []);
        assert_eq!(start.elapsed(), 5 * SEC);

        let mut expected = Vec::new();
        // They stay open to the end.
        let mut connected: Vec<Box<dyn Source>> = Vec::new();
        for place in 0..all.len() {
            let make_ready = async {
                sleep(SEC).await;
                match place {
                    0 => tcp_peer.write_all(&[1]).await.unwrap(),
                    1 => half_peer.write_all(&[1]).await.unwrap(),
                    2 => {
                        let connect = TcpStream::connect(listener.local_addr().unwrap());
                        connected.push(Box::new(connect.await.unwrap()));
                    }
                    3 => {
                        let to = udp.local_addr().unwrap();
                        assert_eq!(udp_peer.send_to(&[1], to).await.unwrap(), 1);
                    }
                    4 => unix_peer.write_all(&[1]).await.unwrap(),
                    5 => connected.push(Box::new(UnixStream::connect(&path).await.unwrap())),
                    6 => assert_eq!(datagram_peer.send(&[1]).await.unwrap(), 1),
                    _ => writer.write_all(&[1]).unwrap(),
                }
            };
            // The list begins with this source, so it leaves out the sources that are ready
            // already.
            let (found, ()) = zip(select(&all[place..], Some(HOUR)), make_ready).await;
            assert_eq!(found.unwrap(), [(0, Ready::READABLE)], "{place}");
            expected.push((place, Ready::READABLE));
            // The earlier sources are still ready. They come in the order of the list.
            assert_eq!(now(&all).await, expected);
        }
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn readiness_is_what_the_system_reports_at_that_moment() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.write_all(b"four").unwrap();
        // The worker has not polled an event of this stream yet.
        let ours = UnixStream::from_std(ours).unwrap();
        let both = [(&ours as _, READ | WRITE), (&ours as _, READ)];
        let expected = [(0, Ready::READABLE | Ready::WRITABLE), (1, Ready::READABLE)];
        assert_eq!(now(&both).await, expected);
        assert_eq!(select(&both, None).await.unwrap(), expected);
        // Read a part of the data, and then the rest. The readiness of the stream does not know
        // that no data is left.
        ours.readable().await.unwrap();
        for left in [true, false] {
            assert_eq!(ours.try_read(&mut [0; 2]).unwrap(), 2);
            assert_eq!(now(&both[1..]).await.is_empty(), !left);
        }
        let waits = select(&both[1..], Some(Duration::from_millis(1)));
        assert_eq!(waits.await.unwrap(), []);
        // Readiness that comes after consumed readiness is not lost.
        theirs.write_all(b"more").unwrap();
        let found = timeout(PATIENCE, select(&both[1..], None)).await.unwrap();
        assert_eq!(found.unwrap(), [(0, Ready::READABLE)]);
        timeout(PATIENCE, ours.readable()).await.unwrap().unwrap();
        assert_eq!(ours.try_read(&mut [0; 8]).unwrap(), 4);
        drop(theirs);
        let found = timeout(PATIENCE, select(&both[1..], None)).await.unwrap();
        let end = Ready::READABLE | Ready::READ_CLOSED;
        assert_eq!(found.unwrap(), [(0, end)]);
    });
}

#[test]
fn priority_data_is_distinguished_from_data() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (ours, theirs) = pair_with_std().await;
        let sources = [
            (&ours as _, Interest::PRIORITY),
            (&ours as _, Interest::ERROR),
        ];
        SockRef::from(&theirs).send(b"data").unwrap();
        ours.readable().await.unwrap();
        assert_eq!(now(&sources).await, []);
        SockRef::from(&theirs).send_out_of_band(b"!").unwrap();
        let expected = [(0, Ready::PRIORITY)];
        assert_eq!(select(&sources, None).await.unwrap(), expected);
        assert_eq!(now(&sources).await, expected);
    });
}

#[test]
fn the_end_of_a_stream_ends_a_wait_for_priority_data() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (ours, theirs) = pair_with_std().await;
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let source = [(&ours as _, Interest::PRIORITY)];
        let found = timeout(PATIENCE, select(&source, None)).await.unwrap();
        assert_eq!(found.unwrap(), [(0, Ready::READ_CLOSED)]);
        let ready = timeout(PATIENCE, ours.ready(Interest::PRIORITY)).await;
        assert!(ready.unwrap().unwrap().is_read_closed());
        // A descriptor that is watched for nothing else.
        let (ours, theirs) = pair_with_std().await;
        let ours: OwnedFd = ours.into_std().unwrap().into();
        let ours = AsyncFd::with_interest(ours, Interest::PRIORITY).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let ready = timeout(PATIENCE, ours.ready(Interest::PRIORITY)).await;
        assert!(ready.unwrap().unwrap().ready().is_read_closed());
    });
}

#[test]
fn room_to_write_is_waited_for() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let ours = UnixStream::from_std(ours).unwrap();
        while ours.try_write(&[7; 10_000]).is_ok() {}
        let source = [(&ours as _, WRITE)];
        assert_eq!(now(&source).await, []);
        let reading = thread::spawn(move || {
            thread::sleep(REST);
            let mut buf = vec![0; 1 << 20];
            assert!(theirs.read(&mut buf).unwrap() > 0);
            while theirs.read(&mut buf).unwrap() > 0 {}
        });
        let found = timeout(PATIENCE, select(&source, None)).await.unwrap();
        assert_eq!(found.unwrap(), [(0, Ready::WRITABLE)]);
        drop(ours);
        reading.join().unwrap();
    });
}

#[test]
fn any_timeout_is_accepted_from_zero_to_none() {
    paused(async {
        let (stream, mut peer) = pair().await;
        let source = [(&stream as _, READ)];
        let start = Instant::now();
        assert_eq!(now(&source).await, []);
        assert_eq!(select(&[], Some(Duration::ZERO)).await.unwrap(), []);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let shortest = Duration::from_nanos(1);
        assert_eq!(select(&source, Some(shortest)).await.unwrap(), []);
        assert_eq!(start.elapsed(), shortest);
        // Without descriptors, `select` is a sleep.
        assert_eq!(select(&[], Some(SEC)).await.unwrap(), []);
        assert_eq!(start.elapsed(), SEC + shortest);
        for limit in [Some(Duration::MAX), None] {
            let waited = timeout(100_000 * HOUR, select(&source, limit)).await;
            assert!(waited.is_err());
        }
        let error = select(&[], None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        // The timeout counts from the call of `select`, not from the first poll.
        let late = select(&source, Some(3 * SEC));
        sleep(2 * SEC).await;
        let start = Instant::now();
        assert_eq!(late.await.unwrap(), []);
        assert_eq!(start.elapsed(), SEC);
        // If data arrived before the timeout, the data wins.
        let late = select(&source, Some(SEC));
        peer.write_all(&[1]).await.unwrap();
        sleep(2 * SEC).await;
        assert_eq!(late.await.unwrap(), [(0, Ready::READABLE)]);
    });
}

#[test]
fn a_wait_uses_one_timer_and_leaves_nothing_behind() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let task = runtime.spawn(async move {
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let all: Vec<_> = pairs.iter().map(|(it, _)| (it as _, READ)).collect();
        let (woken, waker) = Woken::new();
        {
            let mut selecting = pin!(select(&all, Some(HOUR)));
            let cx = &mut Context::from_waker(&waker);
            for _ in 0..3 {
                assert!(selecting.as_mut().poll(cx).is_pending());
            }
            assert_eq!(handle.timers().pending(), 1);
            assert_eq!(Arc::strong_count(&woken), 2 + all.len() + 1);
        }
        assert_eq!(handle.timers().pending(), 0);
        assert_eq!(Arc::strong_count(&woken), 2, "no waker is left");
        assert_eq!(woken.count(), 0);
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn each_ready_source_is_named_by_its_index() {
    let _alarm = alarm();
    runtime(1).block_on(async {
        let mut pairs: Vec<_> = (0..200).map(|_| UnixStream::pair().unwrap()).collect();
        for place in [0, 63, 64, 65, 127, 128, 199] {
            pairs[place].1.write_all(&[1]).await.unwrap();
            let all: Vec<_> = pairs.iter().map(|(it, _)| (it as _, READ)).collect();
            assert_eq!(now(&all).await, [(place, Ready::READABLE)]);
            let found = timeout(PATIENCE, select(&all, None)).await.unwrap();
            assert_eq!(found.unwrap(), [(place, Ready::READABLE)]);
            assert_eq!(pairs[place].0.try_read(&mut [0; 8]).unwrap(), 1);
        }
    });
}

#[test]
fn several_tasks_wait_and_a_dropped_wait_takes_nothing() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(async {
        let (one, mut one_peer) = UnixStream::pair().unwrap();
        let (other, mut other_peer) = UnixStream::pair().unwrap();
        let shared = Arc::new((one, other));
        let brief = Duration::from_millis(2);
        let sources = [(&shared.0 as _, READ), (&shared.1 as _, READ)];
        assert!(timeout(brief, select(&sources, None)).await.is_err());
        let waiting: Vec<_> = (0..4)
            .map(|n| {
                let shared = shared.clone();
                tourbillon::spawn(async move {
                    let sources: [(&dyn Source, Interest); 2] =
                        [(&shared.0, READ), (&shared.1, READ)];
                    let limit = (n % 2 == 0).then_some(HOUR);
                    select(&sources, limit).await
                })
            })
            .collect();
        sleep(brief).await;
        one_peer.write_all(&[1]).await.unwrap();
        for waiting in waiting {
            let found = timeout(PATIENCE, waiting).await.unwrap().unwrap();
            assert_eq!(found.unwrap(), [(0, Ready::READABLE)]);
        }
        other_peer.write_all(&[1]).await.unwrap();
        assert_eq!(now(&sources).await.len(), 2);
    });
}

#[test]
fn selecting_an_unwatched_direction_is_an_error() {
    paused(async {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = AsyncFd::with_interest(OwnedFd::from(reader), READ).unwrap();
        for limit in [None, Some(Duration::ZERO), Some(SEC)] {
            let found = select(&[(&pipe, READ | WRITE)], limit).await;
            assert_eq!(found.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn a_shutdown_ends_a_wait_with_an_error() {
    let _alarm = alarm();
    // The runtime of the descriptor ends, or the runtime of the timer, or one runtime that has
    // both.
    for (limit, descriptor_ends, timer_ends) in [
        (None, true, false),
        (Some(HOUR), true, false),
        (Some(HOUR), true, true),
        (Some(HOUR), false, true),
    ] {
        let (ending, staying) = (runtime(1), runtime(1));
        let of = |ends| if ends { &ending } else { &staying };
        let (stream, _peer) = of(descriptor_ends).block_on(pair());
        let by = of(timer_ends).handle().clone();
        let waits = Arc::new(AtomicUsize::new(0));
        let noted = waits.clone();
        let waiting = thread::spawn(move || {
            let source = [(&stream as _, READ)];
            let found = by.block_on(noting(&noted, select(&source, limit)));
            found.unwrap_err().kind()
        });
        eventually("it waits", || waits.load(SeqCst) > 0);
        drop(ending);
        assert_eq!(waiting.join().unwrap(), ErrorKind::Other);
    }
}

/// Awaits the future, and counts how often it was polled.
async fn noting(polls: &AtomicUsize, selecting: Select<'_>) -> Found {
    let mut selecting = pin!(selecting);
    poll_fn(|cx| {
        let poll: Poll<Found> = selecting.as_mut().poll(cx);
        polls.fetch_add(1, SeqCst);
        poll
    })
    .await
}

/// The blocked worker watches the descriptors, so a peer must poll for it.
#[test]
fn sources_of_a_blocked_worker_are_found_by_a_peer() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (mut ours, mut theirs) = crate::common::net::connections(2);
    let (says, came) = Says::new();
    let (first, second) = (ours.pop().unwrap(), ours.pop().unwrap());
    let waits = Arc::new(AtomicUsize::new(0));
    let noted = waits.clone();
    let (blocked, start) = Blocked::after(runtime.handle(), move || {
        let streams = [first, second].map(|it| TcpStream::from_std(it).unwrap());
        tourbillon::spawn(async move {
            let sources = [(&streams[0] as _, READ), (&streams[1] as _, READ)];
            let found = noting(&noted, select(&sources, Some(HOUR))).await;
            assert_eq!(found.unwrap(), [(0, Ready::READABLE)]);
            says.came(0, std::time::Instant::now());
        });
        std::time::Instant::now()
    });
    eventually("it waits", || waits.load(SeqCst) > 0);
    // `first` was the last element of `ours`, so its peer is `theirs[1]`.
    theirs[1].write_all(&[1]).unwrap();
    let came = all_come_elsewhere(&blocked, &came, 1);
    assert!(came[0].at >= start);
}

/// Readers wait for all of their streams at once. Writers write now and then.
#[test]
fn bytes_of_many_writers_are_all_found() {
    const STREAMS: usize = 20;
    const BYTES: usize = 500;
    let _alarm = alarm();
    let runtime = runtime(2);
    let (readers, writers): (Vec<_>, Vec<_>) =
        runtime.block_on(async { (0..STREAMS).map(|_| UnixStream::pair().unwrap()).unzip() });
    for (seed, mut writer) in writers.into_iter().enumerate() {
        runtime.spawn(async move {
            let mut random = Random::new(seed as u64 + 1);
            for _ in 0..BYTES {
                writer.write_all(&[1]).await.unwrap();
                if random.below(4) == 0 {
                    sleep(Duration::from_micros(random.below(200))).await;
                }
            }
        });
    }
    let reading = runtime.spawn(async move {
        let mut all: Vec<_> = readers.into_iter().map(|it| (it, 0)).collect();
        while !all.is_empty() {
            let sources: Vec<(&dyn Source, Interest)> =
                all.iter().map(|(it, _)| (it as _, READ)).collect();
            let found = select(&sources, Some(PATIENCE)).await.unwrap();
            assert!(!found.is_empty(), "an event was lost");
            drop(sources);
            // Begin with the last place, because streams that have ended are removed.
            for (place, ready) in found.into_iter().rev() {
                let (stream, count) = &mut all[place];
                let mut buf = [0; 8];
                let n = stream.try_read(&mut buf).unwrap();
                *count += n;
                if n == 0 {
                    assert!(ready.is_read_closed());
                    assert_eq!(all.remove(place).1, BYTES);
                }
            }
        }
    });
    let ended = runtime.block_on(timeout(PATIENCE, reading));
    ended.expect("it comes to an end").unwrap();
}

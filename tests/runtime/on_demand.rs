//! A current-thread runtime makes its descriptors when it needs them, and does without those that
//! the system refuses.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime, Timer,
    net::UdpSocket,
    runtime::Builder,
    sync::Notify,
    task::yield_now,
    time::{Instant, sleep, wall_clock},
};

use crate::common::{
    HOUR, alarm, eventually, fds, process::alone, rounds, threads, use_up_descriptors,
};

const MS: Duration = Duration::from_millis(1);

fn runtime(is_paused: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.start_paused(is_paused);
    builder.build().unwrap()
}

/// Waits for a timer on the wall clock.
fn wait_by_the_wall_clock(runtime: &Runtime, wait: Duration) {
    let fired = Arc::new(Notify::new());
    let fires = fired.clone();
    let at = {
        let _entered = runtime.enter();
        wall_clock() + wait
    };
    let _timer = Timer::at_wall(at)
        .on(runtime.handle())
        .start(move || fires.notify_one());
    runtime.block_on(fired.notified());
}

/// Waits for a sleep and a timer on the wall clock until there are so many descriptors. Both are
/// far away, so the worker sleeps, however late it comes to that.
fn waits_until(runtime: &Runtime, descriptors: usize, is_wall: bool) {
    let (made, waits) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let watcher = thread::spawn({
        let (made, waits) = (made.clone(), waits.clone());
        move || {
            eventually("the worker has what it needs", || {
                waits.load(SeqCst) && fds() == descriptors
            });
            made.notify_one();
        }
    });
    let at = {
        let _entered = runtime.enter();
        wall_clock() + HOUR
    };
    let _timer = is_wall.then(|| Timer::at_wall(at).on(runtime.handle()).start(|| ()));
    runtime.block_on(async {
        let (mut sleep, mut made) = (pin!(sleep(HOUR)), pin!(made.notified()));
        poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            waits.store(true, SeqCst);
            made.as_mut().poll(cx)
        })
        .await;
    });
    watcher.join().unwrap();
}

fn is_emfile(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

#[test]
fn a_runtime_that_never_sleeps_has_no_thread_and_no_descriptor() {
    let _alarm = alarm();
    alone(|| {
        let before = (fds(), threads());
        let now = || (fds(), threads());
        let ready = runtime(false);
        assert_eq!(now(), before, "it was made");
        ready.block_on(async {
            let task = tourbillon::spawn(async {
                for _ in 0..200 {
                    yield_now().await;
                }
            });
            task.await.unwrap();
        });
        assert_eq!(now(), before, "tasks have run");
        ready.pause_clock();
        ready.block_on(sleep(HOUR));
        assert_eq!(now(), before, "a clock was paused");
        let paused = runtime(true);
        paused.block_on(async {
            let task = tourbillon::spawn(sleep(2 * HOUR));
            sleep(HOUR).await;
            task.await.unwrap();
        });
        wait_by_the_wall_clock(&paused, HOUR);
        assert_eq!(now(), before, "a paused clock has gone on");
        drop((ready, paused));
        assert_eq!(now(), before, "they are gone");
    });
}

#[test]
fn descriptors_are_made_when_they_are_needed() {
    let _alarm = alarm();
    alone(|| {
        let before = fds();
        let made = || fds() - before;
        let runtime = runtime(false);
        assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 7)).unwrap(), 7);
        assert!(made() <= 2, "no sleep had an end");
        // The job may have been over before the worker slept. From now on it sleeps: the epoll
        // instance, its eventfd and its timerfd.
        waits_until(&runtime, before + 3, false);
        // The timerfd of the wall clock.
        waits_until(&runtime, before + 4, true);
        wait_by_the_wall_clock(&runtime, MS);
        assert_eq!(made(), 4);
        let socket = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        assert_eq!(made(), 5);
        drop((socket, runtime));
        assert_eq!(made(), 0);
    });
}

#[test]
fn a_socket_comes_before_the_first_sleep() {
    let _alarm = alarm();
    let runtime = runtime(false);
    runtime.block_on(async {
        let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = other.local_addr().unwrap();
        let sends = async move { one.send_to(b"first", addr).await.unwrap() };
        let task = tourbillon::spawn(async {
            yield_now().await;
            sends.await
        });
        let mut bytes = [0; 8];
        let (count, _) = other.recv_from(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..count], b"first");
        assert_eq!(task.await.unwrap(), 5);
    });
}

/// Does all that needs no socket.
fn sleeps_and_is_woken(runtime: &Runtime) {
    let start = Instant::now();
    runtime.block_on(sleep(2 * MS));
    assert!(start.elapsed() >= 2 * MS);
    assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 7)).unwrap(), 7);
    wait_by_the_wall_clock(runtime, 2 * MS);
}

#[test]
fn without_descriptors_all_but_sockets_works() {
    let _alarm = alarm();
    alone(|| {
        // What a process opens once and keeps.
        drop(crate::common::runtime(1));
        let before = fds();
        let (new, slept) = (runtime(false), runtime(false));
        waits_until(&slept, before + 3, false);
        let mut used_up = use_up_descriptors();
        for runtime in [&new, &slept] {
            sleeps_and_is_woken(runtime);
            let bind = UdpSocket::bind("127.0.0.1:0");
            assert!(is_emfile(&runtime.block_on(bind).unwrap_err()));
        }
        // There is a descriptor for the socket, and none to watch it.
        used_up.pop();
        for _ in 0..2 {
            let bind = UdpSocket::bind("127.0.0.1:0");
            assert!(is_emfile(&new.block_on(bind).unwrap_err()));
        }
        drop(used_up);
        // Both get what they need.
        for (runtime, descriptors) in [(&slept, 4), (&new, 8)] {
            sleeps_and_is_woken(runtime);
            drop(runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
            waits_until(runtime, before + descriptors, true);
        }
        drop((new, slept));
        assert_eq!(fds(), before);
    });
}

/// A thread wakes the worker around its first sleep, before which there is no eventfd to write to.
/// Sometimes that thread itself makes the eventfd.
#[test]
fn no_wake_up_around_the_first_sleep_is_lost() {
    let _alarm = alarm();
    for round in rounds(1_000) {
        let runtime = runtime(round % 2 == 0);
        let (handle, polled) = (runtime.handle().clone(), Arc::new(AtomicBool::new(false)));
        let notify = Arc::new(Notify::new());
        let outside = thread::spawn({
            let (polled, notify) = (polled.clone(), notify.clone());
            move || {
                while !polled.load(SeqCst) {
                    thread::yield_now();
                }
                (0..round % 251).for_each(|_| std::hint::spin_loop());
                // Each of these wakes the worker.
                let _entered = handle.enter();
                let task = tourbillon::spawn(async {});
                let socket = (round % 3 == 0).then(|| {
                    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.set_nonblocking(true).unwrap();
                    UdpSocket::from_std(socket).unwrap()
                });
                notify.notify_one();
                drop(socket);
                task
            }
        });
        runtime.block_on(async {
            let mut notified = pin!(notify.notified());
            poll_fn(|cx| {
                let poll = notified.as_mut().poll(cx);
                polled.store(true, SeqCst);
                if round % 5 == 0 && poll.is_pending() {
                    cx.waker().wake_by_ref();
                }
                poll
            })
            .await;
        });
        let task = outside.join().unwrap();
        runtime.block_on(async {
            poll_fn(|_| Poll::Ready(())).await;
            task.await.unwrap();
        });
    }
}

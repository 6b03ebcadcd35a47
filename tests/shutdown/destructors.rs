//! Destructors that run after the workers have ended find their runtime. A call that is not
//! allowed there panics. The panic is caught, and nothing hangs.

use std::{any::Any, cell::RefCell, future, time::Duration};

use crate::common::{Drops, HOUR, PATIENCE, alarm, process::alone, runtime};
use tourbillon::{Handle, JoinHandle, runtime::Builder};

/// Runs a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Spawns a task that waits for ever, and owns `held`.
fn hold<T: Send + 'static>(handle: &Handle, held: T) -> JoinHandle<()> {
    handle.spawn(async move {
        let _held = held;
        future::pending().await
    })
}

#[test]
fn destructors_can_spawn_and_arm_timers() {
    // The test has a process of its own: if two destructors in one task panic, the process ends.
    alone(|| {
        let runtime = runtime(2);
        let drops = Drops::new();
        let guard = || {
            let token = drops.token();
            OnDrop(move || {
                let _ = &token;
                assert!(Handle::try_current().is_ok());
                drop(tourbillon::spawn(async {}));
                drop(tourbillon::after(HOUR, || {}));
            })
        };
        for _ in 0..10 {
            hold(runtime.handle(), (guard(), guard()));
        }
        let handle = runtime.handle().clone();
        drop(runtime);
        assert_eq!(drops.count(), 20);
        drop(handle);
    });
}

#[test]
fn a_destructor_that_blocks_on_another_task_does_not_hang_the_shutdown() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(1);
        let handle = runtime.handle().clone();
        let mut other = Some(hold(&handle, ()));
        // This call panics here, as it would on a worker.
        let blocks = OnDrop(move || _ = handle.block_on(other.take().unwrap()));
        hold(runtime.handle(), blocks);
        assert!(runtime.shutdown_timeout(PATIENCE));
    });
}

#[test]
fn shutdown_does_not_wait_for_a_runtime_that_a_task_owns() {
    alone(|| {
        let (outer, inner) = (runtime(1), runtime(1));
        let (sender, receiver) = std::sync::mpsc::channel();
        inner.handle().after(Duration::ZERO, move || {
            sender.send(()).unwrap();
            // This lasts for the life of the process, so a shutdown that waited for it would never
            // end.
            std::thread::sleep(HOUR);
        });
        receiver.recv().unwrap();
        hold(outer.handle(), inner);
        assert!(outer.shutdown_timeout(PATIENCE));
    });
}

#[test]
fn a_task_that_ends_on_a_remote_thread_has_the_context_of_its_runtime() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let guard = OnDrop(move || sender.send(Handle::try_current().is_ok()).unwrap());
    let (wakers, woken) = std::sync::mpsc::channel();
    runtime.spawn(future::poll_fn(move |cx| {
        let _ = &guard;
        // If the task outlived its runtime, the thread that wakes it afterwards would drop it.
        let _ = wakers.send(cx.waker().clone());
        std::task::Poll::<()>::Pending
    }));
    let waker = woken.recv().unwrap();
    drop(runtime);
    waker.wake();
    assert!(receiver.recv().unwrap());
}

/// Drops `kept` at the end of a thread, when most of its thread-local values are gone.
fn drop_at_the_end_of_a_thread<T: Send + 'static>(kept: impl FnOnce() -> T + Send + 'static) {
    thread_local! {
        static KEPT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    }
    std::thread::spawn(move || {
        // The slot is created before the runtime: values that are created later are destroyed
        // earlier.
        KEPT.with_borrow_mut(|slot| *slot = None);
        let kept = kept();
        KEPT.with_borrow_mut(|slot| *slot = Some(Box::new(kept)));
    })
    .join()
    .unwrap();
}

#[test]
fn a_runtime_may_be_dropped_with_the_values_of_a_thread() {
    // A panic in these destructors would end the process.
    alone(|| {
        for build in [Builder::new_current_thread, Builder::new_multi_thread] {
            let drops = Drops::new();
            let token = drops.token();
            drop_at_the_end_of_a_thread(move || {
                let runtime = build().build().unwrap();
                // Creates the thread's list of the runtimes that it has entered.
                drop(runtime.enter());
                hold(runtime.handle(), token);
                runtime
            });
            assert_eq!(drops.count(), 1);
        }
    });
}

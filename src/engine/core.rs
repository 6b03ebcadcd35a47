//! What a worker shares with everybody: its shard's owner.

use std::{any::Any, io, ops::RangeInclusive, os::fd::AsRawFd, sync::Arc};

use crossbeam::{deque::Stealer, utils::CachePadded};
use tourbillon_shards::{Kind, NEVER, NextSlot, Notice, Outcome, Owner, Shard};

use crate::{
    clock::instant::Instant,
    engine::{
        context::{current, spread},
        job::{Job, NextTask, TaskJob},
        shared::Shared,
        task_core::local_queue::LocalQueue,
        watchdog::state::Watchdog,
    },
    metrics::{
        counters::{Counter, Counters},
        recorder::Recorder,
    },
    reactor::{Reactor, WAKE_TOKEN, alarm_token},
    sys,
    sys::{
        epoll,
        epoll::{Events, Timeout},
        eventfd::EventFd,
        sync::atomic::{AtomicUsize, Ordering},
    },
    util::contained::contained,
};

/// A worker, as other threads know it: its timers, and through their owner all the rest.
pub(crate) type WorkerShard = Shard<Core>;

/// The shared part of a worker. It owns the worker's shard, so that whoever has a timer, a task or
/// a socket of this worker has the way to it, at the price of a count that is this worker's alone.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Core {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stealer: Stealer<Job>,
    /// The worker's LIFO slot, which the worker alone fills. The worker writes it with each wake-up:
    /// nothing that others write is beside it.
    pub(crate) next: CachePadded<NextSlot<NextTask>>,
    /// Tasks that the worker alone may run, and is to.
    pub(crate) pinned: LocalQueue<TaskJob>,
    pub(crate) reactor: Reactor,
    /// Not a part of this: it outlives the worker.
    pub(crate) recorder: Arc<Recorder>,
    /// By this its peers watch over the worker.
    pub(crate) watchdog: Watchdog,
    eventfd: EventFd,
    /// Whether it is a helper: its shard is nobody's home.
    pub(crate) is_helper: bool,
    /// Timers of this shard whose callbacks are to be told how they ended, and have not been. Written by whoever
    /// starts such a timer, and so not beside what all read.
    owed: CachePadded<AtomicUsize>,
}

/// What a thread is to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has timers and sockets.
    Worker,
    /// It has none, and comes and goes.
    Helper,
}

/// What the timers' handles ask of the owner of a shard.
pub trait TimerOwner: Owner {
    /// The runtime.
    fn shared(&self) -> &Arc<Shared>;

    /// What can be read of the time without knowing whose it is. It is for a deadline: [by the clock of the
    /// runtime](crate::sys::ticks) it may be later than the present by some microseconds.
    type Read;

    /// Reads that.
    fn read() -> Self::Read;

    /// The time by which the shard's timers are due, in ns, for who has read it just now.
    fn present(&self, read: Self::Read) -> u64;

    /// The same, read now.
    #[inline]
    fn now(&self) -> u64 {
        self.present(Self::read())
    }
}

impl Core {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        stealer: Stealer<Job>,
        role: Role,
    ) -> io::Result<Self> {
        let eventfd = EventFd::new()?;
        let reactor = Reactor::new(shared.config.pwait2)?;
        reactor
            .epoll()
            .add(eventfd.as_raw_fd(), WAKE_TOKEN, epoll::READABLE)?;
        let recorder = match role {
            Role::Worker => shared.recorders[index].clone(),
            Role::Helper => Arc::new(Recorder::new(shared.recorders.len())),
        };
        Ok(Self {
            index,
            shared,
            stealer,
            next: CachePadded::default(),
            pinned: LocalQueue::unbound(),
            reactor,
            recorder,
            watchdog: Watchdog::new(role == Role::Worker)?,
            eventfd,
            is_helper: role == Role::Helper,
            owed: CachePadded::default(),
        })
    }

    /// Runs user code on this worker's behalf. A panic is caught and counted.
    pub(crate) fn contain(&self, f: impl FnOnce()) {
        if !contained(f) {
            self.count(|counters| &counters.panics);
        }
    }

    /// How many callbacks are still to be told.
    pub(crate) fn owes(&self) -> usize {
        self.owed.load(Ordering::Acquire)
    }

    /// Has this worker called when the alarm of the other goes off.
    pub(crate) fn answer_for(&self, other: &Core) -> io::Result<()> {
        let Some(alarm) = &other.watchdog.alarm else {
            return Ok(());
        };
        let epoll = self.reactor.epoll();
        epoll.add_shared(alarm.as_raw_fd(), alarm_token(other.index))
    }

    /// Looks at the sockets, for `timeout` at most. For the worker.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Timeout) {
        self.recorder.own.epoll_waits.add_alone(1);
        self.reactor.wait(events, timeout);
    }

    /// Counts the time from the one moment to the other, by the real clock, in which the worker did not sleep. For
    /// the worker.
    pub(crate) fn was_busy(&self, since: u64, now: u64) {
        let busy = &self.recorder.own.busy_ns;
        busy.add_alone(now.saturating_sub(since));
    }

    /// Wakes the worker, from whose epoll instance another thread took what would have woken it.
    pub(crate) fn wake_again(&self) {
        self.eventfd.write();
    }

    /// Takes the task that the worker would run next, for who rescues what a stuck worker has: the
    /// worker gets to it only after the job that it is at.
    ///
    /// From a worker that is not stuck it is better not taken, whose cache has what the task is about
    /// to read. Nobody is woken for what stands in the slot, and a worker that sleeps has none; so this
    /// is no place for searchers to look at. Whoever takes the task runs it, queues it or drops it,
    /// which cancels it.
    pub(crate) fn steal_next(&self) -> Option<TaskJob> {
        self.next.steal().map(TaskJob::from)
    }

    /// Wakes the worker, which has been claimed to search.
    pub(crate) fn wake_to_search(&self) {
        self.recorder.foreign().search_wakes.add(1);
        self.eventfd.write();
    }

    /// Counts on behalf of the calling thread: as this worker's own if it is a worker of this
    /// runtime.
    #[inline]
    pub(crate) fn count(&self, counter: impl Fn(&Counters) -> &Counter) {
        if current::is_current(self) {
            return counter(&self.recorder.own).add_alone(1);
        }
        self.count_for_another(counter);
    }

    // Its call is the last that is done by who counts: so that one needs no stack.
    #[inline(never)]
    fn count_for_another(&self, counter: impl Fn(&Counters) -> &Counter) {
        self.shared.count_or(counter, || self.recorder.foreign());
    }
}

impl TimerOwner for Core {
    #[inline]
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    type Read = Instant;

    #[inline]
    fn read() -> Instant {
        Instant::from_kernel(sys::ticks::now_for_deadline())
    }

    #[inline]
    fn present(&self, read: Instant) -> u64 {
        let clock = &self.shared.clock;
        clock.present(clock.nanos(read))
    }
}

impl Owner for Core {
    fn wake(&self) {
        self.recorder.foreign().tickles_written.add(1);
        self.eventfd.write();
    }

    #[inline]
    fn is_current(&self) -> bool {
        current::is_current(self)
    }

    fn alarm(&self, at: u64) {
        let Some(alarm) = &self.watchdog.alarm else {
            return;
        };
        let clock = &self.shared.clock;
        let mut moment = clock.kernel(at);
        loop {
            // An alarm that the system does not set costs the help, and there is nobody to tell.
            let _ = match moment {
                // A moment, not a length of time: the thread may stand still before it comes to this.
                Some(moment) if at != NEVER => alarm.set_at(moment),
                // A clock that is put forward by hand calls nobody.
                _ => alarm.unset(),
            };
            // Who has resumed the clock meanwhile may have set the alarm before this.
            let now = clock.kernel(at);
            if now.is_some() == moment.is_some() {
                return;
            }
            moment = now;
        }
    }

    fn wake_skipped(&self) {
        self.recorder.foreign().tickles_skipped.add(1);
    }

    #[inline]
    fn armed(&self, _: Kind, here: bool) {
        if here {
            self.recorder.own.armed_local.add_alone(1);
        } else {
            self.recorder.foreign().armed_remote.add(1);
        }
    }

    fn met(&self) {
        spread::make_way();
    }

    #[inline]
    fn moved(&self, here: bool) {
        if here {
            self.recorder.own.refreshed.add_alone(1);
        } else {
            self.count_for_another(|counters| &counters.refreshed);
        }
    }

    #[inline]
    fn over(&self, kind: Kind, how: Outcome) {
        if kind != Kind::Sleep {
            self.shared.release_timer();
        }
        self.count(|counters| counters.over(how));
    }

    fn owed(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    fn told(&self) {
        // Who ends the runtime sees all that the callback did.
        self.owed.fetch_sub(1, Ordering::Release);
    }

    fn deliver(&self, notice: Notice<Self>) {
        self.shared.deliver(Job::Notice(notice));
    }

    #[cold]
    fn panicked(&self, panic: Box<dyn Any + Send>) {
        // The panic hook has reported it.
        self.count(|counters| &counters.panics);
        contained(|| drop(panic));
    }

    #[cold]
    fn reread(&self, _: u64) -> RangeInclusive<u64> {
        self.shared.clock.told()
    }

    fn random(&self) -> u64 {
        spread::random()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        panic::Location,
        sync::{Mutex, mpsc},
        task::{Poll, Waker},
        thread,
        time::Duration,
    };

    use crossbeam::deque;

    use super::*;
    use crate::{
        api::runtime::Runtime,
        task::{
            join::JoinHandle,
            local::{end_pinned, pinned::spawn_pinned_at},
        },
    };

    /// How long a test waits for progress. Only a hang exceeds it.
    const PATIENCE: Duration = Duration::from_secs(300);

    fn runtime() -> (Runtime, Arc<WorkerShard>) {
        let runtime = Runtime::builder().worker_threads(1).build().unwrap();
        let worker = runtime.handle().shared().workers()[0].clone();
        (runtime, worker)
    }

    /// A task that waits to be woken once, and its waker. It answers where it ended.
    fn waiting(runtime: &Runtime) -> (JoinHandle<thread::ThreadId>, Waker) {
        let (sender, receiver) = mpsc::channel();
        let mut waits = true;
        let task = runtime.spawn(poll_fn(move |cx| {
            if !std::mem::take(&mut waits) {
                return Poll::Ready(thread::current().id());
            }
            sender.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }));
        let waker = receiver.recv_timeout(PATIENCE).unwrap();
        // It has returned, so that to wake it is no yield, when the worker does something else.
        runtime.block_on(runtime.spawn(async {})).unwrap();
        (task, waker)
    }

    /// A job on the worker that wakes these, and is stuck then, until the sender is dropped.
    fn stuck(runtime: &Runtime, wakers: Vec<Waker>) -> mpsc::Sender<()> {
        let (go_on, wait) = mpsc::channel::<()>();
        let (is_stuck, receiver) = mpsc::channel();
        let wait = Mutex::new(wait);
        runtime.after(Duration::ZERO, move || {
            wakers.into_iter().for_each(Waker::wake);
            is_stuck.send(()).unwrap();
            let wait = wait.lock().unwrap();
            assert!(wait.recv_timeout(PATIENCE).is_err(), "nothing is sent");
        });
        receiver.recv_timeout(PATIENCE).unwrap();
        go_on
    }

    #[test]
    fn the_next_task_of_a_stuck_worker_is_stolen() {
        let (runtime, worker) = runtime();
        let (task, waker) = waiting(&runtime);
        assert!(worker.owner().steal_next().is_none());
        let go_on = stuck(&runtime, vec![waker]);
        let stolen = worker.owner().steal_next().expect("it stands in the slot");
        assert!(worker.owner().steal_next().is_none());
        stolen.run();
        assert_eq!(runtime.block_on(task).unwrap(), thread::current().id());
        drop(go_on);
    }

    #[test]
    fn only_the_task_that_was_woken_last_stands_in_the_slot() {
        let (runtime, worker) = runtime();
        let (first, first_waker) = waiting(&runtime);
        let (second, second_waker) = waiting(&runtime);
        let go_on = stuck(&runtime, vec![first_waker, second_waker]);
        let stolen = worker.owner().steal_next().expect("it stands in the slot");
        assert!(worker.owner().steal_next().is_none());
        assert!(!worker.owner().stealer.is_empty(), "the first made room");
        stolen.run();
        drop(go_on);
        let here = thread::current().id();
        assert_eq!(runtime.block_on(second).unwrap(), here);
        assert_ne!(runtime.block_on(first).unwrap(), here);
    }

    /// The system gave no thread for it.
    #[test]
    fn what_is_pinned_to_a_worker_that_was_never_started_is_dropped_unrun() {
        let (runtime, _worker) = runtime();
        let shared = runtime.handle().shared().clone();
        let deque = deque::Worker::new_fifo();
        let core = Core::new(0, shared, deque.stealer(), Role::Worker).unwrap();
        let never = Arc::new(Shard::new(core));
        let held = Arc::new(());
        let given = held.clone();
        let create = move || async move { drop(given) };
        let task = spawn_pinned_at(never.clone(), create, Location::caller());
        assert!(!task.is_finished());
        end_pinned(never.owner());
        assert_eq!(Arc::strong_count(&held), 1);
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.is_cancelled());
    }

    #[test]
    fn what_stands_in_the_slot_at_the_end_is_dropped() {
        let (runtime, worker) = runtime();
        let (task, waker) = waiting(&runtime);
        let go_on = stuck(&runtime, vec![waker]);
        runtime.handle().shared().stop();
        drop(go_on);
        drop(runtime);
        assert!(worker.owner().steal_next().is_none());
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
    }

    /// A hook wakes a task when the worker has given up its slot already.
    #[test]
    fn what_a_hook_puts_into_the_slot_is_dropped() {
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let runtime = Runtime::builder()
            .worker_threads(1)
            .on_thread_stop({
                let waker = waker.clone();
                move || waker.lock().unwrap().take().unwrap().wake()
            })
            .build()
            .unwrap();
        let worker = runtime.handle().shared().workers()[0].clone();
        let task;
        (task, *waker.lock().unwrap()) = {
            let (task, waker) = waiting(&runtime);
            (task, Some(waker))
        };
        drop(runtime);
        assert!(worker.owner().steal_next().is_none());
        assert!(
            futures_lite::future::block_on(task)
                .unwrap_err()
                .is_cancelled()
        );
    }
}

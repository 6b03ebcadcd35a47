//! The handle of a timer that runs a callback.

use std::{mem::MaybeUninit, ptr::NonNull};

use crate::{
    claim::{Claim, End, Moved, NEVER, Outcome},
    node::{Header, Kind, Node, NodeRef, VTable},
    shard::{Owner, Shard},
    sync::{Arc, Ordering, UnsafeCell},
};

/// The callback of a node. It is there until the claim says that it ran or ended.
struct Callback<F>(UnsafeCell<MaybeUninit<F>>);

/// The table of a node with callback `F`.
struct Table<O, F>(std::marker::PhantomData<(O, F)>);

impl<O: Owner, F: FnOnce() + Send + 'static> Table<O, F> {
    const ONCE: VTable<O> = VTable {
        kind: Kind::Once,
        run: Self::run_once,
        end: Self::end,
        free: NodeRef::<O>::free::<Callback<F>>,
    };

    unsafe fn run_once(ptr: NonNull<Header<O>>) {
        // SAFETY: the caller won the claim, which gives it the callback.
        unsafe { take::<O, F>(ptr)() }
    }

    unsafe fn end(ptr: NonNull<Header<O>>) {
        // SAFETY: as above.
        drop(unsafe { take::<O, F>(ptr) });
    }
}

impl<O: Owner, F: FnMut() + Send + 'static> Table<O, F> {
    const RECURRING: VTable<O> = VTable {
        kind: Kind::Recurring,
        run: Self::run_again,
        end: Self::end,
        free: NodeRef::<O>::free::<Callback<F>>,
    };

    unsafe fn run_again(ptr: NonNull<Header<O>>) {
        // SAFETY: a node of this table is a `Node<O, Callback<F>>`; references to it stay shared.
        let node = unsafe { ptr.cast::<Node<O, Callback<F>>>().as_ref() };
        // SAFETY: the caller won the claim to run it, so the callback is there and is the caller's.
        node.payload
            .0
            .with_mut(|f| unsafe { (*f).assume_init_mut()() });
    }
}

/// Moves the callback out of its node.
///
/// # Safety
///
/// The node is a `Node<O, Callback<F>>`, and the caller won the claim that gives it the callback
/// for good.
unsafe fn take<O: Owner, F>(ptr: NonNull<Header<O>>) -> F {
    // SAFETY: by contract; references to a node stay shared.
    let node = unsafe { ptr.cast::<Node<O, Callback<F>>>().as_ref() };
    // SAFETY: by contract the callback is there, and nobody reads it after this.
    node.payload
        .0
        .with_mut(|f| unsafe { (*f).assume_init_read() })
}

/// What [`Timer::cancel`] did. Exact: of all that may end a timer, one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// This call cancelled the timer: its callback will not run (again), and is dropped.
    Cancelled,
    /// The timer recurs and is running now; because of this call that run is its last.
    AfterRun,
    /// Too late: the timer is running, once and for all.
    Running,
    /// Too late: the timer was over, or had been cancelled.
    Over,
}

/// What [`Timer::reset_at`] and its kind did. Exact, as [`Cancel`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The timer waits for the new deadline.
    Waiting,
    /// The timer recurs and is running now; after this run it waits for the new deadline.
    AfterRun,
    /// Too late: the timer is running for the last time, or is over.
    TooLate,
}

/// Where a timer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It waits for its deadline, or for a worker to run it.
    Pending,
    /// Its callback is running. It will run again if `last` is false.
    Running {
        /// Whether this is its last run.
        last: bool,
    },
    /// It is over.
    Over(Outcome),
}

/// A timer that runs a callback, or will have.
///
/// All methods may be called from any thread. Dropping the handle leaves the timer as it is.
/// Times are in ns on the clock that the shard's owner passes to [`Shard::expire`]; those beyond
/// [`NEVER`] count as never.
///
/// Two threads that move the same timer at the same moment leave it with the deadline of one of
/// them, and with the wait that one of them, perhaps the other, asked for; all else is exact.
pub struct Timer<O: Owner>(NodeRef<O>);

impl<O: Owner> Timer<O> {
    /// Arms a timer that runs `f` once.
    ///
    /// `wait` is what [`refresh`](Timer::refresh) waits for again: the deadline less the moment of
    /// arming. On a closed shard the timer is
    /// over at once, as shut down, and `f` dropped.
    pub fn once<F>(home: &Arc<Shard<O>>, deadline: u64, wait: u64, f: F) -> Self
    where
        F: FnOnce() + Send + 'static,
    {
        Self::arm(home, deadline, wait, f, &Table::<O, F>::ONCE)
    }

    /// Arms a timer that runs `f` at `deadline` and then every `period` ns (at least 1).
    pub fn recurring<F>(home: &Arc<Shard<O>>, deadline: u64, period: u64, f: F) -> Self
    where
        F: FnMut() + Send + 'static,
    {
        Self::arm(home, deadline, period, f, &Table::<O, F>::RECURRING)
    }

    fn arm<F: Send>(
        home: &Arc<Shard<O>>,
        deadline: u64,
        wait: u64,
        f: F,
        vtable: &'static VTable<O>,
    ) -> Self {
        let header = Header::new(vtable, home.clone(), deadline.min(NEVER), wait);
        let payload = Callback(UnsafeCell::new(MaybeUninit::new(f)));
        let node = NodeRef::new(Node { header, payload });
        home.arrive(&node);
        Self(node)
    }

    /// Cancels the timer. Its callback, if this call is what ended the timer, is dropped here.
    pub fn cancel(&self) -> Cancel {
        match self.0.claim.end(Outcome::Cancelled, self.0.recurs()) {
            End::Won => {
                let node = &self.0;
                node.home.hear_gone(node);
                node.home.owner().over(node.vtable.kind, Outcome::Cancelled);
                // Last, because it may panic.
                // SAFETY: we won the claim, and the table is the node's own.
                unsafe { (node.vtable.end)(node.as_ptr()) };
                Cancel::Cancelled
            }
            End::AfterRun => Cancel::AfterRun,
            End::Running => Cancel::Running,
            End::Over => Cancel::Over,
        }
    }

    /// Moves the timer to `deadline`. What it waits for again when refreshed stays as it is.
    pub fn reset_at(&self, deadline: u64) -> Reset {
        let deadline = deadline.min(NEVER);
        move_to(&self.0, |_| deadline)
    }

    /// Moves the timer to `now + wait`, and makes `wait` its wait (and, if it recurs, its period).
    pub fn reset(&self, now: u64, wait: u64) -> Reset {
        // A wait beyond the end of time is as long as there is time left, so that the deadline less
        // the wait is the moment that it began.
        let wait = wait.min(NEVER.saturating_sub(now));
        self.change_wait(wait, |_| self.reset_at(now.saturating_add(wait)))
    }

    /// Moves the timer to its present wait's beginning plus `wait`, and makes `wait` its wait.
    pub fn reset_from_start(&self, wait: u64) -> Reset {
        self.change_wait(wait, |old| {
            move_to(&self.0, |deadline| {
                deadline.saturating_sub(old).saturating_add(wait).min(NEVER)
            })
        })
    }

    fn change_wait(&self, wait: u64, reset: impl FnOnce(u64) -> Reset) -> Reset {
        // Before the deadline: a recurring timer that runs in between takes the new one.
        let old = self.0.wait.swap(wait, Ordering::Relaxed);
        let reset = reset(old);
        if reset == Reset::TooLate {
            self.0.wait.store(old, Ordering::Relaxed);
        }
        reset
    }

    /// Begins the timer's wait anew: moves it to `now` plus its wait.
    ///
    /// This is the cheap one, from any thread: a later deadline is one compare-exchange, and the
    /// shard hears of it when the old one comes up.
    pub fn refresh(&self, now: u64) -> Reset {
        self.reset_at(now.saturating_add(self.0.wait.load(Ordering::Relaxed)))
    }

    /// The deadline that the timer waits or runs for, in ns, unless it is over (or will be after
    /// this run).
    pub fn deadline(&self) -> Option<u64> {
        self.0.claim.load().deadline()
    }

    /// The timer's wait, or its period, in ns.
    pub fn wait(&self) -> u64 {
        self.0.wait.load(Ordering::Relaxed)
    }

    /// Where the timer stands.
    pub fn status(&self) -> Status {
        match self.0.claim.load() {
            Claim::Pending(_) | Claim::Due(_) => Status::Pending,
            Claim::Running(_) => Status::Running {
                last: !self.0.recurs(),
            },
            Claim::Rearmed(_) => Status::Running { last: false },
            Claim::Stopping(_) => Status::Running { last: true },
            Claim::Over(how) => Status::Over(how),
        }
    }

    /// The shard where the timer waits.
    pub fn home(&self) -> &Arc<Shard<O>> {
        &self.0.home
    }
}

/// Moves the deadline of a node, and tells its home if that has to know.
pub(crate) fn move_to<O: Owner>(node: &NodeRef<O>, to: impl Fn(u64) -> u64) -> Reset {
    match node.claim.reset(node.recurs(), &to) {
        Moved::Later => Reset::Waiting,
        Moved::Earlier => {
            node.home.hear_earlier(node);
            Reset::Waiting
        }
        Moved::AfterRun => Reset::AfterRun,
        Moved::TooLate => Reset::TooLate,
    }
}

impl<O: Owner> std::fmt::Debug for Timer<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Timer").field(&self.0.claim.load()).finish()
    }
}

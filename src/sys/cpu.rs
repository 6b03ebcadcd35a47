//! The cores that threads of this process may use: affinity masks, and the CPU quota.
//!
//! A pinned worker may use one core. Threads and processes that it starts inherit this, and a
//! runtime that is built there sees no other core. So whatever is to have the cores of the process
//! asks here, at the moment when it needs them. The rule:
//!
//! - A thread that the runtime has not pinned has its own mask, as in any program for Linux.
//! - A runtime has the mask of the thread that builds it. If that is a pinned worker, it has the
//!   mask of the worker's runtime. The runtime gives its mask to its helpers, its blocking threads
//!   and to a pinned worker during [`with_all_cores`].
//! - Somebody may change the mask of the whole process later, as `taskset -ap` does: it sets the
//!   mask of each thread. So if the main thread has another mask than when the runtime was built,
//!   and all workers of the runtime have that mask, too, it is from then on the runtime's. A thread
//!   that only changes its own mask changes nothing for others, not even if it is the main thread.
//! - The masks of the workers may say nothing: a current-thread runtime has no worker threads, and
//!   a worker may have been pinned to the very core that the main thread has now. Then all other
//!   threads of the process are asked. If none of them has a core outside of the main thread's
//!   mask, that is the mask of the process. So a runtime is never wider than the masks that are
//!   there, and a process whose only thread pins itself has that core alone.
//! - A cpuset needs no rule: the kernel cuts each mask to it.
//! - A pinned worker may lose its core: to a mask, to a cpuset, or as the core goes offline. It
//!   stays where the kernel or the other mask has put it. To pin it again could undo what somebody
//!   has set.

use std::{
    cell::RefCell,
    fs, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use core_affinity::CoreId;

use super::quota;

/// The kernel's number of a thread.
type ThreadId = libc::pid_t;

/// The calling thread, in calls that take the number of a thread.
const THIS_THREAD: ThreadId = 0;

thread_local! {
    /// Set on a worker that is pinned, to the end of its thread.
    static PIN: RefCell<Option<Pin>> = const { RefCell::new(None) };
}

/// The cores that a runtime may use.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The affinity mask, in ascending order.
    pub(crate) allowed: Vec<usize>,
    /// The number of threads that can run at once: the size of the mask, or the CPU quota if that
    /// is less.
    pub(crate) parallelism: usize,
}

impl Cores {
    /// Returns the mask of the calling thread, and the quota.
    pub(crate) fn of_this_thread() -> Self {
        Self {
            allowed: Mask::of(THIS_THREAD).map_or_else(Vec::new, Mask::cores),
            // The simulation has one processor on every machine. Elsewhere this considers the
            // affinity mask and the cgroup's quota (v1 and v2).
            parallelism: match cfg!(tourbillon_sim) {
                true => 1,
                false => std::thread::available_parallelism().map_or(1, usize::from),
            },
        }
    }

    /// Returns how many threads could run at once without a quota.
    pub(crate) fn most(&self) -> usize {
        // The simulation, and a system that does not tell the mask, have `parallelism` alone.
        self.allowed.len().max(self.parallelism)
    }

    /// Returns whether the CPU quota, in whole cores, allows fewer cores than the mask.
    pub(crate) fn has_quota(&self) -> bool {
        self.parallelism < self.allowed.len()
    }
}

/// How much of the machine the system lets the workers of a runtime use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allowed {
    /// What their masks allow. `None` if the system does not tell.
    cores: Option<CoresOf>,
    /// How many cores the quotas pay for. `None` without a quota.
    quota: Option<f64>,
}

impl Allowed {
    /// Returns how many workers can use it. `None` if nothing limits them.
    ///
    /// A quota is rounded up: with one worker for 1.5 cores, a third of them could never be used.
    ///
    /// It may be one: two workers that are busy at the same time use up half a core in a quarter of
    /// the period, and are both stopped for the rest. One that is busy is stopped for half of it.
    /// Go 1.25 rounds up, too, but has two at least: with one, its garbage collector would stop the
    /// program at times. Here nothing but the program needs a worker, and if that one is stuck, a
    /// retired worker stands in for it.
    pub(crate) fn workers(self) -> Option<usize> {
        let cores = self.cores.map(|cores| f64::from(cores.workers));
        let least = cores.into_iter().chain(self.quota).reduce(f64::min)?;
        Some((least.ceil() as usize).max(1))
    }

    /// Returns what a quota allows on so many cores.
    #[cfg(test)]
    pub(crate) fn with_quota(quota: f64, cores: u32) -> Self {
        let workers = cores;
        Self {
            cores: Some(CoresOf { cores, workers }),
            quota: Some(quota),
        }
    }

    /// Returns how many cores the quota pays for, if that is less than the masks allow.
    pub(crate) fn quota_if_less(self) -> Option<f64> {
        let cores = f64::from(self.cores?.cores);
        self.quota.filter(|&quota| quota < cores)
    }
}

/// What the masks of the workers allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoresOf {
    /// How many cores the masks have together.
    cores: u32,
    /// How many workers these cores are for: at least one for each core, and so many that the first
    /// ones have all the cores. Two workers may be pinned to one core.
    workers: u32,
}

impl CoresOf {
    /// Returns what the masks of workers allow, in the order of their numbers.
    fn masks(masks: &[Mask]) -> Option<Self> {
        let all = masks.iter().copied().reduce(Mask::or)?;
        let mut first = Mask([0; WORDS]);
        let needed = masks.iter().take_while(|&&mask| {
            let has_all = all.is_within(&first);
            first = first.or(mask);
            !has_all
        });
        let (needed, cores) = (needed.count() as u32, all.count());
        let workers = cores.max(needed);
        Some(Self { cores, workers })
    }
}

/// An affinity mask: a bit for each core, as many as in the C library's `cpu_set_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask([u64; WORDS]);

/// The length of a mask in words.
const WORDS: usize = mem::size_of::<libc::cpu_set_t>() / mem::size_of::<u64>();

impl Mask {
    /// Returns the mask of a thread, or `None` if the system does not tell it, or in the
    /// simulation.
    fn of(thread: ThreadId) -> Option<Self> {
        if cfg!(tourbillon_sim) {
            return None;
        }
        let mut mask = Self([0; WORDS]);
        let bits = mask.0.as_mut_ptr().cast();
        // SAFETY: `bits` is valid for writes of that many bytes, and the kernel's masks are arrays
        // of 64-bit words.
        let read = unsafe { libc::sched_getaffinity(thread, mem::size_of_val(&mask.0), bits) };
        (read == 0).then_some(mask)
    }

    /// Returns the mask of the process's main thread.
    fn of_main_thread() -> Option<Self> {
        // Its number is that of the process.
        Self::of(ThreadId::try_from(std::process::id()).ok()?)
    }

    /// Sets the mask of the calling thread. Returns whether the system allowed it: some sandboxes
    /// do not, which only costs speed.
    fn set(&self) -> bool {
        let bits = self.0.as_ptr().cast();
        // SAFETY: `bits` is valid for reads of that many bytes.
        0 == unsafe { libc::sched_setaffinity(THIS_THREAD, mem::size_of_val(&self.0), bits) }
    }

    /// Returns the cores that are in at least one of the two masks.
    fn or(mut self, other: Self) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
        self
    }

    /// Returns whether each core of this mask is in `other`.
    fn is_within(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(&other.0);
        words.all(|(word, other)| word & !other == 0)
    }

    /// Returns the number of cores.
    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the cores, in ascending order.
    fn cores(self) -> Vec<usize> {
        let cores = 0..64 * self.0.len();
        cores
            .filter(|core| self.0[core / 64] >> (core % 64) & 1 == 1)
            .collect()
    }
}

/// The mask of a runtime, and what tells that somebody has changed it since.
#[derive(Debug)]
pub(crate) struct RuntimeMask {
    /// The mask of the thread that built the runtime. `None` if the system does not tell it.
    own: Option<Mask>,
    /// The mask that the main thread had then.
    main: Option<Mask>,
    workers: Mutex<Workers>,
}

/// The worker threads of a runtime.
#[derive(Debug)]
struct Workers {
    /// How many have not begun.
    unstarted: usize,
    /// Those that run, in the order of their numbers.
    running: Vec<WorkerMask>,
    /// What their masks allowed when all of them could last be read.
    allowed: Option<CoresOf>,
}

/// A worker thread that runs.
#[derive(Debug)]
struct WorkerMask {
    index: usize,
    thread: ThreadId,
    /// The mask that it had when it began.
    begun: Option<Mask>,
}

impl Workers {
    /// Notes the masks of all workers. `None` if the system does not tell one of them.
    fn look(&mut self, masks: Option<Vec<Mask>>) {
        let allowed = masks.and_then(|masks| CoresOf::masks(&masks));
        self.allowed = allowed.or(self.allowed);
    }
}

impl RuntimeMask {
    /// Returns the mask of a runtime that the calling thread builds, in [`with_all_cores`].
    pub(crate) fn of_this_thread() -> Self {
        let own = Mask::of(THIS_THREAD);
        Self {
            own,
            main: Mask::of_main_thread(),
            workers: Mutex::new(Workers {
                unstarted: 0,
                running: Vec::new(),
                allowed: own.and_then(|own| CoresOf::masks(&[own])),
            }),
        }
    }

    /// Returns what the process may use as the runtime is built. The quota is as it was at most
    /// 10 s ago: it is looked for once for many runtimes, which may have to be cheap.
    pub(crate) fn allowed_at_first(&self) -> Allowed {
        Allowed {
            cores: self.workers().allowed,
            quota: quota::Groups::known().cores(),
        }
    }

    /// Returns what the workers may use at present. The quota is as it was at most `age` ago.
    pub(crate) fn allowed_now(&self, age: Duration) -> Allowed {
        // Whatever machine the simulation runs on, it takes workers away and gives them back.
        if cfg!(tourbillon_sim) {
            let cores = 1 + (super::random() % 4) as u32;
            let workers = cores;
            return Allowed {
                cores: Some(CoresOf { cores, workers }),
                quota: None,
            };
        }
        Allowed {
            cores: self.cores_now(),
            quota: quota::Groups::known_within(age).cores(),
        }
    }

    /// Returns what the masks of the workers allow. The kernel leaves out cores that are offline.
    /// This returns what it returned last, if the system does not tell a mask at present, or if a
    /// worker has not begun.
    fn cores_now(&self) -> Option<CoresOf> {
        let mut workers = self.workers();
        if workers.unstarted == 0 {
            let masks = workers.running.iter().map(|it| Mask::of(it.thread));
            let masks = masks.collect();
            workers.look(masks);
        }
        workers.allowed
    }

    /// Keeps all looks waiting until what this returns is dropped.
    #[cfg(test)]
    pub(crate) fn held(&self) -> impl Sized + '_ {
        self.workers()
    }

    /// Sets how many threads the runtime starts for its workers. Call it before they start.
    pub(crate) fn expect_workers(&self, count: usize) {
        self.workers().unstarted = count;
    }

    /// Makes the calling thread the worker `index` until the guard is dropped, and pins it to
    /// `core`. If the system refuses to pin it, it runs where it may.
    pub(crate) fn enter(self: &Arc<Self>, index: usize, core: Option<usize>) -> WorkerThread<'_> {
        let main = Mask::of_main_thread();
        // If somebody has narrowed all threads of the process since the runtime was built, this
        // one keeps what it was given.
        if main == self.main || Mask::of(THIS_THREAD) != main {
            // A pinned worker of another runtime may have started this thread.
            self.take();
            if core.is_some_and(pin) {
                let pin = Mask::of(THIS_THREAD).map(|core| Pin {
                    core,
                    of: self.clone(),
                });
                PIN.set(pin);
            }
        }
        let thread = super::thread_id();
        let begun = Mask::of(THIS_THREAD);
        let mut workers = self.workers();
        workers.unstarted -= 1;
        let at = workers.running.partition_point(|it| it.index < index);
        let worker = WorkerMask {
            index,
            thread,
            begun,
        };
        workers.running.insert(at, worker);
        drop(workers);
        WorkerThread(self, thread)
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the runtime's mask to the calling thread, which has just started. It may have
    /// inherited the core of a worker.
    pub(crate) fn take(&self) {
        let mut last = None;
        // Look again after it: if somebody sets the masks of all threads meanwhile, he may have
        // come to this thread before it took the old mask, and to the workers before that.
        while let Some(mask) = self.now().filter(|&mask| Some(mask) != last) {
            if Mask::of(THIS_THREAD) != Some(mask) {
                mask.set();
            }
            last = Some(mask);
        }
    }

    /// Returns the runtime's mask.
    fn now(&self) -> Option<Mask> {
        let main = Mask::of_main_thread();
        let changed = main.filter(|mask| main != self.main && self.is_of_all(mask));
        changed.or(self.own)
    }

    /// Returns whether somebody has set this mask for the whole process, as far as the masks of its
    /// threads show it.
    fn is_of_all(&self, mask: &Mask) -> bool {
        let workers = self.workers();
        let has = |worker: &WorkerMask| Mask::of(worker.thread) == Some(*mask);
        if workers.unstarted > 0 || !workers.running.iter().all(has) {
            return false;
        }
        // A worker that had another mask before shows it. Otherwise the other threads may.
        let was_other = |worker: &WorkerMask| worker.begun != Some(*mask);
        let changed = workers.running.iter().any(was_other);
        drop(workers);
        changed || self.fits_others(mask)
    }

    /// Returns whether all other threads of the process have this mask. If it is a part of the
    /// runtime's, they may have less: workers are pinned within it.
    fn fits_others(&self, mask: &Mask) -> bool {
        // If the system does not list the threads, believe the main one: a runtime is rather too
        // narrow than too wide.
        let Ok(threads) = fs::read_dir("/proc/self/task") else {
            return true;
        };
        let this = super::thread_id();
        let is_narrower = self.own.is_some_and(|own| mask.is_within(&own));
        threads
            .filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok())
            // The calling thread asks which mask it may have.
            .filter(|&thread: &ThreadId| thread != this)
            // Those that have ended have no mask.
            .filter_map(Mask::of)
            .all(|other| other == *mask || (is_narrower && other.is_within(mask)))
    }
}

/// The calling thread is a worker, until this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerThread<'a>(&'a RuntimeMask, ThreadId);

impl Drop for WorkerThread<'_> {
    fn drop(&mut self) {
        PIN.set(None);
        self.0
            .workers()
            .running
            .retain(|worker| worker.thread != self.1);
    }
}

/// What a worker is pinned to.
#[derive(Clone)]
struct Pin {
    core: Mask,
    of: Arc<RuntimeMask>,
}

impl Pin {
    /// Gives the runtime's mask to the calling thread, which has this pin, until the guard is
    /// dropped. Returns `None` if somebody has set another mask for the thread, which stays.
    fn leave(self) -> Option<Left> {
        let all = self.of.now()?;
        let is_pinned = Mask::of(THIS_THREAD) == Some(self.core);
        if !is_pinned || all == self.core || !all.set() {
            return None;
        }
        Some(Left {
            core: self.core,
            // The kernel may have cut it to a cpuset.
            all: Mask::of(THIS_THREAD),
        })
    }
}

/// A worker that has left its core, until this is dropped.
struct Left {
    core: Mask,
    all: Option<Mask>,
}

impl Drop for Left {
    fn drop(&mut self) {
        // Somebody may have set another mask meanwhile. It stays.
        if Mask::of(THIS_THREAD) == self.all {
            self.core.set();
        }
    }
}

/// Pins the calling thread to a core. Returns `false` if the system refuses.
pub(crate) fn pin(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}

/// Calls `f`. If the calling thread is a pinned worker, it has the mask of its runtime meanwhile.
pub(crate) fn with_all_cores<R>(f: impl FnOnce() -> R) -> R {
    // At the end of a thread the variable is gone, and the thread is no worker any more.
    let pin = PIN.try_with(|pin| pin.borrow().clone());
    let _left = pin.ok().flatten().and_then(Pin::leave);
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what workers allow that are pinned to these cores.
    fn pinned(cores: &[usize]) -> Option<CoresOf> {
        CoresOf::masks(&masks(cores))
    }

    fn masks(cores: &[usize]) -> Vec<Mask> {
        let mask = |&core: &usize| {
            let mut mask = Mask([0; WORDS]);
            mask.0[core / 64] = 1 << (core % 64);
            mask
        };
        cores.iter().map(mask).collect()
    }

    fn cores(cores: u32) -> Option<CoresOf> {
        let workers = cores;
        Some(CoresOf { cores, workers })
    }

    #[test]
    fn the_quota_and_the_masks_limit_the_workers() {
        let workers = |cores, quota| Allowed { cores, quota }.workers();
        assert_eq!(workers(None, None), None);
        assert_eq!(workers(cores(3), None), Some(3));
        let quotas = [(0.01, 1), (0.5, 1), (1.0, 1), (1.01, 2), (1.5, 2), (2.0, 2)];
        for (quota, expected) in quotas {
            assert_eq!(workers(None, Some(quota)), Some(expected), "{quota}");
            assert_eq!(workers(cores(64), Some(quota)), Some(expected), "{quota}");
            assert_eq!(workers(cores(1), Some(quota)), Some(1), "{quota}");
        }
        let is_less = |cores, quota| Allowed { cores, quota }.quota_if_less().is_some();
        assert!(is_less(cores(2), Some(1.5)) && is_less(cores(1), Some(0.5)));
        assert!(!is_less(cores(1), Some(1.0)) && !is_less(cores(1), None));
        assert!(!is_less(None, Some(0.5)), "the masks are not known");
        assert!(
            !is_less(pinned(&[0, 0, 1, 1]), Some(2.0)),
            "there are two cores"
        );
    }

    #[test]
    fn so_many_workers_take_part_that_they_have_all_cores() {
        let workers = |cores: &[usize]| pinned(cores).map(|cores| (cores.cores, cores.workers));
        assert_eq!(workers(&[]), None);
        assert_eq!(workers(&[7]), Some((1, 1)));
        assert_eq!(workers(&[0, 1, 0, 1]), Some((2, 2)));
        assert_eq!(workers(&[0, 0, 1, 1]), Some((2, 3)));
        assert_eq!(workers(&[0, 0, 0, 64]), Some((2, 4)));
        let both = masks(&[0, 1]).into_iter().reduce(Mask::or).unwrap();
        let wide = CoresOf::masks(&[both; 4]);
        assert_eq!(wide, cores(2), "the first worker has both cores");
    }

    #[test]
    fn a_worker_whose_mask_is_not_known_changes_nothing() {
        let mask = RuntimeMask::of_this_thread();
        let first = mask.workers().allowed;
        mask.expect_workers(1);
        assert_eq!(mask.cores_now(), first, "the worker has not begun");
        mask.workers().look(Some(masks(&[0, 1, 2])));
        assert_eq!(mask.cores_now(), cores(3));
        mask.workers().look(None);
        assert_eq!(mask.cores_now(), cores(3), "the system does not tell");
        mask.workers().look(Some(masks(&[0])));
        assert_eq!(mask.cores_now(), cores(1));
    }
}

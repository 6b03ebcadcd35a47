//! The jobs that a node holds: in timers until they are due, then in a row for each queue and
//! priority.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tourbillon::{
    Handle,
    sync::Notify,
    time::Instant,
    timer::{Timer, WallTimer},
};

use crate::{
    job::{LOWEST_PRIORITY, Token},
    store::{Deadline, Held},
};

/// How many priorities there are.
const PRIORITIES: usize = LOWEST_PRIORITY as usize + 1;

enum Armed {
    Monotonic(Timer),
    Wall(WallTimer),
}

impl Armed {
    fn cancel(&self) {
        match self {
            Self::Monotonic(timer) => drop(timer.cancel()),
            Self::Wall(timer) => drop(timer.cancel()),
        }
    }
}

/// The jobs of a queue.
struct Line {
    name: String,
    /// How many of its attempts run at once, at most.
    most: usize,
    /// How many attempts run, or are about to begin.
    running: usize,
    /// How many attempts have begun, or are about to.
    begun: u64,
    /// By priority. Each job with the time since when it is here.
    due: [VecDeque<(Instant, Held)>; PRIORITIES],
    /// How many jobs of each priority are in timers or due.
    counts: [usize; PRIORITIES],
}

impl Line {
    fn new((name, most): (String, usize)) -> Self {
        Self {
            name,
            most,
            running: 0,
            begun: 0,
            due: Default::default(),
            counts: Default::default(),
        }
    }

    /// Returns how many jobs of the first so many priorities are due.
    fn due(&self, priorities: usize) -> usize {
        self.due[..priorities].iter().map(VecDeque::len).sum()
    }

    /// Returns how many more attempts may run.
    fn room(&self) -> usize {
        self.most.saturating_sub(self.running)
    }

    /// Returns how many due jobs the node should hold at most: as many as attempts can begin at
    /// once, and as many again.
    fn most_due(&self) -> usize {
        self.room().saturating_mul(2)
    }
}

#[derive(Default)]
struct Jobs {
    /// The session that may add jobs. Timers of earlier ones do nothing.
    session: u64,
    timers: HashMap<Token, Armed>,
    lines: Vec<Line>,
}

impl Jobs {
    /// Returns the line of a job.
    fn line(&mut self, held: &Held) -> &mut Line {
        // The store gives the node jobs of its queues only.
        let line = self.lines.iter().position(|line| line.name == held.queue);
        &mut self.lines[line.unwrap_or(0)]
    }

    /// Makes a job due, as the last one of its queue and priority or as the first.
    fn push(&mut self, held: Held, is_first: bool) {
        let due = &mut self.line(&held).due[place(&held)];
        let job = (Instant::now(), held);
        match is_first {
            true => due.push_front(job),
            false => due.push_back(job),
        }
    }

    /// Counts a job that is here now.
    fn count(&mut self, held: &Held) {
        self.line(held).counts[place(held)] += 1;
    }
}

/// Returns the place of a job's priority. A priority below the lowest one counts as the lowest.
fn place(held: &Held) -> usize {
    usize::from(held.priority.min(LOWEST_PRIORITY))
}

struct Inner {
    jobs: Mutex<Jobs>,
    count: AtomicUsize,
    /// Notified when a job is due, or when another attempt of a queue may run.
    came_due: Notify,
    /// Notified when the node holds fewer jobs than before, or when an attempt ends.
    left: Notify,
    /// Notified when the last session may end.
    ended: Notify,
}

/// The jobs that a node holds.
#[derive(Clone)]
pub(super) struct Table(Arc<Inner>);

/// The place of an attempt among those of its queue, which is free when this is dropped.
pub(super) struct Seat {
    table: Table,
    queue: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.table.lock().lines[self.queue].running -= 1;
        self.table.0.came_due.notify_one();
        self.table.0.left.notify_one();
    }
}

impl Table {
    /// Makes a table for these queues, each with the most attempts that run at once.
    pub(super) fn new(queues: &[(String, usize)]) -> Self {
        let jobs = Jobs {
            lines: queues.iter().cloned().map(Line::new).collect(),
            ..Jobs::default()
        };
        Self(Arc::new(Inner {
            jobs: Mutex::new(jobs),
            count: AtomicUsize::new(0),
            came_due: Notify::new(),
            left: Notify::new(),
            ended: Notify::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing that panics runs under the lock.
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many jobs the node holds and has not begun.
    pub(super) fn len(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    fn update_count(&self, jobs: &Jobs) {
        let counts = jobs.lines.iter().flat_map(|line| &line.counts);
        self.0.count.store(counts.sum(), Ordering::Relaxed);
    }

    /// Drops all jobs, for a new session.
    pub(super) fn clear(&self) {
        let timers = {
            let mut jobs = self.lock();
            jobs.session += 1;
            for line in &mut jobs.lines {
                line.due = Default::default();
                line.counts = Default::default();
            }
            let timers = std::mem::take(&mut jobs.timers);
            self.update_count(&jobs);
            timers
        };
        for timer in timers.values() {
            timer.cancel();
        }
        self.0.left.notify_one();
    }

    /// Arms the timers of jobs. `deadline` is `None` if the job is due.
    pub(super) fn add(&self, held: Vec<Held>, deadline: impl Fn(&Held) -> Option<Deadline>) {
        let handle = Handle::current();
        // Hold the lock while the timers are armed. A timer that fires at once waits for the lock,
        // and so finds itself in the table.
        let mut jobs = self.lock();
        let session = jobs.session;
        let mut is_due = false;
        for held in held {
            jobs.count(&held);
            let Some(deadline) = deadline(&held) else {
                jobs.push(held, false);
                is_due = true;
                continue;
            };
            let token = held.token;
            let table = self.clone();
            let fire = move || table.fire(session, held);
            let armed = match deadline {
                Deadline::Wall(time) => Armed::Wall(Timer::at_wall(time).on(&handle).start(fire)),
                Deadline::Monotonic(at) => Armed::Monotonic(handle.at(at, fire)),
            };
            jobs.timers.insert(token, armed);
        }
        self.update_count(&jobs);
        drop(jobs);
        if is_due {
            self.0.came_due.notify_one();
        }
    }

    fn fire(&self, session: u64, held: Held) {
        let mut jobs = self.lock();
        if jobs.session != session {
            return;
        }
        jobs.timers.remove(&held.token);
        jobs.push(held, false);
        drop(jobs);
        self.0.came_due.notify_one();
    }

    /// Waits until a job is due that its queue lets begin, without taking it. Returns how many
    /// there are.
    pub(super) async fn wait_for_due(&self) -> usize {
        let ready = |line: &Line| line.due(PRIORITIES).min(line.room());
        loop {
            let due = self.lock().lines.iter().map(ready).sum();
            if due > 0 {
                return due;
            }
            self.0.came_due.notified().await;
        }
    }

    /// Returns how many due jobs the node holds, of each queue at most as many as it should hold.
    /// What a full queue has beyond that keeps no handler from the jobs of others.
    pub(super) fn due(&self) -> usize {
        let of_line = |line: &Line| line.due(PRIORITIES).min(line.most_due());
        self.lock().lines.iter().map(of_line).sum()
    }

    /// Returns how many more due jobs of a queue the node may hold.
    pub(super) fn room_of(&self, queue: usize) -> usize {
        let line = &self.lock().lines[queue];
        line.most_due().saturating_sub(line.due(PRIORITIES))
    }

    /// Returns whether a queue lets another attempt begin. Also returns how many have begun: of all
    /// queues if it does, and otherwise of this one.
    pub(super) fn begun(&self, queue: usize) -> (bool, u64) {
        let jobs = self.lock();
        let line = &jobs.lines[queue];
        match line.room() {
            0 => (false, line.begun),
            _ => (true, jobs.lines.iter().map(|line| line.begun).sum()),
        }
    }

    /// Returns the lowest priority of the jobs that the node holds, if it is not the highest one,
    /// and how many more due jobs of a queue above it the node may hold: as many as can run, of
    /// which there are at most `concurrency` in all queues.
    pub(super) fn room_above(&self, queue: usize, concurrency: usize) -> Option<(u8, usize)> {
        let jobs = self.lock();
        let lowest = |line: &Line| line.counts.iter().rposition(|&count| count > 0);
        let lowest = jobs.lines.iter().filter_map(lowest).max();
        let lowest = lowest.filter(|&lowest| lowest > 0)?;
        let line = &jobs.lines[queue];
        let room = line.most.min(concurrency).saturating_sub(line.due(lowest));
        Some((u8::try_from(lowest).ok()?, room))
    }

    /// Takes at most `most` due jobs that their queues let begin, those of the highest priority
    /// first, and of one priority those that have waited for the longest. Their payloads have at
    /// most `bytes` bytes, unless a single one has more.
    pub(super) fn take_due(&self, most: usize, bytes: usize) -> Vec<(Held, Seat)> {
        let mut jobs = self.lock();
        let (mut taken, mut sum) = (Vec::new(), 0);
        'all: for priority in 0..PRIORITIES {
            while taken.len() < most {
                let lines = jobs.lines.iter().enumerate();
                let first = lines.filter_map(|(queue, line)| {
                    let first = line.due[priority].front().filter(|_| line.room() > 0);
                    first.map(|(since, held)| (*since, queue, held.size))
                });
                let Some((_, queue, size)) = first.min() else {
                    break;
                };
                if !taken.is_empty() && sum + size > bytes {
                    break 'all;
                }
                sum += size;
                let line = &mut jobs.lines[queue];
                if let Some((_, held)) = line.due[priority].pop_front() {
                    line.counts[priority] -= 1;
                    line.running += 1;
                    line.begun += 1;
                    let table = self.clone();
                    taken.push((held, Seat { table, queue }));
                }
            }
        }
        self.update_count(&jobs);
        drop(jobs);
        self.0.left.notify_one();
        taken
    }

    /// Takes at most `most` jobs that have been due and here since `time`, those of the lowest
    /// priority first: of all queues, or only of those whose attempts all run.
    pub(super) fn take_overdue(&self, time: Instant, most: usize, of_all: bool) -> Vec<Held> {
        let mut jobs = self.lock();
        let mut taken = Vec::new();
        for priority in (0..PRIORITIES).rev() {
            for line in &mut jobs.lines {
                let due = match of_all || line.room() == 0 {
                    true => &mut line.due[priority],
                    false => continue,
                };
                let room = most - taken.len();
                let overdue = due
                    .iter()
                    .take(room)
                    .take_while(|(since, _)| *since <= time);
                let count = overdue.count();
                taken.extend(due.drain(..count).map(|(_, held)| held));
                line.counts[priority] -= count;
            }
        }
        self.update_count(&jobs);
        drop(jobs);
        if !taken.is_empty() {
            self.0.left.notify_one();
        }
        taken
    }

    /// Puts due jobs back to where they were taken from, or behind the others of their priorities.
    pub(super) fn put_back(&self, mut held: Vec<Held>, behind: bool) {
        let mut jobs = self.lock();
        if !behind {
            held.reverse();
        }
        for held in held {
            jobs.count(&held);
            jobs.push(held, !behind);
        }
        self.update_count(&jobs);
        drop(jobs);
        self.0.came_due.notify_one();
    }

    /// Waits until the node holds fewer jobs than before, or an attempt ends.
    pub(super) async fn wait_for_room(&self) {
        self.0.left.notified().await;
    }

    /// Lets the last session end.
    pub(super) fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Waits for [`end`](Self::end).
    pub(super) async fn wait_for_end(&self) {
        self.0.ended.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::job::Time;

    fn job(token: i64, priority: u8, size: usize) -> Held {
        Held {
            key: token.to_string(),
            kind: String::new(),
            queue: "default".into(),
            priority,
            due: Time::from_micros(0),
            at: Time::from_micros(0),
            attempts: 0,
            repeat: None,
            size,
            token: Token(token),
            traceparent: None,
        }
    }

    fn tokens(jobs: &[Held]) -> Vec<i64> {
        jobs.iter().map(|held| held.token.0).collect()
    }

    fn take(table: &Table, most: usize, bytes: usize) -> (Vec<Held>, Vec<Seat>) {
        table.take_due(most, bytes).into_iter().unzip()
    }

    #[test]
    fn jobs_are_taken_by_their_priorities() {
        tourbillon::Runtime::new().unwrap().block_on(async {
            let table = Table::new(&[("default".into(), usize::MAX)]);
            assert_eq!(table.room_above(0, 6), None);
            let jobs = [
                job(1, 4, 1),
                job(2, 9, 1),
                job(3, 0, 5),
                job(4, 4, 5),
                job(5, 0, 1),
            ];
            let later = Deadline::Monotonic(Instant::now() + Duration::from_secs(3600));
            table.add(jobs.into(), |held| (held.token.0 == 2).then_some(later));
            assert_eq!((table.len(), table.due()), (5, 4));
            // As many of those that are due can run as there are handlers.
            assert_eq!(table.room_above(0, 6), Some((9, 2)));
            assert_eq!(table.room_above(0, 3), Some((9, 0)));
            // The payload of the fourth is too large.
            let (taken, _) = take(&table, 10, 8);
            assert_eq!(tokens(&taken), [3, 5, 1]);
            assert_eq!((table.len(), table.due()), (2, 1));
            // Back to where they were, or behind the others.
            table.put_back(taken, false);
            assert_eq!(tokens(&take(&table, 4, 100).0), [3, 5, 1, 4]);
            table.put_back(vec![job(6, 4, 1), job(7, 0, 1)], true);
            table.put_back(vec![job(8, 4, 1)], true);
            // The lowest ones are given back first.
            let time = Instant::now() + Duration::from_secs(1);
            let has_left = async || poll_once(table.wait_for_room()).await.is_some();
            assert!(has_left().await);
            assert!(table.take_overdue(time, 2, false).is_empty());
            assert!(!has_left().await);
            assert_eq!(tokens(&table.take_overdue(time, 2, true)), [6, 8]);
            assert!(has_left().await);
            assert_eq!(table.room_above(0, 6), Some((9, 5)));
            table.clear();
            assert_eq!((table.len(), table.room_above(0, 6)), (0, None));
        });
    }

    #[test]
    fn a_queue_lets_as_many_begin_as_it_may() {
        tourbillon::Runtime::new().unwrap().block_on(async {
            let queues = [("default".into(), usize::MAX), ("mails".into(), 2)];
            let table = Table::new(&queues);
            let mail = |token| Held {
                queue: "mails".into(),
                ..job(token, 0, 1)
            };
            let jobs = vec![mail(1), mail(2), mail(3), job(4, 4, 1), mail(5)];
            table.add(jobs, |_| None);
            assert_eq!((table.room_of(1), table.due()), (0, 5));
            assert_eq!((table.begun(0), table.begun(1)), ((true, 0), (true, 0)));
            assert_eq!(table.wait_for_due().await, 3);
            // The others of the queue wait, and not what is behind them.
            let (taken, mut seats) = take(&table, 10, 100);
            assert_eq!(tokens(&taken), [1, 2, 4]);
            assert!(take(&table, 10, 100).0.is_empty());
            // What the full queue has beyond its limit counts for no other queue.
            assert_eq!((table.len(), table.due()), (2, 0));
            assert_eq!((table.begun(0), table.begun(1)), ((true, 3), (false, 2)));
            table.add(vec![job(6, 4, 1)], |_| None);
            let (_, other) = take(&table, 10, 100);
            assert_eq!((table.begun(0), table.begun(1)), ((true, 4), (false, 2)));
            drop(other);
            seats.remove(0);
            assert_eq!(table.wait_for_due().await, 1);
            let (taken, more) = take(&table, 10, 100);
            assert_eq!(tokens(&taken), [3]);
            // What its attempts keep waiting can be given back.
            let time = Instant::now() + Duration::from_secs(1);
            assert_eq!(tokens(&table.take_overdue(time, 10, false)), [5]);
            drop((seats, more));
            assert_eq!(table.room_of(1), 4);
        });
    }
}

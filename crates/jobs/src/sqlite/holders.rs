//! The table of which node holds which job. Only this process has the file, so the table is in
//! memory. After a crash no node holds anything, and the next process has higher tokens.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    job::{Time, Token},
    store::{Begin, Held},
};

/// How many early jobs are remembered by their keys. If there are more, the table is read again.
const MOST_EARLIER: usize = 100_000;

/// The queue, the kind and the priority of jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) priority: u8,
}

/// The holder of a job.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) node: i64,
    pub(super) token: Token,
    pub(super) lane: Lane,
    pub(super) at: Time,
    pub(super) attempts: u32,
    pub(super) running: bool,
}

/// A place in the order in which jobs are due.
pub(super) type Place = (Time, String);

/// What was read of the jobs of a lane.
struct Read {
    /// Up to this place, all jobs have a holder or are in `earlier`.
    horizon: Place,
    /// Likewise between these two places, which are behind the horizon: while more jobs are due
    /// than the nodes take.
    later: Option<(Place, Place)>,
    /// Jobs of these places that have no holder.
    earlier: BTreeSet<Place>,
}

pub(super) struct State {
    pub(super) by_key: HashMap<String, Holder>,
    read: HashMap<Lane, Read>,
    /// How many jobs of all lanes are in `earlier`.
    count: usize,
    /// How often all horizons were put back.
    resets: u64,
    /// The queues that are paused, as far as the writer has come.
    pub(super) paused: HashSet<String>,
    /// The nodes that may hold jobs.
    nodes: HashSet<i64>,
    last_node: i64,
    last_token: i64,
}

/// The holders of all jobs.
pub(super) struct Holders(Mutex<State>);

pub(super) fn start() -> Place {
    (Time::from_micros(i64::MIN), String::new())
}

/// Returns the first place behind all those of a time.
pub(super) fn behind(time: Time) -> Place {
    (
        Time::from_micros(time.as_micros().saturating_add(1)),
        String::new(),
    )
}

impl Holders {
    /// Makes an empty table. `epoch` is greater than that of any earlier process, and these queues
    /// are paused.
    pub(super) fn new(epoch: i64, paused: Vec<String>) -> Self {
        Self(Mutex::new(State {
            by_key: HashMap::new(),
            read: HashMap::new(),
            count: 0,
            resets: 0,
            paused: paused.into_iter().collect(),
            nodes: HashSet::new(),
            last_node: 0,
            // A process gives less than 2^40 tokens, and a file has less than 2^23 epochs.
            last_token: epoch << 40,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt if the token is that of the holder, no attempt runs, the job is due, and
    /// its queue is not paused.
    /// The next attempt may begin at `again`. Returns the number and the time of this attempt.
    pub(super) fn begin(
        &self,
        key: &str,
        token: Token,
        now: Time,
        again: Time,
    ) -> Result<(u32, Time), Begin> {
        let mut state = self.lock();
        let State { by_key, paused, .. } = &mut *state;
        match by_key.get_mut(key) {
            Some(holder) if holder.token == token && !holder.running => {
                let at = holder.at;
                if at > now {
                    return Err(Begin::Early);
                }
                if paused.contains(&holder.lane.queue) {
                    return Err(Begin::Paused);
                }
                holder.running = true;
                holder.attempts += 1;
                holder.at = again;
                Ok((holder.attempts, at))
            }
            _ => Err(Begin::No),
        }
    }

    pub(super) fn is_running(&self, key: &str) -> bool {
        let state = self.lock();
        state.by_key.get(key).is_some_and(|holder| holder.running)
    }
}

impl Read {
    /// Returns whether a place was read.
    fn has(&self, place: &Place) -> bool {
        let is_later = |(from, to): &(Place, Place)| from < place && place <= to;
        *place <= self.horizon || self.later.as_ref().is_some_and(is_later)
    }

    /// Returns behind which place nothing was read, from `first` on.
    fn unread<'a>(&'a self, first: &'a Place) -> &'a Place {
        match &self.later {
            _ if self.horizon >= *first => &self.horizon,
            Some((from, to)) if from <= first && to >= first => to,
            _ => first,
        }
    }

    /// Remembers that all jobs between these places have holders now.
    fn has_read(&mut self, from: Place, to: Place) {
        if from <= self.horizon {
            self.horizon = to.max(self.horizon.clone());
        } else {
            let start = match self.later.take() {
                Some((start, end)) if start <= from && end >= from => start,
                _ => from,
            };
            self.later = Some((start, to));
        }
        if let Some((_, to)) = self.later.take_if(|(from, _)| *from <= self.horizon) {
            self.horizon = to.max(self.horizon.clone());
        }
    }
}

impl State {
    /// Admits a node, and returns its number.
    pub(super) fn register(&mut self) -> i64 {
        self.last_node += 1;
        self.nodes.insert(self.last_node);
        self.last_node
    }

    /// Returns whether a node may hold jobs: it has not been released.
    pub(super) fn may_hold(&self, node: i64) -> bool {
        self.nodes.contains(&node)
    }

    /// Makes a node the holder of a job that has none.
    pub(super) fn hold(&mut self, node: i64, job: &Held) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        let holder = Holder {
            node,
            token,
            lane: Lane {
                queue: job.queue.clone(),
                kind: job.kind.clone(),
                priority: job.priority,
            },
            at: job.at,
            attempts: job.attempts,
            running: false,
        };
        self.by_key.insert(job.key.clone(), holder);
        token
    }

    /// Forgets what was read of the lanes of a queue that have no jobs. No look reads these, so
    /// their horizons would fall behind the present. `lanes` are the others, in their order.
    pub(super) fn keep_lanes(&mut self, queue: &str, lanes: &[Lane]) {
        let count = &mut self.count;
        self.read.retain(|lane, read| {
            let is_kept = lane.queue != queue || lanes.binary_search(lane).is_ok();
            if !is_kept {
                *count -= read.earlier.len();
            }
            is_kept
        });
    }

    /// Remembers a job without a holder. Returns whether to tell the nodes. They are told of a job
    /// in what was read, of one before `later`, and of the first one of a lane. They find others
    /// when they look.
    pub(super) fn offer(&mut self, lane: &Lane, at: Time, key: String) -> bool {
        let Some(read) = self.read.get_mut(lane) else {
            return true;
        };
        let place = (at, key);
        if !read.has(&place) {
            return read.later.as_ref().is_some_and(|(from, _)| place <= *from);
        }
        self.count += usize::from(read.earlier.insert(place));
        if self.count > MOST_EARLIER {
            self.read_again();
        }
        true
    }

    /// Returns the first places, at most `most`, from `first` on and up to `until`, whose jobs have
    /// no holder, as far as is known.
    pub(super) fn earlier(
        &self,
        lane: &Lane,
        first: &Place,
        until: Time,
        most: usize,
    ) -> Vec<Place> {
        let Some(read) = self.read.get(lane) else {
            return Vec::new();
        };
        let places = read.earlier.range(first.clone()..behind(until));
        places.take(most).cloned().collect()
    }

    /// Forgets places of jobs that have holders now.
    pub(super) fn forget(&mut self, lane: &Lane, places: &[Place]) {
        if let Some(read) = self.read.get_mut(lane) {
            for place in places {
                self.count -= usize::from(read.earlier.remove(place));
            }
        }
    }

    /// Forgets all horizons, so that the next reads of the table start over.
    pub(super) fn read_again(&mut self) {
        self.read.clear();
        self.count = 0;
        self.resets += 1;
    }

    /// Returns behind which place to read the table for jobs of a lane from `first` on, and how
    /// often the horizons were put back.
    pub(super) fn unread(&self, lane: &Lane, first: &Place) -> (Place, u64) {
        let from = match self.read.get(lane) {
            Some(read) => read.unread(first),
            None => first,
        };
        (from.clone(), self.resets)
    }

    /// Remembers that all jobs of a lane between `from` and `to` have holders now, where `from` and
    /// `resets` are of [`unread`](Self::unread).
    pub(super) fn has_read(&mut self, lane: &Lane, (from, resets): (Place, u64), to: Place) {
        if resets == self.resets && to >= from {
            let read = self.read.entry(lane.clone()).or_insert_with(|| Read {
                horizon: start(),
                later: None,
                earlier: BTreeSet::new(),
            });
            read.has_read(from, to);
        }
    }

    /// Makes holders again of those whose jobs were taken from them, unless their nodes were
    /// released meanwhile.
    pub(super) fn put_back(&mut self, taken: Vec<(String, Holder)>) {
        for (key, holder) in taken {
            if self.may_hold(holder.node) {
                self.by_key.insert(key, holder);
            }
        }
    }

    /// Takes a job from the holder that has this token. Returns whether it had one.
    pub(super) fn give_back(&mut self, key: String, token: Token) -> bool {
        let Some(holder) = self.by_key.get(&key).filter(|held| held.token == token) else {
            return false;
        };
        let (lane, at) = (holder.lane.clone(), holder.at);
        self.by_key.remove(&key);
        self.offer(&lane, at, key);
        true
    }

    /// Pauses a queue, or lets it go on.
    pub(super) fn set_paused(&mut self, queue: String, is_paused: bool) {
        match is_paused {
            true => self.paused.insert(queue),
            false => self.paused.remove(&queue),
        };
    }

    /// Undoes the begin of an attempt of a job that was due at `at`.
    pub(super) fn undo_begin(&mut self, key: &str, token: Token, at: Time) {
        if let Some(holder) = self.by_key.get_mut(key)
            && holder.token == token
        {
            holder.running = false;
            holder.attempts -= 1;
            holder.at = at;
        }
    }

    /// Takes all jobs from a node, which gets no more of them. Returns whether there were any.
    pub(super) fn release(&mut self, node: i64) -> bool {
        self.nodes.remove(&node);
        let held: Vec<_> = self
            .by_key
            .extract_if(|_, holder| holder.node == node)
            .collect();
        let any = !held.is_empty();
        for (key, holder) in held {
            self.offer(&holder.lane, holder.at, key);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_out_of_order_is_joined() {
        let holders = Holders::new(1, Vec::new());
        let mut state = holders.lock();
        let lane = |kind: &str, priority| Lane {
            queue: "default".into(),
            kind: kind.to_owned(),
            priority,
        };
        let (a, b, c) = (&lane("a", 4), &lane("b", 4), &lane("a", 5));
        let place = |micros| (Time::from_micros(micros), "job".to_owned());
        let offer = |state: &mut State, micros| state.offer(a, place(micros).0, "job".into());
        // Nobody has looked for jobs of this lane.
        assert!(offer(&mut state, 5) && state.earlier(a, &start(), place(9).0, 9).is_empty());
        // Two parts of the window.
        let read = state.unread(a, &behind(Time::from_micros(10)));
        state.has_read(a, read, place(20));
        let read = state.unread(a, &behind(Time::from_micros(12)));
        assert_eq!(read.0, place(20));
        state.has_read(a, read, place(30));
        assert!(offer(&mut state, 11) && offer(&mut state, 30) && !offer(&mut state, 31));
        // One that is due is told of, and is read later.
        assert!(offer(&mut state, 5));
        let known = [place(11), place(30)];
        assert_eq!(state.earlier(a, &start(), place(40).0, 9), known);
        // A part of the jobs that are due, and then all of them.
        let read = state.unread(a, &start());
        state.has_read(a, read, place(5));
        assert!(offer(&mut state, 5) && offer(&mut state, 6));
        let known = [place(5), place(11), place(30)];
        assert_eq!(state.earlier(a, &start(), place(40).0, 9), known);
        let read = state.unread(a, &start());
        assert_eq!(read.0, place(5));
        state.has_read(a, read, behind(Time::from_micros(15)));
        assert_eq!(state.unread(a, &start()).0, place(30));
        // What was read before a reset counts no more.
        let read = state.unread(a, &start());
        state.read_again();
        state.has_read(a, read, place(40));
        assert_eq!(state.unread(a, &start()).0, start());
        // What is known of one kind or priority says nothing of another one.
        assert_eq!(state.unread(c, &start()).0, start());
        let read = state.unread(b, &start());
        state.has_read(b, read, place(40));
        assert!(!state.offer(b, place(50).0, "job".into()));
        assert!(state.offer(b, place(30).0, "job".into()));
        assert_eq!(state.earlier(b, &start(), place(40).0, 9), [place(30)]);
        assert_eq!(state.unread(a, &start()).0, start());
        state.forget(b, &[place(30), place(31)]);
        assert_eq!(state.count, 0);
        // A lane without jobs is as one that nobody has read. Those of other queues are kept.
        let other = &Lane {
            queue: "mails".into(),
            ..b.clone()
        };
        for lane in [a, b, other] {
            let read = state.unread(lane, &start());
            state.has_read(lane, read, place(40));
            state.offer(lane, place(30).0, "job".into());
            assert!(!state.offer(lane, place(50).0, "job".into()));
        }
        state.keep_lanes("default", &[a.clone(), c.clone()]);
        assert_eq!((state.read.len(), state.count), (2, 2));
        assert!(state.offer(b, place(50).0, "job".into()));
        assert!(!state.offer(a, place(50).0, "job".into()));
        assert!(!state.offer(other, place(50).0, "job".into()));
    }

    #[test]
    fn the_tokens_of_a_long_process_are_below_those_of_the_next() {
        let (old, new) = (Holders::new(1, Vec::new()), Holders::new(2, Vec::new()));
        let mut old = old.lock();
        old.last_token += 1 << 36;
        let job = Held {
            key: "job".into(),
            kind: String::new(),
            queue: "default".into(),
            priority: 4,
            due: Time::from_micros(0),
            at: Time::from_micros(0),
            attempts: 0,
            repeat: None,
            size: 0,
            token: Token(0),
            traceparent: None,
        };
        let hold = |state: &mut State| state.hold(1, &job);
        assert!(hold(&mut old) < hold(&mut new.lock()));
    }
}

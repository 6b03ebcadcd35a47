//! What a seed decides at random.
//!
//! Each decision has a name: its class, who meets it (a thread or a host), and how many of the
//! class that one has met. Its random numbers come from the seed and the name, so a decision that
//! is left out shifts no other one. See "Shrinking" in `DESIGN.md`.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use super::{State, me};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// At a point: which thread runs from there on.
    Switch,
    /// At a point: a thread loses its core, or the machine has another fault.
    Fault,
    /// A thread that was woken has no core.
    Core,
    /// A wait ends early.
    Early,
    /// A weak compare-exchange fails.
    Weak,
    /// A wait ends late.
    Late,
    /// A write to an eventfd comes late, twice or never.
    Event,
    /// A thread is not started.
    Refusal,
    /// Which one of several, or in which order.
    Which,
    /// How long a packet is under way.
    Delay,
    /// A packet is lost.
    Loss,
    /// The network resets a connection.
    Reset,
    /// A write comes in parts.
    Part,
    /// How long a sync takes.
    Sync,
    /// A sync fails.
    SyncError,
    /// A crash takes from a disk what was not synced.
    Crash,
    /// How wrong a clock is.
    Clock,
}

/// The classes, with the letter of each.
pub(crate) const CLASSES: [(Class, char); 17] = [
    (Class::Switch, 's'),
    (Class::Fault, 'f'),
    (Class::Core, 'c'),
    (Class::Early, 'e'),
    (Class::Weak, 'w'),
    (Class::Late, 'l'),
    (Class::Event, 'v'),
    (Class::Refusal, 'n'),
    (Class::Which, 'o'),
    (Class::Delay, 'd'),
    (Class::Loss, 'x'),
    (Class::Reset, 'r'),
    (Class::Part, 'p'),
    (Class::Sync, 'y'),
    (Class::SyncError, 'z'),
    (Class::Crash, 'k'),
    (Class::Clock, 't'),
];

/// How many decisions of each class a thread or a host has met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met([u32; CLASSES.len()]);

/// The name of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) class: Class,
    /// The number of the thread, or of the host.
    pub(crate) who: u32,
    pub(crate) count: u32,
}

/// A decision that went another way than the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) key: Key,
    /// The thread to which a switch leads.
    pub(crate) to: u32,
}

/// The decisions that may go another way than the usual one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(BTreeMap<Key, u32>);

/// The decisions of this process that went another way than the usual one, in their order.
static TAKEN: Mutex<Vec<Decision>> = Mutex::new(Vec::new());

impl Kept {
    pub(crate) fn new(decisions: impl IntoIterator<Item = Decision>) -> Self {
        Self(decisions.into_iter().map(|it| (it.key, it.to)).collect())
    }
}

/// Reads decisions as they are written, with spaces between them.
pub(crate) fn parse(text: &str) -> Option<Vec<Decision>> {
    text.split_whitespace().map(|it| it.parse().ok()).collect()
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { class, who, count } = self.key;
        let letter = CLASSES[class as usize].1;
        write!(f, "{letter}{who}.{count}")?;
        match class {
            Class::Switch => write!(f, "-{}", self.to),
            _ => Ok(()),
        }
    }
}

impl FromStr for Decision {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut rest = text.chars();
        let letter = rest.next().ok_or(())?;
        let (class, _) = CLASSES.into_iter().find(|it| it.1 == letter).ok_or(())?;
        let (who, count) = rest.as_str().split_once('.').ok_or(())?;
        let (count, to) = match class {
            Class::Switch => count.split_once('-').ok_or(())?,
            _ => (count, "0"),
        };
        let number = |text: &str| text.parse().map_err(|_| ());
        let (who, count) = (number(who)?, number(count)?);
        let key = Key { class, who, count };
        Ok(Self {
            key,
            to: number(to)?,
        })
    }
}

/// Writes decisions, with a space between them.
pub(crate) fn write(decisions: &[Decision]) -> String {
    let words: Vec<String> = decisions.iter().map(ToString::to_string).collect();
    words.join(" ")
}

/// Returns the decisions so far that went another way than the usual one.
pub(crate) fn taken() -> String {
    write(&TAKEN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl State {
    /// Returns the random numbers of a decision.
    pub(crate) fn numbers(&self, key: Key) -> fastrand::Rng {
        let place = (key.class as u64) << 56 ^ u64::from(key.who) << 32 ^ u64::from(key.count);
        // Names that differ in a bit have numbers that differ in half of the bits.
        let mixed = (self.base ^ place).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        fastrand::Rng::with_seed(mixed ^ (mixed >> 31))
    }

    /// Returns the name of the next decision of a class that the calling thread meets.
    pub(crate) fn meet(&mut self, class: Class) -> Key {
        let who = me().unwrap_or(0);
        let count = self.threads[who].met.next(class);
        Key {
            class,
            who: who as u32,
            count,
        }
    }

    /// Returns the name of the next decision of a class that a host meets.
    pub(crate) fn meet_at(&mut self, host: usize, class: Class) -> Key {
        let count = self.hosts[host].met.next(class);
        Key {
            class,
            who: host as u32,
            count,
        }
    }

    /// Returns whether a decision may go another way than the usual one, and notes that it does.
    pub(crate) fn takes(&self, key: Key) -> bool {
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| !kept.0.contains_key(&key))
        {
            return false;
        }
        self.record(Decision { key, to: 0 });
        // Of the others more is known where they are made.
        let what = match key.class {
            Class::Early => "waits, and goes on without a reason",
            Class::Weak => "has a weak compare-exchange that fails",
            Class::Late => "will wake up late",
            Class::Which => "meets several, and does not take the first",
            Class::Part => "writes, and it comes in parts",
            Class::Sync => "has a sync that takes long",
            Class::Clock => "has a host with a wrong clock",
            _ => return true,
        };
        self.decided(|| what.into());
        true
    }

    pub(super) fn record(&self, decision: Decision) {
        if self.records {
            let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            taken.push(decision);
        }
    }

    /// Returns to which thread a switch leads, if some switches only are kept, and this one is.
    pub(super) fn kept_switch(&self, key: Key) -> Option<usize> {
        let to = self.kept.as_ref()?.0.get(&key)?;
        Some(*to as usize)
    }

    /// Decides something. `other` draws, and `usual` stands for what a decision gives that is left
    /// out.
    pub(crate) fn vary<T: PartialEq>(
        &self,
        key: Key,
        usual: T,
        other: impl FnOnce(&mut fastrand::Rng) -> T,
    ) -> T {
        let drawn = other(&mut self.numbers(key));
        if drawn != usual && self.takes(key) {
            return drawn;
        }
        usual
    }

    /// Chooses one of `count`, usually the first.
    pub(crate) fn which(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let key = self.meet(Class::Which);
        self.vary(key, 0, |rng| rng.usize(..count))
    }

    /// Returns random numbers for the program: those of the calling thread.
    pub(crate) fn rng(&mut self) -> &mut fastrand::Rng {
        let who = me().unwrap_or(0);
        &mut self.threads[who].rng
    }
}

impl Met {
    fn next(&mut self, class: Class) -> u32 {
        let count = &mut self.0[class as usize];
        *count += 1;
        *count
    }
}

//! A finished profile, and its rows.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use tourbillon::metrics::{Activity, JobName};
use tourbillon_stacks::{Frame, frames_at};

use crate::{
    options::{Clock, Options},
    spans::Spans,
};

/// What the names of the runtime's own functions begin with, but for signs such as `<`.
const OF_RUNTIME: [&str; 6] = [
    "tourbillon::",
    "tourbillon_shards::",
    "tourbillon_tasks::",
    "tourbillon_sched::",
    "tourbillon_sync::",
    "tourbillon_pool::",
];
/// What the names of functions begin with that stand between the runtime's and a job's.
const GLUE: [&str; 3] = ["core::", "std::", "alloc::"];

/// What was sampled: where the threads were, and how often.
///
/// Samples at the same addresses, of the same job, are one row. A row has the job, its label, the
/// spans, and the functions of the job, without those of the runtime that called it.
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) options: Options,
    pub(crate) at: SystemTime,
    elapsed: Duration,
    lost: u64,
    /// Those with most samples first.
    pub(crate) rows: Vec<Row>,
    /// The functions at each address, innermost first.
    names: HashMap<u64, Vec<Frame>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) source: Source,
    pub(crate) places: Vec<Place>,
    pub(crate) count: u64,
}

/// An address in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: u64,
    /// How many of its functions are of the job: these are the inner ones.
    pub(crate) functions: usize,
}

/// What equal samples have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counted {
    pub(crate) source: Source,
    pub(crate) addresses: Vec<u64>,
}

/// For whom a thread was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) activity: Activity,
    /// Name, place and label.
    job: Option<(&'static str, Option<Spawned>, Option<&'static str>)>,
    pub(crate) spans: Spans,
}

/// Where a task was spawned.
type Spawned = &'static std::panic::Location<'static>;

/// A row of a [`Profile`].
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    profile: &'a Profile,
    row: &'a Row,
}

impl Source {
    pub(crate) fn new((activity, job): (Activity, Option<JobName>), spans: Spans) -> Self {
        Self {
            activity,
            job: job.map(|job| (job.name, job.spawned, job.label)),
            spans,
        }
    }

    pub(crate) fn job(&self) -> Option<JobName> {
        self.job.map(|(name, spawned, label)| {
            let mut job = JobName::new(name, spawned);
            job.label = label;
            job
        })
    }

    /// Returns what a flame graph has below the functions: the job or what the worker did, the
    /// label, and the spans.
    pub(crate) fn roots(&self) -> impl Iterator<Item = String> {
        let job = self.job();
        let plain = job.map(|job| JobName::new(job.name, job.spawned).to_string());
        let idle = || match self.activity {
            Activity::Parked => "parked".to_owned(),
            _ => "runtime".to_owned(),
        };
        let label = job.and_then(|job| job.label);
        let names = label.into_iter().chain(self.spans.into_iter().flatten());
        std::iter::once(plain.unwrap_or_else(idle)).chain(names.map(str::to_owned))
    }
}

impl Profile {
    pub(crate) fn new(
        options: Options,
        at: SystemTime,
        elapsed: Duration,
        counts: HashMap<Counted, u64>,
        lost: u64,
    ) -> Self {
        let mut names: HashMap<u64, Vec<Frame>> = HashMap::new();
        let mut rows: Vec<_> = counts
            .into_iter()
            .map(|(Counted { source, addresses }, count)| {
                for &address in &addresses {
                    names.entry(address).or_insert_with(|| frames_at(address));
                }
                let places = of_job(&addresses, &names, source.job.is_some());
                Row {
                    source,
                    places,
                    count,
                }
            })
            .collect();
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.count));
        Self {
            options,
            at,
            elapsed,
            lost,
            rows,
            names,
        }
    }

    /// Returns the rows, those with most samples first.
    pub fn samples(&self) -> impl Iterator<Item = Sampled<'_>> {
        let profile = self;
        self.rows.iter().map(move |row| Sampled { profile, row })
    }

    /// Returns how many samples there are. Each stands for a [period](Profile::period) of a thread.
    pub fn num_samples(&self) -> u64 {
        self.rows.iter().map(|row| row.count).sum()
    }

    /// Returns how many samples are missing because the thread that reads them had no processor for
    /// long.
    pub fn num_lost(&self) -> u64 {
        self.lost
    }

    /// Says how many samples are missing, if there are any.
    pub(crate) fn said_lost(&self) -> Option<String> {
        (self.lost > 0).then(|| format!("{} samples are missing", self.lost))
    }

    /// Returns how long the threads were sampled.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the time that a sample stands for, by the [clock](Profile::clock).
    pub fn period(&self) -> Duration {
        self.options.period()
    }

    /// Returns the clock of the samples.
    pub fn clock(&self) -> Clock {
        self.options.clock
    }

    /// Returns the profile in the form that tools for flame graphs read: a line for each row, with
    /// the names outermost first and `;` between them, and then the number of samples.
    ///
    /// The first name is the job, or `runtime` for work of a worker between jobs, or `parked` for
    /// its sleep. Then come the job's label and the spans, if there are any, and then the functions.
    pub fn folded(&self) -> String {
        let mut text = self.lines().join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Returns the lines, each with its number of samples, those with most samples first.
    pub(crate) fn lines(&self) -> Vec<String> {
        // Functions are sampled at several of their addresses.
        let mut counts: HashMap<String, u64> = HashMap::new();
        for sampled in self.samples() {
            let functions: Vec<_> = sampled.frames().map(|frame| &*frame.function).collect();
            let functions = functions.into_iter().rev().map(str::to_owned);
            let names: Vec<_> = (sampled.row.source.roots().chain(functions))
                .map(|name| one_name(&name))
                .collect();
            *counts.entry(names.join(";")).or_default() += sampled.count();
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let line = |(names, count)| format!("{names} {count}");
        counts.into_iter().map(line).collect()
    }

    pub(crate) fn functions(&self, place: Place) -> &[Frame] {
        let all = self.names.get(&place.address);
        all.map_or(&[], |all| &all[..place.functions])
    }
}

impl<'a> Sampled<'a> {
    /// Returns how often this was sampled.
    pub fn count(&self) -> u64 {
        self.row.count
    }

    /// Returns what the worker did.
    pub fn activity(&self) -> Activity {
        self.row.source.activity
    }

    /// Returns the job that it ran, with its label.
    pub fn job(&self) -> Option<JobName> {
        self.row.source.job()
    }

    /// Returns the names of the spans of the crate `tracing` that the thread was in, outermost
    /// first: the eight outer ones, if the program has a `SpanLayer` (feature `tracing`).
    pub fn spans(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.row.source.spans.into_iter().flatten()
    }

    /// Returns the functions, innermost first, without those of the runtime that called the job. It
    /// has those that were inlined, if the program has debug information.
    pub fn frames(&self) -> impl Iterator<Item = &'a Frame> + use<'a> {
        let profile = self.profile;
        let places = self.row.places.iter();
        places.flat_map(move |&place| profile.functions(place))
    }
}

/// Leaves out the functions of the runtime that called the job. They are left if there are no
/// others, as when a worker looks for work.
fn of_job(addresses: &[u64], names: &HashMap<u64, Vec<Frame>>, is_job: bool) -> Vec<Place> {
    let begins = |frame: &Frame, with: &[&str]| {
        let name = frame.function.trim_start_matches(['<', '&', '(']);
        with.iter().any(|it| name.starts_with(it))
    };
    // Outermost first, with the number of functions that are left if it is the outermost one.
    let outer = addresses.iter().enumerate().rev();
    let all = outer.flat_map(|(at, address)| {
        let of = &names[address];
        (1..=of.len())
            .rev()
            .map(move |left| (at, left, &of[left - 1]))
    });
    let mut below = all
        .skip_while(|(_, _, frame)| !begins(frame, &OF_RUNTIME))
        .peekable();
    let first = below.peek().map_or((0, 0), |&(at, left, _)| (at, left));
    let mut outermost = first;
    if is_job {
        let (mut found, mut was_own) = (None, false);
        for (at, left, frame) in below {
            if begins(frame, &OF_RUNTIME) {
                (found, was_own) = (None, true);
                continue;
            }
            if was_own {
                found = Some((at, left));
            }
            was_own = false;
            if has_path(frame) && !begins(frame, &GLUE) {
                break;
            }
        }
        outermost = found.unwrap_or(first);
    }
    let place = |(at, &address): (usize, &u64)| Place {
        address,
        functions: match at == outermost.0 {
            true => outermost.1,
            false => names[&address].len(),
        },
    };
    let inner = addresses.iter().enumerate();
    inner
        .take_while(|(at, _)| *at <= outermost.0)
        .map(place)
        .collect()
}

/// Returns whether the name of a function says where it is from. Those of C have no path, and with
/// little debug information, inlined ones have none either: `{closure#0}`, `with<core::cell::Cell>`.
fn has_path(frame: &Frame) -> bool {
    let name = frame.function.trim_start_matches(['<', '&', '(']);
    let path = name.split(['<', '>', '(', ' ', ',']).next();
    !name.starts_with('{') && path.is_some_and(|path| path.contains("::"))
}

/// Returns a name for a line of names with `;` between them.
fn one_name(name: &str) -> String {
    let is_sign = |sign: char| sign == ';' || sign.is_control();
    name.replace("; ", ",").replace(is_sign, ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_signs_that_end_it() {
        assert_eq!(one_name("[u8; 4]\u{1b}[0m\n;end"), "[u8,4],[0m,,end");
    }
}

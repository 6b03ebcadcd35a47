//! What happens in a simulation, in words.

use std::{
    backtrace::Backtrace,
    collections::VecDeque,
    env, fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{BEGIN, State, me};

/// How many lines a story has at most.
const LINES: usize = 60;
/// How many of them are of decisions and of faults, at most.
const MAIN: usize = 40;

/// How many decisions of a story have a place in the code, at most.
const PLACES: usize = MAIN;

/// Which part of a story something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Only traces have it.
    Detail,
    Plain,
    /// The program has asked for a fault.
    Asked,
    /// The seed has decided it, though it is not the usual way.
    Decided,
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The calling thread.
    Caller,
    /// The network, a clock or a machine.
    World,
    Thread(usize),
}

/// A line of a story.
struct Line {
    /// How many lines came before it, with those that are not kept.
    number: u64,
    is_decided: bool,
    text: String,
}

/// The end of a story, and before that its decisions and faults.
#[derive(Default)]
struct Story {
    count: u64,
    /// How many of its decisions have a place in the code.
    places: usize,
    main: VecDeque<Line>,
    last: VecDeque<Line>,
}

static STORY: Mutex<Option<Story>> = Mutex::new(None);

/// A moment or a length of simulated time.
pub(crate) struct Millis(pub(crate) u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.pad(&text)?;
        f.write_str(" ms")
    }
}

impl Story {
    fn add(&mut self, part: Part, text: String) {
        let (number, is_decided) = (self.count, part == Part::Decided);
        self.count += 1;
        let line = Line {
            number,
            is_decided,
            text,
        };
        match part {
            Part::Detail => {}
            Part::Plain => self.last.push_back(line),
            Part::Asked | Part::Decided => self.main.push_back(line),
        }
        // The latest ones matter most. Of faults, more are kept.
        if self.main.len() > MAIN {
            self.main.pop_front();
        }
        if self.main.len() + self.last.len() > LINES {
            self.last.pop_front();
        }
    }

    fn text(&self) -> String {
        let mut lines: Vec<&Line> = self.main.iter().chain(&self.last).collect();
        lines.sort_by_key(|line| line.number);
        let (mut text, mut next) = (String::new(), 0);
        for line in lines {
            if line.number > next {
                text += "    …\n";
            }
            next = line.number + 1;
            text += if line.is_decided { "  > " } else { "    " };
            text += &line.text;
            text.push('\n');
        }
        text
    }
}

/// Returns the story so far. Empty if nobody asked for one.
pub(crate) fn text() -> String {
    let story = STORY.lock().unwrap_or_else(PoisonError::into_inner);
    story.as_ref().map(Story::text).unwrap_or_default()
}

/// Returns the place in the user's code at which the calling thread is, if that can be known.
fn place() -> Option<String> {
    // In full, so that paths are not shortened.
    let all = format!("{:#}", Backtrace::force_capture());
    let mut lines = all.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let at = lines.peek().and_then(|line| line.strip_prefix("at "));
        let (Some((_, symbol)), Some(at)) = (line.split_once(" - "), at) else {
            continue;
        };
        if is_foreign(symbol) || is_foreign_file(at) {
            continue;
        }
        // Without the column, and from this directory on.
        let at = at.rsplit_once(':').map_or(at, |(at, _)| at);
        let dir = env::current_dir().unwrap_or_default();
        let at = Path::new(at).strip_prefix(dir).unwrap_or(Path::new(at));
        return Some(at.display().to_string());
    }
    None
}

/// Returns whether a function is one of the runtime or the simulation.
fn is_foreign(symbol: &str) -> bool {
    symbol
        .trim_start_matches(['<', '&', '*'])
        .starts_with("tourbillon")
}

/// Returns whether a file belongs to a library: in C, of Rust itself, a package of a registry, the
/// runtime or the simulation.
fn is_foreign_file(path: &str) -> bool {
    // Those of the repository of this package, but for its examples and tests. With little debug
    // information, functions that are inlined have no path that tells their crate.
    let root = env!("CARGO_MANIFEST_DIR").strip_suffix("crates/sim");
    let is_ours = root
        .and_then(|root| path.strip_prefix(root))
        .is_some_and(|path| {
            let is_of = |dir| path.starts_with(dir);
            ["src/", "shards/", "crates/"].into_iter().any(is_of) && !path.contains("/tests/")
        });
    let is_rust = path.contains(".rs:");
    // With the component `rust-src`, the standard library is in a folder of the toolchain.
    let libraries = [
        "/rustc/",
        "/rustlib/src/",
        "/registry/src/",
        "/git/checkouts/",
    ];
    is_ours || !is_rust || libraries.into_iter().any(|part| path.contains(part))
}

impl State {
    /// Tells of something that the calling thread does.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        self.happens_to(Who::Caller, Part::Plain, line);
    }

    /// Tells of something that the calling thread does, and that only traces have.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
        self.happens_to(Who::Caller, Part::Detail, line);
    }

    /// Tells of something that the seed has decided for the calling thread.
    pub(crate) fn decided(&self, line: impl FnOnce() -> String) {
        self.happens_to(Who::Caller, Part::Decided, line);
    }

    /// Tells of something that no thread does.
    pub(crate) fn tell(&self, part: Part, line: impl FnOnce() -> String) {
        self.happens_to(Who::World, part, line);
    }

    /// Tells of something that happens. All that traces and stories have comes by here.
    pub(crate) fn happens_to(&self, who: Who, part: Part, line: impl FnOnce() -> String) {
        let is_told = self.tells && part != Part::Detail;
        let is_drawn = self.draws && part != Part::Detail;
        if !self.traces && !is_told && !is_drawn {
            return;
        }
        let thread = match who {
            Who::Caller => me(),
            Who::World => None,
            Who::Thread(thread) => Some(thread),
        };
        let now = Millis(self.now.wrapping_sub(BEGIN));
        let name = thread.map_or(String::new(), |thread| self.place_of(thread) + ": ");
        let line = line();
        if is_drawn {
            self.draw_instant(thread, part, &line);
        }
        let mut text = format!("{now:>14} {name}{line}");
        if self.traces {
            let mark = if part == Part::Decided { ">" } else { " " };
            eprintln!("{mark} {text}");
        }
        if is_told {
            let story = || STORY.lock().unwrap_or_else(PoisonError::into_inner);
            let is_here = part == Part::Decided && thread.is_some() && thread == me();
            // To find out where it is takes long. It comes before the lock, since it may panic.
            let places = story().get_or_insert_default().places;
            if is_here && places < PLACES {
                let place = place();
                text += &place.map_or(String::new(), |place| format!(", at {place}"));
            }
            let mut story = story();
            let story = story.get_or_insert_default();
            story.places += usize::from(is_here);
            story.add(part, text);
        }
    }

    /// Tells that a thread has given the baton to another one, though it could go on.
    pub(crate) fn tell_switch(&self, me: usize, next: usize) {
        self.happens_to(Who::Thread(me), Part::Decided, || {
            format!("stops, and {} goes on", self.place_of(next))
        });
    }
}

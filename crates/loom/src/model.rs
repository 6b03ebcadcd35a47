use std::{
    io::{self, Write},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use loom::model::Builder;

use crate::trace;

/// The greatest bound that loom takes.
const NO_BOUND: usize = u8::MAX as usize;

/// The most accesses and other choices of one execution, unless `LOOM_MAX_BRANCHES` says otherwise.
/// loom's own limit is 1,000, which a model of a real structure passes.
const BRANCHES: usize = 20_000;

/// Explores the schedules of `body` with at most `preemptions` switches away from a thread that could
/// continue (`None`: with any number), and prints a line that says what was tried.
///
/// loom leaves out the schedules that cannot make a difference, and a few that can: so write each
/// model in both orders, with what the first thread does and what the started one does exchanged.
/// The chapter *A model of your own structure*, to which the package's first page leads, says why.
///
/// The line goes to the standard output, also if the test harness keeps what passing tests print. It
/// has the name, the bound, the number of executions and the time. If an execution fails, the line
/// has its number.
///
/// The environment replaces what the code says, for all models of a run:
///
/// | variable | what it does |
/// |---|---|
/// | `LOOM_MAX_PREEMPTIONS` | replaces the bound |
/// | `LOOM_MORE_PREEMPTIONS` | is added to the bound, if there is one |
/// | `LOOM_MAX_BRANCHES` | how long an execution may be: 20,000 |
/// | `LOOM_MAX_MINUTES` | a model that has run for so long stops, passes, and its line ends with *not ended* |
/// | `LOOM_TRACE` | the number of an execution of which each step is printed |
/// | `LOOM_LOCATION` | with `1`, a causality violation names the lines of both accesses |
///
/// All other limits of loom that end a search in silence are off: `LOOM_MAX_PERMUTATIONS` and
/// `LOOM_MAX_DURATION` have no effect.
///
/// # Panics
///
/// If an execution fails, or if there was one execution only: then the threads never met, the bound
/// lets them not meet, or loom found nothing to try, and the model shows nothing. Also if a variable
/// is not a number.
pub fn model(name: &str, preemptions: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let more = number("LOOM_MORE_PREEMPTIONS").unwrap_or(0);
    // It reads `LOOM_LOCATION` and `LOOM_LOG`, and limits that are set below.
    let mut builder = Builder::new();
    builder.preemption_bound =
        number("LOOM_MAX_PREEMPTIONS").or(preemptions.map(|bound| bound + more));
    builder.max_duration =
        number("LOOM_MAX_MINUTES").map(|minutes| Duration::from_secs(60 * minutes as u64));
    builder.max_permutations = None;
    builder.max_branches = number("LOOM_MAX_BRANCHES").unwrap_or(BRANCHES);

    let executions = Arc::new(AtomicUsize::new(0));
    let _trace = number("LOOM_TRACE").map(|shown| trace::begin(executions.clone(), shown));
    let begin = Instant::now();
    let bound = builder.preemption_bound;
    // With a bound, loom tries more switches than without one: those that the bound could have cut
    // off. No execution reaches this one.
    builder.preemption_bound = bound.or(Some(NO_BOUND));
    let bound = bound.map_or("none".to_owned(), |bound| bound.to_string());
    let line = Arc::new(Line {
        label: format!("{name}: bound {bound}"),
        executions: executions.clone(),
        begin,
        said: AtomicBool::new(false),
    });
    line.watch(|| {
        builder.check({
            let line = line.clone();
            move || {
                line.executions.fetch_add(1, Ordering::Relaxed);
                // Says it before loom drops the threads that have not begun: if they own an `Arc` of
                // loom's, that panics once more, and ends the process.
                line.watch(&body);
            }
        });
    });
    let executions = executions.load(Ordering::Relaxed);
    let elapsed = begin.elapsed();
    let seconds = elapsed.as_secs_f64();
    let ended = builder.max_duration.is_none_or(|limit| elapsed < limit);
    let remark = if ended { "" } else { ", not ended" };
    say(&format!(
        "{}, {executions} executions, {seconds:.1} s{remark}",
        line.label
    ));
    assert!(
        executions > 1,
        "a model with one execution shows nothing. Let two threads access the same word, or raise \
         the bound of preemptions. If they do, exchange what the first thread and the started one \
         do: where a thread loads a word and then writes it, loom forgets that another thread has \
         loaded it before"
    );
}

/// What is said of a model that fails.
struct Line {
    label: String,
    executions: Arc<AtomicUsize>,
    begin: Instant,
    said: AtomicBool,
}

impl Line {
    /// Runs a part of a model. If that panics, says which execution has failed, once.
    fn watch(&self, part: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(part)) else {
            return;
        };
        if !self.said.swap(true, Ordering::Relaxed) {
            let (label, seconds) = (&self.label, self.begin.elapsed().as_secs_f64());
            let execution = self.executions.load(Ordering::Relaxed);
            say(&format!(
                "{label}, execution {execution} failed, {seconds:.1} s"
            ));
        }
        resume_unwind(panic);
    }
}

/// Reads a number of the environment.
fn number(key: &str) -> Option<usize> {
    let value = std::env::var(key).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{key} is `{value}`, and should be a number")))
}

/// Prints a line that the test harness does not keep: it takes only what `println!` prints.
fn say(line: &str) {
    // A closed output is no reason to fail.
    _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

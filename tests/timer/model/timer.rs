//! A timer of any clock, and the record of its callback.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tourbillon::{
    Handle, Timer,
    time::Instant,
    timer::{BootTimer, Cancel, Outcome, Reset, Started, Status, WallTimer},
};
use tourbillon_shards as shards;

use super::{Script, clocks::Zeros};

#[derive(Debug)]
pub enum AnyTimer {
    Mono(Timer),
    Wall(WallTimer),
    Boot(BootTimer),
}

macro_rules! each {
    ($self:expr, $timer:ident => $f:expr) => {
        match $self {
            AnyTimer::Mono($timer) => $f,
            AnyTimer::Wall($timer) => $f,
            AnyTimer::Boot($timer) => $f,
        }
    };
}

/// Returns an answer as the model gives it: as the shards' type of the same name.
macro_rules! as_model {
    ($answer:expr, $answers:ident: $($variant:ident),*) => {
        match $answer {
            $($answers::$variant => shards::$answers::$variant,)*
        }
    };
}

fn reset(answer: Reset) -> shards::Reset {
    as_model!(answer, Reset: Pending, AfterRun, NotStarted, TooLate)
}

fn outcome(how: Outcome) -> shards::Outcome {
    match how {
        Outcome::Fired => shards::Outcome::Fired,
        Outcome::Cancelled => shards::Outcome::Cancelled,
        Outcome::Shutdown => shards::Outcome::Shutdown,
        Outcome::Refused => shards::Outcome::Refused,
        how => unreachable!("the model knows no {how:?}"),
    }
}

impl AnyTimer {
    pub fn start(&self) -> shards::Started {
        let answer = each!(self, timer => timer.start());
        as_model!(answer, Started: Pending, Cancelled, Shutdown, AlreadyStarted, Refused)
    }

    pub fn cancel(&self) -> shards::Cancel {
        let answer = each!(self, timer => timer.cancel());
        as_model!(answer, Cancel: Cancelled, AfterRun, Running, Over)
    }

    pub fn status(&self) -> shards::Status {
        match each!(self, timer => timer.status()) {
            Status::NotStarted => shards::Status::NotStarted,
            Status::Pending => shards::Status::Pending,
            Status::Running { last } => shards::Status::Running { last },
            Status::Over(how) => shards::Status::Over(outcome(how)),
            status => unreachable!("the model knows no {status:?}"),
        }
    }

    pub fn refresh(&self) -> shards::Reset {
        reset(each!(self, timer => timer.refresh()))
    }

    pub fn reset(&self, nanos: u64) -> shards::Reset {
        reset(each!(self, timer => timer.reset_after(Duration::from_nanos(nanos))))
    }

    pub fn reset_from_start(&self, nanos: u64) -> shards::Reset {
        reset(each!(self, timer => timer.reset_from_start(Duration::from_nanos(nanos))))
    }

    pub fn reset_at(&self, zeros: &Zeros, at: u64) -> shards::Reset {
        reset(match self {
            Self::Mono(timer) => timer.reset_at(zeros.instant(at)),
            Self::Wall(timer) => timer.reset_at(zeros.time(at)),
            Self::Boot(timer) => timer.reset_at(zeros.boot_instant(at)),
        })
    }

    pub fn deadline(&self, zeros: &Zeros) -> Option<u64> {
        match self {
            Self::Mono(timer) => timer.deadline().map(|at| zeros.nanos(at)),
            Self::Wall(timer) => timer.deadline().map(|at| zeros.wall_nanos(at)),
            Self::Boot(timer) => timer.deadline().map(|at| zeros.boot_instant_nanos(at)),
        }
    }
}

/// The record of a callback: its calls and its drop.
#[derive(Debug, Default)]
pub struct Log {
    /// The time of a call is missing on threads of no runtime, where the paused clock does not
    /// show.
    calls: Mutex<Vec<(Outcome, Option<Instant>)>>,
    dropped: AtomicBool,
}

impl Log {
    pub fn calls(&self, zeros: &Zeros) -> Vec<(shards::Outcome, u64)> {
        let calls = self.calls.lock().unwrap();
        let nanos = |&(how, at): &(Outcome, Option<Instant>)| match (how, at) {
            (Outcome::Shutdown, _) | (_, None) => (outcome(how), 0),
            (_, Some(at)) => (outcome(how), zeros.nanos(at)),
        };
        calls.iter().map(nanos).collect()
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// The state of a callback.
pub struct Callback {
    log: Arc<Log>,
    pub own: Arc<OnceLock<Weak<AnyTimer>>>,
    script: Option<(Script, Zeros, u64)>,
    recurs: bool,
}

impl Callback {
    pub fn new(log: &Arc<Log>, recurs: bool, script: Script, zeros: Zeros, span: u64) -> Self {
        Self {
            log: log.clone(),
            own: Arc::default(),
            script: Some((script, zeros, span)),
            recurs,
        }
    }

    pub fn call(&mut self, how: Outcome) {
        let now = Instant::now();
        let shown = Handle::try_current().is_ok().then_some(now);
        self.log.calls.lock().unwrap().push((how, shown));
        if how != Outcome::Fired {
            return;
        }
        let Some((script, zeros, span)) = self.script.take() else {
            return;
        };
        let Some(own) = self.own.get().and_then(Weak::upgrade) else {
            return;
        };
        match script {
            Script::Nothing => {}
            Script::Cancel => {
                let expected =
                    [shards::Cancel::Running, shards::Cancel::AfterRun][usize::from(self.recurs)];
                assert_eq!(own.cancel(), expected);
            }
            Script::ResetAt(_) => {
                let expected =
                    [shards::Reset::TooLate, shards::Reset::AfterRun][usize::from(self.recurs)];
                let at = match &*own {
                    AnyTimer::Mono(_) => zeros.nanos(now).saturating_add(span),
                    _ => zeros.boot_nanos(),
                };
                assert_eq!(own.reset_at(&zeros, at), expected);
            }
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.log.dropped.store(true, Ordering::SeqCst);
    }
}

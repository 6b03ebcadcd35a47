//! A timer of any clock, and the record of its callback.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tourbillon::{
    Cancel, Handle, Reset, Status, Timer,
    time::Instant,
    timer::{BootTimer, Outcome, Started, WallTimer},
};

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

impl AnyTimer {
    pub fn start(&self) -> Started {
        each!(self, timer => timer.start())
    }

    pub fn cancel(&self) -> Cancel {
        each!(self, timer => timer.cancel())
    }

    pub fn status(&self) -> Status {
        each!(self, timer => timer.status())
    }

    pub fn refresh(&self) -> Reset {
        each!(self, timer => timer.refresh())
    }

    pub fn reset(&self, nanos: u64) -> Reset {
        each!(self, timer => timer.reset_after(Duration::from_nanos(nanos)))
    }

    pub fn reset_from_start(&self, nanos: u64) -> Reset {
        each!(self, timer => timer.reset_from_start(Duration::from_nanos(nanos)))
    }

    pub fn reset_at(&self, zeros: &Zeros, at: u64) -> Reset {
        match self {
            Self::Mono(timer) => timer.reset_at(zeros.instant(at)),
            Self::Wall(timer) => timer.reset_at(zeros.time(at)),
            Self::Boot(timer) => timer.reset_at(zeros.boot_instant(at)),
        }
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
    pub fn calls(&self, zeros: &Zeros) -> Vec<(Outcome, u64)> {
        let calls = self.calls.lock().unwrap();
        let nanos = |&(how, at): &(Outcome, Option<Instant>)| match (how, at) {
            (Outcome::Shutdown, _) | (_, None) => (how, 0),
            (_, Some(at)) => (how, zeros.nanos(at)),
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
                let expected = [Cancel::Running, Cancel::AfterRun][usize::from(self.recurs)];
                assert_eq!(own.cancel(), expected);
            }
            Script::ResetAt(_) => {
                let expected = [Reset::TooLate, Reset::AfterRun][usize::from(self.recurs)];
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

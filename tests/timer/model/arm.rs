//! Arms a timer as a plan says, in the runtime and in the model.

use std::{sync::Arc, time::Duration};

use tourbillon::{
    Handle, Timer,
    timer::{OnStep, Outcome},
};
use tourbillon_model as model;

use super::{
    Plan, Script, When,
    clocks::Kind,
    plain::{Acts, Model},
    timer::{AnyTimer, Callback, Log},
    world::World,
};

/// A plan's clock and its times in ns.
struct Figures {
    kind: Kind,
    wait: u64,
    /// The deadline of the plan, if it has one, on its clock.
    at: Option<u64>,
    tolerance: u64,
    jitter: u64,
}

/// Builds a timer by a builder, with or without a `while_alive` value, and with or without
/// outcomes.
macro_rules! build {
    ($builder:expr, $any:ident, $callback:ident, $told:expr, $alive:expr, $start:expr) => {{
        let mut f = $callback;
        let builder = match $start {
            true => $builder,
            false => $builder.manual(),
        };
        let timer = match ($alive, $told) {
            (None, false) => builder.start(move || f.call(Outcome::Fired)),
            (None, true) => builder.start_with(move |how| f.call(how)),
            (Some(alive), false) => builder
                .while_alive(Arc::downgrade(alive))
                .start(move |_alive| f.call(Outcome::Fired)),
            (Some(alive), true) => builder.while_alive(Arc::downgrade(alive)).start_with(
                move |how, alive: Option<Arc<()>>| {
                    assert!(how != Outcome::Fired || alive.is_some());
                    f.call(how);
                },
            ),
        };
        AnyTimer::$any(timer)
    }};
}

/// Sets the options that all builders have.
macro_rules! options {
    ($builder:expr, $handle:expr, $plan:expr, $figures:expr) => {{
        let mut builder = $builder
            .tolerance(Duration::from_nanos($figures.tolerance))
            .jitter(Duration::from_nanos($figures.jitter));
        if let Some(name) = $plan.name {
            builder = builder.name(name.to_string());
        }
        match $handle {
            Some(handle) => builder.on(handle),
            None => builder,
        }
    }};
}

impl World {
    fn figures(&self, plan: &Plan) -> Figures {
        let span = |span| self.span(span);
        let (kind, wait, at) = match plan.when {
            When::After(delay) => (Kind::Mono, span(delay), None),
            When::Every(period) => (Kind::Mono, span(period).max(1), None),
            When::AfterBoot(delay) => (Kind::Boot, span(delay), None),
            When::At(at) => (Kind::Mono, 0, Some(at)),
            When::AtWall(at, _) => (Kind::Wall, 0, Some(at)),
            When::AtBoot(at) => (Kind::Boot, 0, Some(at)),
        };
        let skips = matches!(plan.when, When::AtWall(_, OnStep::Skip));
        Figures {
            kind,
            wait,
            at: at.map(|at| self.moment(kind, at)),
            // A timer that skips has no tolerance here. With a tolerance, it would wait for
            // another moment than its deadline, and a step might or might not jump over that
            // moment.
            tolerance: if skips { 0 } else { span(plan.tolerance) },
            jitter: span(plan.jitter),
        }
    }

    /// Arms a new timer in the runtime and in the model. Returns its number.
    pub fn arm(&mut self, plan: &Plan, handle: Option<&Handle>) -> usize {
        let figures = self.figures(plan);
        let recurs = matches!(plan.when, When::Every(_));
        let (script, span) = match plan.script {
            // At least 1 ns, or the timer would be due again at the same moment.
            Script::ResetAt(span) => (plan.script, self.span(span).max(1)),
            script => (script, 0),
        };
        let log = Arc::new(Log::default());
        let callback = Callback::new(&log, recurs, script, self.zeros, span);
        let own = callback.own.clone();
        let alive = plan.while_alive.then(|| Arc::new(()));
        // A timer with a script starts after `own` is set. A runtime that has ended cannot build a
        // timer to start later: its timers are over at once.
        let by_itself = plan.start && (handle.is_some() || matches!(script, Script::Nothing));
        let timer = self.build(plan, &figures, handle, callback, alive.as_ref(), by_itself);
        let timer = Arc::new(timer);
        own.set(Arc::downgrade(&timer))
            .expect("it is set once, before the timer starts, or unused");
        let id = self.timers.len();
        self.timers.push(Model {
            model: model::Timer::idle(recurs, plan.told, figures.wait, figures.at),
            kind: figures.kind,
            skips: matches!(plan.when, When::AtWall(_, OnStep::Skip)),
            name: plan.name,
            tolerance: figures.tolerance,
            jitter: figures.jitter,
            left: plan.times.filter(|_| recurs),
            acts: match script {
                Script::Nothing => Acts::No,
                Script::Cancel => Acts::Cancels,
                Script::ResetAt(_) => Acts::Moves(span),
            },
            unsure: false,
            alive,
            dead: false,
            calls: Vec::new(),
            log,
            timer: Some(timer.clone()),
        });
        self.join_name(id);
        if by_itself {
            self.begin(id);
        } else if plan.start {
            let answer = timer.start();
            assert_eq!(answer, self.start(id));
        }
        id
    }

    fn build(
        &self,
        plan: &Plan,
        figures: &Figures,
        handle: Option<&Handle>,
        callback: Callback,
        alive: Option<&Arc<()>>,
        start: bool,
    ) -> AnyTimer {
        let (wait, at) = (Duration::from_nanos(figures.wait), figures.at.unwrap_or(0));
        let zeros = &self.zeros;
        let is_plain = plan.name.is_none()
            && figures.tolerance == 0
            && figures.jitter == 0
            && !plan.told
            && !plan.while_alive
            && start;
        let mut callback = callback;
        match (plan.when, handle) {
            // The free functions, whose timers use another kind of node.
            (When::After(_), None) if is_plain => {
                AnyTimer::Mono(tourbillon::after(wait, move || {
                    callback.call(Outcome::Fired);
                }))
            }
            (When::At(_), None) if is_plain => {
                AnyTimer::Mono(tourbillon::at(zeros.instant(at), move || {
                    callback.call(Outcome::Fired);
                }))
            }
            (When::Every(_), None) if is_plain && plan.times.is_none() => {
                AnyTimer::Mono(tourbillon::every(wait, move || {
                    callback.call(Outcome::Fired);
                }))
            }
            (When::After(_), _) => {
                let builder = options!(Timer::after(wait), handle, plan, figures);
                build!(builder, Mono, callback, plan.told, alive, start)
            }
            (When::At(_), _) => {
                let builder = options!(Timer::at(zeros.instant(at)), handle, plan, figures);
                build!(builder, Mono, callback, plan.told, alive, start)
            }
            (When::Every(_), _) => {
                let builder = match plan.times {
                    Some(times) => Timer::every(wait).times(times),
                    None => Timer::every(wait),
                };
                let builder = options!(builder, handle, plan, figures);
                build!(builder, Mono, callback, plan.told, alive, start)
            }
            (When::AtWall(_, on_step), _) => {
                let builder = Timer::at_wall(zeros.time(at)).on_step(on_step);
                let builder = options!(builder, handle, plan, figures);
                build!(builder, Wall, callback, plan.told, alive, start)
            }
            (When::AfterBoot(_), _) => {
                let builder = options!(Timer::after_boot(wait), handle, plan, figures);
                build!(builder, Boot, callback, plan.told, alive, start)
            }
            (When::AtBoot(_), _) => {
                let at = zeros.boot_instant(at);
                let builder = options!(Timer::at_boot(at), handle, plan, figures);
                build!(builder, Boot, callback, plan.told, alive, start)
            }
        }
    }
}

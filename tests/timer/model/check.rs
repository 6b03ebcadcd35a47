//! Compares the runtime with the model whenever the runtime is quiet.

use tourbillon::{Status, time, time::Instant, timer::Outcome};
use tourbillon_shards::NEVER;

use super::{
    NAMES,
    clocks::Kind,
    plain::State,
    world::{World, boot_now},
};

impl World {
    pub fn check(&self) {
        for (id, model) in self.timers.iter().enumerate() {
            assert_eq!(model.log.calls(&self.zeros), model.calls, "timer {id}");
            let is_over = matches!(model.state, State::Over(_));
            assert_eq!(model.log.is_dropped(), is_over, "callback {id}");
            let (status, deadline) = match model.state {
                State::Idle => (Status::Idle, None),
                State::Barred => (Status::Over(Outcome::Cancelled), None),
                State::Pending => (Status::Pending, Some(model.deadline)),
                State::Over(how) => (Status::Over(how), None),
            };
            if let Some(timer) = &model.timer {
                assert_eq!(timer.status(), status, "timer {id}");
                let first = match model.kind {
                    // The difference of two boot instants is never negative, so a deadline before
                    // `zeros.boot` shows as `zeros.boot`.
                    Kind::Boot => self.zeros.boot_nanos(),
                    Kind::Mono | Kind::Wall => 0,
                };
                let deadline = deadline.filter(|&at| at != NEVER).map(|at| at.max(first));
                assert_eq!(timer.deadline(&self.zeros), deadline, "timer {id}");
            }
        }
        let mut named = Vec::new();
        for name in 0..NAMES {
            let (text, count) = (name.to_string(), self.count(name));
            assert_eq!(self.handle.count_named(&text), count);
            if count > 0 {
                named.push((text, count));
            }
        }
        assert_eq!(self.handle.timers().named, named);
        if tourbillon::Handle::try_current().is_ok() {
            assert_eq!(self.zeros.nanos(Instant::now()), self.now);
            assert_eq!(
                self.zeros.wall_nanos(time::wall_clock()),
                self.shown(Kind::Wall)
            );
            assert_eq!(boot_now(&self.zeros), self.shown(Kind::Boot));
        }
    }
}

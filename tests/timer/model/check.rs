//! Compares the runtime with the model whenever the runtime is quiet.

use tourbillon::{time, time::Instant};
use tourbillon_shards::NEVER;

use super::{
    NAMES,
    clocks::Kind,
    world::{World, boot_now},
};

impl World {
    pub fn check(&self) {
        for (id, model) in self.timers.iter().enumerate() {
            assert_eq!(model.log.calls(&self.zeros), model.calls, "timer {id}");
            let plain = &model.model;
            assert_eq!(model.log.is_dropped(), plain.is_over(), "callback {id}");
            if let Some(timer) = &model.timer {
                assert_eq!(timer.status(), plain.status(), "timer {id}");
                let first = match model.kind {
                    // The difference of two boot instants is never negative, so a deadline before
                    // `zeros.boot` shows as `zeros.boot`.
                    Kind::Boot => self.zeros.boot_nanos(),
                    Kind::Mono | Kind::Wall => 0,
                };
                let deadline = plain.deadline().filter(|&at| at != NEVER);
                let deadline = deadline.map(|at| at.max(first));
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

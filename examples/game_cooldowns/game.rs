//! The game: the players' actions, their effect on cooldowns, and the check of each cooldown.
//!
//! Each ability has a timer. Beside it, the game computes the expected end from its rules, without
//! a timer. It compares the two at each action and at the end: the timer's answers, the number of
//! runs of its callback, and their times, to the nanosecond.

use std::{fmt, sync::Arc, time::Duration};

use fastrand::Rng;
use tourbillon::{
    Timer,
    time::sleep_until,
    timer::{Cancel, Reset},
};
use tourbillon_examples::say::complain;

use crate::world::World;

/// Interval between the players' actions, in ns of the game.
const ROUND: u64 = 100_000_000;
/// Cooldowns are multiples of this, in ns.
const STEP: u64 = 1_000_000;
/// After the opening, one in this many players acts in each round.
const CALM: usize = 64;

/// One ability of one player.
struct Ability {
    timer: Option<Timer>,
    /// Start of the current wait, in ns of the game. Haste counts from here.
    began: u64,
    /// Length of the cooldown, in ns.
    length: u64,
    /// Expected end of the current or last cooldown. `None` if it was silenced or never cast.
    end: Option<u64>,
    /// Expected number of ended cooldowns, without the current one.
    ends: u32,
}

/// A game that has not started.
pub struct Game {
    players: usize,
    abilities: usize,
    /// In ns.
    length: u64,
    rng: Rng,
}

/// The counts of a game.
#[derive(Default)]
pub struct Report {
    pub length: Duration,
    cooldowns: u64,
    ended: u64,
    refreshed: u64,
    hastened: u64,
    prolonged: u64,
    silenced: u64,
    waiting: u64,
    /// Number of checks that failed.
    pub wrong: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cooldowns in {} of the game: {} ended exactly at their time, {} were silenced, {} \
             wait; on the way {} ended by a refresher, {} were hastened, {} prolonged; {} wrong",
            self.cooldowns,
            humantime::format_duration(self.length),
            self.ended,
            self.silenced,
            self.waiting,
            self.refreshed,
            self.hastened,
            self.prolonged,
            self.wrong
        )
    }
}

impl Game {
    /// Creates a game.
    ///
    /// # Errors
    ///
    /// Fails if the game is longer than a year or shorter than a round.
    pub fn new(players: u32, abilities: u32, length: Duration, seed: u64) -> Result<Self, String> {
        let length = u64::try_from(length.as_nanos())
            .ok()
            .filter(|&length| length <= 365 * 86_400 * 1_000_000_000)
            .ok_or("no game takes longer than a year")?;
        if length < ROUND {
            return Err("a game takes 100 ms or more, that is a round".into());
        }
        Ok(Self {
            players: players as usize,
            abilities: abilities as usize,
            length,
            rng: Rng::with_seed(seed),
        })
    }

    /// Plays the game, on a runtime with a paused clock. The cooldowns of the ability `spoiled` are
    /// a nanosecond too long.
    pub async fn play(self, spoiled: Option<usize>) -> Report {
        let count = self.players * self.abilities;
        let table = Table {
            world: Arc::new(World::new(count)),
            abilities: (0..count).map(|_| Ability::unused()).collect(),
            rng: self.rng,
            spoiled,
            report: Report {
                length: Duration::from_nanos(self.length),
                ..Report::default()
            },
        };
        table.play(self.players, self.abilities, self.length).await
    }
}

impl Ability {
    fn unused() -> Self {
        Self {
            timer: None,
            began: 0,
            length: 0,
            end: None,
            ends: 0,
        }
    }
}

/// A running game.
struct Table {
    world: Arc<World>,
    abilities: Vec<Ability>,
    rng: Rng,
    spoiled: Option<usize>,
    report: Report,
}

impl Table {
    async fn play(mut self, players: usize, abilities: usize, length: u64) -> Report {
        // All players start within the first tenth of the game.
        let rounds = length / ROUND;
        let opening = (rounds / 10).max(1);
        for round in 0..rounds {
            sleep_until(self.world.at(round * ROUND)).await;
            // Players start one after the other; later some of them act at random.
            if round < opening {
                let share = |round: u64| (players as u64 * round / opening) as usize;
                for ability in share(round) * abilities..share(round + 1) * abilities {
                    self.cast(ability, round * ROUND);
                }
            } else {
                for player in 0..players {
                    if self.rng.usize(0..CALM) == 0 {
                        self.act(player * abilities..(player + 1) * abilities, round * ROUND);
                    }
                }
            }
        }
        // Wait half a step more, so that cooldowns that end with the game have ended.
        let end = length + STEP / 2;
        sleep_until(self.world.at(end)).await;
        for ability in 0..self.abilities.len() {
            if self.is_cooling(ability, end) {
                // A cooldown that has not ended must still be pending.
                self.report.waiting += 1;
                let answer = self.timer(ability).cancel();
                self.expect(ability, answer == Cancel::Cancelled, "it is still pending");
                self.abilities[ability].end = None;
            } else {
                self.settle(ability);
            }
        }
        self.report
    }

    /// One player acts.
    fn act(&mut self, abilities: std::ops::Range<usize>, now: u64) {
        let one = self.rng.usize(abilities.clone());
        if self.abilities[one].end == Some(now) {
            // It ends at this very instant, and may have ended already or not.
            return;
        }
        match self.rng.u32(0..8) {
            // The refresher: all abilities of the player become ready at once.
            0 => {
                for ability in abilities {
                    self.refresh_item(ability, now);
                }
            }
            // Silence: the cooldown is cancelled, so the ability does not become ready by itself.
            1 => self.silence(one, now),
            // Haste: the cooldown takes three quarters of its time, counted from the cast.
            2 | 3 => self.haste(one, now),
            // Cast during the cooldown: it starts again. Otherwise: cast.
            _ if self.is_cooling(one, now) => self.prolong(one, now),
            _ => self.cast(one, now),
        }
    }

    /// Casts an ability that is not cooling down.
    fn cast(&mut self, ability: usize, now: u64) {
        self.settle(ability);
        // From half a second to a minute.
        let length = self.rng.u64(500..60_000) * STEP;
        let world = self.world.clone();
        let timer = tourbillon::after(Duration::from_nanos(length), move || world.ended(ability));
        if self.spoiled == Some(ability) {
            timer.reset_after(Duration::from_nanos(length + 1));
        }
        let place = &mut self.abilities[ability];
        place.timer = Some(timer);
        place.began = now;
        place.length = length;
        place.end = Some(now + length);
        self.report.cooldowns += 1;
    }

    fn refresh_item(&mut self, ability: usize, now: u64) {
        if self.is_cooling(ability, now) {
            let answer = self.timer(ability).reset_after(Duration::ZERO);
            self.expect(ability, answer == Reset::Pending, "it can be reset");
            self.abilities[ability].end = Some(now);
            self.report.refreshed += 1;
        }
    }

    fn haste(&mut self, ability: usize, now: u64) {
        if self.is_cooling(ability, now) {
            let Ability { began, length, .. } = self.abilities[ability];
            let length = length / 4 * 3;
            let answer = self
                .timer(ability)
                .reset_from_start(Duration::from_nanos(length));
            self.expect(ability, answer == Reset::Pending, "it can be hastened");
            let place = &mut self.abilities[ability];
            place.length = length;
            // At once if that time has passed.
            place.end = Some((began + length).max(now));
            self.report.hastened += 1;
        }
    }

    fn prolong(&mut self, ability: usize, now: u64) {
        let answer = self.timer(ability).refresh();
        self.expect(ability, answer == Reset::Pending, "it can be refreshed");
        let place = &mut self.abilities[ability];
        place.began = now;
        place.end = Some(now + place.length);
        self.report.prolonged += 1;
    }

    fn silence(&mut self, ability: usize, now: u64) {
        if self.is_cooling(ability, now) {
            let answer = self.timer(ability).cancel();
            self.expect(ability, answer == Cancel::Cancelled, "it can be cancelled");
            self.abilities[ability].end = None;
            self.report.silenced += 1;
        } else if self.abilities[ability].end.is_some() {
            let answer = self.timer(ability).cancel();
            self.expect(ability, answer == Cancel::Over, "it is over");
        }
    }

    fn timer(&self, ability: usize) -> &Timer {
        let timer = self.abilities[ability].timer.as_ref();
        timer.expect("an ability that was cast has a timer")
    }

    /// Returns whether the ability cools down by the rules. A cooldown that ends now may have
    /// ended.
    fn is_cooling(&self, ability: usize, now: u64) -> bool {
        self.abilities[ability].end.is_some_and(|end| end > now)
    }

    /// Checks that a cooldown that is over ended once, at the expected time.
    fn settle(&mut self, ability: usize) {
        let place = &mut self.abilities[ability];
        let end = place.end.take();
        place.ends += u32::from(end.is_some());
        let (expected, (ends, last)) = (place.ends, self.world.ends(ability));
        let is_right = ends == expected && end.is_none_or(|end| end == last);
        if end.is_some() && is_right {
            self.report.ended += 1;
        }
        self.expect(ability, is_right, "it ends once, and exactly at its time");
    }

    /// Counts a failed check, and prints the first ten.
    fn expect(&mut self, ability: usize, is_right: bool, what: &str) {
        if is_right {
            return;
        }
        self.report.wrong += 1;
        if self.report.wrong <= 10 {
            let (ends, last) = self.world.ends(ability);
            let Ability { began, length, .. } = self.abilities[ability];
            complain(format_args!(
                "ability {ability} (since {began} ns, for {length} ns; ended {ends} times, last at \
                 {last} ns) is wrong: expected that {what}"
            ));
        }
    }
}

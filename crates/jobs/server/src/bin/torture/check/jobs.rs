//! What is known of the jobs of a history, and what is wrong with them in the end.

use std::time::Duration;

use tourbillon_jobs::{Time, job::Token};

use crate::{
    history::{Kind, Place},
    load::BACKOFF,
};

/// What is known of an attempt.
pub(super) struct Attempt {
    pub(super) token: Token,
    /// Its number. Zero: it only ended the job, as the last attempt had not ended.
    pub(super) number: u32,
    /// When it was to begin.
    pub(super) at: Time,
    /// Whether the store had not acknowledged the job yet.
    pub(super) is_before_answer: bool,
    /// How it ended, and whether the store took the end. `None` if the process was killed before.
    pub(super) end: Option<(Kind, Option<bool>)>,
}

impl Attempt {
    /// Returns whether the job is certainly still in the store after this attempt.
    fn leaves_the_job(&self) -> bool {
        matches!(self.end, Some((Kind::Retry, Some(true)) | (_, Some(false))))
    }

    /// Returns whether it may have done the job, so that the key was free again.
    fn may_have_done_it(&self) -> bool {
        matches!(self.end, None | Some((Kind::Done, None | Some(true))))
    }

    fn did_it(&self) -> bool {
        matches!(self.end, Some((Kind::Done, Some(true))))
    }

    pub(super) fn is_cut(&self) -> bool {
        !matches!(self.end, Some((_, Some(_))))
    }
}

#[derive(Default)]
pub(super) struct Job {
    pub(super) is_acknowledged: bool,
    /// How many requests for it failed. Each may have made it, and it was done before the next one
    /// made it anew: it has one life more then.
    pub(super) failed: u32,
    /// Whether the job may have been cancelled.
    pub(super) may_be_cancelled: bool,
    pub(super) is_cancelled: bool,
    /// What it did as another job took its place, as the store answered.
    pub(super) place: Option<Place>,
    /// How many attempts of it began in the history after this answer.
    pub(super) begun_since: u32,
    /// How often a client asked to move it. With each move its attempts count anew.
    pub(super) moves: u32,
    /// Times at which it may be due.
    pub(super) times: Vec<Time>,
    pub(super) attempts: Vec<Attempt>,
    /// The token of the attempt that did the job.
    pub(super) done: Option<Token>,
    pub(super) is_dead: bool,
    /// Whether the store has it among the dead in the end.
    pub(super) is_buried: bool,
}

impl Job {
    /// Returns whether an attempt of the job has this token.
    pub(super) fn has(&self, token: Token) -> bool {
        self.attempts.iter().any(|one| one.token == token)
    }

    /// Returns what is wrong if the job was lost: it is not in the store any more, and no attempt
    /// did it.
    pub(super) fn loss(&self) -> Option<&'static str> {
        if self.is_buried {
            if self.place.is_some() {
                return Some("among the dead, although another job took its place");
            }
            let is_done = self.done.is_some() && self.failed == 0;
            return is_done.then_some("dead, although an attempt did it");
        }
        if !self.is_acknowledged || self.may_be_cancelled {
            return None;
        }
        if self.is_dead && self.moves == 0 {
            return Some("lost after its death");
        }
        if self.attempts.is_empty() {
            return Some("lost");
        }
        // The end of an attempt is stale once there is a newer one. So the newest alone may have
        // done the job, unless it had more lives than one.
        let is_left = match self.attempts.iter().max_by_key(|attempt| attempt.token) {
            Some(newest) if self.failed == 0 && self.moves == 0 => newest.leaves_the_job(),
            _ => self.attempts.iter().all(Attempt::leaves_the_job),
        };
        is_left.then_some("lost after an attempt that did not do it")
    }

    /// Divides the attempts, which are in the order of their tokens, into those of each life. A
    /// life ends with an attempt that may have done the job before the store answered the request.
    fn lives(&self) -> impl Iterator<Item = &[Attempt]> {
        let mut more = self.failed;
        self.attempts.chunk_by(move |one, two| {
            let is_last = more > 0
                && one.is_before_answer
                && (one.did_it() || one.may_have_done_it() && two.number <= one.number);
            more -= u32::from(is_last);
            !is_last
        })
    }

    /// Returns what is wrong with the numbers of the attempts, and with the waits between them.
    pub(super) fn excess(&mut self) -> Option<String> {
        self.attempts.retain(|attempt| attempt.number > 0);
        self.attempts.sort_by_key(|attempt| attempt.token);
        let most = BACKOFF.attempts * (1 + self.moves);
        let mut lives = self.lives();
        if let Some(life) = lives.find(|life| life.len() > most as usize) {
            return Some(format!("{} attempts", life.len()));
        }
        let has_one_more = |life: &[Attempt]| life.iter().rev().skip(1).any(Attempt::did_it);
        if self.failed > 0 && self.lives().any(has_one_more) {
            return Some("an attempt follows the one that did it".into());
        }
        let highest = self.attempts.iter().map(|attempt| attempt.number).max();
        if let Some(number) = highest.filter(|&number| number > BACKOFF.attempts) {
            return Some(format!("an attempt has the number {number}"));
        }
        if self.moves > 0 {
            return None;
        }
        let mut pairs = self.lives().flat_map(|life| life.windows(2));
        pairs.find_map(|pair| {
            let [one, two] = pair else { return None };
            // The wait is at least half of this, less what was rounded.
            let doubled = 2_u32.saturating_pow(one.number - 1);
            let wait = (BACKOFF.first * doubled).min(BACKOFF.longest) / 2;
            if two.number <= one.number {
                Some(format!("the attempt {} was not counted", one.token))
            } else if two.at.since(one.at) + Duration::from_micros(1) < wait {
                Some(format!("the attempt {} did not wait", two.token))
            } else {
                None
            }
        })
    }
}

/// The jobs of a key, and what is known of both.
#[derive(Default)]
pub(super) struct Key {
    pub(super) first: Job,
    /// The job that took the place of the first one, or may have done so.
    pub(super) other: Option<Job>,
}

impl Key {
    /// Returns the job that an event is about, if a client has asked for it.
    pub(super) fn job(&mut self, is_other: bool) -> Option<&mut Job> {
        match is_other {
            true => self.other.as_mut(),
            false => Some(&mut self.first),
        }
    }

    /// Returns the job of an attempt that has ended. One that only ended the job did not write
    /// which one it was: the other one has got the higher tokens.
    pub(super) fn ended(&mut self, token: Token) -> &mut Job {
        match &mut self.other {
            Some(other)
                if !self.first.has(token)
                    && other.attempts.iter().any(|one| one.token <= token) =>
            {
                other
            }
            _ => &mut self.first,
        }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Job> {
        [&mut self.first].into_iter().chain(&mut self.other)
    }

    /// Returns what is wrong with the jobs together. The store has given the first one no token
    /// after it gave the other one its first, and has taken no end of it as the last after the
    /// other one took its place.
    pub(super) fn disorder(&self) -> Option<&'static str> {
        let (first, other) = (&self.first, self.other.as_ref()?);
        let tokens = |job: &Job| job.attempts.iter().map(|one| one.token).collect::<Vec<_>>();
        let highest = tokens(first).into_iter().max();
        let lowest = tokens(other).into_iter().min();
        if highest
            .zip(lowest)
            .is_some_and(|(first, other)| first > other)
        {
            return Some("the token of a replaced job is not stale");
        }
        // If a request got no answer, one of the two jobs was there until an attempt did it.
        let is_in_doubt = first.is_acknowledged && !other.is_acknowledged;
        let mut attempts = first.attempts.iter().chain(&other.attempts);
        if is_in_doubt
            && !(first.is_buried || other.is_buried)
            && attempts.all(Attempt::leaves_the_job)
        {
            return Some("lost, or the job that took its place");
        }
        // If a request for the job failed, it may have been done, and then have been made anew.
        let was_there = matches!(first.place, Some(Place::Idle | Place::Running));
        let is_done = first.failed == 0 && first.done.is_some();
        (was_there && is_done).then_some("replaced, although an attempt had done it")
    }
}

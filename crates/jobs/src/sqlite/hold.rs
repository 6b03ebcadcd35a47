//! Gives jobs to nodes.

use rusqlite::{OptionalExtension, params};

use super::{
    holders::{self, Place},
    rows::HELD,
    writer::Writer,
};
use crate::{
    job::Time,
    row,
    store::{Held, Span},
};

impl Writer {
    /// Gives the earliest jobs of a span without a holder to a node, until it has `most` or there
    /// are no more.
    pub(super) fn hold(&self, node: i64, span: Span, most: usize) -> rusqlite::Result<Vec<Held>> {
        let mut held = Vec::new();
        let now = Time::wall();
        let (first, until) = match span {
            Span::Due => (holders::start(), now),
            Span::Within(window) => (holders::behind(now), now.after(window)),
        };
        while held.len() < most {
            if self.hold_some(node, &first, until, most - held.len(), &mut held)? {
                break;
            }
        }
        Ok(held)
    }

    /// Does a part of [`hold`](Self::hold). Returns whether there are no more jobs.
    fn hold_some(
        &self,
        node: i64,
        first: &Place,
        until: Time,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<bool> {
        // Read without the lock, so that others do not wait. Only this thread makes holders, so a
        // job without a holder still has none when the lock is taken again.
        let mut jobs = Vec::new();
        // First the jobs of places that were read before. These places may be out of date.
        let (places, unread) = {
            let holders = self.holders.lock();
            let earlier = holders.earlier.range(first.clone()..holders::behind(until));
            (
                earlier.take(most).cloned().collect::<Vec<_>>(),
                holders.unread(first),
            )
        };
        // Use one transaction for all reads, as each transaction locks the file.
        let reading = self.base.unchecked_transaction()?;
        let mut find = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs WHERE key = ?1 AND at = ?2 AND dead = 0"
        ))?;
        for (at, key) in &places {
            let found = find.query_row(params![key, at.as_micros()], |found| row::held(found));
            jobs.extend(found.optional()?);
        }
        // Then the others.
        let mut read = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs WHERE dead = 0 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT ?4"
        ))?;
        let room = most - places.len();
        let range = params![
            until.as_micros(),
            unread.0.0.as_micros(),
            unread.0.1,
            i64::try_from(room).unwrap_or(i64::MAX)
        ];
        let before = jobs.len();
        for job in read.query_map(range, |found| row::held(found))? {
            jobs.push(job?);
        }

        let mut holders = self.holders.lock();
        // The node may have been released since it asked. Then no release would free these jobs.
        if !holders.may_hold(node) {
            return Ok(true);
        }
        for place in &places {
            holders.earlier.remove(place);
        }
        let is_all = jobs.len() - before < room;
        let reached = match jobs[before..].last() {
            _ if is_all => Some(holders::behind(until)),
            last => last.map(|last| (last.at, last.key.clone())),
        };
        if let Some(reached) = reached {
            holders.has_read(unread, reached);
        }
        for mut job in jobs {
            if !holders.by_key.contains_key(&job.key) {
                job.token = holders.hold(node, &job.key, job.at, job.attempts);
                held.push(job);
            }
        }
        Ok(is_all)
    }
}

//! Gives jobs to nodes.

use rusqlite::{OptionalExtension, params};

use super::{
    holders::{self, Lane, Place},
    rows::{self, HELD},
    writer::Writer,
};
use crate::{
    job::Time,
    row,
    store::{Held, Kinds, Span},
};

/// Which jobs a part of a hold is for.
struct Range<'a> {
    lane: &'a Lane,
    first: &'a Place,
    until: Time,
}

impl Writer {
    /// Gives the earliest jobs of a span, a queue and these kinds without a holder to a node, until
    /// it has `most` or there are no more. Gives none of a queue that is paused.
    pub(super) fn hold(
        &self,
        node: i64,
        span: Span,
        queue: &str,
        kinds: &Kinds,
        most: usize,
    ) -> rusqlite::Result<Vec<Held>> {
        let mut held = Vec::new();
        // The nodes are told when it goes on.
        if self.holders.lock().paused.contains(queue) {
            return Ok(held);
        }
        let now = Time::wall();
        let (first, until) = match span {
            Span::Due | Span::Above(_) => (holders::start(), now),
            Span::Within(window) => (holders::behind(now), now.after(window)),
        };
        let is_meant = |lane: &Lane| {
            let has_kind = match kinds {
                Kinds::All => true,
                Kinds::Only(kinds) => kinds.contains(&lane.kind),
            };
            has_kind && !matches!(span, Span::Above(priority) if lane.priority >= priority)
        };
        let mut lanes = rows::lanes(&self.base, queue)?;
        // All inserts are by this thread, so no lane gets a row meanwhile.
        self.holders.lock().keep_lanes(queue, &lanes);
        lanes.retain(is_meant);
        let range = |lane| Range {
            lane,
            first: &first,
            until,
        };
        let mut ranges: Vec<_> = lanes.iter().map(range).collect();
        if ranges.len() > 1 {
            // Of one priority, the kind with the earliest job comes first, so none waits for
            // another one for long. Those without a job are read, too, which moves their horizons.
            let mut heads = Vec::new();
            for range in ranges {
                heads.push(((range.lane.priority, self.head(&range)?), range));
            }
            heads.sort_by_key(|(head, _)| *head);
            ranges = heads.into_iter().map(|(_, range)| range).collect();
        }
        for range in ranges {
            while held.len() < most {
                if self.hold_some(node, &range, most - held.len(), &mut held)? {
                    break;
                }
            }
        }
        Ok(held)
    }

    /// Returns the time of the first job of a range, as far as is known.
    fn head(&self, range: &Range<'_>) -> rusqlite::Result<Option<Time>> {
        let (place, unread) = {
            let holders = self.holders.lock();
            let mut places = holders.earlier(range.lane, range.first, range.until, 1);
            (places.pop(), holders.unread(range.lane, range.first).0)
        };
        let mut read = self.base.prepare_cached(
            "SELECT at FROM jobs
             WHERE dead = 0 AND queue = ?6 AND kind = ?4 AND priority = ?5
                 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT 1",
        )?;
        let (until, after) = (range.until.as_micros(), unread.0.as_micros());
        let lane = range.lane;
        let values = params![until, after, unread.1, lane.kind, lane.priority, lane.queue];
        let found = read.query_row(values, |row| row.get(0)).optional()?;
        let found = found.map(Time::from_micros);
        let known = place.map(|(at, _)| at);
        Ok(match (known, found) {
            (Some(known), Some(found)) => Some(known.min(found)),
            (known, found) => known.or(found),
        })
    }

    /// Does a part of [`hold`](Self::hold). Returns whether there are no more jobs in this range.
    fn hold_some(
        &self,
        node: i64,
        range: &Range<'_>,
        most: usize,
        held: &mut Vec<Held>,
    ) -> rusqlite::Result<bool> {
        let Range { lane, first, until } = *range;
        // Read without the lock, so that others do not wait. Only this thread makes holders, so a
        // job without a holder still has none when the lock is taken again.
        // The jobs of places that were read before. These places may be out of date.
        let (mut places, unread) = {
            let holders = self.holders.lock();
            let places = holders.earlier(lane, first, until, most);
            (places, holders.unread(lane, first))
        };
        // If these are enough, only others before the last of them matter.
        let until = match places.last() {
            Some((at, _)) if places.len() == most => *at,
            _ => until,
        };

        // The jobs, each with whether the table was read for it now.
        let mut jobs = Vec::new();
        // Use one transaction for all reads, as each transaction locks the file.
        let reading = self.base.unchecked_transaction()?;
        let mut find = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs
             WHERE key = ?1 AND at = ?2 AND kind = ?3 AND priority = ?4 AND queue = ?5
                 AND dead = 0"
        ))?;
        for (at, key) in &places {
            let Lane {
                queue,
                kind,
                priority,
            } = lane;
            let values = params![key, at.as_micros(), kind, priority, queue];
            let found = find.query_row(values, |found| row::held(found));
            jobs.extend(found.optional()?.map(|job: Held| (false, job)));
        }
        // The others, of which some may be due before these.
        let mut read = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs
             WHERE dead = 0 AND queue = ?7 AND kind = ?5 AND priority = ?6
                 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT ?4"
        ))?;
        let values = params![
            until.as_micros(),
            unread.0.0.as_micros(),
            unread.0.1,
            i64::try_from(most).unwrap_or(i64::MAX),
            lane.kind,
            lane.priority,
            lane.queue
        ];
        let before = jobs.len();
        for job in read.query_map(values, |found| row::held(found))? {
            jobs.push((true, job?));
        }
        let is_end = jobs.len() - before < most;
        // Take the earliest ones, and leave the rest where it is.
        jobs.sort_by(|(_, one), (_, other)| (one.at, &one.key).cmp(&(other.at, &other.key)));
        let rest = jobs.split_off(most.min(jobs.len()));
        let is_all = is_end && rest.is_empty() && places.len() < most;
        // The places and the rest are in the same order.
        if let Some((_, left)) = rest.iter().find(|(is_new, _)| !is_new) {
            places.retain(|(at, key)| (at, key) < (&left.at, &left.key));
        }

        let mut holders = self.holders.lock();
        // The node may have been released since it asked. Then no release would free these jobs.
        if !holders.may_hold(node) {
            return Ok(true);
        }
        holders.forget(lane, &places);
        let last = jobs.iter().rev().find(|(is_new, _)| *is_new);
        let reached = match last {
            _ if is_end && rest.iter().all(|(is_new, _)| !is_new) => Some(holders::behind(until)),
            last => last.map(|(_, last)| (last.at, last.key.clone())),
        };
        if let Some(reached) = reached {
            holders.has_read(lane, unread, reached);
        }
        for (_, mut job) in jobs {
            if !holders.by_key.contains_key(&job.key) {
                job.token = holders.hold(node, &job);
                held.push(job);
            }
        }
        Ok(is_all)
    }
}

//! Gives jobs to nodes.

use rusqlite::{OptionalExtension, params};

use super::{
    holders::{self, Place},
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
    kind: &'a str,
    first: &'a Place,
    until: Time,
}

impl Writer {
    /// Gives the earliest jobs of a span and of these kinds without a holder to a node, until it has
    /// `most` or there are no more.
    pub(super) fn hold(
        &self,
        node: i64,
        span: Span,
        kinds: &Kinds,
        most: usize,
    ) -> rusqlite::Result<Vec<Held>> {
        let mut held = Vec::new();
        let now = Time::wall();
        let (first, until) = match span {
            Span::Due => (holders::start(), now),
            Span::Within(window) => (holders::behind(now), now.after(window)),
        };
        let kinds = match kinds {
            Kinds::All => rows::kinds(&self.base)?,
            Kinds::Only(kinds) => kinds.to_vec(),
        };
        let mut ranges: Vec<_> = kinds
            .iter()
            .map(|kind| Range {
                kind,
                first: &first,
                until,
            })
            .collect();
        if ranges.len() > 1 {
            // The kind with the earliest job comes first, so none waits for another one for long.
            // Those without a job are read, too, which moves their horizons.
            let mut heads = Vec::new();
            for range in ranges {
                heads.push((self.head(&range)?, range));
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
            let mut places = holders.earlier(range.kind, range.first, range.until, 1);
            (places.pop(), holders.unread(range.kind, range.first).0)
        };
        let mut read = self.base.prepare_cached(
            "SELECT at FROM jobs WHERE dead = 0 AND kind = ?4 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT 1",
        )?;
        let (until, after) = (range.until.as_micros(), unread.0.as_micros());
        let values = params![until, after, unread.1, range.kind];
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
        let Range { kind, first, until } = *range;
        // Read without the lock, so that others do not wait. Only this thread makes holders, so a
        // job without a holder still has none when the lock is taken again.
        let mut jobs = Vec::new();
        // First the jobs of places that were read before. These places may be out of date.
        let (places, unread) = {
            let holders = self.holders.lock();
            let places = holders.earlier(kind, first, until, most);
            (places, holders.unread(kind, first))
        };
        // Use one transaction for all reads, as each transaction locks the file.
        let reading = self.base.unchecked_transaction()?;
        let mut find = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs WHERE key = ?1 AND at = ?2 AND kind = ?3 AND dead = 0"
        ))?;
        for (at, key) in &places {
            let values = params![key, at.as_micros(), kind];
            let found = find.query_row(values, |found| row::held(found));
            jobs.extend(found.optional()?);
        }
        // Then the others.
        let mut read = reading.prepare_cached(&format!(
            "SELECT {HELD} FROM jobs
             WHERE dead = 0 AND kind = ?5 AND at <= ?1 AND (at, key) > (?2, ?3)
             ORDER BY at, key LIMIT ?4"
        ))?;
        let room = most - places.len();
        let values = params![
            until.as_micros(),
            unread.0.0.as_micros(),
            unread.0.1,
            i64::try_from(room).unwrap_or(i64::MAX),
            kind
        ];
        let before = jobs.len();
        for job in read.query_map(values, |found| row::held(found))? {
            jobs.push(job?);
        }

        let mut holders = self.holders.lock();
        // The node may have been released since it asked. Then no release would free these jobs.
        if !holders.may_hold(node) {
            return Ok(true);
        }
        holders.forget(kind, &places);
        let is_all = jobs.len() - before < room;
        let reached = match jobs[before..].last() {
            _ if is_all => Some(holders::behind(until)),
            last => last.map(|last| (last.at, last.key.clone())),
        };
        if let Some(reached) = reached {
            holders.has_read(kind, unread, reached);
        }
        for mut job in jobs {
            if !holders.by_key.contains_key(&job.key) {
                job.token = holders.hold(node, &job);
                held.push(job);
            }
        }
        Ok(is_all)
    }
}

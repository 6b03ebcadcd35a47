//! The stalls of a snapshot, each once.

use tourbillon::{
    flight::{Event, Snapshot},
    metrics::JobName,
};

/// A job that held its worker too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) worker: usize,
    /// When it was reported last, in ns: the job was over then, or still ran.
    pub(crate) at: u64,
    pub(crate) is_running: bool,
    /// For how long the job had run by then, in ns.
    pub(crate) elapsed: u64,
    /// `None` if it is not known which of several jobs it was.
    pub(crate) job: Option<JobName>,
}

/// Returns the stalls by worker and time. Of one that was reported when it was seen and when it
/// ended, this is the end.
pub(crate) fn stalls(snapshot: &Snapshot) -> Vec<Stalled> {
    let events = snapshot.tracks.iter().flat_map(|track| &track.events);
    let reports = events.filter_map(|&(at, event)| match event {
        Event::Stalled {
            worker,
            is_running,
            elapsed,
            job,
        } => Some(Stalled {
            worker,
            at,
            is_running,
            elapsed,
            job,
        }),
        _ => None,
    });
    let mut reports: Vec<_> = reports.collect();
    reports.sort_by_key(|it| (it.worker, it.at));
    // The next report of a worker ends the one of a job that still ran, if it goes back so far.
    let is_end = |next: &Stalled, seen: &Stalled| {
        let began = next.at.saturating_sub(next.elapsed);
        seen.is_running && !next.is_running && seen.worker == next.worker && began <= seen.at
    };
    let mut stalls: Vec<Stalled> = Vec::with_capacity(reports.len());
    for report in reports {
        if stalls.last().is_some_and(|seen| is_end(&report, seen)) {
            stalls.pop();
        }
        stalls.push(report);
    }
    stalls
}

#[cfg(test)]
mod tests {
    use tourbillon::flight::{Thread, Track};

    use super::*;

    #[test]
    fn a_stall_that_was_reported_twice_is_there_once() {
        let stalled = |at, worker, is_running, elapsed| {
            let job = Some(JobName::new("slow", None));
            let event = Event::Stalled {
                worker,
                is_running,
                elapsed,
                job,
            };
            (at, event)
        };
        let track = |thread, events: &[_]| Track::new(thread, events.to_vec());
        let mut snapshot = Snapshot::default();
        snapshot.tracks = vec![
            // Another stall, of which no peer saw the job.
            track(
                Thread::Worker(0),
                &[stalled(80, 0, false, 70), stalled(200, 0, false, 50)],
            ),
            track(
                Thread::Worker(1),
                &[stalled(20, 0, true, 10), stalled(190, 2, true, 10)],
            ),
        ];
        let found = stalls(&snapshot);
        let found = found.iter().map(|it| (it.worker, it.at, it.is_running));
        let expected = [(0, 80, false), (0, 200, false), (2, 190, true)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

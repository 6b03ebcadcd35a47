//! The metrics as text for Prometheus, in its own format and in OpenMetrics.
//!
//! Names end in base units, so times are in seconds. Values per worker have the label `worker`: a
//! worker number, `helpers` for all helpers, or `clocks` for timers of the wall clock and the
//! boot-time clock, which belong to no worker.

use super::{
    Counts, RuntimeMetrics, WorkerMetrics,
    text::{Float, Format, Text},
};

/// Reads one counter.
type Count = fn(&Counts) -> u64;

impl RuntimeMetrics {
    /// Returns all metrics as text in version 0.0.4 of Prometheus' format. Its content type is
    /// `text/plain; version=0.0.4`.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let text = runtime.metrics().prometheus();
    /// assert!(text.contains("# TYPE tourbillon_timers_armed_total counter\n"));
    /// assert!(text.contains("\ntourbillon_timers_armed_total{worker=\"0\",from=\"local\"} 0\n"));
    /// ```
    pub fn prometheus(&self) -> String {
        self.render(Format::Prometheus)
    }

    /// Returns all metrics as text in OpenMetrics 1.0.0. Its content type is
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let text = runtime.metrics().openmetrics();
    /// assert!(text.contains("# TYPE tourbillon_timers_armed counter\n"));
    /// assert!(text.ends_with("# EOF\n"));
    /// ```
    pub fn openmetrics(&self) -> String {
        self.render(Format::OpenMetrics)
    }

    fn render(&self, format: Format) -> String {
        let mut text = Text::new(format);
        text.gauge("tourbillon_build_info", "The version of the library.");
        text.sample("", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.expose_timers(&mut text);
        self.expose_lateness(&mut text);
        self.expose_jobs(&mut text);
        self.expose_rescues(&mut text);
        self.expose_waiting(&mut text);
        self.expose_threads(&mut text);
        text.end()
    }

    /// Returns the label and counters of each worker, and of the helpers.
    fn writers(&self) -> impl Iterator<Item = (String, &Counts)> {
        let workers = self.workers().iter().enumerate();
        let workers = workers.map(|(i, worker)| (i.to_string(), &worker.counts));
        workers.chain([("helpers".to_owned(), self.helper_counts())])
    }

    /// Returns the label and counters of each worker, of the helpers, and of the other clocks.
    /// `clocks` is [`clock_counts`](Self::clock_counts).
    fn writers_and_clocks<'a>(
        &'a self,
        clocks: &'a Counts,
    ) -> impl Iterator<Item = (String, &'a Counts)> {
        self.writers().chain([("clocks".to_owned(), clocks)])
    }

    /// Writes a counter that workers and helpers have.
    fn expose_count(&self, text: &mut Text, name: &'static str, help: &str, count: Count) {
        text.counter(name, help);
        for (worker, counts) in self.writers() {
            text.sample("", &[("worker", &worker)], count(counts));
        }
    }

    /// Writes a counter of timers, split by a label.
    fn expose_timers_in_parts(
        &self,
        text: &mut Text,
        name: &'static str,
        help: &str,
        label: &str,
        parts: &[(&str, Count)],
    ) {
        text.counter(name, help);
        for (worker, counts) in self.writers_and_clocks(&self.clock_counts()) {
            for (part, count) in parts {
                let labels = [("worker", &*worker), (label, part)];
                text.sample("", &labels, count(counts));
            }
        }
    }

    /// Writes a gauge that each worker has.
    fn expose_depth(
        &self,
        text: &mut Text,
        name: &'static str,
        help: &'static str,
        depth: impl Fn(&WorkerMetrics) -> usize,
    ) {
        text.gauge(name, help);
        for (i, worker) in self.workers().iter().enumerate() {
            text.sample("", &[("worker", &i.to_string())], depth(worker));
        }
    }

    fn expose_timers(&self, text: &mut Text) {
        self.expose_timers_in_parts(
            text,
            "tourbillon_timers_armed_total",
            "Timers armed, sleeps included, by the worker itself or by other threads.",
            "from",
            &[
                ("local", |counts| counts.armed_local),
                ("remote", |counts| counts.armed_remote),
            ],
        );
        self.expose_timers_in_parts(
            text,
            "tourbillon_timers_over_total",
            "Timers that ended, sleeps included, by outcome.",
            "outcome",
            &[
                ("fired", |counts| counts.fired),
                ("cancelled", |counts| counts.cancelled),
                ("shutdown", |counts| counts.shut_down),
            ],
        );
        text.counter(
            "tourbillon_timers_refreshed_total",
            "Resets and refreshes of pending or recurring timers.",
        );
        for (worker, counts) in self.writers_and_clocks(&self.clock_counts()) {
            text.sample("", &[("worker", &worker)], counts.refreshed);
        }
        // The other clocks have no worker: their gauges go under one label value.
        let (wall, boot) = (self.wall_clock(), self.boot_clock());
        let clocks = [("worker", "clocks")];
        self.expose_depth(
            text,
            "tourbillon_timers_pending",
            "Pending timers, sleeps included.",
            |worker| worker.pending,
        );
        text.sample("", &clocks, wall.pending + boot.pending);
        self.expose_depth(
            text,
            "tourbillon_timers_stored",
            "Timers in the store.",
            |worker| worker.stored,
        );
        text.sample("", &clocks, wall.stored + boot.stored);
        self.expose_depth(
            text,
            "tourbillon_timers_garbage",
            "Cancelled timers that are still in the store.",
            |worker| worker.garbage,
        );
        text.sample("", &clocks, wall.garbage + boot.garbage);
        text.counter(
            "tourbillon_sweeps_total",
            "Times that an inbox was emptied when it was not empty.",
        );
        for (i, worker) in self.workers().iter().enumerate() {
            text.sample("", &[("worker", &i.to_string())], worker.sweeps);
        }
        text.sample("", &clocks, wall.sweeps + boot.sweeps);
    }

    fn expose_lateness(&self, text: &mut Text) {
        text.histogram(
            "tourbillon_timer_lateness_seconds",
            "Timer lateness. wake: from the deadline until taken from the store; queue: from there \
             until run (one in 16); rescued: the part of wake taken from stuck workers.",
        );
        let workers = self.workers().iter().enumerate().map(|(i, worker)| {
            let all = [
                &worker.wake_lateness,
                &worker.queue_lateness,
                &worker.rescued_lateness,
            ];
            (i.to_string(), all)
        });
        // Helpers end and start, so they share one histogram per stage.
        let helpers = [
            self.helper_wake_lateness(),
            self.helper_queue_lateness(),
            self.helper_rescued_lateness(),
        ];
        for (worker, all) in workers.chain([("helpers".to_owned(), helpers)]) {
            for (stage, late) in ["wake", "queue", "rescued"].into_iter().zip(all) {
                text.buckets(&[("worker", &worker), ("stage", stage)], late);
            }
        }
    }

    fn expose_jobs(&self, text: &mut Text) {
        let all: [(&str, &str, Count); 10] = [
            (
                "tourbillon_callbacks_total",
                "Callback runs; a recurring timer counts each run.",
                |counts| counts.callbacks,
            ),
            ("tourbillon_polls_total", "Task polls.", |counts| {
                counts.polls
            }),
            (
                "tourbillon_panics_total",
                "Callbacks and tasks that panicked.",
                |counts| counts.panics,
            ),
            (
                "tourbillon_stalls_total",
                "Jobs that held the worker longer than the stall threshold.",
                |counts| counts.stalls,
            ),
            (
                "tourbillon_steals_total",
                "Times that jobs were taken from another queue.",
                |counts| counts.steal_operations,
            ),
            (
                "tourbillon_jobs_stolen_total",
                "Jobs taken from other queues.",
                |counts| counts.jobs_stolen,
            ),
            (
                "tourbillon_parks_total",
                "Times that the worker slept.",
                |counts| counts.parks,
            ),
            (
                "tourbillon_epoll_waits_total",
                "Times that the kernel was asked for events, with or without waiting.",
                |counts| counts.epoll_waits,
            ),
            (
                "tourbillon_early_wakes_total",
                "Times that the kernel woke the worker before the deadline that it slept for.",
                |counts| counts.early_wakes,
            ),
            (
                "tourbillon_search_wakes_total",
                "Times that the worker was woken to search for work.",
                |counts| counts.search_wakes,
            ),
        ];
        for (name, help, count) in all {
            self.expose_count(text, name, help, count);
        }
        text.counter(
            "tourbillon_tickles_total",
            "Updates from other threads, by whether a write had to wake the worker.",
        );
        for (worker, counts) in self.writers() {
            let results = [
                ("written", counts.tickles_written),
                ("skipped", counts.tickles_skipped),
            ];
            for (result, count) in results {
                text.sample("", &[("worker", &worker), ("result", result)], count);
            }
        }
        text.counter(
            "tourbillon_worker_busy_seconds_total",
            "Time that the worker was awake, as of its last turn of the loop.",
        );
        for (worker, counts) in self.writers() {
            let seconds = counts.busy().as_secs_f64();
            text.sample("", &[("worker", &worker)], Float(seconds));
        }
    }

    fn expose_rescues(&self, text: &mut Text) {
        self.expose_count(
            text,
            "tourbillon_alarms_total",
            "Times that a watchdog woke the worker because another was overdue.",
            |counts| counts.alarms,
        );
        self.expose_count(
            text,
            "tourbillon_false_alarms_total",
            "Alarms whose overdue worker was asleep by then, with nothing due.",
            |counts| counts.false_alarms,
        );
        self.expose_count(
            text,
            "tourbillon_rescued_timers_total",
            "Timers that the worker took from a stuck worker.",
            |counts| counts.rescued_timers,
        );
        self.expose_count(
            text,
            "tourbillon_rescued_tasks_total",
            "Tasks of a stuck worker that the worker woke or took.",
            |counts| counts.rescued_tasks,
        );
        text.counter(
            "tourbillon_rescued_total",
            "Timers and tasks taken, by stuck worker; only pairs with a rescue.",
        );
        let workers = self.workers().iter().enumerate();
        let workers = workers.map(|(i, worker)| (i.to_string(), &*worker.rescued_from));
        let helpers = ("helpers".to_owned(), self.helpers_rescued_from());
        for (worker, rescued) in workers.chain([helpers]) {
            // Omit pairs with no rescue: all pairs would be the square of the workers.
            for (from, &count) in rescued.iter().enumerate().filter(|(_, count)| **count > 0) {
                let from = from.to_string();
                text.sample("", &[("worker", &worker), ("from", &from)], count);
            }
        }
    }

    fn expose_waiting(&self, text: &mut Text) {
        self.expose_depth(
            text,
            "tourbillon_local_queue_depth",
            "Jobs in the worker's queue.",
            |worker| worker.queue_depth,
        );
        self.expose_depth(
            text,
            "tourbillon_pinned_tasks",
            "Tasks pinned to the worker that have not ended.",
            |worker| worker.pinned_tasks,
        );
        text.gauge("tourbillon_global_queue_depth", "Jobs in the global queue.");
        text.sample("", &[], self.global_queue_depth());
        text.gauge("tourbillon_alive_tasks", "Tasks that have not ended.");
        text.sample("", &[], self.num_alive_tasks());
        text.counter(
            "tourbillon_spawned_tasks_total",
            "Tasks spawned, jobs of spawn_blocking included.",
        );
        text.sample("", &[], self.spawned_tasks_count());
        text.gauge(
            "tourbillon_blocking_queue_depth",
            "Jobs of spawn_blocking that wait for a thread.",
        );
        text.sample("", &[], self.blocking_queue_depth());
    }

    fn expose_threads(&self, text: &mut Text) {
        let all = [
            (
                "tourbillon_workers",
                "Workers; zero once the runtime has ended.",
                self.num_workers(),
            ),
            (
                "tourbillon_helper_threads",
                "Helpers, idle ones included.",
                self.num_helpers(),
            ),
            (
                "tourbillon_idle_helper_threads",
                "Idle helpers.",
                self.num_idle_helpers(),
            ),
            (
                "tourbillon_blocking_threads",
                "Threads for spawn_blocking, idle ones included.",
                self.num_blocking_threads(),
            ),
            (
                "tourbillon_idle_blocking_threads",
                "Idle threads for spawn_blocking.",
                self.num_idle_blocking_threads(),
            ),
        ];
        for (name, help, count) in all {
            text.gauge(name, help);
            text.sample("", &[], count);
        }
        text.counter(
            "tourbillon_helpers_started_total",
            "Helpers started so far.",
        );
        text.sample("", &[], self.helpers_started());
    }
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;

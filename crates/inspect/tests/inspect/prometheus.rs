//! The metrics that Prometheus reads: no counter decreases, and `armed` equals `over` when all
//! timers are over.

use std::{
    collections::{BTreeMap, HashMap},
    thread,
    time::{Duration, SystemTime},
};

use tourbillon::{
    Runtime, Timer,
    runtime::{Builder, StoreKind},
    time::sleep,
};

use crate::{
    client::{get, inspect},
    common::{Random, alarm, eventually, runtime},
};

/// The number of scrapes while the storms run.
const SCRAPES: usize = 20;

/// A scrape: each sample by its name and labels, and the kind of each family.
struct Scrape {
    samples: BTreeMap<String, f64>,
    kinds: HashMap<String, String>,
}

impl Scrape {
    fn of(text: &str) -> Self {
        let mut scrape = Self {
            samples: BTreeMap::new(),
            kinds: HashMap::new(),
        };
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                scrape.kinds.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let twice = scrape
                    .samples
                    .insert(name.to_owned(), value.parse().unwrap());
                assert_eq!(twice, None, "{name} comes twice");
            }
        }
        scrape
    }

    fn take(addr: std::net::SocketAddr) -> Self {
        let reply = get(addr, "/metrics");
        assert_eq!(reply.status, 200, "{reply:?}");
        Self::of(&reply.body)
    }

    /// Returns the sum over all labels.
    fn sum(&self, name: &str) -> f64 {
        let is_of = |key: &str| key.starts_with(name) && key[name.len()..].starts_with('{');
        let all = self.samples.iter().filter(|(key, _)| is_of(key));
        all.map(|(_, value)| value).sum()
    }

    /// Returns whether a sample is of a kind that never decreases.
    fn grows(&self, key: &str) -> bool {
        let name = key.split('{').next().unwrap();
        let is_gauge = self.kinds.get(name).is_some_and(|kind| kind == "gauge");
        !is_gauge
    }

    /// Checks that no counter has decreased or disappeared since `earlier`.
    fn assert_grown_since(&self, earlier: &Self) {
        for (key, before) in &earlier.samples {
            if self.grows(key) {
                let now = self.samples.get(key);
                assert!(
                    now.is_some_and(|now| now >= before),
                    "{key}: {before}, {now:?}"
                );
            }
        }
    }

    /// Checks that the buckets of each histogram never decrease from one to the next, and that
    /// the last one has its count.
    fn assert_cumulative(&self) {
        let mut histograms: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (key, &value) in &self.samples {
            let Some((series, le)) = key.split_once(",le=\"") else {
                continue;
            };
            let le = le.trim_end_matches("\"}").parse().unwrap();
            histograms
                .entry(series.to_owned())
                .or_default()
                .push((le, value));
        }
        assert!(!histograms.is_empty());
        for (series, mut buckets) in histograms {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(
                buckets.is_sorted_by_key(|bucket| bucket.1),
                "{series}: {buckets:?}"
            );
            let count = series.replace("_bucket", "_count") + "}";
            let (le, last) = buckets.last().unwrap();
            assert_eq!(
                (*le, *last),
                (f64::INFINITY, self.samples[&count]),
                "{series}"
            );
        }
    }
}

/// Arms timers and sleeps of all kinds, on workers and on remote threads. They end in all ways.
fn storm(runtime: &Runtime, seed: u64) {
    let mut random = Random::new(seed);
    let handle = runtime.handle();
    let mut kept = Vec::new();
    for i in 0..2_000 {
        let delay = Duration::from_micros(random.below(50_000));
        match i % 8 {
            0 => drop(runtime.spawn(sleep(delay))),
            // The task is dropped while it sleeps.
            1 => runtime.spawn(sleep(Duration::from_secs(3600))).abort(),
            2 => drop(
                Timer::at_wall(SystemTime::now() + delay)
                    .on(handle)
                    .start(|| ()),
            ),
            3 => drop(Timer::after_boot(delay).on(handle).start(|| ())),
            4 => {
                let timer = runtime.handle().after(Duration::from_secs(3600), || ());
                timer.refresh();
                timer.cancel();
            }
            5 => {
                let timer = runtime.handle().after(delay, || ());
                timer.reset_after(delay * 2);
                kept.push(timer);
            }
            6 => drop(runtime.spawn(async move {
                drop(tourbillon::after(delay, || ()));
            })),
            _ => kept.push(runtime.handle().after(delay, || ())),
        }
    }
    for timer in kept.iter().step_by(3) {
        timer.cancel();
    }
}

fn no_counter_goes_back_and_the_books_are_even(builder: &mut Builder) {
    let runtime = builder.build().unwrap();
    let inspector = inspect(runtime.handle());
    let addr = inspector.local_addr();
    let last = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut last = Scrape::take(addr);
            for _ in 0..SCRAPES {
                let next = Scrape::take(addr);
                next.assert_grown_since(&last);
                next.assert_cumulative();
                last = next;
            }
            last
        });
        let mut seed = 0;
        while !scraper.is_finished() {
            thread::scope(|scope| {
                scope.spawn(|| storm(&runtime, seed));
                storm(&runtime, seed + 1);
            });
            seed += 2;
        }
        scraper.join().unwrap()
    });
    eventually("all are over", || {
        let now = Scrape::take(addr);
        let alive = now.samples["tourbillon_alive_tasks"];
        now.sum("tourbillon_timers_pending") == 0.0 && alive == 0.0
    });
    Scrape::take(addr).assert_grown_since(&last);
    // A timer stops being pending a moment before it is counted as over.
    eventually("as many are over as were armed", || {
        let end = Scrape::take(addr);
        let armed = end.sum("tourbillon_timers_armed_total");
        let over = end.sum("tourbillon_timers_over_total");
        assert!(over <= armed, "{over} of {armed}");
        over == armed && armed > 0.0
    });
    let end = Scrape::take(addr);
    let outcomes: f64 = ["fired", "cancelled"]
        .iter()
        .map(|outcome| {
            let label = format!("outcome=\"{outcome}\"");
            let of = end.samples.iter().filter(|(key, _)| key.contains(&label));
            of.map(|(_, value)| value).sum::<f64>()
        })
        .sum();
    assert_eq!(outcomes, end.sum("tourbillon_timers_armed_total"));
    let total = runtime.metrics().total();
    assert_eq!(
        end.sum("tourbillon_timers_armed_total"),
        total.armed() as f64
    );
    assert!(end.sum("tourbillon_timers_refreshed_total") >= 250.0);
}

#[test]
fn counters_never_decrease_and_armed_equals_over_with_two_workers() {
    let _alarm = alarm();
    no_counter_goes_back_and_the_books_are_even(Builder::new().worker_threads(2));
}

#[test]
fn counters_never_decrease_and_armed_equals_over_with_helpers_and_a_wheel() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder
        .worker_threads(1)
        .helpers(1..=2)
        // Helpers come and go during the test.
        .thread_keep_alive(Duration::from_millis(5))
        .timer_store(StoreKind::Wheel);
    no_counter_goes_back_and_the_books_are_even(&mut builder);
}

#[test]
fn timers_ended_by_a_shutdown_are_in_the_metrics_of_the_runtime() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let timer = runtime.handle().after(Duration::from_secs(3600), || ());
    drop(runtime);
    assert!(!timer.is_pending());
    let text = tourbillon_exporters::prometheus(&handle.metrics());
    assert!(text.contains("\ntourbillon_workers 0\n"), "{text}");
}

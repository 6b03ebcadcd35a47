//! tokio-metrics, unmodified, shows the figures of a runtime and of tasks.

use std::{thread, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
    time::sleep,
};
use tokio_metrics::{RuntimeMonitor, TaskMonitor};

fn runtimes() -> [Runtime; 2] {
    let mut current = Builder::new_current_thread();
    let mut multi = Builder::new_multi_thread();
    [&mut current, multi.worker_threads(2)].map(|builder| {
        builder
            .enable_all()
            .enable_metrics_poll_time_histogram()
            .build()
            .unwrap()
    })
}

/// Ten tasks that yield three times, from within the runtime.
async fn yields() {
    let tasks = (0..10).map(|_| {
        tokio::spawn(async {
            for _ in 0..3 {
                yield_now().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[test]
fn a_runtime_monitor_counts_polls_and_schedules() {
    for runtime in runtimes() {
        let monitor = RuntimeMonitor::new(runtime.handle());
        let mut intervals = monitor.intervals();
        let workers = runtime.metrics().num_workers();
        drop(intervals.next());
        runtime.block_on(async { tokio::spawn(yields()).await.unwrap() });
        // All workers have noted what they did when the runtime has ended.
        drop(runtime);
        let metrics = intervals.next().unwrap();
        assert_eq!(metrics.workers_count, workers);
        assert_eq!(metrics.live_tasks_count, 0);
        // Four of each of the ten, and those of the task that waits for them. tokio does not count
        // each poll of a task that was woken last.
        let polls = 40..=40 + 11;
        assert!(polls.contains(&metrics.total_polls_count), "{metrics:?}");
        let timed: u64 = metrics.poll_time_histogram.as_counts().iter().sum();
        assert_eq!(timed, metrics.total_polls_count);
        let queued = metrics.total_local_schedule_count + metrics.num_remote_schedules;
        assert!(polls.contains(&(queued - 1)), "{metrics:?}");
        assert_eq!(metrics.total_overflow_count, 0);
        assert_eq!(metrics.budget_forced_yield_count, 0);
        assert!(metrics.total_busy_duration > Duration::ZERO);
        assert_eq!(metrics.global_queue_depth, 0);
        assert_eq!(metrics.total_local_queue_depth, 0);
    }
}

#[test]
fn long_polls_are_in_the_upper_buckets() {
    for runtime in runtimes() {
        let mut intervals = RuntimeMonitor::new(runtime.handle()).intervals();
        drop(intervals.next());
        runtime.block_on(async {
            let blocks = || thread::sleep(Duration::from_millis(5));
            tokio::spawn(async move { blocks() }).await.unwrap();
            tokio::spawn(async {}).await.unwrap();
        });
        drop(runtime);
        let metrics = intervals.next().unwrap();
        let long = metrics.poll_time_histogram.buckets().iter();
        let long = long.filter(|it| it.range_end() > Duration::from_millis(5));
        // On a busy machine the other poll may take as long.
        let long = long.map(|it| it.count()).sum::<u64>();
        assert!((1..=2).contains(&long), "{metrics:?}");
        assert_eq!(metrics.total_polls_count, 2);
    }
}

#[test]
fn a_task_monitor_sees_polls_and_waits() {
    for runtime in runtimes() {
        let monitor = TaskMonitor::new();
        let wait = Duration::from_millis(5);
        runtime.block_on(async {
            let task = monitor.instrument(async move {
                sleep(wait).await;
                thread::sleep(wait);
            });
            tokio::spawn(task).await.unwrap();
        });
        let metrics = monitor.cumulative();
        assert_eq!(metrics.instrumented_count, 1);
        assert_eq!(metrics.dropped_count, 1);
        assert_eq!(metrics.total_poll_count, 2);
        // On a busy machine the first poll may be slow, too.
        assert!((1..=2).contains(&metrics.total_slow_poll_count));
        assert!(metrics.total_idle_duration >= wait - Duration::from_millis(1));
        assert!(metrics.total_poll_duration >= wait);
    }
}

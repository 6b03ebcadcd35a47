//! What each store on a server has to do. `postgres.rs` and `redis.rs` call these.

use std::time::Duration;

use tourbillon::time::{sleep, timeout};
use tourbillon_jobs::{Queue, store::Store};

use crate::{
    cases, kill,
    server::Server,
    support::{self, HOUR, PATIENCE, live, node, run, yes},
};

pub const LEASE: Duration = Duration::from_millis(500);

/// Makes a test of each function for the stores on servers.
macro_rules! tests {
    ($server:ty) => {
        crate::shared::tests! {
            $server:
            shared::the_store_passes_all_cases,
            shared::a_lease_that_runs_out_gives_the_jobs_to_others,
            shared::a_begin_that_is_repeated_counts_once,
            shared::a_large_node_that_ends_does_not_end_others,
            shared::a_server_that_restarts_loses_nothing,
            shared::killed_nodes_lose_nothing,
            shared::handlers_that_abort_their_node_run_as_often_as_allowed,
            blocking::handlers_that_block_their_threads_stop_nothing_else,
            blocking::a_shutdown_takes_jobs_from_a_handler,
            fork::a_fork_opens_a_store_of_its_own,
            network::a_node_that_is_cut_off_loses_its_jobs_to_another,
            network::a_handler_learns_that_its_lease_is_lost,
            network::an_end_whose_answer_is_lost_is_in_doubt,
            network::a_job_whose_acknowledgement_is_lost_is_not_late,
            network::a_node_notices_a_connection_that_died_silently,
            network::a_store_that_is_dropped_sends_nothing_more,
            network::a_slow_server_makes_nothing_early,
            network::partitions_lose_nothing,
            network::a_slow_store_loses_nothing,
            network::wrong_clocks_of_nodes_make_nothing_early,
            observed::a_node_that_is_cut_off_says_so,
            on_tokio::a_node_runs_jobs_on_tokio,
        }
    };
    ($server:ty: $($module:ident::$name:ident,)*) => {
        $(#[test]
        fn $name() {
            crate::$module::$name::<$server>();
        })*
    };
}
pub(crate) use tests;

/// Starts a server, or returns `None` if the test is to be skipped.
pub fn start<S: Server>() -> Option<S> {
    match S::start() {
        Ok(server) => Some(server),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a test on a server, or skips the test.
pub fn with_server<S: Server>(test: impl AsyncFnOnce(S)) {
    if let Some(server) = start::<S>() {
        run(test(server));
    }
}

/// Runs a test on a server and a queue of it, or skips the test.
pub fn on_server<S: Server>(test: impl AsyncFnOnce(S, Queue<S::Store>)) {
    with_server(async |server: S| {
        let queue = connect::<S>(server.port()).await;
        test(server, queue).await;
    });
}

/// Says why a test is skipped. Fails if it has to run.
#[track_caller]
pub fn skip(why: &str) {
    let required = std::env::var_os("TOURBILLON_REQUIRE_CLIENTS").is_some_and(|v| v == "1");
    assert!(!required, "{why}");
    eprintln!("skipped: {why}");
}

/// Makes a queue on a server, over a port that leads to it.
pub async fn connect<S: Server>(port: u16) -> Queue<S::Store> {
    Queue::new(S::connect(port).await.unwrap())
}

/// Runs `torture shared` on a server of its own.
#[track_caller]
pub fn torture<S: Server>(args: &[&str]) {
    // The program cannot say that the server is not installed.
    if start::<S>().is_some() {
        kill::torture(&[&["shared", "--store", S::NAME], args].concat());
    }
}

pub fn the_store_passes_all_cases<S: Server>() {
    with_server(async |server: S| {
        cases::all(connect::<S>(server.port()).await).await;
    });
}

pub fn a_lease_that_runs_out_gives_the_jobs_to_others<S: Server>() {
    on_server(async |_server: S, queue| {
        let store = queue.store();
        // A node that falls silent after it has begun a job.
        let silent = store.register(HOUR).await.unwrap().node;
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let held = support::hold(&**store, silent, HOUR, 10).await;
        let old = held[0].token;
        assert_eq!(
            store.begin(vec![support::start("job", old)]).await.unwrap(),
            [yes(1)]
        );
        assert!(store.renew(silent, LEASE).await.unwrap());
        let (node, mut ran) = node(&queue, |node| node.lease(LEASE), |_| Ok(()));
        let attempt = ran.recv().await.unwrap();
        assert!(attempt.token > old);
        assert_eq!(attempt.number, 2);
        assert!(!store.renew(silent, LEASE).await.unwrap());
        assert!(support::hold(&**store, silent, HOUR, 10).await.is_empty());
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

pub fn a_begin_that_is_repeated_counts_once<S: Server>() {
    on_server(async |_server: S, queue| {
        let store = queue.store();
        let node = store.register(HOUR).await.unwrap().node;
        queue.schedule("job", Duration::ZERO, "").await.unwrap();
        let held = support::hold(&**store, node, HOUR, 10).await;
        for _ in 0..3 {
            let attempt = vec![support::start("job", held[0].token)];
            assert_eq!(store.begin(attempt).await.unwrap(), [yes(1)]);
        }
        assert_eq!(queue.get("job").await.unwrap().unwrap().attempts, 1);
    });
}

pub fn a_large_node_that_ends_does_not_end_others<S: Server>() {
    with_server(async |server: S| {
        const JOBS: usize = 20_000;
        let queue = connect::<S>(server.port()).await;
        let store = queue.store();
        for first in (0..JOBS).step_by(2000) {
            let job = |number| support::new(format!("job-{number}"), HOUR);
            let jobs = (first..first + 2000).map(job).collect();
            store.schedule(jobs).await.unwrap();
        }
        let large = store.register(HOUR).await.unwrap().node;
        let held = support::hold(&**store, large, 2 * HOUR, JOBS).await;
        assert_eq!(held.len(), JOBS);
        let others = async || store.register(HOUR).await.unwrap().node;
        let (one, two) = (others().await, others().await);
        // The large node falls silent.
        assert!(store.renew(large, LEASE).await.unwrap());
        sleep(2 * LEASE).await;
        // No renewal waits until all its jobs are free.
        let _ = timeout(Duration::from_millis(10), store.free_others()).await;
        assert!(store.renew(one, HOUR).await.unwrap());
        let hold = async || support::hold(&**store, two, 2 * HOUR, JOBS).await.len();
        let mut freed = hold().await;
        assert!(freed < JOBS);
        // Later calls go on with them.
        while freed < JOBS {
            store.free_others().await.unwrap();
            freed += hold().await;
        }
    });
}

pub fn a_server_that_restarts_loses_nothing<S: Server>() {
    on_server(async |mut server: S, queue| {
        let (node, mut ran) = node(
            &queue,
            |node| node.lease(Duration::from_secs(1)),
            |_| Ok(()),
        );
        queue
            .schedule("before", Duration::from_secs(2), "")
            .await
            .unwrap();
        while node.stats().held == 0 && ran.is_empty() {
            tourbillon::time::sleep(Duration::from_millis(5)).await;
        }
        tourbillon::task::block_in_place(|| server.crash().unwrap());
        assert_eq!(ran.recv().await.unwrap().key, "before");
        while queue.schedule("after", Duration::ZERO, "").await.is_err() {}
        while ran.recv().await.unwrap().key != "after" {}
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

/// Arguments of a short torture.
pub const SHORT: [&str; 6] = ["--jobs", "3000", "--within", "5s", "--lease", "800ms"];

pub fn killed_nodes_lose_nothing<S: Server>() {
    torture::<S>(&[&SHORT[..], &["--kill", "1s", "--crashes", "2"]].concat());
}

pub fn handlers_that_abort_their_node_run_as_often_as_allowed<S: Server>() {
    torture::<S>(
        &[
            &SHORT[..],
            &[
                "--kill",
                "2s",
                "--crashes",
                "1",
                "--abort",
                "1000",
                "--hang",
                "300",
                "--large",
                "100",
            ],
        ]
        .concat(),
    );
}

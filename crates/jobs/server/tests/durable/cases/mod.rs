//! What each store has to do. `embedded.rs` and `shared.rs` call these.

mod attempts;
mod dead;
mod jobs;
mod kinds;
mod nodes;
mod observed;
mod priorities;
mod queues;
mod replace;
mod traces;
mod unique;

use std::{pin::Pin, time::Duration};

use tourbillon_jobs::{
    Attempt, Backoff, Node, Queue, QueueError,
    store::{Store, StoreError},
};

use crate::support::{Told, live, measures_a_million, node};

const SOON: Duration = Duration::from_millis(30);

/// Returns a backoff of few attempts that follow each other quickly.
fn quick(attempts: u32) -> Backoff {
    Backoff {
        attempts,
        first: Duration::from_millis(2),
        longest: Duration::from_millis(5),
    }
}

/// Makes the future of a case on the heap. Without optimization, each future of `all` would have a
/// place of its own on the stack, and the threads of tests have 2 MiB.
fn on_heap<'a, F: Future<Output = ()> + 'a>(
    case: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(case())
}

/// Runs each case, and prints its name, so that a hang shows where it is.
macro_rules! run_each {
    ($queue:ident: $($module:ident::$case:ident,)*) => {
        $(eprintln!("{}", stringify!($case));
        on_heap(|| $module::$case(&$queue)).await;)*
    };
}

pub async fn all<S: Store>(queue: Queue<S>) {
    // `--nocapture` shows the figures.
    if measures_a_million() {
        return priorities::a_job_overtakes_a_million(&queue).await;
    }
    run_each! {
        queue:
        jobs::a_job_runs_once_and_not_early,
        jobs::a_key_has_one_job,
        jobs::bad_input_is_refused,
        jobs::a_cancelled_job_does_not_run,
        jobs::a_job_can_be_cancelled_while_it_runs,
        jobs::a_moved_job_runs_at_its_new_time,
        jobs::a_job_that_is_moved_while_it_runs_runs_again,
        attempts::a_job_that_fails_is_tried_again_and_dies,
        attempts::an_attempt_that_snoozes_does_not_count,
        attempts::an_attempt_that_does_not_end_counts_and_waits,
        attempts::a_job_whose_last_attempt_does_not_end_dies,
        attempts::a_panic_and_a_timeout_are_failures,
        attempts::a_handler_learns_of_a_cancel_and_of_the_stop,
        attempts::an_error_may_have_any_character,
        attempts::a_stale_token_begins_and_ends_nothing,
        nodes::options_without_bounds_are_bounded,
        attempts::a_cron_job_runs_again_and_again,
        nodes::a_full_node_takes_earlier_jobs_first,
        nodes::two_nodes_share_the_jobs,
        nodes::a_busy_node_leaves_due_jobs_to_others,
        nodes::a_node_that_comes_later_gets_its_share,
        nodes::a_job_that_is_given_back_has_no_holder,
        nodes::a_stopped_node_gives_its_jobs_back,
        nodes::a_node_that_was_released_gets_no_jobs,
        kinds::a_node_runs_jobs_of_its_kinds,
        kinds::a_job_keeps_its_kind,
        kinds::jobs_of_a_kind_wait_for_no_other_kind,
        kinds::a_handler_gets_its_arguments,
        priorities::jobs_of_a_higher_priority_come_first,
        priorities::a_job_keeps_its_queue_and_priority,
        priorities::a_job_overtakes_a_backlog_of_a_lower_priority,
        queues::a_node_runs_jobs_of_its_queues,
        queues::a_queue_lets_as_many_run_as_it_may,
        queues::a_full_queue_leaves_its_jobs_to_other_nodes,
        queues::nothing_of_a_paused_queue_begins,
        queues::a_node_leaves_a_queue_alone_while_it_is_paused,
        replace::nothing_of_a_replaced_job_stays,
        replace::the_last_job_of_a_key_stays,
        replace::a_node_runs_the_job_that_replaced_the_one_in_its_timer,
        replace::the_token_of_a_replaced_job_is_stale,
        replace::a_job_that_is_replaced_while_it_runs_ends_without_effect,
        replace::a_job_that_failed_or_died_is_replaced,
        unique::a_job_that_is_done_keeps_its_key,
        unique::a_key_is_free_after_its_time,
        unique::a_replacement_does_not_wait_for_a_key,
        unique::only_a_job_that_is_done_keeps_its_key,
        dead::dead_jobs_are_retried_by_kind_queue_and_key,
        dead::dead_jobs_are_changed_in_parts,
        dead::large_dead_jobs_are_changed_in_small_parts,
        dead::a_node_learns_of_a_retried_job_at_once,
        dead::only_dead_jobs_are_retried_and_discarded,
        dead::a_former_attempt_does_not_end_a_retried_job,
        dead::good_jobs_are_safe_from_those_who_retry_and_discard,
        observed::each_failure_is_told,
        observed::an_attempt_that_never_ended_is_told,
        observed::times_of_attempts_are_measured,
        observed::an_attempt_that_is_replaced_is_counted,
        traces::a_job_carries_its_traceparent,
        traces::a_job_that_is_done_leaves_no_traceparent,
        jobs::jobs_are_listed_by_their_keys,
        jobs::a_list_has_the_beginnings_of_large_jobs,
    }
}

/// Schedules jobs until the store refuses one. `acknowledged` jobs are there before. The refused
/// job leaves nothing behind. Then all jobs run, and make room. Returns the node and its attempts.
pub async fn fill_and_run<S: Store>(
    queue: &Queue<S>,
    mut acknowledged: u64,
    delay: Duration,
) -> (Node<S>, Told<Attempt>) {
    loop {
        let key = format!("job-{acknowledged}");
        match queue.schedule(key, delay, vec![1; 1000]).await {
            Ok(_) => acknowledged += 1,
            Err(QueueError::Store(StoreError::Full)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(acknowledged > 20, "{acknowledged}");
    assert_eq!(queue.count().await.unwrap().live, acknowledged);
    let (node, mut ran) = node(queue, |node| node, |_| Ok(()));
    for _ in 0..acknowledged {
        ran.recv().await.unwrap();
    }
    live(queue, 0).await;
    (node, ran)
}

#!/usr/bin/env bash
# Runs the loom models.
#
#   loom_tests/run.sh [ARGS...]           with the bounds of CI
#   loom_tests/run.sh --quick [ARGS...]   without the six that take a third of the time
#   loom_tests/run.sh --full [ARGS...]    with each bound raised by one; takes hours
#
# With --full a model stops after ten minutes (or LOOM_MAX_MINUTES), and its line says so. ARGS go
# to `cargo test`, for example `--test inbox`. LOOM_MAX_PREEMPTIONS=n sets all bounds to n.
# LOOM_TRACE=n prints each step of the n-th execution of each model.
set -euo pipefail
cd "$(dirname "$0")/.."

# What `.ci/run` leaves to `.ci/weekly`. A model that gets another name is no longer left out.
slowest=(
    the_end_of_a_stall_is_reported_last_and_once
    a_recurring_timer_runs_or_is_cancelled_or_moved
    a_rearm_meets_a_cancel
    a_rearm_meets_a_move_earlier
    a_thread_reads_one_batch_for_those_that_it_denies_the_lock
    a_strict_timer_is_found_while_another_thread_reads_the_inbox
)
skipped=()
if [ "${1:-}" = --quick ]; then
    shift
    for model in "${slowest[@]}"; do
        skipped+=(--skip "$model")
    done
fi
if [ "${1:-}" = --full ]; then
    shift
    export LOOM_MORE_PREEMPTIONS="${LOOM_MORE_PREEMPTIONS:-1}"
    export LOOM_MAX_MINUTES="${LOOM_MAX_MINUTES:-10}"
else
    # A model that stops passes.
    unset LOOM_MAX_MINUTES
fi

options=(-p loom_tests --profile loom --target-dir "${CARGO_TARGET_DIR:-target/loom}")
case " $* " in
    *" -- "*) ;;
    # Print the bound, the number of executions and the time of each model.
    *) set -- "$@" -- --nocapture ;;
esac
set -- "$@" "${skipped[@]}"
# Add up what the models print.
RUSTFLAGS="--cfg loom" cargo test "${options[@]}" "$@" | awk '
    { print; fflush() }
    match($0, /, [0-9]+ executions, /) { runs++; sum += substr($0, RSTART + 2) }
    /, execution [0-9]+ failed, / { failed++ }
    / s, not ended$/ { stopped++ }
    END {
        if (runs) printf "%d runs of models, %d executions\n", runs, sum
        if (stopped) printf "%d of them have not ended\n", stopped
        if (failed) printf "%d more runs failed\n", failed
    }'

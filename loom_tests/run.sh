#!/usr/bin/env bash
# Runs the loom models.
#
#   loom_tests/run.sh [ARGS...]           with the bounds of CI
#   loom_tests/run.sh --full [ARGS...]    with each bound raised by one; takes hours
#
# With --full a model stops after ten minutes (or LOOM_MAX_MINUTES), and its line says so. ARGS go
# to `cargo test`, for example `--test inbox`. LOOM_MAX_PREEMPTIONS=n sets all bounds to n.
# LOOM_TRACE=n prints each step of the n-th execution of each model.
set -euo pipefail
cd "$(dirname "$0")/.."

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

#!/usr/bin/env bash
# Runs the loom models.
#
#   loom_tests/run.sh [ARGS...]           with the bounds of CI
#   loom_tests/run.sh --full [ARGS...]    with each bound raised by one (takes a night)
#
# ARGS go to `cargo test`, for example `--test inbox`. LOOM_MAX_PREEMPTIONS=n sets all bounds to n.
# LOOM_TRACE=n prints each step of the n-th execution of each model.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --full ]; then
    shift
    export LOOM_MORE_PREEMPTIONS=${LOOM_MORE_PREEMPTIONS:-1}
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
    END { if (runs) printf "%d runs of models, %d executions\n", runs, sum }'

#!/usr/bin/env bash
# Runs the runtime in a simulated world, one run per seed. See docs/internals/verification.md.
#
#   testing/sim/run.sh                    runs as many seeds as .ci/weekly
#   testing/sim/run.sh --seeds N          runs N seeds (--first N sets the first one)
#   testing/sim/run.sh --minutes N        runs seeds for N minutes
#   testing/sim/run.sh --workers N        with N workers in each seed, in place of 1 to 4
#   testing/sim/run.sh --seed N           runs one seed; --trace prints its steps
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/sim}
export RUSTFLAGS="--cfg tourbillon_sim"
cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p tourbillon-sim-tests --profile sim
exec "$CARGO_TARGET_DIR/sim/tourbillon-sim-tests" "$@"

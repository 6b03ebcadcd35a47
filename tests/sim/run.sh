#!/usr/bin/env bash
# Runs the runtime in a simulated world, by seeds: see docs/internals/verification.md.
#
#   tests/sim/run.sh                    as many seeds as CI runs
#   tests/sim/run.sh --seeds N          so many (--first N: from there on)
#   tests/sim/run.sh --minutes N        as many as there is time for
#   tests/sim/run.sh --seed N           one; with --trace, with each of its steps
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/sim}
export RUSTFLAGS="--cfg tourbillon_sim"
cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p tourbillon_sim --profile sim
exec "$CARGO_TARGET_DIR/sim/tourbillon_sim" "$@"

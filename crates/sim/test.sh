#!/usr/bin/env bash
# Runs the tests of this package, which need a build for the simulation. Arguments go to the tests.
#
#   crates/sim/test.sh
#   crates/sim/test.sh a_lost_wake_up_is_a_standstill --exact --nocapture
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
target=x86_64-unknown-linux-gnu
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/sim-user}
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="--cfg tourbillon_sim -Cpasses=tsan"
# A report tells at which line a thread stopped.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only
unset RUSTFLAGS
# With --target, the flags are not those of build scripts and procedural macros.
cargo test --quiet --locked --manifest-path "$root/Cargo.toml" -p tourbillon-sim --target "$target" \
    --test it -- "$@"

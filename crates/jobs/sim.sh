#!/usr/bin/env bash
# Runs the nodes on simulated hosts. Arguments go to the tests.
set -euo pipefail
cd "$(dirname "$0")"
target=x86_64-unknown-linux-gnu
# The flags of `crates/sim/test.sh`. With --target, they are not those of build scripts.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="--cfg tourbillon_sim -Cpasses=tsan"
unset RUSTFLAGS
cargo test --quiet --locked -p tourbillon-jobs --target "$target" --test sim -- "$@"

#!/usr/bin/env bash
# Checks that the models can fail: applies each mutant of loom_tests/mutants/ to a copy of the
# source, and requires the test that its header names to fail.
#
#   loom_tests/mutants.sh             all mutants
#   loom_tests/mutants.sh NAME...     these (file names without .patch)
#
# `crates/loom/README.md` describes a mutant. A patch that does not apply, or does not compile, is an
# error, not a kill. The others still run. MUTANT_JOBS mutants are tried at once (by default one for
# each core, at most 8), and each may take MUTANT_TIMEOUT seconds (120).
set -euo pipefail
cd "$(dirname "$0")/.."
# Building most mutants takes longer than killing them, so build fast. The runner stays as it is.
export CARGO_PROFILE_LOOM_OPT_LEVEL=${CARGO_PROFILE_LOOM_OPT_LEVEL:-1}
export CARGO_PROFILE_LOOM_INCREMENTAL=${CARGO_PROFILE_LOOM_INCREMENTAL:-true}
# `run.sh` has shown that the models pass on the source as it is, so the runner does not.
exec cargo run --quiet --locked -p tourbillon-loom --features mutants -- \
    --mutants loom_tests/mutants --package loom_tests --profile loom --trust \
    --timeout "${MUTANT_TIMEOUT:-120}" ${MUTANT_JOBS:+--jobs "$MUTANT_JOBS"} "$@"

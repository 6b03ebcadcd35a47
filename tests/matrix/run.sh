#!/usr/bin/env bash
# Runs exchanges by crates for tokio in tasks of Tourbillon, as they are and with `enable_tokio`,
# checks the results, and prints the table of docs/guide/migrating.md.
#
#   tests/matrix/run.sh             runs all
#   tests/matrix/run.sh TEXT        runs the rows whose crate or exchange contains the text
#   tests/matrix/run.sh --write     writes the table into the page, if all results are as expected
#
# Rows that need mosquitto, postgres, rabbitmq-server or redis-server are skipped if it is not
# installed. With TOURBILLON_REQUIRE_CLIENTS=1, a missing one is a failure.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/matrix}
exec cargo test --quiet --locked --manifest-path "$root/tests/matrix/Cargo.toml" -- "$@"

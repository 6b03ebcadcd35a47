#!/usr/bin/env bash
# Checks that the simulation can fail: applies mutants to a scratch copy, one at a time, and
# requires the seeds of .ci/weekly to find each.
#
#   testing/sim/mutants.sh             all mutants that the simulation should find
#   testing/sim/mutants.sh NAME...     these mutants of testing/sim/mutants/ or loom_tests/mutants/
#                                      (file names without .patch)
#
# A mutant whose moment is rare has more seeds: `Seeds: N` in its header.
#
# Only a seed that fails in the simulated world is a kill. A patch that does not apply or does not
# compile is an error, and so is a program that ends in any other way.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/sim-mutants}
export RUSTFLAGS="--cfg tourbillon_sim"
export CARGO_PROFILE_SIM_INCREMENTAL=${CARGO_PROFILE_SIM_INCREMENTAL:-true}
seeds=${SEEDS:-16000}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$root"/testing/sim/mutants/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
    # The mutants of the loom models that the simulation is known to find.
    while read -r name; do names+=("$name"); done <"$root/testing/sim/mutants/of-loom"
fi
# Find a wrong name before the first build.
for name in "${names[@]}"; do
    if [ ! -e "$root/testing/sim/mutants/$name.patch" ] &&
        [ ! -e "$root/loom_tests/mutants/$name.patch" ]; then
        echo "there is no mutant $name" >&2
        exit 2
    fi
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$root"
git ls-files -z -- Cargo.toml Cargo.lock README.md shards crates testing src loom_tests tests \
    benches examples | xargs -0 cp --parents -t "$scratch"
cd "$scratch"

killed=0
survived=()
for name in "${names[@]}"; do
    patch=$root/testing/sim/mutants/$name.patch
    [ -e "$patch" ] || patch=$root/loom_tests/mutants/$name.patch
    if ! patch --quiet --strip=1 --fuzz=0 --no-backup-if-mismatch <"$patch" >log 2>&1; then
        cat log
        echo "$name: the patch does not apply" >&2
        exit 2
    fi
    begin=$SECONDS
    if ! cargo build --quiet --locked -p tourbillon-sim-tests --profile sim >log 2>&1; then
        cat log
        echo "$name: the mutant does not compile" >&2
        exit 2
    fi
    built=$((SECONDS - begin))
    status=0
    own=$(sed -n 's/^Seeds: //p' "$patch" | head -n 1)
    "$CARGO_TARGET_DIR/sim/tourbillon-sim-tests" --seeds "${own:-$seeds}" >log 2>&1 || status=$?
    # Print the first seed that failed in the simulated world, and why. Seeds that hung outside of
    # it do not count.
    by=$(awk '/^seed [0-9]+ FAILED$/ { seed = $0; getline
        if ($0 !~ /^it stood still outside of the world/) { print seed, $0; exit } }' log |
        cut -c 1-110)
    if [ "$status" -eq 0 ]; then
        survived+=("$name")
        by=SURVIVED
    elif [ -z "$by" ]; then
        cat log
        echo "$name: it ended with $status, and no seed failed in the world" >&2
        exit 2
    else
        killed=$((killed + 1))
    fi
    printf '%-30s | %-110s | %s s + %s s\n' \
        "$name" "$by" "$built" $((SECONDS - begin - built))
    patch --quiet --reverse --strip=1 --no-backup-if-mismatch <"$patch"
    # Make cargo see the change.
    sed -n 's/^+++ b\///p' "$patch" | cut -f 1 | xargs touch
done
echo "$killed killed, ${#survived[@]} survived ${survived[*]}"
[ ${#survived[@]} -eq 0 ]

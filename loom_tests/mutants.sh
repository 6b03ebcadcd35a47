#!/usr/bin/env bash
# Checks that the models can fail: applies each mutant of loom_tests/mutants/ to a scratch copy of
# the packages that have models (`copy.sh`) and of some files of src/, and requires the test that
# its header names to go red.
#
#   loom_tests/mutants.sh             all mutants
#   loom_tests/mutants.sh NAME...     these (file names without .patch)
#
# A mutant's header names the test: `Test: <file>::<test>`. `Bound: <n>` overrides the test's
# preemption bound if a smaller one is enough. With `Hangs: yes`, a run that does not end is the
# failure.
# A patch that does not apply, or does not compile, is an error, not a kill. The others still run.
# MUTANT_JOBS processes (by default one for each core, at most 8) share the mutants.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/loom_tests/copy.sh"
seconds=${MUTANT_TIMEOUT:-120}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/mutants}
export RUSTFLAGS="--cfg loom"
# Building most mutants takes longer than killing them, so build fast.
export CARGO_PROFILE_LOOM_OPT_LEVEL=${CARGO_PROFILE_LOOM_OPT_LEVEL:-1}
export CARGO_PROFILE_LOOM_INCREMENTAL=${CARGO_PROFILE_LOOM_INCREMENTAL:-true}
unset LOOM_MAX_PREEMPTIONS LOOM_MORE_PREEMPTIONS LOOM_MAX_MINUTES

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$root"/loom_tests/mutants/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
fi

jobs=${MUTANT_JOBS:-$(nproc)}
jobs=$((jobs < 8 ? jobs : 8))
if [ "$jobs" -gt 1 ] && [ ${#names[@]} -gt 1 ]; then
    # Each process needs its own target directory: in a shared one they would use each other's
    # mutants.
    pids=()
    for ((job = 0; job < jobs; job++)); do
        part=()
        for ((i = job; i < ${#names[@]}; i += jobs)); do
            part+=("${names[i]}")
        done
        [ ${#part[@]} -gt 0 ] || break
        MUTANT_JOBS=1 CARGO_TARGET_DIR=$CARGO_TARGET_DIR/$job "$root/loom_tests/mutants.sh" \
            "${part[@]}" &
        pids+=($!)
    done
    # Background jobs ignore an interrupt from the keyboard.
    trap 'kill "${pids[@]}" 2>/dev/null || true' INT TERM EXIT
    status=0
    for pid in "${pids[@]}"; do
        wait "$pid" || status=1
    done
    exit "$status"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
copy_models "$root" "$scratch"
cd "$scratch"

field() { sed -n "s/^$2: //p" "$1" | head -n 1; }

run() { cargo test --quiet -p loom_tests --profile loom --test "$@"; }

killed=0
survived=0
broken=0
# Says what is wrong with a mutant.
break_off() {
    cat log
    echo "$name: $1" >&2
    broken=$((broken + 1))
}

printf '%-34s | %-78s | %s\n' mutant 'killed by' seconds
for name in "${names[@]}"; do
    patch=$root/loom_tests/mutants/$name.patch
    test=$(field "$patch" Test)
    file=${test%%::*}
    for package in "${packages[@]}"; do
        rm -rf "$package/src"
        cp -R "$root/$package/src" "$package/src"
    done
    rm -rf src
    (cd "$root" && cp --parents "${runtime[@]}" "$scratch")
    if ! patch --quiet --strip=1 --fuzz=0 --no-backup-if-mismatch <"$patch" >log 2>&1; then
        break_off "the patch does not apply"
        continue
    fi
    find "${packages[@]/%//src}" src -name '*.rs' -exec touch {} +
    if ! run "$file" --no-run >log 2>&1; then
        break_off "the mutant does not compile"
        continue
    fi
    bound=$(field "$patch" Bound)
    begin=$SECONDS
    status=0
    env ${bound:+LOOM_MAX_PREEMPTIONS=$bound} timeout "$seconds" \
        cargo test --quiet -p loom_tests --profile loom --test "$file" -- --exact "${test#*::}" \
        >log 2>&1 || status=$?
    by=
    case $status in
        0)
            if ! grep -q '1 passed' log; then
                break_off "there is no test $test"
                continue
            fi
            ;;
        124) [ "$(field "$patch" Hangs)" = yes ] && by="$test (hangs)" ;;
        *) by=$test ;;
    esac
    if [ -n "$by" ]; then
        killed=$((killed + 1))
    else
        survived=$((survived + 1))
        by=$([ "$status" -eq 124 ] && echo "TIMED OUT: $test" || echo "SURVIVED: $test")
    fi
    printf '%-34s | %-78s | %s\n' "$name" "$by" $((SECONDS - begin))
done
echo "$killed killed, $survived survived, $broken broken"
[ $((survived + broken)) -eq 0 ]

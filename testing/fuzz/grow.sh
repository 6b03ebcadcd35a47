#!/usr/bin/env bash
# Runs a fuzz target with the fuzzer, and adds what reaches new code to the corpus.
#
#   testing/fuzz/grow.sh [--dev] TARGET [SECONDS]    by default a minute
#
# With --dev the target is built in a few minutes, with overflow checks, and tries fewer inputs.
# It needs cargo-fuzz (`cargo install cargo-fuzz --locked`) and a C++ compiler. An input that fails
# is left in testing/fuzz/artifacts/TARGET/, and ends the run. Of the others, a small set is kept
# that reaches the branches which the corpus does not reach: at most 50 inputs, those first that
# reach most. Review what is new before it is committed: the test without a fuzzer runs all of it on
# each change.
set -euo pipefail
cd "$(dirname "$0")"

profile=release
if [ "${1:-}" = --dev ]; then
    shift
    profile=dev
fi
target=${1:?the name of a target}
seconds=${2:-60}
corpus=corpus/$target

cargo fuzz build "--$profile" --sanitizer none "$target"
triple=$(rustc -vV | sed -n 's/^host: //p')
program=${CARGO_TARGET_DIR:-target}/$triple/${profile/dev/debug}/$target

found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
mkdir -p "artifacts/$target"
options=(-timeout=60 "-artifact_prefix=artifacts/$target/")
dictionary=dictionaries/$target.dict
[ ! -f "$dictionary" ] || options+=("-dict=$dictionary")
# The fuzzer writes what it finds into the first directory.
"$program" "${options[@]}" -max_total_time="$seconds" "$found" "$corpus"

# Copy a small set that reaches what the corpus does not: which branches, and not how often. The
# fuzzer names its inputs by their hash, without an extension, and copies first what reaches most.
"$program" -set_cover_merge=1 -use_counters=0 -use_cmp=0 "$corpus" "$found"
kept=0
while read -r name; do
    case $name in *.*) continue ;; esac
    kept=$((kept + 1))
    if [ "$kept" -le 50 ]; then
        mv "$corpus/$name" "$corpus/found-${name:0:10}.bin"
    else
        rm "$corpus/$name"
    fi
done < <(ls -tr "$corpus")
git status --short "$corpus"

#!/usr/bin/env bash
# Checks that both judges of the jobs' histories convict a broken store: the checker of `torture`,
# and `judge.py`, which shares no code with it. Applies each mutant of crates/jobs/server/mutants to
# a scratch copy, runs `torture` as its header says, and requires both to find what is broken. They
# must acquit the store as it is, in the same runs.
#
#   crates/jobs/server/convict.sh           all mutants
#   crates/jobs/server/convict.sh NAME...   these (file names without .patch)
#
# In a header, `Run:` has the arguments of `torture`, and `Broken:` the promise, in the words of
# `judge.py`. A patch that does not apply, or a mutant that does not compile, is an error. A mutant
# of a store whose server is not installed is skipped, unless TOURBILLON_REQUIRE_CLIENTS is set.
set -euo pipefail

root=$(cd "$(dirname "$0")/../../.." && pwd)
here=$root/crates/jobs/server
mutants=$here/mutants
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target/convict}")
export CARGO_TARGET_DIR=$target

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$mutants"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
for name in "${names[@]}"; do
    [ -e "$mutants/$name.patch" ] || { echo "there is no mutant $name" >&2; exit 2; }
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$root"
git ls-files -z -- Cargo.toml Cargo.lock README.md shards crates testing src loom_tests tests \
    benches examples | xargs -0 cp --parents -t "$scratch"

field() {
    sed -n "s/^$2: //p" "$mutants/$1.patch"
}
build() {
    (cd "$scratch/crates/jobs" && cargo build --quiet --locked --all-features \
        -p tourbillon-jobs-server --bin torture)
}
# Runs `torture` with these arguments. Succeeds if both judges find nothing.
run() {
    rm -f "$scratch/history.edn"
    by_torture=0
    # The arguments are words.
    # shellcheck disable=SC2086
    timeout 600 "$target/debug/torture" $1 --history "$scratch/history.edn" \
        >"$scratch/said" 2>&1 || by_torture=$?
    by_judge=0
    "$here/judge.py" "$scratch/history.edn" >"$scratch/judged" 2>&1 || by_judge=$?
}

build
declare -A acquitted
for name in "${names[@]}"; do
    arguments=$(field "$name" Run)
    broken=$(field "$name" Broken)
    server=$(sed -n 's/.*--store \([a-z]*\).*/\1/p' <<<"$arguments")
    case $server in
    redis) server=redis-server ;;
    esac
    if [ -n "$server" ] && ! command -v "$server" >/dev/null &&
        ! compgen -G "/usr/lib/postgresql/*/bin/$server" >/dev/null; then
        if [ -n "${TOURBILLON_REQUIRE_CLIENTS:-}" ]; then
            echo "$name: $server is not installed" >&2
            exit 1
        fi
        echo "$name: skipped, since $server is not installed"
        continue
    fi
    if [ -z "${acquitted[$arguments]:-}" ]; then
        build
        run "$arguments"
        if [ "$by_torture$by_judge" != 00 ]; then
            cat "$scratch/said" "$scratch/judged"
            echo "torture $arguments: a judge convicts the store as it is" >&2
            exit 1
        fi
        acquitted[$arguments]=yes
    fi
    (cd "$scratch" && patch --quiet --strip=1 --fuzz=0 --no-backup-if-mismatch) \
        <"$mutants/$name.patch" || { echo "$name: the patch does not apply" >&2; exit 2; }
    build || { echo "$name: the mutant does not compile" >&2; exit 2; }
    run "$arguments"
    if ! grep -q "promises were broken" "$scratch/said" || [ "$by_torture" = 0 ]; then
        cat "$scratch/said"
        echo "$name: the checker of torture does not convict it" >&2
        exit 1
    fi
    if [ "$by_judge" != 1 ] || ! grep -q ": $broken" "$scratch/judged"; then
        cat "$scratch/judged"
        echo "$name: judge.py does not convict it" >&2
        exit 1
    fi
    echo "$name: $(tail -n 1 "$scratch/judged"): $(grep -m 1 ": $broken" "$scratch/judged")"
    (cd "$scratch" && patch --quiet --strip=1 --reverse) <"$mutants/$name.patch"
done

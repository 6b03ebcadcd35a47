#!/usr/bin/env bash
# Runs the models on a loom whose fences order no plain data.
#
#   loom_tests/plain_data.sh [ARGS...]    ARGS go to `cargo test`, for example `--test inbox`
#
# Two `fence(SeqCst)` order atomic accesses. In loom the later one also orders the plain data before
# the earlier one, which C++20 does not promise. This script takes loom's source from cargo's
# registry, gives each clock of a thread a second half for plain data that fences leave alone, and
# runs all models with it. A model in `tests/plain_data.rs`, which passes on loom as it is, must
# fail.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/loom_tests/copy.sh"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/plain-data}
export RUSTFLAGS="--cfg loom"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tree"
copy_models "$root" "$scratch/tree"
cd "$scratch/tree"

manifest=$(cargo metadata --manifest-path "$root/Cargo.toml" --format-version 1 --locked |
    grep --only-matching '"manifest_path":"[^"]*/loom-[0-9][^"/]*/Cargo.toml"' | cut -d '"' -f 4)
cp -R "$(dirname "$manifest")" "$scratch/loom"

# edit FILE FROM TO: replaces each line that has the text FROM by TO in a source file of loom. The
# text has to be there: another version of loom may need other edits.
edit() {
    local file=$scratch/loom/src/rt/$1
    grep --quiet --fixed-strings "$2" "$file" || { echo "loom's $1 has no '$2'" >&2; exit 2; }
    FROM=$2 TO=$3 awk 'at = index($0, ENVIRON["FROM"]) {
        $0 = substr($0, 1, at - 1) ENVIRON["TO"] substr($0, at + length(ENVIRON["FROM"]))
    } { print }' "$file" >"$scratch/edited"
    cp "$scratch/edited" "$file"
}
# The second half of a clock. It moves with the first.
edit vv.rs 'versions: [u16; MAX_THREADS],' 'versions: [u16; MAX_THREADS], plain: [u16; MAX_THREADS],'
edit vv.rs 'versions: [0; MAX_THREADS],' 'versions: [0; MAX_THREADS], plain: [0; MAX_THREADS],'
edit vv.rs 'self.versions[id.as_usize()] += 1;' \
    'self.versions[id.as_usize()] += 1; self.plain[id.as_usize()] += 1;'
edit vv.rs 'pub(crate) fn join(&mut self, other: &VersionVec) {' \
    'pub(crate) fn join(&mut self, other: &VersionVec) {
        self.join_atomics(other);
        for (i, &version) in other.plain.iter().enumerate() {
            self.plain[i] = cmp::max(self.plain[i], version);
        }
    }

    pub(crate) fn join_atomics(&mut self, other: &VersionVec) {'
edit execution.rs 'new.causality[thread_id] += 1;' 'new.causality.inc(thread_id);'
edit execution.rs 'active.causality[active_id] += 1;' 'active.causality.inc(active_id);'
# Plain accesses are compared by it.
edit vv.rs 'pub(crate) fn ahead(&self, other: &VersionVec) -> Option<usize> {' \
    'pub(crate) fn ahead(&self, other: &VersionVec) -> Option<usize> {
        return (0..MAX_THREADS).find(|&i| self.plain[i] < other.plain[i]);
        #[allow(unreachable_code)]'
# A fence that follows another in their order leaves it alone.
edit thread.rs '.join(&self.seq_cst_causality);' '.join_atomics(&self.seq_cst_causality);'
# A fence acquires what its own thread has read, and not what others have read before.
edit atomic.rs 'if !store.first_seen.is_seen_by_current(&execution.threads) {' \
    'if store.first_seen.0[execution.threads.active_id().as_usize()] == u16::MAX {'
printf '\n[patch.crates-io]\nloom = { path = "%s" }\n' "$scratch/loom" >>Cargo.toml

run() { cargo test -p loom_tests --profile loom --offline "$@"; }

limit=loom_lets_fences_order_plain_data
if [ $# -eq 0 ]; then
    if run --test plain_data -- --exact "$limit" >log 2>&1; then
        cat log
        echo "$limit passes: the edits of loom have no effect" >&2
        exit 1
    fi
    grep --quiet 'Causality violation' log || { cat log; exit 1; }
fi
run "$@" -- --nocapture --skip "$limit"

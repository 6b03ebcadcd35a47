#!/bin/sh
# Places the source of the real tokio in `real/tokio`, where the manifest of this package expects
# it. Cargo downloads it from crates.io and verifies its checksum. One number is changed afterwards.
set -eu
version=1.54.1
here=$(cd "$(dirname "$0")" && pwd)
helper=$(mktemp -d)
trap 'rm -rf "$helper"' EXIT
# A package outside of any patch, whose only dependency is that version.
mkdir "$helper/src"
: > "$helper/src/lib.rs"
cat > "$helper/Cargo.toml" <<MANIFEST
[workspace]
[package]
name = "helper"
version = "0.0.0"
edition = "2021"
[dependencies]
tokio = { version = "=$version", default-features = false }
MANIFEST
# `cargo vendor` places the files and checks them. The other folders are tokio's dependencies.
(cd "$helper" && cargo vendor --quiet vendor > /dev/null)
rm -rf "$here/real"
mkdir "$here/real"
cp -R "$helper/vendor/tokio" "$here/real/tokio"
# The budget of a task. `tokio_budget.rs` keeps a unit of it, by which it fills the budget before
# the next poll. With one unit more the task has 128, as on tokio.
coop="$here/real/tokio/src/task/coop/mod.rs"
sed -i 's/Budget(Some(128))/Budget(Some(129))/' "$coop"
grep -q 'Budget(Some(129))' "$coop" || {
    echo "tokio's budget is not where it was: $coop" >&2
    exit 1
}
echo "tokio $version is in $here/real/tokio"

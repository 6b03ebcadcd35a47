#!/bin/sh
# Places the source of the real tokio in `real/tokio`, where the manifest of this package expects
# it. Cargo downloads it from crates.io and verifies its checksum.
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
echo "tokio $version is in $here/real/tokio"

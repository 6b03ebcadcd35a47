#!/bin/sh
# Stands in for the repository of the real tokio, on machines that reach no git host.
#
#   crates/tokio/real.sh            places the source of the real tokio in `real/tokio`, as a
#                                   repository with the tag that the manifest names. Cargo downloads
#                                   it from crates.io and verifies its checksum
#   crates/tokio/real.sh COMMAND…   runs a command for which that is the repository
#
# The lock files of this package and of those that test it have no repository: their
# `.cargo/config.toml` names the folder. So the builds need no COMMAND, but Cargo looks for the
# repository when it makes a lock file, or adds a package from crates.io to one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 0 ]; then
    # Cargo keeps clones: these are not for other builds.
    home=$here/real/cargo
    mkdir -p "$home"
    for name in registry config.toml config; do
        of_user=${CARGO_HOME:-$HOME/.cargo}/$name
        [ ! -e "$of_user" ] || ln -sfn "$of_user" "$home/$name"
    done
    export CARGO_HOME="$home" CARGO_NET_GIT_FETCH_WITH_CLI=true
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$here/real/tokio.insteadOf"
    export GIT_CONFIG_VALUE_0=https://github.com/tokio-rs/tokio
    exec "$@"
fi
tag=$(sed -n 's/^real = .* tag = "\([^"]*\)".*/\1/p' "$here/Cargo.toml" | head -n 1)
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
tokio = { version = "=${tag#tokio-}", default-features = false }
MANIFEST
# `cargo vendor` places the files and checks them. The other folders are tokio's dependencies.
(cd "$helper" && cargo vendor --quiet vendor > /dev/null)
cd "$helper/vendor/tokio"
git init --quiet
git add --all --force
git -c user.name=real.sh -c user.email=real.sh@localhost commit --quiet --message "$tag"
git tag "$tag"
rm -rf "$here/real"
mkdir "$here/real"
cp -R "$helper/vendor/tokio" "$here/real/tokio"
echo "$tag is in $here/real/tokio"

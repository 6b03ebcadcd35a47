#!/bin/sh
# Stands in for the repository of the real tokio, on machines that reach no git host.
#
#   crates/tokio/real.sh            places the source of the real tokio in `real/tokio`, as a
#                                   repository with the tag that the manifest names. Cargo downloads
#                                   it from crates.io and verifies its checksum. Does nothing if
#                                   they are there
#   crates/tokio/real.sh COMMAND…   the same, and then runs a command for which that is the
#                                   repository
#
# The lock files of this package and of those that test it have no repository: their
# `.cargo/config.toml` names the folder. So the builds need no COMMAND, but Cargo looks for the
# repository when it makes a lock file, or adds a package from crates.io to one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 0 ]; then
    # Cargo keeps clones: these are not for other builds.
    home=$here/real/cargo
    of_user=${CARGO_HOME:-$HOME/.cargo}
    # In a command of this script, that is the folder itself, and all is set.
    [ "$of_user" != "$home" ] || exec "$@"
    "$0" >&2
    mkdir -p "$home"
    for name in registry config.toml config; do
        [ ! -e "$of_user/$name" ] || ln -sfn "$of_user/$name" "$home/$name"
    done
    export CARGO_HOME="$home" CARGO_NET_GIT_FETCH_WITH_CLI=true
    # Behind the entries that the user has there.
    entry=${GIT_CONFIG_COUNT:-0}
    export "GIT_CONFIG_COUNT=$((entry + 1))"
    export "GIT_CONFIG_KEY_$entry=url.file://$here/real/tokio.insteadOf"
    export "GIT_CONFIG_VALUE_$entry=https://github.com/tokio-rs/tokio"
    exec "$@"
fi
# The user's settings, such as hooks and signatures, are not for this repository.
own_git() {
    env -u GIT_CONFIG_COUNT GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git "$@"
}
tag=$(sed -n 's/^real = .* tag = "\([^"]*\)".*/\1/p' "$here/Cargo.toml" | head -n 1)
there=$here/real/tokio
# Without a repository of its own, the folder is a part of Tourbillon's.
if [ -e "$there/.git" ]; then
    is=$(own_git -C "$there" describe --tags --exact-match --dirty 2> /dev/null || true)
    [ "$is" != "$tag" ] || exit 0
fi
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
own_git init --quiet
own_git add --all --force
own_git -c user.name=real.sh -c user.email=real.sh@localhost commit --quiet --message "$tag"
own_git tag "$tag"
rm -rf "$here/real"
mkdir "$here/real"
cp -R "$helper/vendor/tokio" "$here/real/tokio"
echo "$tag is in $here/real/tokio"

# To be sourced by `plain_data.sh`.

# The packages that have models, and one that their tests need.
packages=(shards crates/{loom,pool,sched,sync,tasks} testing/model)
# The files of the runtime that have a model (`tests/activity.rs`, `tests/paused.rs`).
runtime=(src/engine/watchdog/alarm.rs
    src/engine/watchdog/{seen,watch}.rs src/metrics/{activity,label,spawned}.rs src/util/lock.rs)

# copy_models ROOT DIR: copies what the models need from the tree at ROOT to DIR, as a workspace of
# its own. The root package and its dependencies stay out.
copy_models() {
    local root=$1 dir=$2
    mkdir -p "$dir/loom_tests"
    awk '/^\[/ { keep = /^\[(workspace|profile)/ } keep' "$root/Cargo.toml" |
        sed 's|^members = .*|members = ["shards", "crates/*", "loom_tests"]|' >"$dir/Cargo.toml"
    cp "$root/Cargo.lock" "$dir/"
    local package part
    for package in "${packages[@]}"; do
        mkdir -p "$dir/$package"
        for part in Cargo.toml README.md src examples; do
            [ ! -e "$root/$package/$part" ] || cp -R "$root/$package/$part" "$dir/$package/"
        done
    done
    cp -R "$root/loom_tests/Cargo.toml" "$root/loom_tests/src" "$root/loom_tests/tests" \
        "$dir/loom_tests/"
    (cd "$root" && cp --parents "${runtime[@]}" "$dir")
}

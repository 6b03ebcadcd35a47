//! Without `--cfg tourbillon_sim`, nothing of the simulation is in the runtime.

#![cfg(not(tourbillon_sim))]

use std::{collections::BTreeSet, env, path::PathBuf, process::Command};

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    text
}

fn cargo(args: &[&str]) -> String {
    let program = env::var("CARGO").expect("cargo sets it");
    run(
        &program,
        &[args, &["--locked", "--package=tourbillon"]].concat(),
    )
}

#[test]
fn the_runtime_depends_on_no_simulation() {
    let tree = cargo(&["tree", "--edges=normal", "--all-features", "--prefix=none"]);
    let packages = tree.lines().filter_map(|line| line.split(' ').next());
    let packages: BTreeSet<_> = packages.collect();
    assert!(packages.contains("tourbillon-sync"), "{tree}");
    assert!(!packages.contains("tourbillon-sim"), "{tree}");
}

/// Builds the runtime, and looks at the symbols of all libraries of this repository in it.
#[test]
fn the_library_has_no_symbol_of_the_simulation() {
    let messages = cargo(&["build", "--message-format=json"]);
    // A message has the names of files as texts.
    let libraries = messages.split('"').filter(|text| {
        let path = PathBuf::from(text);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libtourbillon") && name.ends_with(".rlib")
    });
    let libraries: BTreeSet<_> = libraries.collect();
    assert!(libraries.len() > 1, "{messages}");
    let mut symbols = String::new();
    for library in libraries {
        symbols += &run("nm", &["--defined-only", library]);
    }
    let names: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let of_runtime = names.iter().filter(|name| name.contains("10tourbillon"));
    assert!(of_runtime.count() > 100, "{} symbols", names.len());
    // The hooks of the runtime, and the functions of the C library that the simulation replaces.
    for name in names {
        let is_of_simulation = name.contains("tourbillon_sim")
            || name.contains("tourbillon_sync3sim")
            || ["clock_gettime", "epoll_wait", "pthread_create", "syscall"].contains(&name);
        assert!(!is_of_simulation, "{name}");
    }
}

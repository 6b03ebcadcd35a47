//! The modules of the runtime name only what stands beside or below them in the table of layers of
//! `CONTRIBUTING.md`.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    PathBuf::from(package).join("../..")
}

/// Returns the layers from top to bottom, each with its modules.
fn layers() -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, table) = page.split_once("In `src/`, from top to bottom").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let layers: Vec<Vec<_>> = rows
        .map(|row| {
            let modules = row.split('|').nth(1).unwrap();
            let modules = modules.split('`').skip(1).step_by(2);
            let name = |module: &str| module.trim_end_matches('/').trim_end_matches(".rs").into();
            modules.map(name).collect()
        })
        .collect();
    assert!(layers.len() > 4, "the table was not understood: {layers:?}");
    layers
}

/// Returns all sources below `dir`, without those of tests.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|is| is == "rs") && !name.ends_with("tests") {
            found.push(path);
        }
    }
    found
}

/// Returns a source without its comments, and without its tests, which stand at its end.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let lines = code.lines();
    let lines = lines.map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the first names behind `crate::`, in imports with braces as well.
fn named(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let Some(tree) = after.strip_prefix('{') else {
            named.insert(first_name(after));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in tree.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    named.insert(first_name(&tree[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    named
}

fn first_name(code: &str) -> String {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    code.chars().take_while(is_part).collect()
}

#[test]
fn modules_name_only_their_layer_and_those_below() {
    let layers = layers();
    let layer_of = |module: &str| {
        layers
            .iter()
            .position(|layer| layer.iter().any(|m| m == module))
    };
    let (mut upward, mut arrows) = (Vec::new(), 0);
    let src = root().join("src");
    for path in sources(&src) {
        let module = path
            .strip_prefix(&src)
            .unwrap()
            .components()
            .next()
            .unwrap();
        let module = Path::new(module.as_os_str()).file_stem().unwrap();
        let module = module.to_str().unwrap();
        let Some(own) = layer_of(module) else {
            assert!(
                ["lib", "error"].contains(&module),
                "{module} is in no layer"
            );
            continue;
        };
        for name in named(&code(&fs::read_to_string(&path).unwrap())) {
            // What the root exports again is of the public modules. Other names are macros, errors
            // and modules of the root.
            let exported = name
                .starts_with(char::is_uppercase)
                .then(|| layer_of("timer"));
            let Some(other) = exported.flatten().or_else(|| layer_of(&name)) else {
                continue;
            };
            arrows += 1;
            if other < own {
                upward.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(
        upward.is_empty(),
        "these name what is above:\n{}",
        upward.join("\n")
    );
    assert!(
        arrows > 300,
        "the sources were not understood: {arrows} arrows"
    );
}

#[test]
fn names_are_found_in_trees() {
    let code =
        "use crate::{engine::{a, b}, sys,\n time::Instant};\nlet x = crate::util::lock::lock();";
    let found: Vec<_> = named(code).into_iter().collect();
    assert_eq!(found, ["engine", "sys", "time", "util"]);
}

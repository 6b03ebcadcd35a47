//! The program `loom-mutants`, on a package whose tests need no loom.
#![cfg(feature = "mutants")]

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

/// A package with a function and its tests, and no mutants.
fn package() -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| write(dir.path(), name, text);
    write(
        "Cargo.toml",
        "[package]\nname = \"sums\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n",
    );
    write(
        "src/lib.rs",
        "pub fn sum(a: u32, b: u32) -> u32 {\n    a + b\n}\n\
         #[cfg(all(test, loom))]\nmod tests {\n    #[test]\n    fn a_sum() {\n        \
         assert_eq!(super::sum(1, 2), 3);\n    }\n}\n",
    );
    write(
        "tests/sums.rs",
        "#![cfg(loom)]\n#[test]\nfn two() {\n    assert_eq!(sums::sum(2, 2), 4);\n}\n\
         #[test]\nfn wrong() {\n    assert_eq!(sums::sum(2, 2), 5);\n}\n",
    );
    dir
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

/// A mutant that makes the sum another expression.
fn mutant(dir: &Path, name: &str, test: &str, from: &str, to: &str) {
    write(
        dir,
        &format!("mutants/{name}.patch"),
        &format!(
            "The sum is another.\n\nTest: {test}\n\n--- a/src/lib.rs\n+++ b/src/lib.rs\n\
             @@ -1,3 +1,3 @@\n pub fn sum(a: u32, b: u32) -> u32 {{\n-    {from}\n+    {to}\n }}\n"
        ),
    );
}

/// Adds a line to what is above the patch of a mutant.
fn say_of(dir: &Path, name: &str, line: &str) {
    let path = dir.join(format!("mutants/{name}.patch"));
    let patch = fs::read_to_string(&path).expect("a file");
    fs::write(&path, patch.replace("\nTest:", &format!("\n{line}\nTest:"))).expect("a file");
}

/// Runs the program. Returns whether it succeeded, its lines without the columns' blanks and without
/// the seconds, and what it reported.
fn run(dir: &Path, arguments: &[&str]) -> (bool, Vec<String>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_loom-mutants"))
        .args(["--profile", "dev", "--jobs", "1"])
        .args(arguments)
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("the program runs");
    let printed = String::from_utf8(output.stdout).expect("text");
    let lines = printed.lines().skip(1).map(|line| {
        let columns = line.splitn(4, '|').map(str::trim).enumerate();
        let columns = columns.filter(|(number, text)| *number != 2 && !text.is_empty());
        let columns: Vec<_> = columns.map(|(_, text)| text).collect();
        columns.join(" | ")
    });
    let reported = String::from_utf8(output.stderr).expect("text");
    (output.status.success(), lines.collect(), reported)
}

#[test]
fn mutants_are_killed_by_tests_of_files_and_of_the_library() {
    let dir = package();
    mutant(dir.path(), "less", "sums::two", "a + b", "a - b");
    mutant(dir.path(), "or", "lib::tests::a_sum", "a + b", "a | b | 4");
    let (says, ends) = ("panic!(\"sums {a} and {b}\")", "std::process::exit(3)");
    mutant(dir.path(), "says", "sums::two", "a + b", says);
    mutant(dir.path(), "ends", "sums::two", "a + b", ends);
    let (succeeded, lines, reported) = run(dir.path(), &[]);
    let expected = [
        "ends | sums::two | exit status: 3",
        "less | sums::two | assertion `left == right` failed",
        "or | lib::tests::a_sum | assertion `left == right` failed",
        "says | sums::two | sums 2 and 2",
        "4 killed, 0 survived, 0 broken",
    ];
    assert_eq!(lines, expected, "{reported}");
    assert!(succeeded);
    // The source is as it was.
    let source = fs::read_to_string(dir.path().join("src/lib.rs")).expect("a file");
    assert!(source.contains("a + b"));
}

#[test]
fn a_mutant_that_survives_is_an_error() {
    let dir = package();
    mutant(dir.path(), "product", "sums::two", "a + b", "a * b");
    mutant(dir.path(), "less", "sums::two", "a + b", "a - b");
    let (succeeded, lines, reported) = run(dir.path(), &["product"]);
    let expected = [
        "product | SURVIVED: sums::two",
        "0 killed, 1 survived, 0 broken",
    ];
    assert_eq!(lines, expected, "{reported}");
    assert!(!succeeded);
}

#[test]
fn a_mutant_may_be_known_to_survive() {
    let dir = package();
    mutant(dir.path(), "product", "sums::two", "a + b", "a * b");
    say_of(dir.path(), "product", "Survives: 2 times 2 is 4, too");
    let (succeeded, lines, reported) = run(dir.path(), &[]);
    let expected = [
        "product | none, as it says: sums::two | 2 times 2 is 4, too",
        "0 killed, 0 survived, 0 broken, 1 known to survive",
    ];
    assert_eq!(lines, expected, "{reported}");
    assert!(succeeded);

    // What it says is checked.
    mutant(dir.path(), "less", "sums::two", "a + b", "a - b");
    say_of(dir.path(), "less", "Survives: nobody knows why");
    let (succeeded, lines, reported) = run(dir.path(), &["less"]);
    assert_eq!(lines, ["0 killed, 0 survived, 1 broken"], "{reported}");
    let text = "less: it says that it survives, and sums::two kills it: assertion `left";
    assert!(!succeeded && reported.contains(text), "{reported}");
}

#[test]
fn a_mutant_that_cannot_be_tried_is_an_error() {
    let dir = package();
    mutant(dir.path(), "applies-not", "sums::two", "a ++ b", "a - b");
    mutant(dir.path(), "compiles-not", "sums::two", "a + b", "a + c");
    mutant(dir.path(), "fails-anyway", "sums::wrong", "a + b", "a - b");
    mutant(dir.path(), "killed", "sums::two", "a + b", "a - b");
    mutant(dir.path(), "unknown-test", "sums::three", "a + b", "a - b");
    let (succeeded, lines, reported) = run(dir.path(), &[]);
    assert_eq!(
        lines,
        [
            "killed | sums::two | assertion `left == right` failed",
            "1 killed, 0 survived, 4 broken"
        ],
        "{reported}"
    );
    assert!(!succeeded);
    for why in [
        "the patch does not apply",
        "the mutant does not compile",
        "sums::wrong fails without the mutant",
        "there is no test sums::three",
    ] {
        assert!(reported.contains(why), "no `{why}` in\n{reported}");
    }
}

#[test]
fn a_mutant_may_say_that_its_test_does_not_end() {
    let dir = package();
    mutant(
        dir.path(),
        "endless",
        "sums::two",
        "a + b",
        "loop { std::thread::yield_now() }",
    );
    let (succeeded, lines, reported) = run(dir.path(), &["--timeout", "20"]);
    let expected = [
        "endless | TIMED OUT: sums::two",
        "0 killed, 1 survived, 0 broken",
    ];
    assert_eq!(lines, expected, "{reported}");
    assert!(!succeeded);

    say_of(dir.path(), "endless", "Hangs: yes");
    let (succeeded, lines, reported) = run(dir.path(), &["--timeout", "20", "--trust"]);
    let expected = [
        "endless | sums::two (hangs)",
        "1 killed, 0 survived, 0 broken",
    ];
    assert_eq!(lines, expected, "{reported}");
    assert!(succeeded);
}

#[test]
fn wrong_input_is_explained() {
    let dir = package();
    let (succeeded, _, reported) = run(dir.path(), &[]);
    assert!(
        !succeeded && reported.contains("mutants: No such file"),
        "{reported}"
    );

    mutant(dir.path(), "less", "sums::two", "a + b", "a - b");
    let (succeeded, _, reported) = run(dir.path(), &["more"]);
    let text = "there is no mutant `more`. There are: less";
    assert!(!succeeded && reported.contains(text), "{reported}");

    mutant(dir.path(), "nameless", "two", "a + b", "a - b");
    let (succeeded, _, reported) = run(dir.path(), &[]);
    let text = "nameless.patch: the text above the patch needs a line `Test: FILE::TEST`";
    assert!(!succeeded && reported.contains(text), "{reported}");
}

/// `git diff` prints paths from the top of the repository, and the package may be below that.
#[test]
fn a_package_in_a_repository_is_copied_with_the_repository() {
    let dir = package();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).expect("a folder");
    for name in ["Cargo.toml", "src", "tests"] {
        fs::rename(dir.path().join(name), inner.join(name)).expect("a move");
    }
    let git = |arguments: &[&str]| {
        let status = Command::new("git")
            .args(arguments)
            .current_dir(dir.path())
            .status();
        assert!(status.expect("git runs").success());
    };
    git(&["init", "--quiet"]);
    write(dir.path(), ".gitignore", "target\nCargo.lock\n");
    mutant(&inner, "from-here", "sums::two", "a + b", "a - b");
    mutant(&inner, "from-the-top", "sums::two", "a + b", "a - b");
    let path = inner.join("mutants/from-the-top.patch");
    let patch = fs::read_to_string(&path).expect("a file");
    fs::write(&path, patch.replace("/src/lib.rs", "/inner/src/lib.rs")).expect("a file");
    let (succeeded, lines, reported) = run(&inner, &[]);
    assert!(succeeded, "{lines:?}\n{reported}");
    assert_eq!(
        lines.last().map(String::as_str),
        Some("2 killed, 0 survived, 0 broken")
    );
}

/// Git can be told to write other prefixes, and a patch may make a file or delete one.
#[test]
fn each_mutant_is_undone() {
    let dir = package();
    mutant(dir.path(), "a-deletes", "sums::two", "a + b", "a - b");
    let path = dir.path().join("mutants/a-deletes.patch");
    let patch = fs::read_to_string(&path).expect("a file");
    let patch = patch
        .replace("--- a/", "--- i/")
        .replace("+++ b/", "+++ w/");
    let more = "--- /dev/null\n+++ w/src/more.rs\n@@ -0,0 +1 @@\n+//! More.\n\
                --- i/notes\n+++ /dev/null\n@@ -1 +0,0 @@\n-notes\n";
    fs::write(&path, patch + more).expect("a file");
    write(dir.path(), "notes", "notes\n");
    // The same sum: it survives only if the mutant before it is gone.
    mutant(dir.path(), "b-same", "sums::two", "a + b", "b + a");
    let (_, lines, reported) = run(dir.path(), &[]);
    assert_eq!(
        lines,
        [
            "a-deletes | sums::two | assertion `left == right` failed",
            "b-same | SURVIVED: sums::two",
            "1 killed, 1 survived, 0 broken"
        ],
        "{reported}"
    );
}

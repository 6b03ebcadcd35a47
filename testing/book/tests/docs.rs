//! The documentation names only what exists: files in code spans, functions in the tables of the
//! internals, tests in tables, items of the API in the table of features, models and mutants on the
//! page of loom, and files by links.
//!
//! A code span of a table may be a file and, after a colon, the names of tests in it; in the column
//! of tests of `docs/reference/features.md` it may also be a file alone. The spans of the column
//! before that are items of the API.

use std::{
    env, fs,
    path::{Component, Path, PathBuf},
};

/// The root of the tree.
fn root() -> PathBuf {
    // Uses the directory that cargo sets when it runs a test, so that the test can check another
    // tree.
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), PathBuf::from);
    normal(&package.join("../.."))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a page as the book has it: with the files that it includes.
fn read_page(path: &Path) -> String {
    let mut page = read(path);
    while let Some((before, rest)) = page.split_once("{{#include ") {
        let (file, after) = rest.split_once("}}").expect("an include ends");
        let included = read(path.parent().expect("a file is somewhere").join(file));
        assert!(!included.contains("{{#include "), "{file}: includes again");
        page = format!("{before}{included}{after}");
    }
    let is_merged = !page.contains("\n<<<<<<< ");
    assert!(is_merged, "{}: a conflict of a merge", path.display());
    page
}

/// Returns all files below `dir` with this extension.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for path in entries.map(|entry| entry.expect("it was listed").path()) {
        // Packages with a lock file of their own may have a folder of builds; the facade, the real
        // tokio.
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("real") {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
    found
}

/// Returns the pages of the book.
fn pages(root: &Path) -> Vec<PathBuf> {
    let pages = files(&root.join("docs"), "md");
    assert!(pages.len() > 25, "there are {} pages", pages.len());
    pages
}

/// Returns the pages that are not of the book: those of the repository and of its packages.
fn other_pages(root: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<_> = "README CONTRIBUTING CHANGELOG SECURITY"
        .split(' ')
        .map(|page| root.join(page).with_extension("md"))
        .collect();
    for dir in "benches crates examples loom_tests shards src testing".split(' ') {
        pages.extend(files(&root.join(dir), "md"));
    }
    assert!(pages.len() > 20, "there are {} pages", pages.len());
    pages
}

/// Returns the path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => normal.push(part),
        }
    }
    normal
}

/// Returns whether `text` contains `word` as a word of its own.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Returns the texts in backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the rows of the tables, without their heads, cell by cell.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<_> = text.lines().collect();
    let is_row = |line: &str| line.starts_with('|');
    let is_head = |at: usize| {
        lines
            .get(at + 1)
            .is_some_and(|next| next.starts_with("|---"))
    };
    (0..lines.len())
        .filter(|&at| is_row(lines[at]) && !lines[at].starts_with("|---") && !is_head(at))
        .map(|at| {
            lines[at]
                .trim_matches('|')
                .split('|')
                .map(str::trim)
                .collect()
        })
        .collect()
}

/// Returns where a path leads that a page names: from the root, or from a folder of the page, as in
/// a package's own pages.
fn target(root: &Path, page: &Path, path: &str) -> Option<PathBuf> {
    let dirs = page.ancestors().skip(1);
    let mut dirs = dirs.take_while(|dir| dir.starts_with(root));
    dirs.find_map(|dir| Some(dir.join(path)).filter(|target| target.exists()))
}

/// Checks that what a code span of a table names exists: a file, or tests in a file. Adds missing
/// names to `missing`. Returns the number of names in the span.
fn look_up(root: &Path, page: &Path, span: &str, missing: &mut Vec<String>) -> usize {
    let (file, tests) = span.split_once(": ").unwrap_or((span, ""));
    // Without a slash, the span is an option or a variable.
    if !file.contains('/') {
        return 0;
    }
    let Some(target) = target(root, page, file) else {
        missing.push(format!("{}: {file}", page.display()));
        return 1;
    };
    if tests.is_empty() {
        return 1;
    }
    let source = read(target);
    for test in tests.split(", ") {
        if !has_word(&source, test) {
            missing.push(format!("{file}: {test}"));
        }
    }
    1 + tests.split(", ").count()
}

/// Returns the paths that a code span stands for: `{a,b}` is one path each. Empty if the span is no
/// path of the repository.
fn paths(span: &str) -> Vec<String> {
    // The last four are gone. They are here so that a page that still names a file in them fails.
    const DIRS: &str = "src shards crates testing tests benches examples loom_tests docs .ci \
                        fuzz tokio tasks macros";
    let path = span.split(": ").next().expect("a first part");
    let dir = path.split_once('/').map_or("", |(dir, _)| dir);
    // A script places the real tokio.
    let is_placed = path.starts_with("crates/tokio/real/");
    if !DIRS.split(' ').any(|known| known == dir) || path.contains([' ', '*']) || is_placed {
        return Vec::new();
    }
    match (path.split_once('{'), path.split_once('}')) {
        (Some((before, _)), Some((within, after))) => {
            let names = within[before.len() + 1..].split(',');
            names.map(|name| format!("{before}{name}{after}")).collect()
        }
        _ => vec![path.to_owned()],
    }
}

#[test]
fn pages_name_existing_files() {
    let root = root();
    let pages = pages(&root).into_iter().chain(other_pages(&root));
    let (mut missing, mut named) = (Vec::new(), 0);
    for page in pages {
        let text = read(&page);
        for path in spans(&text).flat_map(paths) {
            named += 1;
            if target(&root, &page, &path).is_none() {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
    assert!(named > 640, "the pages were not understood: {named} paths");
}

/// The tables of steps have three columns: the step, functions, and the files in which they are.
#[test]
fn the_internals_name_existing_functions() {
    let root = root();
    let (mut missing, mut named) = (Vec::new(), 0);
    let internals = files(&root.join("docs/internals"), "md");
    let designs = other_pages(&root).into_iter();
    let designs = designs.filter(|page| page.ends_with("DESIGN.md"));
    for page in internals.into_iter().chain(designs) {
        let text = read(&page);
        for row in rows(&text) {
            let [_, functions, places] = row[..] else {
                continue;
            };
            let is_step = !places.contains(".rs: ");
            let places: Vec<_> = spans(places).flat_map(paths).collect();
            if places.is_empty() || !is_step {
                continue;
            }
            // `pages_name_existing_files` reports a file that is not there.
            let source: String = places
                .iter()
                .map(|place| root.join(place))
                .flat_map(|place| match place.is_dir() {
                    true => files(&place, "rs"),
                    false => vec![place],
                })
                .filter_map(|file| fs::read_to_string(file).ok())
                .collect();
            for span in spans(functions) {
                let names = span.split_once('{').map_or(span, |(_, names)| names);
                for name in names.trim_end_matches('}').split(", ") {
                    named += 1;
                    let name = name.rsplit("::").next().expect("a last part");
                    if !has_word(&source, name) {
                        missing.push(format!("{}: {span} in {places:?}", page.display()));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
    assert!(
        named > 165,
        "the tables were not understood: {named} functions"
    );
}

#[test]
fn tables_name_existing_tests() {
    let root = root();
    let (mut missing, mut named) = (Vec::new(), 0);
    let pages = pages(&root).into_iter().chain(other_pages(&root));
    for page in pages {
        let text = read_page(&page);
        for span in rows(&text).into_iter().flatten().flat_map(spans) {
            if span.contains(".rs: ") {
                named += look_up(&root, &page, span, &mut missing);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in the tree:\n{}",
        missing.join("\n")
    );
    assert!(named > 320, "the tables were not understood: {named} names");
}

#[test]
fn the_feature_table_names_existing_tests() {
    let root = root();
    let page = root.join("docs/reference/features.md");
    let table = read(&page);
    let mut missing = Vec::new();
    let mut named = 0;
    for row in rows(&table) {
        let [what, here, tests] = row[..] else {
            panic!("three cells in each row: {row:?}");
        };
        let is_there = !tests.is_empty() && tests != "as above";
        let says_so = here.contains("**not there yet**");
        assert!(
            is_there || says_so,
            "neither tests nor a word that it is not there: {what}"
        );
        for span in spans(tests) {
            named += look_up(&root, &page, span, &mut missing);
        }
    }
    assert!(
        missing.is_empty(),
        "not in the tree:\n{}",
        missing.join("\n")
    );
    assert!(named > 215, "the table was not understood: {named} names");
}

#[test]
fn the_feature_table_names_existing_items() {
    let root = root();
    let table = read(root.join("docs/reference/features.md"));
    let dirs = ["src", "shards/src", "crates"].map(|dir| root.join(dir));
    let sources = dirs.iter().flat_map(|dir| files(dir, "rs")).map(read);
    let sources = sources.collect::<Vec<_>>().join("\n");
    let mut missing = Vec::new();
    for row in rows(&table) {
        // The other spans are commands and files.
        let is_item = |span: &&str| {
            span.chars()
                .all(|c| c.is_alphanumeric() || "_:".contains(c))
        };
        for item in spans(row[1]).filter(is_item) {
            let known = |part: &str| part == "shards" || has_word(&sources, part);
            if !item.split("::").all(known) {
                missing.push(item);
            }
        }
    }
    assert!(missing.is_empty(), "not in the API: {missing:?}");
}

#[test]
fn the_page_of_dropped_futures_names_each_future() {
    let root = root();
    let pages = ["docs/reference/cancel-safety.md", "crates/tokio/DROPPED.md"];
    let page = pages.map(|page| read(root.join(page))).join("\n");
    let dirs = "net io time timer task sync util"
        .split(' ')
        .map(|dir| format!("src/{dir}"));
    let dirs = dirs.chain(["crates/tokio/src".to_owned()]);
    let mut sources: Vec<_> = dirs.flat_map(|dir| files(&root.join(dir), "rs")).collect();
    sources.push(root.join("src/signal.rs"));
    let (mut missing, mut named) = (Vec::new(), 0);
    for source in sources {
        for line in read(&source).lines() {
            // A method, or a type. Names that a macro makes begin with `$`.
            let after = |text| line.split_once(text).map(|(_, after)| after);
            let Some(after) = after("pub async fn ").or_else(|| after(" Future for ")) else {
                continue;
            };
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let name = after.split(|c| !is_part(c)).next().expect("a first part");
            // `Call` is the body of a blocking job, which no user holds.
            if name.is_empty() || name == "Call" {
                continue;
            }
            named += 1;
            if !rows(&page)
                .iter()
                .any(|row| spans(row[0]).any(|span| has_word(span, name)))
            {
                missing.push(format!("{name}, of {}", source.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "what is lost when it is dropped? {missing:#?}"
    );
    assert!(
        named > 105,
        "the sources were not understood: {named} names"
    );
}

#[test]
fn the_loom_page_names_each_model_and_mutant() {
    let root = root();
    let page = read(root.join("loom_tests/README.md"));
    let (_, protocols) = page.split_once("## Protocols").expect("a section");
    let (protocols, _) = protocols.split_once("## Mutants").expect("a section");
    let protocols = rows(protocols);
    let named = |column| protocols.iter().flat_map(move |row| spans(row[column]));
    for model in files(&root.join("loom_tests/tests"), "rs") {
        let name = model.file_name().expect("a file has a name");
        assert!(named(2).any(|model| model == name), "no row has {name:?}");
    }
    let mutants = files(&root.join("loom_tests/mutants"), "patch");
    assert!(mutants.len() > 100, "there are {}", mutants.len());
    for mutant in mutants {
        let name = mutant.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a file has a name");
        let is_it = |pattern: &str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        };
        assert!(named(4).any(is_it), "no row has {name}");
    }
}

#[test]
fn links_lead_to_existing_targets() {
    let root = root();
    let book = normal(&root.join("docs"));
    let pages = pages(&root).into_iter().chain(other_pages(&root));
    let mut broken = Vec::new();
    for page in pages {
        let text = read_page(&page);
        let dir = page.parent().expect("a file is somewhere");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().expect("there is a first part");
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") {
                continue;
            }
            let target = if file.is_empty() {
                page.clone()
            } else {
                dir.join(file)
            };
            // On a server, the book's pages cannot link to files outside of the book.
            let leaves = page.starts_with(root.join("docs")) && !normal(&target).starts_with(&book);
            let has_it = || section.is_empty() || has_section(&read_page(&target), section);
            if leaves || !target.exists() || !has_it() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "no target:\n{}", broken.join("\n"));
}

/// Returns whether a page has a heading with this anchor.
fn has_section(page: &str, section: &str) -> bool {
    let mut headings = page.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(heading.trim())
    });
    headings.any(|heading| {
        let kept = heading.to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c })
            .collect::<String>()
            == section
    })
}

/// A word stands once in the glossary, in the order of the alphabet.
#[test]
fn the_glossary_is_short_and_sorted() {
    let contributing = read(root().join("CONTRIBUTING.md"));
    let (_, glossary) = contributing.split_once("## Glossary").expect("a section");
    let (glossary, _) = glossary.split_once("\n## ").expect("a section after it");
    let words: Vec<_> = rows(glossary).iter().map(|row| row[0]).collect();
    assert!((30..=40).contains(&words.len()), "{} words", words.len());
    assert!(words.is_sorted_by(|a, b| a < b), "{words:?}");
}

/// The code in the chapter on simulations is that of the package beside it, which CI runs.
#[test]
fn the_chapter_on_simulations_shows_the_package_as_it_is() {
    let example = root().join("examples/sim");
    let mut sources = files(&example.join("src"), "rs");
    sources.extend(files(&example.join("tests"), "rs"));
    shows(&example.join("README.md"), &sources);
}

/// The code in the chapters on loom is that of models, which the loom build compiles and runs.
#[test]
fn the_chapters_on_loom_show_models_as_they_are() {
    let root = root();
    let ours = ["learn.rs", "template.rs"].map(|file| root.join("loom_tests/tests").join(file));
    shows(&root.join("loom_tests/README.md"), &ours);
    let example = root.join("examples/loom");
    let mut sources = files(&example.join("src"), "rs");
    sources.extend(files(&example.join("tests"), "rs"));
    shows(&example.join("README.md"), &sources);
}

/// Checks that the code of a page is in one of these files.
fn shows(page: &Path, files: &[PathBuf]) {
    let models: Vec<_> = files.iter().map(read).collect();
    let chapter = read(page);
    let blocks = chapter.split("```rust\n").skip(1);
    let blocks: Vec<_> = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    for block in &blocks {
        assert!(
            models.iter().any(|model| model.contains(block)),
            "no model has this:\n{block}"
        );
    }
    assert!(blocks.len() > 4, "the chapter was not understood");
}

/// The page of loom has the number of models, and no other page has it.
#[test]
fn one_page_says_how_many_models_there_are() {
    let root = root();
    let models = files(&root.join("loom_tests/tests"), "rs");
    let models = models
        .iter()
        .map(|file| read(file).matches("#[test]\n").count())
        .sum::<usize>();
    let home = root.join("loom_tests/README.md");
    let mut pages = pages(&root);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    pages.push(home.clone());
    for page in pages {
        let text = read(&page);
        let words: Vec<_> = text.split_whitespace().collect();
        let counts = words.windows(2).filter_map(|pair| {
            let is_count = pair[1].trim_end_matches(['.', ',']) == "models";
            is_count.then(|| pair[0].parse::<usize>().ok()).flatten()
        });
        let expected: &[usize] = if page == home { &[models] } else { &[] };
        assert_eq!(counts.collect::<Vec<_>>(), expected, "{}", page.display());
    }
}

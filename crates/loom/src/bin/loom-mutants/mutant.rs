use std::{fmt, fs, path::Path};

/// A change of the source that a model has to notice.
pub struct Mutant {
    pub name: String,
    pub test: Test,
    /// The bound of preemptions that is enough, if it is not that of the model.
    pub bound: Option<usize>,
    /// Whether the failure is that the model does not end.
    pub hangs: bool,
    /// Why the model passes, if the change is known to make no difference.
    pub survives: Option<String>,
    pub patch: String,
}

/// The test that has to fail: a file of `tests/`, or `lib` for the library's own tests, and the
/// path within.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Test {
    pub file: String,
    pub path: String,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With the width that the caller asks for.
        f.pad(&format!("{}::{}", self.file, self.path))
    }
}

impl Mutant {
    /// Reads the mutants of a folder: those with these names, or all.
    pub fn read_all(folder: &Path, names: &[String]) -> Result<Vec<Mutant>, String> {
        let at = |error| format!("{}: {error}", folder.display());
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).map_err(at)? {
            let path = entry.map_err(at)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "patch")
            {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                all.push(name.into_owned());
            }
        }
        all.sort();
        if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
            let there = all.join(", ");
            return Err(format!(
                "there is no mutant `{unknown}`. There are: {there}"
            ));
        }
        let chosen = if names.is_empty() { &all } else { names };
        if chosen.is_empty() {
            return Err(format!("{} has no file *.patch", folder.display()));
        }
        chosen
            .iter()
            .map(|name| Mutant::read(folder, name))
            .collect()
    }

    fn read(folder: &Path, name: &str) -> Result<Mutant, String> {
        let path = folder.join(format!("{name}.patch"));
        let at = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        let patch = fs::read_to_string(&path).map_err(|error| at(&error))?;
        let header = patch.lines().take_while(|line| !line.starts_with("--- "));
        let field = |key: &str| {
            let mut values = header.clone().filter_map(|line| line.strip_prefix(key));
            values.next().map(str::trim)
        };
        let test = field("Test:").and_then(|test| test.split_once("::"));
        let (file, test) = test.ok_or_else(|| {
            at(&"the text above the patch needs a line `Test: FILE::TEST` that names the model")
        })?;
        let bound = field("Bound:").map(|bound| {
            let number = bound.parse();
            number.map_err(|_| at(&format!("`Bound: {bound}` should have a number")))
        });
        let hangs = field("Hangs:") == Some("yes");
        let survives = field("Survives:").map(str::to_owned);
        if survives.as_deref() == Some("") {
            return Err(at(
                &"`Survives:` should say why the change makes no difference",
            ));
        }
        if hangs && survives.is_some() {
            return Err(at(&"`Hangs:` and `Survives:` exclude each other"));
        }
        Ok(Mutant {
            name: name.to_owned(),
            test: Test {
                file: file.to_owned(),
                path: test.to_owned(),
            },
            bound: bound.transpose()?,
            hangs,
            survives,
            patch,
        })
    }

    /// The files that the patch changes or makes.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let named = self
            .patch
            .lines()
            .filter_map(|line| line.strip_prefix("+++ "));
        // The first part of the path is `b`, or another letter if git is told so.
        named.filter_map(|name| {
            name.split('\t')
                .next()?
                .split_once('/')
                .map(|parts| parts.1)
        })
    }
}

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The source: what is copied for each job.
pub struct Tree {
    root: PathBuf,
    /// The current folder, within the root.
    folder: PathBuf,
    /// The files below the root.
    files: Vec<PathBuf>,
}

impl Tree {
    /// The source below this folder, or below that of the repository, or the current one.
    pub fn new(root: Option<PathBuf>) -> Result<Tree, String> {
        let here = env::current_dir().map_err(|error| error.to_string())?;
        let here = canonical(&here)?;
        let root = match root {
            Some(root) => canonical(&root)?,
            None => match git(&here, &["rev-parse", "--show-toplevel"]) {
                Some(root) => canonical(Path::new(root.trim_end()))?,
                None => here.clone(),
            },
        };
        let folder = here
            .strip_prefix(&root)
            .map_err(|_| format!("the current folder should be within {}", root.display()))?;
        let listed = [
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ];
        let mut files: Vec<_> = match git(&root, &listed) {
            // git lists nothing in a folder that it ignores.
            Some(names) if !names.is_empty() => {
                names.split_terminator('\0').map(PathBuf::from).collect()
            }
            _ => walk(&root)?,
        };
        // Libraries often tell git to ignore it. The copies are built with the same versions.
        files.extend([PathBuf::from("Cargo.lock"), folder.join("Cargo.lock")]);
        files.sort();
        files.dedup();
        // What was deleted is still listed until git is told.
        files.retain(|file| root.join(file).is_file());
        Ok(Tree {
            folder: folder.to_owned(),
            files,
            root,
        })
    }

    /// The current folder.
    pub fn here(&self) -> PathBuf {
        self.root.join(&self.folder)
    }

    /// The copy of the current folder, if the root was copied to `copy`.
    pub fn here_in(&self, copy: &Path) -> PathBuf {
        copy.join(&self.folder)
    }

    pub fn copy_all(&self, copy: &Path) -> Result<(), String> {
        self.files.iter().try_for_each(|file| self.copy(file, copy))
    }

    /// The folder that the paths of a patch begin at: the current one, or the root, as in what
    /// `git diff` prints.
    pub fn base<'a>(&self, mut files: impl Iterator<Item = &'a str>) -> &Path {
        if files.all(|file| self.here().join(file).exists()) {
            &self.folder
        } else {
            Path::new("")
        }
    }

    /// Copies a file of the root. The copy is new, whenever the file was changed: cargo has to see
    /// that the mutant of an earlier run is gone.
    fn copy(&self, file: &Path, copy: &Path) -> Result<(), String> {
        let at = |error| format!("{}: {error}", file.display());
        let from = self.root.join(file);
        let to = copy.join(file);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(at)?;
        }
        let content = fs::read(&from).map_err(at)?;
        fs::write(&to, content).map_err(at)?;
        // Scripts stay executable.
        let permissions = fs::metadata(&from).map_err(at)?.permissions();
        fs::set_permissions(&to, permissions).map_err(at)
    }
}

fn canonical(folder: &Path) -> Result<PathBuf, String> {
    let at = |error| format!("{}: {error}", folder.display());
    folder.canonicalize().map_err(at)
}

/// What git prints, if it succeeds.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The files below a folder that git does not know, without `target`.
fn walk(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let at = |error| format!("{}: {error}", root.join(&folder).display());
        for entry in fs::read_dir(root.join(&folder)).map_err(at)? {
            let entry = entry.map_err(at)?;
            let name = folder.join(entry.file_name());
            if entry.file_type().map_err(at)?.is_dir() {
                if entry.file_name() != "target" && entry.file_name() != ".git" {
                    folders.push(name);
                }
            } else {
                files.push(name);
            }
        }
    }
    Ok(files)
}

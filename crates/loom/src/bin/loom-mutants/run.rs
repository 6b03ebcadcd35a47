use std::{
    collections::HashMap,
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    mutant::{Mutant, Test},
    tests::{Cargo, Ended},
    tree::Tree,
};

/// What became of a mutant.
pub enum Outcome {
    /// The model failed, with this message.
    Killed(String),
    /// The model did not end, as the mutant says.
    Hangs,
    /// The model passed.
    Survived,
    /// The model passed, as the mutant says.
    SurvivesAsSaid,
    /// The model did not end, and the mutant does not say so.
    TimedOut,
    /// The mutant could not be tried.
    Broken(String),
}

/// A copy of the source, in which one mutant is tried after the other.
pub struct Run<'a> {
    tree: &'a Tree,
    scratch: TempDir,
    cargo: Cargo,
    timeout: Duration,
    /// Whether a model passes on the source as it is. `None` does not ask.
    unchanged: Option<HashMap<Test, Result<(), String>>>,
    /// Whether each step is shown on the standard error.
    progress: bool,
}

impl<'a> Run<'a> {
    pub fn new(
        tree: &'a Tree,
        cargo: Cargo,
        timeout: Duration,
        trust: bool,
    ) -> Result<Run<'a>, String> {
        let scratch = TempDir::with_prefix("loom-mutants-").map_err(|error| error.to_string())?;
        let run = Run {
            tree,
            scratch,
            cargo,
            timeout,
            unchanged: (!trust).then(HashMap::new),
            progress: io::stderr().is_terminal(),
        };
        tree.copy_all(&run.copy())?;
        Ok(run)
    }

    fn copy(&self) -> PathBuf {
        self.scratch.path().join("copy")
    }

    /// Tries a mutant, and undoes it. Returns how long its model ran. With an error no other mutant
    /// can be tried.
    pub fn try_mutant(&mut self, mutant: &Mutant) -> Result<(Outcome, Duration), String> {
        if let Err(why) = self.passes_unchanged(&mutant.test)? {
            return Ok((Outcome::Broken(why), Duration::ZERO));
        }
        if let Err(said) = self.apply(mutant, &[]) {
            let why = format!("{said}the patch does not apply");
            return Ok((Outcome::Broken(why), Duration::ZERO));
        }
        let outcome = self.try_changed(mutant);
        // Git knows which files it has changed, made or deleted. They are new for cargo.
        self.apply(mutant, &["--reverse"])
            .map_err(|said| format!("{}: {said}it cannot be undone", mutant.name))?;
        outcome
    }

    /// A model that fails on the source as it is would seem to kill each mutant.
    fn passes_unchanged(&mut self, test: &Test) -> Result<Result<(), String>, String> {
        let Some(known) = &self.unchanged else {
            return Ok(Ok(()));
        };
        if let Some(known) = known.get(test) {
            return Ok(known.clone());
        }
        self.show(&format!("{test} without a mutant"));
        let passes = match self.cargo.build(&self.tree.here_in(&self.copy()), test) {
            Err(said) => Err(format!(
                "{said}the source does not compile without the mutant"
            )),
            Ok(program) => match program.run(test, None, self.timeout, &self.log())? {
                Ended::Passed => Ok(()),
                Ended::Failed(_) => Err(self.with_log(&format!("{test} fails without the mutant"))),
                Ended::TimedOut => Err(format!("{test} does not end without the mutant")),
                Ended::Missing => Err(format!("there is no test {test}")),
            },
        };
        if let Some(known) = &mut self.unchanged {
            known.insert(test.clone(), passes.clone());
        }
        Ok(passes)
    }

    fn try_changed(&self, mutant: &Mutant) -> Result<(Outcome, Duration), String> {
        let broken = |why| Ok((Outcome::Broken(why), Duration::ZERO));
        self.show(&mutant.name);
        let program = match self
            .cargo
            .build(&self.tree.here_in(&self.copy()), &mutant.test)
        {
            Ok(program) => program,
            Err(said) => return broken(format!("{said}the mutant does not compile")),
        };
        let begin = Instant::now();
        let ended = program.run(&mutant.test, mutant.bound, self.timeout, &self.log())?;
        let outcome = match ended {
            Ended::Failed(message) if mutant.survives.is_some() => Outcome::Broken(format!(
                "it says that it survives, and {} kills it: {message}",
                mutant.test
            )),
            Ended::Failed(message) => Outcome::Killed(message),
            Ended::Passed if mutant.survives.is_some() => Outcome::SurvivesAsSaid,
            Ended::Passed => Outcome::Survived,
            Ended::TimedOut if mutant.hangs => Outcome::Hangs,
            Ended::TimedOut => Outcome::TimedOut,
            Ended::Missing => Outcome::Broken(format!("there is no test {}", mutant.test)),
        };
        Ok((outcome, begin.elapsed()))
    }

    /// Applies a patch to the copy, with all of its context. The error is what git said.
    fn apply(&self, mutant: &Mutant, options: &[&str]) -> Result<(), String> {
        let folder = self.copy().join(self.tree.base(mutant.files()));
        let failed = |error: io::Error| format!("git apply: {error}\n");
        let mut git = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .args(options)
            .arg("-")
            .current_dir(folder)
            // The copy belongs to no repository, wherever the scratch folder is.
            .env("GIT_CEILING_DIRECTORIES", self.scratch.path())
            .env_remove("GIT_DIR")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = git.stdin.take() {
            // If git ends before it has read all, its message says why.
            _ = input.write_all(mutant.patch.as_bytes());
        }
        let output = git.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Says what is built and run now. Only a person who waits wants to know, so not in a log of CI.
    fn show(&self, what: &str) {
        if self.progress {
            _ = writeln!(io::stderr(), "… {what}");
        }
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn with_log(&self, why: &str) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        format!("{log}{why}")
    }
}

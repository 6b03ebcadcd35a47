//! The history in the form of [Jepsen](https://jepsen.io): one operation a line, in EDN, for a
//! checker that is not this program's own.
//!
//! An operation has an `:invoke` and at most one completion: `:ok`, `:fail` (the store refused it),
//! or `:info` (nobody knows whether it took place). Without a completion it is in doubt, too: its
//! process was killed. Each pending operation has a `:process` of its own, and a process whose
//! operation stays in doubt is not used again. `:value` is the job's key and a map, as
//! `jepsen.independent` has it. The history has no times, but `:index` is the order of events.
//! Times in values are in microseconds.
//!
//! - `:schedule` and `:move` have `:at`, when the job is due; `:cancel` has nothing.
//! - `:replace` has `:at` of the job that takes the place of the first one. Its completion has
//!   `:was`: `:free`, `:idle` or `:running`.
//! - `:run` is an attempt: `:token`, `:number`, `:at`, `:now`, and `:other`: whether it is of the
//!   job that took the place of the first one. Its completion has `:token` and `:end`, which is
//!   `:done`, `:retry` or `:dead`. The store refuses it if the token is stale.
//! - `:give-up` has `:token`, and ends as `:run`: the last attempt of a job did not end.
//! - `:dead` has `:other`: in the end, the store has the job among the dead.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
};

use tourbillon_jobs::job::Token;

use crate::history::{Event, Kind, Place, read};

/// A kind of operation, and the inside of its map.
type Asked = (&'static str, String);

/// A writer of operations.
struct Operations<W> {
    to: W,
    index: u64,
    /// The processes that have ended their operations.
    free: Vec<u64>,
    processes: u64,
    /// What a client has asked for each job: the process and the operation.
    asked: HashMap<String, (u64, Asked)>,
    /// The processes of the attempts that run.
    running: HashMap<(String, Token), u64>,
}

/// Writes a history as operations.
pub fn write(history: impl BufRead, to: impl Write) -> io::Result<()> {
    let mut operations = Operations {
        to,
        index: 0,
        free: Vec::new(),
        processes: 0,
        asked: HashMap::new(),
        running: HashMap::new(),
    };
    for event in read(history) {
        let (key, event) = event.map_err(io::Error::other)?;
        operations.take(key, event)?;
    }
    operations.to.flush()
}

impl<W: Write> Operations<W> {
    fn take(&mut self, key: String, event: Event) -> io::Result<()> {
        let due = |at: tourbillon_jobs::Time| format!(":at {}", at.as_micros());
        match event {
            Event::Asks { at } => self.ask(key, ("schedule", due(at))),
            Event::Moves { at } => self.ask(key, ("move", due(at))),
            Event::Cancels => self.ask(key, ("cancel", String::new())),
            Event::Replaces { at } => self.ask(key, ("replace", due(at))),
            Event::Scheduled | Event::Cancelled => self.answer(&key, "ok", None),
            Event::Moved { at } => self.answer(&key, "ok", Some(due(at))),
            Event::TooLate => self.answer(&key, "fail", None),
            Event::Replaced { place } => {
                let was = match place {
                    Place::Free => "free",
                    Place::Idle => "idle",
                    Place::Running => "running",
                };
                self.answer(&key, "ok", Some(format!(":was :{was}")))
            }
            Event::Failed => {
                let asked = self.asked.get(&key).map(|(_, asked)| asked.clone());
                self.answer(&key, "info", None)?;
                // The client asks again.
                asked.map_or(Ok(()), |asked| self.ask(key, asked))
            }
            Event::Runs {
                token,
                number,
                at,
                now,
                is_other,
            } => {
                let [at, now] = [at, now].map(tourbillon_jobs::Time::as_micros);
                let map = format!(
                    ":token {token}, :number {number}, :at {at}, :now {now}, :other {is_other}"
                );
                let process = self.invoke("run", &key, &map)?;
                self.running.insert((key, token), process);
                Ok(())
            }
            Event::Ended {
                token,
                kind,
                accepted,
            } => {
                let (f, process) = match self.running.remove(&(key.clone(), token)) {
                    Some(process) => ("run", process),
                    None => {
                        let process = self.invoke("give-up", &key, &format!(":token {token}"))?;
                        ("give-up", process)
                    }
                };
                let how = match accepted {
                    Some(true) => "ok",
                    Some(false) => "fail",
                    None => "info",
                };
                let end = match kind {
                    Kind::Done => "done",
                    Kind::Retry => "retry",
                    Kind::Dead => "dead",
                };
                let map = format!(":token {token}, :end :{end}");
                self.complete(process, how, f, &key, &map)
            }
            Event::Buried { is_other } => {
                let map = format!(":other {is_other}");
                let process = self.invoke("dead", &key, &map)?;
                self.complete(process, "ok", "dead", &key, &map)
            }
        }
    }

    /// Writes that a client asks for something.
    fn ask(&mut self, key: String, asked: Asked) -> io::Result<()> {
        let process = self.invoke(asked.0, &key, &asked.1)?;
        self.asked.insert(key, (process, asked));
        Ok(())
    }

    /// Writes how what a client asked for has ended. Without `map` the operation has what it had.
    fn answer(&mut self, key: &str, how: &str, map: Option<String>) -> io::Result<()> {
        let Some((process, (f, asked))) = self.asked.remove(key) else {
            return Err(io::Error::other(format!("{key}: an answer to no request")));
        };
        self.complete(process, how, f, key, &map.unwrap_or(asked))
    }

    /// Writes that an operation begins. Returns its process.
    fn invoke(&mut self, f: &str, key: &str, map: &str) -> io::Result<u64> {
        let process = self.free.pop().unwrap_or_else(|| {
            self.processes += 1;
            self.processes - 1
        });
        self.write(process, "invoke", f, key, map)?;
        Ok(process)
    }

    fn complete(
        &mut self,
        process: u64,
        how: &str,
        f: &str,
        key: &str,
        map: &str,
    ) -> io::Result<()> {
        if how != "info" {
            self.free.push(process);
        }
        self.write(process, how, f, key, map)
    }

    fn write(&mut self, process: u64, how: &str, f: &str, key: &str, map: &str) -> io::Result<()> {
        // The string of another key would be another one in EDN.
        let is_plain = |c: char| c.is_ascii() && !c.is_ascii_control();
        assert!(key.chars().all(is_plain), "{key:?} is no plain key");
        let index = self.index;
        self.index += 1;
        write!(self.to, "{{:index {index}, :process {process}, ")?;
        writeln!(
            self.to,
            ":type :{how}, :f :{f}, :value [{key:?} {{{map}}}]}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tourbillon_support::clients::have;

    use super::*;
    use crate::check::tests::GOOD;

    fn edn(history: &str) -> String {
        let mut written = Vec::new();
        write(history.as_bytes(), &mut written).unwrap();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn each_request_and_each_attempt_is_an_operation() {
        let history = "\
a asks 100
b asks 200
a failed
a scheduled
a runs 1 1 100 105
b scheduled
b replaces 300
a ended 1 Done refused
b replaced Idle
b ended 7 Dead accepted
b buried other
";
        let operations = edn(history);
        let expected = r#"
{:index 0, :process 0, :type :invoke, :f :schedule, :value ["a" {:at 100}]}
{:index 1, :process 1, :type :invoke, :f :schedule, :value ["b" {:at 200}]}
{:index 2, :process 0, :type :info, :f :schedule, :value ["a" {:at 100}]}
{:index 3, :process 2, :type :invoke, :f :schedule, :value ["a" {:at 100}]}
{:index 4, :process 2, :type :ok, :f :schedule, :value ["a" {:at 100}]}
{:index 5, :process 2, :type :invoke, :f :run, :value ["a" RUN]}
{:index 6, :process 1, :type :ok, :f :schedule, :value ["b" {:at 200}]}
{:index 7, :process 1, :type :invoke, :f :replace, :value ["b" {:at 300}]}
{:index 8, :process 2, :type :fail, :f :run, :value ["a" {:token 1, :end :done}]}
{:index 9, :process 1, :type :ok, :f :replace, :value ["b" {:was :idle}]}
{:index 10, :process 1, :type :invoke, :f :give-up, :value ["b" {:token 7}]}
{:index 11, :process 1, :type :ok, :f :give-up, :value ["b" {:token 7, :end :dead}]}
{:index 12, :process 1, :type :invoke, :f :dead, :value ["b" {:other true}]}
{:index 13, :process 1, :type :ok, :f :dead, :value ["b" {:other true}]}
"#;
        let run = "{:token 1, :number 1, :at 100, :now 105, :other false}";
        assert_eq!(operations, expected.trim_start().replace("RUN", run));
    }

    #[test]
    fn an_answer_to_no_request_is_an_error() {
        assert!(write("a scheduled\n".as_bytes(), Vec::new()).is_err());
    }

    /// Returns whether `judge.py` acquits a history, and what it says.
    fn judged(history: &str) -> (bool, String) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/judge.py");
        let mut judge = Command::new("python3")
            .args([script, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = judge.stdin.take().unwrap();
        stdin.write_all(edn(history).as_bytes()).unwrap();
        drop(stdin);
        let output = judge.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        (output.status.success(), said)
    }

    #[test]
    fn the_second_judge_acquits_a_good_history_and_convicts_broken_ones() {
        if !have("python3") {
            return;
        }
        let (is_good, said) = judged(GOOD);
        assert!(is_good, "{said}");
        let broken = [
            ("x asks 1\nx scheduled\n", "x: at least once: lost"),
            (
                "x asks 1\nx scheduled\nx runs 30 1 1 1\nx ended 30 Retry accepted\n",
                "x: at least once: lost",
            ),
            // The attempt before was cut. Its end would have been stale.
            (
                "x asks 1\nx scheduled\nx runs 30 1 1 1\nx runs 31 2 90000 90000\n\
                 x ended 31 Retry accepted\n",
                "x: at least once: lost",
            ),
            ("d runs 30 3 300 399\n", "d: never early"),
            ("d runs 30 3 500 499\n", "d: never early"),
            (
                "d runs 3 1 400 401\n",
                "d: fenced: two attempts have the token 3",
            ),
            (
                "a runs 30 3 400 401\n",
                "a: fenced: an attempt is newer than 2",
            ),
            (
                "x asks 1\nx scheduled\nx runs 30 1 1 1\nx runs 31 2 1 1\n\
                 x ended 30 Done accepted\nx ended 31 Done accepted\n",
                "x: fenced: the attempts [30, 31] all did the job",
            ),
            (
                "l runs 25 2 300 403\n",
                "l: fenced: the token of a job that was replaced",
            ),
            (
                "x asks 1\nx scheduled\nx replaces 1\nx replaced Running\nx runs 30 1 1 1\n\
                 x ended 30 Done accepted\nx runs 31 1 1 1 other\nx ended 31 Done accepted\n",
                "x: fenced: the store took the end of a job that was replaced",
            ),
            ("e runs 30 6 90000 90000\n", "e: at most 5"),
            (
                "b runs 30 1 200 200\n",
                "b: attempt 30 began after the job was cancelled",
            ),
            (
                "x runs 30 1 1 1\n",
                "x: a handler got a job that nobody scheduled",
            ),
            ("a buried\n", "a: dead, although an attempt did it"),
        ];
        for (more, expected) in broken {
            let (is_good, said) = judged(&format!("{GOOD}{more}"));
            assert!(!is_good && said.contains(expected), "{more}: {said}");
        }
    }
}

//! `tourbillon top`: the live page's figures in a terminal.
//!
//! It reads `/snapshot.json` of an inspector again and again, and shows the difference. Each
//! answer is a [`Snapshot`](sample::Snapshot); the last minute of them is a
//! [`History`](sample::History), which the [`screen`] draws.

mod bounds;
pub(crate) mod fetch;
mod sample;
mod screen;
mod tasks;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::{Duration, Instant},
};

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};

use self::{
    fetch::{Answer, Fetcher, LIMIT, Site},
    sample::{History, Stage},
    screen::Connection,
    tasks::Tasks,
};
use crate::{args, say};

/// Options of `tourbillon top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the dashboard that the program serves, as `--inspect` has printed it.
    #[arg(value_name = "HOST:PORT", value_parser = Site::parse)]
    site: Site,
    /// Time between two updates.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print the screen once, after two updates, and end. It needs no terminal.
    #[arg(long)]
    once: bool,
    /// Show tasks instead of workers and stalls, as the key t does.
    #[arg(long)]
    tasks: bool,
    /// Number of columns of the screen that `--once` prints.
    #[arg(long, value_name = "N", default_value_t = 80, requires = "once",
        value_parser = clap::value_parser!(u16).range(40..=400))]
    columns: u16,
}

/// Parses the time between two updates.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = args::positive_duration(text)?;
    let least = Duration::from_millis(100);
    if interval < least {
        return Err(format!("must be at least {least:?}"));
    }
    Ok(interval)
}

/// How often the program looks for an answer that it waits for. Keys end the wait.
const LOOK: Duration = Duration::from_millis(50);

/// Number of rows of the screen that `--once` prints.
const ROWS: u16 = 24;

pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let mut top = Top::begin(args)?;
    if args.once {
        std::thread::sleep(args.interval);
        top.fetcher.ask(top.tasks.is_some());
        top.take(top.fetcher.answer());
        top.print(args.columns);
        return Ok(ExitCode::SUCCESS);
    }
    if !io::stdout().is_terminal() {
        return Err("the output is not a terminal: use --once".to_owned());
    }
    // `try_init` also restores the terminal if this program panics.
    let mut terminal =
        ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}"))?;
    let ended = top.watch(&mut terminal, args.interval);
    ratatui::restore();
    ended.map_err(|error| format!("the terminal failed: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The figures of a program, and what the user has chosen to see of them.
struct Top {
    site: Site,
    fetcher: Fetcher,
    history: History,
    connection: Connection,
    stage: Stage,
    paused: bool,
    /// The tasks, while they are shown.
    tasks: Option<Tasks>,
}

impl Top {
    /// Reads the first snapshot. Fails if there is none: most likely the address is wrong.
    fn begin(args: &Args) -> Result<Self, String> {
        let fetcher = Fetcher::start(args.site.clone())?;
        fetcher.ask(args.tasks);
        let Answer {
            snapshot,
            tasks,
            bytes,
        } = fetcher.answer()?;
        let mut history = History::default();
        history.push(snapshot, bytes);
        Ok(Self {
            site: args.site.clone(),
            fetcher,
            history,
            connection: Connection::Live,
            stage: Stage::Wake,
            paused: false,
            tasks,
        })
    }

    /// Takes an update. If the program cannot be reached, the screen says so and keeps the last
    /// figures.
    fn take(&mut self, answer: Result<Answer, String>) {
        match answer {
            Ok(answer) => {
                self.connection = Connection::Live;
                self.history.push(answer.snapshot, answer.bytes);
                // The user may have switched meanwhile.
                if let (Some(shown), Some(tasks)) = (&mut self.tasks, answer.tasks) {
                    *shown = tasks;
                }
            }
            Err(error) => self.connection = Connection::Lost(error),
        }
    }

    /// Shows the tasks, or the workers and stalls again. The next update has the tasks.
    fn switch_tasks(&mut self) {
        if self.tasks.take().is_none() {
            self.tasks = Some(Tasks::default());
        }
    }

    fn draw<B: ratatui::backend::Backend>(
        &self,
        terminal: &mut Terminal<B>,
    ) -> Result<(), B::Error> {
        let view = screen::View {
            site: &self.site,
            history: &self.history,
            connection: &self.connection,
            stage: self.stage,
            paused: self.paused,
            tasks: self.tasks.as_ref(),
        };
        terminal.draw(|frame| view.draw(frame)).map(|_| ())
    }

    /// Draws until the user ends it.
    fn watch(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        interval: Duration,
    ) -> io::Result<()> {
        let mut next = Instant::now() + interval;
        let mut asked: Option<Instant> = None;
        loop {
            self.draw(terminal)?;
            // Wait for a key until the next update is due, or has come. A resize ends the wait as
            // well, and the screen is drawn anew.
            let wait = match asked {
                Some(_) => LOOK,
                None => next.saturating_duration_since(Instant::now()),
            };
            if event::poll(wait)? {
                let had_tasks = self.tasks.is_some();
                if self.ends_at(&event::read()?) {
                    return Ok(());
                }
                // The tasks are to come at once.
                if asked.is_none() && self.tasks.is_some() && !had_tasks {
                    self.fetcher.ask(true);
                    asked = Some(Instant::now());
                }
            } else if let Some(since) = asked {
                if let Some(answer) = self.fetcher.try_answer() {
                    self.take(answer);
                    asked = None;
                    next = Instant::now() + interval;
                } else if since.elapsed() > LIMIT + LOOK {
                    // The thread still looks up the name. Its answer comes later.
                    self.take(Err(format!("{} is still looked up", self.site)));
                }
            } else if self.paused {
                next = Instant::now() + interval;
            } else {
                self.fetcher.ask(self.tasks.is_some());
                asked = Some(Instant::now());
            }
        }
    }

    /// Handles a key. Returns true if it ends the program.
    fn ends_at(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        if key.kind != KeyEventKind::Press {
            return false;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('t') => self.switch_tasks(),
            KeyCode::Char('l') => self.stage = self.stage.next(),
            _ => {}
        }
        false
    }

    /// Prints the screen as text.
    fn print(&self, columns: u16) {
        let mut terminal =
            Terminal::new(TestBackend::new(columns, ROWS)).unwrap_or_else(|never| match never {});
        self.draw(&mut terminal)
            .unwrap_or_else(|never| match never {});
        let mut text = String::new();
        for row in terminal.backend().buffer().content().chunks(columns.into()) {
            let line: String = row.iter().map(|cell| cell.symbol()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        say::print(text);
    }
}

#[cfg(test)]
mod tests;

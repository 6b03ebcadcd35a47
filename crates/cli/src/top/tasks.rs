//! The list of tasks, which takes the place of the workers and stalls.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::{Color, Style},
    widgets::{Row, Table},
};
use serde::Deserialize;

use super::{
    bounds::{AtMost, Text},
    screen::{dim, short},
};
use crate::{figures::scaled, names::short_name};

/// Where an inspector has the tasks, those that were busy for longest first.
pub(super) const PATH: &str = "/tasks.json?order=busy";

/// The most tasks, and the most that a task waits for: many times what an inspector sends.
const TASKS: usize = 10_000;
const WAITS: usize = 100;

/// The tasks, as the inspector sends them.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Tasks {
    alive: u64,
    tasks: AtMost<Task, TASKS>,
}

#[derive(Clone, Debug, Deserialize)]
struct Task {
    id: Text,
    name: Text,
    spawned: Text,
    state: Text,
    worker: Option<usize>,
    waits_for: AtMost<Text, WAITS>,
    polls: u64,
    busy_ms: f64,
}

impl Tasks {
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let head = Row::new([
            "TASK",
            "STATE",
            "BUSY",
            "POLLS",
            "NAME, SPAWNED AT, WAITS FOR",
        ]);
        // The last row says how many more there are.
        let room = usize::from(area.height.saturating_sub(1));
        let all = usize::try_from(self.alive).unwrap_or(usize::MAX);
        let fits = self.tasks.len().min(room);
        let shown = if all > fits && fits == room {
            room.saturating_sub(1)
        } else {
            fits
        };
        let mut rows: Vec<_> = self.tasks.iter().take(shown).map(Task::row).collect();
        if all > shown {
            let more = short((all - shown) as u64);
            rows.push(Row::new(["and", &more, "more"].map(str::to_owned)).style(dim()));
        }
        let widths = [7, 9, 8, 6].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(20)]);
        let table = Table::new(rows, widths).header(head.style(dim()));
        frame.render_widget(table.column_spacing(1), area);
    }
}

impl Task {
    fn row(&self) -> Row<'static> {
        let style = match &*self.state {
            "running" => Style::new().fg(Color::Green),
            _ => Style::new(),
        };
        let state = match self.worker {
            Some(worker) if &*self.state == "running" => format!("running {worker}"),
            _ => self.state.to_string(),
        };
        // The end of a path tells more than its beginning.
        let file = self.spawned.rsplit('/').next().unwrap_or_default();
        let mut what = format!("{} {file}", short_name(&self.name));
        for wait in self.waits_for.iter() {
            what = format!("{what}, {}", &**wait);
        }
        let busy = match self.busy_ms {
            ms if ms > 0.0 => scaled(ms * 1e6),
            _ => "0".to_owned(),
        };
        Row::new([self.id.to_string(), state, busy, short(self.polls), what]).style(style)
    }
}

//! The screen of `tourbillon top`: totals, lateness over time, and workers and stalls, or tasks.
//!
//! It fits a terminal of 80 by 24 characters. A higher one shows more workers and stalls.

use std::{borrow::Cow, time::Duration};

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Sparkline, Table},
};

use super::{
    bounds::sum,
    fetch::Site,
    sample::{History, Job, Snapshot, Stage, Stalls, Worker},
    tasks::Tasks,
};
use crate::{
    figures::{grouped, scaled},
    names::{short_name, short_names},
};

/// Whether the last update has come.
pub(super) enum Connection {
    Live,
    /// It has not, for this reason.
    Lost(String),
}

/// Lateness from which on a figure is marked, and marked more, in ns. The live page has the same
/// two.
const WARN: u64 = 1_000_000;
const ALARM: u64 = 10_000_000;

/// The smallest lateness in the drawing, in ns, as a power of two: about 1 µs.
const LEAST: u32 = 10;
/// Height of the drawing for one doubling of the lateness.
const STEP: u64 = 8;

/// All that is drawn.
pub(super) struct View<'a> {
    pub(super) site: &'a Site,
    pub(super) history: &'a History,
    pub(super) connection: &'a Connection,
    pub(super) stage: Stage,
    pub(super) paused: bool,
    /// The tasks, if they are shown.
    pub(super) tasks: Option<&'a Tasks>,
}

impl View<'_> {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let Some(last) = self.history.last() else {
            return;
        };
        let stalls = last.stalls_by_job();
        let mut stalls = stall_rows(last, &stalls);
        // They get at most six lines, and the workers what is left. Or the tasks get it all.
        let mut lines = 0;
        stalls.retain(|(_, height)| {
            lines += height;
            self.tasks.is_none() && lines <= 6
        });
        let stall_lines: u16 = stalls.iter().map(|(_, height)| height).sum();
        let [head, totals, _, title, chart, _, workers, stalled, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(if last.groups.is_empty() { 4 } else { 5 }),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(4),
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(if stall_lines > 0 { stall_lines + 2 } else { 0 }),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, head, last);
        self.draw_totals(frame, totals, last);
        self.draw_chart(frame, title, chart);
        match self.tasks {
            None => self.draw_workers(frame, workers, last),
            Some(tasks) => tasks.draw(frame, workers),
        }
        draw_stalls(frame, stalled, stalls);
        self.draw_keys(frame, keys);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, last: &Snapshot) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let uptime = Duration::from_secs((last.uptime_ms / 1e3) as u64);
        let left = Line::from(vec![
            Span::styled(format!("tourbillon {}", &*last.tourbillon), bold),
            Span::raw(format!(
                "  pid {}  up {}  workers {}",
                last.pid,
                humantime::format_duration(uptime),
                last.workers.len()
            )),
        ]);
        let (state, style) = match (self.connection, self.paused) {
            (Connection::Lost(_), _) => ("lost", Style::new().fg(Color::Red)),
            (Connection::Live, true) => ("paused", Style::new().fg(Color::Yellow)),
            (Connection::Live, false) => ("live", Style::new().fg(Color::Green)),
        };
        let right = Line::from(vec![
            Span::raw(format!("{} ", self.site)),
            Span::styled(state, style.add_modifier(Modifier::BOLD)),
        ]);
        // On a narrow screen the left part is cut off.
        let width = u16::try_from(right.width() + 1).unwrap_or(u16::MAX);
        let [begin, end] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(area);
        frame.render_widget(Paragraph::new(left), begin);
        frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), end);
    }

    fn draw_totals(&self, frame: &mut Frame<'_>, area: Rect, last: &Snapshot) {
        let rate = |counters: &[&str]| per_second(self.history.rate(None, counters));
        let pending = sum(last.workers.iter().map(|worker| worker.pending));
        let stalls = last.total("stalls");
        let stalled = match stalls {
            0 => Style::new(),
            _ => Style::new().fg(Color::Red),
        };
        let late = self.history.lateness(None, self.stage);
        let mut lateness = vec![label(match self.stage {
            Stage::Wake => "taken late",
            Stage::Queue => "queued for",
            Stage::Rescued => "rescued",
        })];
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            let bound = last.bound(&late, quantile);
            lateness.push(Span::raw(format!("{name} ")));
            lateness.push(Span::styled(format!("{:<9} ", time(bound)), level(bound)));
        }
        lateness.push(Span::raw(format!("of {}", short(late.timers()))));
        let mut lines = vec![
            Line::from(vec![
                label("timers"),
                figure("pending", &short(pending)),
                figure("armed/s", &rate(&["armed_local", "armed_remote"])),
                figure("fired/s", &rate(&["fired"])),
                figure("cancelled/s", &rate(&["cancelled"])),
            ]),
            Line::from(vec![
                label("tasks"),
                figure("alive", &short(last.alive_tasks)),
                figure("polls/s", &rate(&["polls"])),
                figure("global", &short(last.global_queue_depth)),
                // A recurring timer fires once, after its last run. This counts each run.
                figure("callbacks/s", &rate(&["callbacks"])),
            ]),
            Line::from(vec![
                label("stuck"),
                Span::styled(
                    format!("{:<17}", format!("stalls {}", short(stalls))),
                    stalled,
                ),
                figure("rescued/s", &rate(&["rescued_timers", "rescued_tasks"])),
                figure("panics", &short(last.total("panics"))),
            ]),
            Line::from(lateness),
        ];
        if !last.groups.is_empty() {
            lines.push(self.groups(last));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// Returns what each group of tasks takes, as a part of a core, and how many jobs of it wait.
    fn groups(&self, last: &Snapshot) -> Line<'static> {
        let groups = last.groups.iter().enumerate().map(|(index, group)| {
            let (part, queued) = (100.0 * self.history.cores_of(index), short(group.queued));
            Span::raw(format!("{} {part:.0} %, {queued} wait   ", &*group.name))
        });
        Line::from_iter([label("groups")].into_iter().chain(groups))
    }

    /// Draws the p99 between each two updates, on a log scale.
    fn draw_chart(&self, frame: &mut Frame<'_>, title: Rect, area: Rect) {
        let high = self.history.high(self.stage);
        let top = high.iter().flatten().max().copied();
        let text = format!(
            "p99 of {}-late timers, an update per column, {:.0} s; at most {}",
            self.stage.name(),
            self.history.seconds(),
            time(top),
        );
        frame.render_widget(Paragraph::new(text).style(dim()), title);
        // The newest columns, if not all fit. One with no timers stays empty.
        let fits = usize::from(area.width);
        let newest = &high[high.len().saturating_sub(fits)..];
        let heights: Vec<u64> = newest.iter().map(|bound| bound.map_or(0, height)).collect();
        let worst = newest.iter().flatten().max().copied();
        let chart = Sparkline::default()
            .data(&heights)
            // The scale does not follow the data: its top is about 1 s.
            .max(height(1 << 30))
            .style(level(worst));
        frame.render_widget(chart, area);
    }

    fn draw_workers(&self, frame: &mut Frame<'_>, area: Rect, last: &Snapshot) {
        let head = Row::new([
            "WORKER", "IS", "BUSY", "QUEUE", "PENDING", "FIRED/S", "P99", "JOB",
        ])
        .style(dim());
        let room = usize::from(area.height.saturating_sub(1));
        let all = last.workers.len();
        // If not all fit, the last row says how many more there are.
        let shown = if all > room {
            room.saturating_sub(1)
        } else {
            all
        };
        let mut rows: Vec<Row<'_>> = (0..shown).map(|index| self.worker(index, last)).collect();
        if shown < all {
            rows.push(Row::new([format!("+{}", all - shown)]).style(dim()));
        }
        let widths = [6, 8, 5, 6, 8, 8, 8].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(4)]);
        frame.render_widget(
            Table::new(rows, widths).header(head).column_spacing(1),
            area,
        );
    }

    fn worker<'w>(&self, index: usize, last: &'w Snapshot) -> Row<'w> {
        let worker: &Worker = &last.workers[index];
        let late = self.history.lateness(Some(index), self.stage);
        let high = last.bound(&late, 0.99);
        let busy = self.history.rate(Some(index), &["busy_ns"]) / 1e7;
        let name = |job: &'w Job| {
            let name = job.label.as_deref().unwrap_or(short_name(&job.name));
            match &job.group {
                Some(group) => format!("{}: {name}", &**group).into(),
                None => Cow::from(name),
            }
        };
        let job = worker.job.as_ref().map_or(Cow::from(""), name);
        let plain = |text: String| Line::from(text);
        Row::new([
            plain(worker.id.to_string()),
            Line::from(&*worker.activity),
            plain(format!("{:.0} %", busy.min(100.0))),
            plain(short(worker.queue_depth)),
            plain(short(worker.pending)),
            plain(per_second(self.history.rate(Some(index), &["fired"]))),
            Line::styled(time(high), level(high)),
            Line::from(job),
        ])
    }

    fn draw_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        let line = match self.connection {
            Connection::Lost(error) => Line::styled(
                format!("{error}; trying again"),
                Style::new().fg(Color::Red),
            ),
            Connection::Live => {
                let keys = "q quit   p pause   l lateness: wake, queue, rescued   t tasks";
                Line::styled(keys, dim())
            }
        };
        frame.render_widget(Paragraph::new(line), area);
    }
}

/// Returns a row for each job that stalled, and its height: with a second line if there is a stack.
fn stall_rows(last: &Snapshot, stalls: &[Stalls<'_>]) -> Vec<(Row<'static>, u16)> {
    let row = |stalls: &Stalls<'_>| {
        let mut job = match stalls.label {
            // The job is the server's, and the same for all handlers.
            Some(label) => format!("{label} in {}", short_name(stalls.job)),
            None => format!("{} {}", stalls.job, stalls.spawned),
        };
        if let Some(group) = stalls.group {
            job = format!("{group}: {job}");
        }
        let mut height = 1;
        if let Some((line, times, all)) = last.line_of(stalls) {
            job += &format!("\n{times} of {all}: {}", short_names(line));
            height = 2;
        }
        let (times, longest) = (stalls.times.to_string(), scaled(stalls.longest_ms * 1e6));
        (Row::new([times, longest, job]).height(height), height)
    };
    stalls.iter().map(row).collect()
}

fn draw_stalls(frame: &mut Frame<'_>, area: Rect, stalls: Vec<(Row<'_>, u16)>) {
    let head = Row::new(["STALLS", "LONGEST", "JOB"]).style(dim());
    let rows = stalls.into_iter().map(|(row, _)| row);
    let widths = [
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Min(20),
    ];
    frame.render_widget(
        Table::new(rows, widths).header(head).column_spacing(1),
        area,
    );
}

/// Returns the height of a lateness in the drawing. It is at least one, so that it can be seen.
fn height(ns: u64) -> u64 {
    let doublings = (ns.max(1) as f64).log2() - f64::from(LEAST);
    (doublings * STEP as f64).max(1.0) as u64
}

fn label(text: &str) -> Span<'static> {
    Span::styled(
        format!("{text:<11}"),
        Style::new().add_modifier(Modifier::BOLD),
    )
}

fn figure(name: &str, value: &str) -> Span<'static> {
    Span::raw(format!("{:<17}", format!("{name} {value}")))
}

/// Formats a count in at most six characters.
pub(super) fn short(count: u64) -> String {
    match count {
        0..100_000 => grouped(count),
        100_000..10_000_000 => format!("{} k", grouped(count / 1_000)),
        _ => format!("{} M", grouped(count / 1_000_000)),
    }
}

/// Formats a rate.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        rate => short(rate.round() as u64),
    }
}

/// Formats a time in ns, or its absence.
fn time(ns: Option<u64>) -> String {
    ns.map_or("–".to_owned(), |ns| scaled(ns as f64))
}

fn level(ns: Option<u64>) -> Style {
    match ns {
        Some(ALARM..) => Style::new().fg(Color::Red),
        Some(WARN..) => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

pub(super) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

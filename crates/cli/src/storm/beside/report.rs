//! Two runtimes side by side.

use std::{fmt, process::ExitCode};

use serde_json::{Map, Value, json};

use super::{
    System,
    turn::{Sleeps, Turn},
};
use crate::{
    disturbance::Disturbance,
    figures::{grouped, rounded, scaled},
};

/// The end of `storm --help`, about comparisons.
pub(in super::super) const HELP: &str = "\
Rows of a comparison (--beside), of which less is better:
  lateness            time from a deadline to the next step of the task: p50, p99, p99.9, max
  CPU to arm one      CPU time of the process, from the first spawn until all sleeps are armed,
                      divided by their number
  CPU to fire one     the same, from then until all have ended
  CPU in all          both times, of all sleeps of a turn
  memory of one       growth of the process by the tasks that sleep, divided by their number
  throttled periods   periods of a CPU quota in which the kernel stopped the process, in all of a
                      turn; without any on either side there is no such row
Each column has the median of the turns, and behind it the least and the most. The last column
names the runtime whose median is better, and by which factor; with a `?` behind it, the ranges
overlap, and more turns may say something else. Such factors are rounded in the peer's favour.
Options of a comparison: --rate or --timers (sleeps of each turn), --spread [default: 1s],
--lead [default: 500ms, plus 1.5us per sleep; doubled if that is too short], --turns,
--workers, --seed, --grace, --format, and --store, --exact, --budget, --record and
--record-events for Tourbillon. A comparison writes no trace.";

/// One figure of the comparison.
struct Row {
    name: &'static str,
    /// The name in JSON, with the unit.
    key: &'static str,
    unit: Unit,
    /// Returns the figure of a turn, of which this is the number of sleeps.
    of: fn(&Turn, f64) -> f64,
}

/// The unit of a figure.
enum Unit {
    /// A time, of which a unit has this many ns.
    Time(f64),
    Bytes,
    Count,
}

const ROWS: [Row; 9] = [
    Row {
        name: "lateness p50",
        key: "lateness_p50_us",
        unit: Unit::Time(1e3),
        of: |turn, _| turn.lateness_us.p50,
    },
    Row {
        name: "lateness p99",
        key: "lateness_p99_us",
        unit: Unit::Time(1e3),
        of: |turn, _| turn.lateness_us.p99,
    },
    Row {
        name: "lateness p99.9",
        key: "lateness_p999_us",
        unit: Unit::Time(1e3),
        of: |turn, _| turn.lateness_us.p999,
    },
    Row {
        name: "lateness max",
        key: "lateness_max_us",
        unit: Unit::Time(1e3),
        of: |turn, _| turn.lateness_us.max,
    },
    Row {
        name: "CPU to arm one",
        key: "arming_cpu_ns",
        unit: Unit::Time(1.0),
        of: |turn, count| turn.arming_cpu * 1e9 / count,
    },
    Row {
        name: "CPU to fire one",
        key: "firing_cpu_ns",
        unit: Unit::Time(1.0),
        of: |turn, count| turn.firing_cpu * 1e9 / count,
    },
    Row {
        name: "CPU in all",
        key: "cpu_seconds",
        unit: Unit::Time(1e9),
        of: |turn, _| turn.arming_cpu + turn.firing_cpu,
    },
    Row {
        name: "memory of one",
        key: "bytes_per_timer",
        unit: Unit::Bytes,
        of: |turn, count| turn.grown / count,
    },
    Row {
        name: "throttled periods",
        key: "throttled_periods",
        unit: Unit::Count,
        of: |turn, _| turn.throttled as f64,
    },
];

impl Unit {
    fn show(&self, value: f64) -> String {
        match self {
            Unit::Time(nanos) => scaled(value * nanos),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Count => format!("{value:.0}"),
        }
    }

    /// Returns a range. Both ends have their unit, unless it is one.
    fn show_range(&self, span: Span) -> String {
        let (least, most) = (self.show(span.least), self.show(span.most));
        match (least.split_once(' '), most.split_once(' ')) {
            (Some((number, unit)), Some((_, other))) if unit == other => {
                format!("{number}–{most}")
            }
            _ => format!("{least}–{most}"),
        }
    }
}

/// A figure of several turns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    least: f64,
    median: f64,
    most: f64,
}

impl Span {
    /// Returns the span of at least one value.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self {
            least: values[0],
            median: f64::midpoint(values[last / 2], values[values.len() / 2]),
            most: values[last],
        }
    }

    fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }

    fn to_json(self) -> Value {
        json!({
            "least": rounded(self.least),
            "median": rounded(self.median),
            "most": rounded(self.most),
        })
    }
}

/// The turns at one rate.
#[derive(Debug)]
pub(super) struct Rate {
    systems: [System; 2],
    pub(super) sleeps: Sleeps,
    turns: [Vec<Turn>; 2],
}

impl Rate {
    pub(super) fn new(systems: [System; 2], sleeps: Sleeps) -> Self {
        Self {
            systems,
            sleeps,
            turns: [Vec::new(), Vec::new()],
        }
    }

    /// Adds a turn of the system in this place.
    pub(super) fn add(&mut self, place: usize, turn: Turn) {
        self.turns[place].push(turn);
    }

    fn spans(&self, row: &Row) -> [Span; 2] {
        let count = f64::from(self.sleeps.count);
        let values = |turns: &Vec<Turn>| turns.iter().map(|turn| (row.of)(turn, count)).collect();
        self.turns.each_ref().map(|turns| Span::of(values(turns)))
    }

    /// Returns the system whose median is better, or `None` if they are equal.
    fn better(&self, [first, second]: [Span; 2]) -> Option<usize> {
        match first.median.total_cmp(&second.median) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Greater => Some(1),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// Returns the last column of the table.
    fn verdict(&self, spans: [Span; 2]) -> String {
        let mark = if spans[0].overlaps(spans[1]) { "?" } else { "" };
        let Some(better) = self.better(spans) else {
            return format!("equal{mark}");
        };
        let system = self.systems[better];
        let (least, most) = (spans[better].median, spans[1 - better].median);
        // Without a positive value there is no factor.
        if least <= 0.0 {
            return format!("{system}{mark}");
        }
        let times = factor(most / least, system != System::Tourbillon);
        format!("{system} {times}×{mark}")
    }

    fn per_second(&self) -> u64 {
        let Sleeps { count, spread, .. } = self.sleeps;
        (f64::from(count) * 1e9 / spread as f64).round() as u64
    }

    /// Returns the numbers of sleeps of all turns that did not end, and that ended early.
    fn wrong(&self, place: usize) -> [u64; 2] {
        let turns = &self.turns[place];
        let lost = turns.iter().map(|turn| self.sleeps.count - turn.ended);
        let early = turns.iter().map(|turn| turn.early);
        [lost.map(u64::from).sum(), early.map(u64::from).sum()]
    }

    fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("rate".into(), self.per_second().into());
        all.insert("timers".into(), self.sleeps.count.into());
        all.insert("spread_seconds".into(), seconds(self.sleeps.spread));
        all.insert("lead_seconds".into(), seconds(self.sleeps.lead));
        for (key, part) in [("lost", 0), ("early", 1)] {
            all.insert(
                key.into(),
                self.by_system(|place| self.wrong(place)[part].into()),
            );
        }
        for row in &ROWS {
            let spans = self.spans(row);
            let mut value = self.by_system(|place| spans[place].to_json());
            value["better"] = self
                .better(spans)
                .map(|it| self.systems[it])
                .map_or_else(|| Value::Null, |system| system.to_string().into());
            value["overlap"] = spans[0].overlaps(spans[1]).into();
            all.insert(row.key.into(), value);
        }
        Value::Object(all)
    }

    fn by_system(&self, value: impl Fn(usize) -> Value) -> Value {
        let values = (0..2).map(|place| (self.systems[place].to_string(), value(place)));
        Value::Object(values.collect())
    }
}

fn seconds(nanos: u64) -> Value {
    (nanos as f64 / 1e9).into()
}

/// Shows a factor with about three digits, rounded up or down.
fn factor(factor: f64, up: bool) -> String {
    let (decimals, scale) = match factor {
        f if f < 10.0 => (2, 100.0),
        f if f < 100.0 => (1, 10.0),
        _ => (0, 1.0),
    };
    let scaled = factor * scale;
    let whole = if up { scaled.ceil() } else { scaled.floor() };
    format!("{:.decimals$}", whole / scale)
}

/// The comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    systems: [System; 2],
    /// What Tourbillon's options say about waking for timers, if they say something.
    waking: Option<String>,
    turns: u32,
    workers: usize,
    rates: Vec<Rate>,
    disturbance: Disturbance,
}

impl Comparison {
    pub(super) fn new(
        systems: [System; 2],
        waking: Option<String>,
        turns: u32,
        workers: usize,
        rates: Vec<Rate>,
        disturbance: Disturbance,
    ) -> Self {
        Self {
            systems,
            waking,
            turns,
            workers,
            rates,
            disturbance,
        }
    }

    /// Returns the headings of the columns: each system, with the option that Tourbillon has.
    fn titles(&self) -> [String; 2] {
        self.systems.map(|system| match &self.waking {
            Some(waking) if system == System::Tourbillon => format!("{system} ({waking})"),
            _ => system.to_string(),
        })
    }

    /// Returns the comparison as one line of JSON.
    pub(super) fn to_json(&self) -> String {
        json!({
            "beside": self.systems[1].to_string(),
            "waking": self.waking,
            "workers": self.workers,
            "turns": self.turns,
            "rates": self.rates.iter().map(Rate::to_json).collect::<Vec<_>>(),
            "stolen": rounded(self.disturbance.stolen()),
            "other_load": rounded(self.disturbance.other_load()),
            "preempted": self.disturbance.preempted,
            "disturbed": self.disturbance.is_disturbed(),
        })
        .to_string()
    }

    /// Returns failure if a sleep of either runtime did not end, or ended early.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.failures().is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for rate in &self.rates {
            for (place, system) in self.systems.iter().enumerate() {
                for (count, what) in rate.wrong(place).iter().zip(["lost", "early"]) {
                    if *count > 0 {
                        let (count, rate) = (grouped(*count), grouped(rate.per_second()));
                        failures.push(format!("{count} {what} on {system} at {rate} a second"));
                    }
                }
            }
        }
        failures
    }

    /// Returns the last line of the table.
    fn verdict(&self) -> String {
        let failures = self.failures();
        if failures.is_empty() {
            return "All sleeps ended on both. None ended early.".to_owned();
        }
        format!("FAILED: {}.", failures.join(", "))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, theirs] = self.titles();
        let (workers, turns) = (self.workers, self.turns);
        let spread = self.rates.first().map_or(0, |rate| rate.sleeps.spread);
        let spread = scaled(spread as f64);
        writeln!(
            f,
            "{ours} beside {theirs}, workers: {workers} each, sleeps over {spread}, \
             median (least–most) of {turns} each\n"
        )?;
        let mut is_any_open = false;
        for rate in &self.rates {
            let title = format!("{} a second", grouped(rate.per_second()));
            writeln!(f, "{title:<21}{ours:<28}{theirs:<28}better")?;
            for row in &ROWS {
                let spans = rate.spans(row);
                let is_idle = spans.iter().all(|span| span.most == 0.0);
                if matches!(row.unit, Unit::Count) && is_idle {
                    continue;
                }
                is_any_open |= spans[0].overlaps(spans[1]);
                write!(f, "{:<20}", row.name)?;
                for span in spans {
                    let range = row.unit.show_range(span);
                    write!(
                        f,
                        "{:>8} {:<19}",
                        row.unit.show(span.median),
                        format!("({range})")
                    )?;
                }
                writeln!(f, " {}", rate.verdict(spans))?;
            }
            writeln!(f)?;
        }
        if is_any_open {
            writeln!(
                f,
                "?: the ranges overlap; more --turns may say something else"
            )?;
        }
        writeln!(f, "{}\n\n{}", self.disturbance, self.verdict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Lateness;

    fn turn(micros: f64, cpu: f64) -> Turn {
        Turn {
            ended: 1_000,
            early: 0,
            lateness_us: Lateness {
                p50: micros,
                p99: micros,
                p999: micros,
                max: micros,
            },
            arming_cpu: cpu,
            firing_cpu: cpu,
            grown: 200_000.0,
            throttled: 0,
        }
    }

    fn comparison(turns: [Vec<Turn>; 2]) -> Comparison {
        let sleeps = Sleeps {
            workers: 2,
            count: 1_000,
            lead: 1_000_000,
            spread: 500_000_000,
            grace: 0,
            seed: 1,
        };
        let systems = [System::Tourbillon, System::Tokio];
        let mut rate = Rate::new(systems, sleeps);
        rate.turns = turns;
        Comparison::new(systems, None, 3, 2, vec![rate], Disturbance::default())
    }

    #[test]
    fn each_row_names_the_better_one() {
        let ours = vec![turn(1.0, 0.5), turn(2.0, 0.2), turn(3.0, 0.6)];
        let theirs = vec![turn(1_100.0, 0.1), turn(1_000.0, 0.3), turn(1_200.0, 0.2)];
        let comparison = comparison([ours, theirs]);
        let text = comparison.to_string();
        let ends = |row: &str, end: &str| {
            let line = text.lines().find(|line| line.starts_with(row)).unwrap();
            assert!(line.ends_with(end), "{text}");
            assert!(line.chars().count() <= 100, "{text}");
        };
        ends("2,000 a second", "better");
        ends(
            "lateness p50",
            "2.00 µs (1.00–3.00 µs)      1.10 ms (1.00–1.20 ms)      tourbillon 550×",
        );
        ends("CPU to arm one", " tokio 2.50×?");
        ends("memory of one", " equal?");
        assert!(text.contains("\n?: the ranges overlap"));
        assert!(text.ends_with("\n\nAll sleeps ended on both. None ended early.\n"));
        let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
        let rate = &json["rates"][0];
        assert_eq!(rate["rate"], 2_000);
        assert_eq!(rate["lateness_p50_us"]["tokio"]["median"], 1_100.0);
        assert_eq!(rate["lateness_p50_us"]["better"], "tourbillon");
        assert_eq!(rate["arming_cpu_ns"]["overlap"], true);
        assert_eq!(rate["bytes_per_timer"]["better"], Value::Null);
    }

    #[test]
    fn throttled_periods_have_a_row_if_there_are_any() {
        let mut turns = [vec![turn(1.0, 1.0)], vec![turn(1.0, 1.0)]];
        let row = |turns: &[Vec<Turn>; 2]| {
            let text = comparison(turns.clone()).to_string();
            let mut lines = text.lines().map(str::to_owned);
            lines.find(|line| line.starts_with("throttled"))
        };
        assert_eq!(row(&turns), None);
        turns[1][0].throttled = 30;
        let row = row(&turns).unwrap();
        assert!(
            row.contains("0 (0–0)") && row.contains("30 (30–30)"),
            "{row}"
        );
        assert!(row.ends_with(" tourbillon"), "{row}");
    }

    #[test]
    fn the_headings_name_the_option_of_our_runtime() {
        let mut comparison = comparison([vec![turn(1.0, 1.0)], vec![turn(1.0, 1.0)]]);
        for (waking, title) in [
            (None, "tourbillon"),
            (Some("exact"), "tourbillon (exact)"),
            (Some("budget 0.1"), "tourbillon (budget 0.1)"),
        ] {
            comparison.waking = waking.map(str::to_owned);
            let text = comparison.to_string();
            assert!(
                text.starts_with(&format!("{title} beside tokio, ")),
                "{text}"
            );
            let columns = format!("{:<21}{title:<28}{:<28}better", "2,000 a second", "tokio");
            assert!(text.lines().any(|line| line == columns), "{text}");
            let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
            assert_eq!(json["waking"].as_str(), waking);
        }
    }

    #[test]
    fn lost_and_early_sleeps_are_failures_of_either() {
        let mut wrong = [turn(1.0, 1.0), turn(1.0, 1.0)];
        (wrong[0].ended, wrong[1].early) = (990, 3);
        let [ours, theirs] = wrong.map(|turn| vec![turn]);
        let comparison = comparison([ours, theirs]);
        assert_eq!(comparison.exit_code(), ExitCode::FAILURE);
        let text = "FAILED: 10 lost on tourbillon at 2,000 a second, \
            3 early on tokio at 2,000 a second.";
        assert_eq!(comparison.verdict(), text);
    }

    #[test]
    fn factors_are_rounded_as_told() {
        for (value, down, up) in [
            (1.001, "1.00", "1.01"),
            (6.812, "6.81", "6.82"),
            (557.9, "557", "558"),
            (42.0, "42.0", "42.0"),
        ] {
            assert_eq!(
                (factor(value, false), factor(value, true)),
                (down.into(), up.into())
            );
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let span = Span::of(vec![4.0, 1.0, 3.0, 2.0]);
        let (least, median, most) = (1.0, 2.5, 4.0);
        assert_eq!(
            span,
            Span {
                least,
                median,
                most
            }
        );
        assert!(!span.overlaps(Span::of(vec![4.5])) && span.overlaps(Span::of(vec![4.0])));
    }
}

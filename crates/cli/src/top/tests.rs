//! Rates, quantiles and keys, over snapshots that are made up.

use std::{io::Write as _, net::TcpListener, thread};

use ratatui::crossterm::event::KeyEvent;

use super::{sample::Snapshot, *};

/// A snapshot of one worker, `at` ms after the start.
fn snapshot(at: f64, instance: &str, fired: u64, buckets: &[(usize, u64)]) -> Snapshot {
    let late = serde_json::json!({ "buckets": buckets });
    let none = serde_json::json!({ "buckets": [] });
    let lateness = serde_json::json!({ "wake": late, "queue": none, "rescued": none });
    let no_lateness = serde_json::json!({ "wake": none, "queue": none, "rescued": none });
    let stall = |job: &str, ms: f64| {
        let at = "src/a.rs:1:2";
        serde_json::json!({ "job": job, "spawned": at, "elapsed_ms": ms })
    };
    let labelled = serde_json::json!({
        "label": "GET /report",
        "job": "web::connection::serve<u8>",
        "elapsed_ms": 9.0,
        "stacks": [0, 1, 1],
    });
    let unknown = serde_json::json!({ "job": null, "spawned": null, "elapsed_ms": 700.0 });
    let value = serde_json::json!({
        "tourbillon": "0.1.0", "pid": 7, "instance": instance, "at_ms": at, "uptime_ms": at,
        "workers": [{
            "id": 0, "activity": "firing", "job": { "name": "app::handlers::parse<u8>" },
            "counts": { "fired": fired, "callbacks": 3 * fired, "stalls": 3, "busy_ns": 0 },
            "pending": 12_345, "queue_depth": 0, "lateness": lateness,
        }],
        "helpers": { "counts": {}, "lateness": no_lateness },
        "global_queue_depth": 0, "alive_tasks": 2,
        "stalls": [
            stall("parse", 120.0),
            labelled,
            unknown,
            stall("render", 500.0),
            stall("parse", 110.0),
        ],
        "stacks": [
            ["shop::other at b.rs:1"],
            ["[futex]", "wait", "std::wait at m.rs:1", "shop::price::sum at a.rs:7", "shop::main"],
        ],
        "bounds_ns": [1_000, 2_000, 4_000, 20_000_000, null],
    });
    serde_json::from_value(value).unwrap()
}

fn history(snapshots: impl IntoIterator<Item = Snapshot>) -> History {
    let mut history = History::default();
    snapshots
        .into_iter()
        .for_each(|one| history.push(one, 1_000));
    history
}

fn top(history: History) -> Top {
    let site = Site::parse("127.0.0.1:9100").unwrap();
    Top {
        fetcher: Fetcher::start(site.clone()).unwrap(),
        site,
        history,
        connection: Connection::Live,
        stage: Stage::Wake,
        paused: false,
        tasks: None,
    }
}

/// The screen as lines of text.
fn screen(top: &Top, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    top.draw(&mut terminal).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(columns.into());
    lines
        .map(|line| line.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

#[test]
fn rates_and_quantiles_are_those_between_snapshots() {
    let history = history([
        snapshot(0.0, "a", 100, &[(0, 1_000)]),
        snapshot(500.0, "a", 150, &[(0, 1_090), (1, 9), (3, 1)]),
    ]);
    assert_eq!(history.rate(None, &["fired"]), 100.0);
    assert_eq!(history.rate(Some(0), &["fired"]), 100.0);
    assert_eq!(history.rate(None, &["no such counter"]), 0.0);
    let late = history.lateness(None, Stage::Wake);
    assert_eq!(late.timers(), 100);
    let last = history.last().unwrap();
    let bounds = [0.5, 0.99, 1.0].map(|quantile| last.bound(&late, quantile));
    assert_eq!(bounds, [Some(1_000), Some(2_000), Some(20_000_000)]);
    assert_eq!(history.high(Stage::Wake), [Some(2_000)]);
    let none = history.lateness(None, Stage::Queue);
    assert_eq!(last.bound(&none, 0.5), None);
}

#[test]
fn the_last_bucket_counts_with_the_bound_of_the_one_before() {
    let history = history([snapshot(0.0, "a", 0, &[]), snapshot(1.0, "a", 1, &[(4, 1)])]);
    let late = history.lateness(None, Stage::Wake);
    assert_eq!(history.last().unwrap().bound(&late, 0.5), Some(20_000_000));
}

#[test]
fn another_process_begins_the_history_anew() {
    let history = history([
        snapshot(0.0, "a", 100, &[(0, 50)]),
        snapshot(1_000.0, "b", 3, &[(0, 3)]),
    ]);
    assert_eq!(history.rate(None, &["fired"]), 0.0);
    assert_eq!(history.lateness(None, Stage::Wake).timers(), 0);
    assert_eq!(history.seconds(), 0.0);
}

#[test]
fn a_small_screen_has_all_parts() {
    let top = top(history([
        snapshot(0.0, "a", 0, &[]),
        snapshot(1_000.0, "a", 2_000, &[(0, 10), (3, 10)]),
    ]));
    let lines = screen(&top, 80, 24);
    let text = lines.join("\n");
    for part in [
        "tourbillon 0.1.0  pid 7",
        "127.0.0.1:9100 live",
        "pending 12,345",
        "fired/s 2,000",
        "callbacks/s 6,000",
        "p50 1.00 µs",
        "max 20.0 ms",
        "stalls 3",
        "handlers::parse",
        "q quit",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // One row for the two stalls of one job, with the longest. The newest job comes first.
    let row = |job: &str| lines.iter().position(|line| line.contains(job)).unwrap();
    let parse = row("parse src/a.rs:1:2");
    assert!(lines[parse].starts_with("2      120 ms"), "{text}");
    assert!(parse < row("render"));
    let labelled = row("GET /report in connection::serve");
    // The line of the user in the stack that was there most often.
    assert!(
        lines[labelled + 1].contains("2 of 3: price::sum at a.rs:7"),
        "{text}"
    );
    let unknown = row("one of several jobs, which were not timed");
    assert!(lines[unknown].starts_with("1      700 ms"), "{text}");
}

/// If each stall were compared with each job, twenty times as many would take 400 times as long.
#[test]
fn stalls_are_grouped_in_a_time_that_grows_with_their_number() {
    let of = |count: usize| {
        let stall = |job: usize| {
            let job = job.to_string();
            serde_json::json!({ "job": job, "spawned": null, "elapsed_ms": 1.0 })
        };
        let stalls: Vec<_> = (0..count).map(stall).collect();
        let mut snapshot = snapshot(0.0, "a", 0, &[]);
        snapshot.stalls = serde_json::from_value(stalls.into()).unwrap();
        (snapshot, count, Duration::MAX)
    };
    let mut sizes = [of(200), of(4_000)];
    // The least of many times is one in which the machine did nothing else.
    for _ in 0..100 {
        for (snapshot, count, least) in &mut sizes {
            let start = Instant::now();
            assert_eq!(snapshot.stalls_by_job().len(), *count);
            *least = start.elapsed().min(*least);
        }
    }
    let [few, many] = sizes.map(|(.., least)| least);
    assert!(many < 100 * few, "{few:?} and {many:?}");
}

#[test]
fn tasks_take_the_place_of_the_workers() {
    let task = |id: u32| {
        serde_json::json!({
            "id": id.to_string(), "name": "app::net::serve<u8>::{{closure}}",
            "spawned": "src/a.rs:1:2", "state": if id == 1 { "running" } else { "waiting" },
            "worker": (id == 1).then_some(0), "waits_for": ["descriptor 9 to be readable"],
            "polls": 12_345, "busy_ms": if id == 1 { 31.0 } else { 0.0 },
        })
    };
    let list = |count: u32, alive: u32| {
        let tasks: Vec<_> = (1..=count).map(task).collect();
        serde_json::from_value(serde_json::json!({ "alive": alive, "tasks": tasks })).unwrap()
    };
    let mut top = top(history([snapshot(0.0, "a", 0, &[])]));
    top.tasks = Some(list(2, 2));
    let text = screen(&top, 80, 24).join("\n");
    for part in [
        "1       running 0 31.0 ms  12,345 net::serve a.rs:1:2, descriptor 9 to be readab",
        "2       waiting   0        12,345 net::serve a.rs:1:2, descriptor 9 to be readab",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("WORKER") && !text.contains("more"), "{text}");
    // There are ten rows, the last of which counts the others.
    for (count, alive, more) in [
        (2, 9, "7"),
        (20, 20, "11"),
        (11, 12, "3"),
        (20, 3_000, "2,991"),
    ] {
        top.tasks = Some(list(count, alive));
        let text = screen(&top, 80, 24).join("\n");
        assert!(
            text.contains(&format!("and     {more:<9} more")),
            "{more}:\n{text}"
        );
    }
    for (columns, rows) in [(1, 1), (10, 3), (40, 10), (300, 100)] {
        screen(&top, columns, rows);
    }
}

#[test]
fn groups_have_a_line_with_their_parts_of_the_time() {
    let with_groups = |at: f64, busy: f64| {
        let mut one = snapshot(at, "a", 0, &[]);
        let groups = serde_json::json!([
            { "name": "default", "busy_ms": 0.0, "queued": 0 },
            { "name": "batch", "busy_ms": busy, "queued": 3 },
        ]);
        one.groups = serde_json::from_value(groups).unwrap();
        let stalls = [None, Some("batch")].map(|group| {
            serde_json::json!({ "job": "parse", "spawned": null, "group": group, "elapsed_ms": 1.0 })
        });
        one.stalls = serde_json::from_value(stalls.into()).unwrap();
        one
    };
    let top = top(history([
        with_groups(0.0, 100.0),
        with_groups(1_000.0, 1_600.0),
    ]));
    let lines = screen(&top, 80, 24);
    let line = lines
        .iter()
        .find(|line| line.starts_with("groups"))
        .unwrap();
    assert!(
        line.contains("default 0 %, 0 wait   batch 150 %, 3 wait"),
        "{line}"
    );
    // Stalls of one job in two groups are two rows.
    let has = |row: &str| lines.iter().any(|line| line.contains(row));
    assert!(
        has("1.00 ms  parse") && has("1.00 ms  batch: parse"),
        "{lines:?}"
    );
    // Programs without groups have no such line.
    let without = screen(&self::top(history([snapshot(0.0, "a", 0, &[])])), 80, 24);
    assert!(!without.iter().any(|line| line.starts_with("groups")));
}

#[test]
fn a_narrow_screen_cuts_the_left_part_of_its_head_off() {
    let top = top(history([snapshot(0.0, "a", 0, &[])]));
    let head = &screen(&top, 40, 24)[0];
    assert!(head.starts_with("tourbillon 0.1.0"), "{head}");
    assert!(head.ends_with(" 127.0.0.1:9100 live"), "{head}");
}

#[test]
fn a_screen_that_is_too_small_is_drawn_without_a_panic() {
    let top = top(history([snapshot(0.0, "a", 0, &[])]));
    for (columns, rows) in [(1, 1), (10, 3), (40, 10), (300, 100)] {
        screen(&top, columns, rows);
    }
}

#[test]
fn keys_pause_switch_the_stage_and_quit() {
    let mut top = top(history([snapshot(0.0, "a", 0, &[])]));
    let key = |code| Event::Key(KeyEvent::from(code));
    assert!(!top.ends_at(&key(KeyCode::Char('p'))));
    assert!(top.paused);
    let stages: Vec<_> = (0..3)
        .map(|_| {
            top.ends_at(&key(KeyCode::Char('l')));
            top.stage
        })
        .collect();
    assert_eq!(stages, [Stage::Queue, Stage::Rescued, Stage::Wake]);
    assert!(!top.ends_at(&Event::Resize(80, 24)));
    assert!(top.ends_at(&key(KeyCode::Char('q'))));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(top.ends_at(&Event::Key(control_c)));
}

#[test]
fn addresses_are_those_of_the_page() {
    for text in [
        "127.0.0.1:9100",
        "http://127.0.0.1:9100",
        "http://127.0.0.1:9100/",
    ] {
        assert_eq!(Site::parse(text).unwrap().to_string(), "127.0.0.1:9100");
    }
    assert_eq!(Site::parse("[::1]:80").unwrap().to_string(), "[::1]:80");
    for text in ["127.0.0.1", "host:port", "http://host:80/metrics", ""] {
        assert!(Site::parse(text).is_err(), "{text}");
    }
}

#[test]
fn an_answer_that_drips_ends_with_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // No single read takes long.
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let limit = Duration::from_millis(300);
    let error = site.update(false, limit).err().unwrap();
    assert!(error.contains("the answer takes too long"), "{error}");
}

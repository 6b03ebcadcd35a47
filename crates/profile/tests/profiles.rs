//! Programs whose hot functions are known, and what their profiles say.

use std::{
    collections::BTreeMap,
    fmt::Write,
    hint::black_box,
    io::Read,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime,
    metrics::Activity,
    runtime::Builder,
    task::{self, Label},
    time::sleep,
};
use tourbillon_profile::{Clock, Options, Profile, ProfileError, SpanLayer, profile};
use tourbillon_stacks::capture;
use tourbillon_support::eventually;
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// One profile of a process is taken at a time, so one test has its turn at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime(workers: usize) -> Runtime {
    Builder::new().worker_threads(workers).build().unwrap()
}

#[inline(never)]
fn sums_prices(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum, n| black_box(sum ^ n).wrapping_mul(31))
}

#[inline(never)]
fn hashes_names(rounds: u64) -> u64 {
    (0..rounds).fold(7, |sum, n| black_box(sum.rotate_left(5) ^ n))
}

/// Takes profiles, each longer than the one before, until `holds` for one: on a machine that is
/// busy with other things, a thread may have no processor for long.
fn profiled(runtime: &Runtime, clock: Clock, holds: impl Fn(&Profile) -> bool) -> Profile {
    for tenths in [5, 10, 20, 40, 80, 160, 320] {
        let options = Options::new(Duration::from_millis(100 * tenths)).clock(clock);
        let profile = runtime
            .block_on(profile(runtime.handle(), options))
            .unwrap();
        if holds(&profile) || tenths == 320 {
            return profile;
        }
    }
    unreachable!("the last one is returned")
}

/// Returns how many samples have a function whose name contains this text.
fn count(profile: &Profile, function: &str) -> u64 {
    let has = |name: &str| name.contains(function);
    let samples = profile.samples();
    let with = samples.filter(|it| it.frames().any(|frame| has(&frame.function)));
    with.map(|it| it.count()).sum()
}

#[test]
fn hot_functions_are_found_under_their_tasks() {
    let _turn = turn();
    let runtime = runtime(2);
    for (name, hot) in [
        ("sums", sums_prices as fn(u64) -> u64),
        ("hashes", hashes_names),
    ] {
        let label = Label::new(&format!("{name} labelled"));
        let hot = async move {
            loop {
                task::label(label);
                black_box(hot(20_000));
                task::yield_now().await;
            }
        };
        drop(
            task::Builder::new()
                .name(name)
                .spawn_on(hot, runtime.handle()),
        );
    }
    let enough = |profile: &Profile| {
        count(profile, "sums_prices") >= 20 && count(profile, "hashes_names") >= 20
    };
    let profile = profiled(&runtime, Clock::Cpu, enough);
    assert!(enough(&profile), "{}", profile.folded());
    for (task, own, other) in [
        ("sums", "sums_prices", "hashes_names"),
        ("hashes", "hashes_names", "sums_prices"),
    ] {
        let (mut of_own, mut of_other, mut all) = (0, 0, 0);
        for sampled in profile.samples() {
            let Some(job) = sampled.job().filter(|job| job.name == task) else {
                continue;
            };
            assert!(job.spawned.unwrap().file().ends_with("profiles.rs"));
            assert_eq!(sampled.activity(), Activity::Running);
            let has = |name| sampled.frames().any(|frame| frame.function.contains(name));
            all += sampled.count();
            of_own += u64::from(has(own)) * sampled.count();
            of_other += u64::from(has(other)) * sampled.count();
            // The functions of the runtime that polled the task are left out.
            let outermost = sampled.frames().last().unwrap();
            assert!(!outermost.function.contains("worker"), "{outermost}");
        }
        assert!(
            of_own * 10 >= all * 8,
            "{own}: {of_own} of {all}\n{}",
            profile.folded()
        );
        assert_eq!(of_other, 0, "{}", profile.folded());
    }
    // The folded lines say the same: task, label, functions, count.
    let folded = profile.folded();
    let mut sums = 0;
    for line in folded.lines() {
        let (names, count) = line.rsplit_once(' ').unwrap();
        let names: Vec<_> = names.split(';').collect();
        let count: u64 = count.parse().unwrap();
        if names[0].starts_with("task sums (spawned at ") && names.len() > 2 {
            sums += u64::from(names[1] == "sums labelled") * count;
        }
    }
    assert!(sums >= 20, "{folded}");
    let total: u64 = profile.samples().map(|it| it.count()).sum();
    assert_eq!(profile.num_samples(), total);
    // Debug information names files and lines, where the test has it.
    let frames = profile
        .samples()
        .flat_map(|it| it.frames().collect::<Vec<_>>());
    let mut found = frames.filter(|frame| frame.function.contains("sums_prices"));
    assert!(found.any(|it| {
        it.file
            .as_ref()
            .is_none_or(|file| file.ends_with("profiles.rs"))
    }));

    check_svg(&profile.svg());
    check_pprof(&profile);
}

fn check_svg(svg: &str) {
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("sums_prices") && svg.contains("task sums (spawned at "));
}

/// The fields of a message of protobuf: numbers, or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads a message without a schema.
fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn number(message: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = message[0];
            *message = &message[1..];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message);
        let field = match tag & 7 {
            0 => Field::Number(number(&mut message)),
            2 => {
                let length = number(&mut message) as usize;
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Field::Bytes(bytes)
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn parts<'a>(fields: &[(u64, Field<'a>)], of: u64) -> Vec<&'a [u8]> {
    let part = |(tag, field): &(u64, Field<'a>)| match field {
        Field::Bytes(bytes) if *tag == of => Some(*bytes),
        _ => None,
    };
    fields.iter().filter_map(part).collect()
}

fn value(fields: &[(u64, Field<'_>)], of: u64) -> u64 {
    let value = |(tag, field): &(u64, Field<'_>)| match field {
        Field::Number(number) if *tag == of => Some(*number),
        _ => None,
    };
    fields.iter().find_map(value).unwrap_or_default()
}

/// Checks the file as a reader of `profile.proto` sees it: each number leads somewhere, and the
/// functions are under their tasks.
fn check_pprof(profile: &Profile) {
    let mut message = Vec::new();
    let packed = profile.pprof();
    flate2::read::GzDecoder::new(&*packed)
        .read_to_end(&mut message)
        .unwrap();
    let message = fields(&message);
    let strings = parts(&message, 6);
    let string = |at: u64| std::str::from_utf8(strings[at as usize]).unwrap();
    assert_eq!(string(0), "");
    let functions: BTreeMap<u64, &str> = (parts(&message, 5).into_iter().map(fields))
        .map(|it| (value(&it, 1), string(value(&it, 2))))
        .collect();
    let locations: BTreeMap<u64, Vec<&str>> = (parts(&message, 4).into_iter().map(fields))
        .map(|it| {
            assert_eq!(value(&it, 2), 1);
            let lines = parts(&it, 4).into_iter().map(fields);
            (
                value(&it, 1),
                lines.map(|line| functions[&value(&line, 1)]).collect(),
            )
        })
        .collect();
    let packed_numbers = |bytes: &[u8]| {
        // Numbers one after another are as the fields of a message without tags.
        let (mut numbers, mut number, mut shift) = (Vec::new(), 0_u64, 0);
        for byte in bytes {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 {
                numbers.push(number);
                (number, shift) = (0, 0);
            }
        }
        numbers
    };
    let (mut total, mut found) = (0, 0);
    for sample in parts(&message, 2).into_iter().map(fields) {
        let values = packed_numbers(parts(&sample, 2)[0]);
        assert_eq!(values.len(), 2);
        total += values[0];
        let places = parts(&sample, 1).first().copied().unwrap_or_default();
        let names: Vec<_> = (packed_numbers(places).iter())
            .flat_map(|place| locations[place].clone())
            .collect();
        let labels: BTreeMap<_, _> = (parts(&sample, 3).into_iter().map(fields))
            .map(|it| (string(value(&it, 1)), string(value(&it, 2))))
            .collect();
        if names.iter().any(|name| name.contains("sums_prices")) {
            assert_eq!(labels["task"], "sums");
            assert!(labels["spawned"].contains("profiles.rs"));
            found += values[0];
        }
    }
    assert_eq!(total, profile.num_samples());
    assert_eq!(found, count(profile, "sums_prices"));
    let types = parts(&message, 1).into_iter().map(fields);
    let types: Vec<_> = types
        .map(|it| (string(value(&it, 1)), string(value(&it, 2))))
        .collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(value(&message, 12), profile.period().as_nanos() as u64);
}

#[test]
fn an_idle_runtime_has_almost_no_samples() {
    let _turn = turn();
    let runtime = runtime(2);
    runtime.spawn(async {
        loop {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let options = Options::new(Duration::from_secs(1));
    let profile = runtime
        .block_on(profile(runtime.handle(), options))
        .unwrap();
    // Two busy workers would have 198.
    assert!(profile.num_samples() < 20, "{}", profile.folded());
    assert!(profile.elapsed() >= Duration::from_secs(1));
    assert_eq!(profile.num_lost(), 0);
    // A picture without samples is one, too.
    assert!(profile.svg().contains("</svg>") && !profile.pprof().is_empty());
}

#[test]
fn elapsed_time_shows_where_a_job_blocks_and_that_workers_sleep() {
    #[inline(never)]
    fn blocks() {
        thread::sleep(Duration::from_millis(50));
    }
    let _turn = turn();
    let runtime = runtime(2);
    runtime.spawn(async {
        loop {
            blocks();
            task::yield_now().await;
        }
    });
    let is_parked = |profile: &Profile| {
        let parked = profile
            .samples()
            .filter(|it| it.activity() == Activity::Parked);
        parked.map(|it| it.count()).sum::<u64>() >= 10
    };
    let enough = |profile: &Profile| count(profile, "blocks") >= 20 && is_parked(profile);
    let profile = profiled(&runtime, Clock::Wall, enough);
    assert!(enough(&profile), "{}", profile.folded());
    assert!(profile.folded().contains("parked;"));
}

#[test]
fn one_profile_is_taken_at_a_time() {
    let _turn = turn();
    let (one, other) = (runtime(1), runtime(1));
    let long = profile(one.handle(), Duration::from_secs(3_600));
    for runtime in [&one, &other] {
        let second = profile(runtime.handle(), Duration::from_millis(10));
        let error = runtime.block_on(second).unwrap_err();
        assert!(matches!(error, ProfileError::Running), "{error}");
        assert!(error.to_string().contains("try again"));
    }
    // The profile ends when nobody waits for it, and then there may be another one.
    drop(long);
    eventually("the next profile", || {
        let next = profile(other.handle(), Duration::from_millis(10));
        other.block_on(next).is_ok()
    });
}

#[test]
fn samples_have_spans() {
    let _turn = turn();
    let runtime = runtime(1);
    let subscriber = tracing_subscriber::registry().with(SpanLayer);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    runtime.spawn(async {
        loop {
            let _outer = info_span!("checks out").entered();
            let _inner = info_span!("sums up").entered();
            black_box(sums_prices(20_000));
            drop((_inner, _outer));
            task::yield_now().await;
        }
    });
    let in_spans = |profile: &Profile| {
        let is_in = |names: Vec<_>| names == ["checks out", "sums up"];
        let samples = profile.samples();
        samples
            .filter(|it| is_in(it.spans().collect()))
            .map(|it| it.count())
            .sum::<u64>()
    };
    let profile = profiled(&runtime, Clock::Cpu, |profile| in_spans(profile) >= 20);
    assert!(in_spans(&profile) >= 20, "{}", profile.folded());
    assert!(profile.folded().contains(";checks out;sums up;"));
}

#[test]
fn a_program_that_allocates_is_sampled_thousands_of_times() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let _turn = turn();
    let runtime = runtime(2);
    for _ in 0..4 {
        runtime.spawn(async {
            let mut kept = Vec::new();
            loop {
                let mut text = String::new();
                for number in 0..200 {
                    let _ = write!(text, "{number}, ");
                    kept.push(text.clone());
                }
                kept.truncate(300);
                DONE.fetch_add(1, Relaxed);
                // Threads come and go, and wait in calls of the system.
                task::block_in_place(|| thread::sleep(Duration::from_micros(100)));
                sleep(Duration::from_micros(50)).await;
            }
        });
    }
    // Stacks of stuck jobs are taken meanwhile, by a signal of their own.
    let over = Arc::new(AtomicBool::new(false));
    let captures = thread::spawn({
        let (over, handle) = (over.clone(), runtime.handle().clone());
        move || {
            let mut taken = 0_u64;
            while !over.load(Relaxed) || taken == 0 {
                let threads = handle.threads().into_iter();
                taken += threads.filter_map(|thread| capture(thread).ok()).count() as u64;
            }
        }
    });
    let mut samples = 0;
    let mut rounds = 0;
    while samples < 3_000 {
        let before = DONE.load(Relaxed);
        let options = Options::new(Duration::from_secs(1))
            .rate(1_000)
            .clock(Clock::Wall);
        let profile = runtime
            .block_on(profile(runtime.handle(), options))
            .unwrap();
        samples += profile.num_samples();
        assert!(DONE.load(Relaxed) > before, "the tasks go on");
        rounds += 1;
        assert!(rounds < 60, "{samples} samples in {rounds} s");
    }
    over.store(true, Relaxed);
    captures.join().unwrap();
}

#[test]
fn the_thread_of_a_current_thread_runtime_is_sampled() {
    let _turn = turn();
    let runtime = Builder::new_current_thread().build().unwrap();
    // It has no thread yet. Then it has this one.
    let profile = profile(runtime.handle(), Duration::from_secs(1));
    let ended = runtime.block_on(async {
        let profile = runtime.spawn(profile);
        while !profile.is_finished() {
            black_box(sums_prices(20_000));
            task::yield_now().await;
        }
        profile.await.unwrap().unwrap()
    });
    assert!(count(&ended, "sums_prices") > 0, "{}", ended.folded());
}

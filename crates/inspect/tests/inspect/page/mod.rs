//! The live page as Chromium shows it: what it draws, what it says, and what it requests.

mod details;
mod load;
mod other_site;

use load::{Watched, cause_a_stall, cause_a_stall_of};
use other_site::{OtherSite, ways_to_read};
use serde_json::Value;
use tourbillon::task::Group;
use tourbillon_inspect::Inspector;

use crate::{clients::browser::Browser, common::freed::until_ok};

/// Returns a counter's total, as the page shows it.
fn total(browser: &mut Browser, counter: &str) -> u64 {
    let text = browser.text(&format!("[data-counter=\"{counter}\"] td:last-child"));
    text.replace(',', "").parse().unwrap()
}

/// An expression: how many cells of a worker's strip in the heat map have a colour.
const COLOURED: &str = "(() => {
  const canvas = document.querySelector('#strips canvas');
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [red, green, blue] = data.slice(i, i + 3);
    if (Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured += 1;
  }
  return coloured;
})()";

fn open(watched: &Watched) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open(&watched.origin());
    browser.eventually("document.getElementById('status').textContent === 'live'");
    Some(browser)
}

/// Checks that nothing went wrong, and that all requests went to the inspector.
fn check_clean(browser: &mut Browser, watched: &Watched) {
    assert_eq!(browser.troubles(), Vec::<String>::new());
    let requests = browser.requests();
    assert!(requests.len() > 15, "{requests:?}");
    let origin = format!("{}/", watched.origin());
    for url in &requests {
        assert!(
            url.starts_with(&origin) || url.starts_with("data:"),
            "{url}"
        );
    }
}

#[test]
fn the_page_updates_and_agrees_with_prometheus() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    // This range begins before anything happened, so it shows all that has happened.
    browser.click("[data-range=\"600\"]");
    watched.under_load(|| {
        for counter in ["fired", "cancelled", "refreshed", "armed_local", "armed_remote", "parks"] {
            let before = total(&mut browser, counter);
            browser.eventually(&format!(
                "Number(document.querySelector('[data-counter=\"{counter}\"] td:last-child').textContent.replaceAll(',', '')) > {before}"
            ));
        }
        browser.eventually(&format!("{COLOURED} > 500"));
        browser.eventually("/p50 [0-9.]+ .?s/.test(document.querySelector('#strips .head').textContent)");
        browser.eventually("/awake/.test(document.querySelector('#lanes .head').textContent)");
        browser.eventually("document.getElementById('tile-p99').textContent.endsWith('s')");
        browser.eventually("parseFloat(document.getElementById('tile-fired').textContent) > 0");
        for line in ["fired", "pending", "skipped", "parks", "deferred wake-ups"] {
            let label = format!("{line} [0-9.,]+( [kMG])? now");
            browser.eventually(&format!(
                "[...document.querySelectorAll('#charts canvas')].some((canvas) => /{label}/.test(canvas.ariaLabel))"
            ));
        }
        check_the_steal_matrix(&mut browser);
    });
    // Nothing more happens, so the page and the metrics have to agree to the last digit.
    let over = |outcome| {
        let label = format!("outcome=\"{outcome}\"");
        watched.metric("tourbillon_timers_over_total", &[&label])
    };
    let armed = |from| {
        let label = format!("from=\"{from}\"");
        watched.metric("tourbillon_timers_armed_total", &[&label])
    };
    let expected = [
        ("fired", over("fired")),
        ("cancelled", over("cancelled")),
        ("shut_down", over("shutdown")),
        ("armed_local", armed("local")),
        ("armed_remote", armed("remote")),
        (
            "refreshed",
            watched.metric("tourbillon_timers_refreshed_total", &[]),
        ),
    ];
    for (counter, count) in expected {
        browser.eventually(&format!(
            "document.querySelector('[data-counter=\"{counter}\"] td:last-child').textContent === ({count}).toLocaleString('en-US')"
        ));
    }
    let lateness = watched.runtime.metrics().wake_lateness();
    for (tile, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let bound = lateness.quantile(q).unwrap().as_nanos();
        let text = browser.eval(&format!(
            "import('/format.js').then(({{ duration }}) => duration({bound}))"
        ));
        assert_eq!(text, browser.text(&format!("#tile-{tile}")), "{tile}");
    }
    let [fired, cancelled, shut_down, local, remote, _] = expected.map(|(_, count)| count);
    assert!(fired > 0 && cancelled > 0 && local > 0 && remote > 0);
    assert_eq!(local + remote, fired + cancelled + shut_down);
    check_clean(&mut browser, &watched);
}

/// Checks that the matrix shows steals while it is visible. The load makes two workers steal from
/// each other.
fn check_the_steal_matrix(browser: &mut Browser) {
    browser.eval("document.getElementById('steals').scrollIntoView({ behavior: 'instant' })");
    browser.eventually(
        "[...document.querySelectorAll('#steals tbody td small')].some((cell) => /^[1-9]/.test(cell.textContent))",
    );
    assert_eq!(browser.text("#steals thead"), "worker 0\tworker 1");
    browser.eval("scrollTo({ top: 0, behavior: 'instant' })");
}

/// Waits until a new picture is drawn. If `moves` is false, checks instead that snapshots come
/// and no picture is drawn.
fn watch(browser: &mut Browser, moves: bool) {
    // The page draws snapshots from before a pause with the next frame.
    browser.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    let shown = browser.text("#tile-fired-more");
    if moves {
        browser.eventually(&format!(
            "document.getElementById('tile-fired-more').innerText !== '{shown}'"
        ));
        return;
    }
    let came = |browser: &mut Browser| {
        browser
            .events(&["Network.eventSourceMessageReceived"])
            .len()
    };
    let before = came(browser);
    crate::common::eventually("snapshots come", || came(browser) > before + 3);
    assert_eq!(browser.text("#tile-fired-more"), shown);
}

#[test]
fn the_pause_button_and_the_switches_work() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    watched.under_load(|| {
        watch(&mut browser, true);
        browser.click("#pause");
        browser.eventually("document.getElementById('status').textContent === 'paused'");
        watch(&mut browser, false);
        // The paused data can be shown in other ways, and does not change.
        let held = browser.text("#tile-fired-more");
        browser.click("[data-range=\"600\"]");
        watch(&mut browser, false);
        assert_eq!(browser.text("#tile-fired-more"), held);
        browser.click("#pause");
        browser.eventually("document.getElementById('status').textContent === 'live'");
        watch(&mut browser, true);
        browser.eval("document.activeElement.blur()");
        browser.press(" ", "Space", " ");
        browser.eventually("document.getElementById('status').innerText === 'paused'");
        watch(&mut browser, false);
        browser.press(" ", "Space", " ");
        watch(&mut browser, true);

        for (range, width) in [("120", "500 ms"), ("600", "2 s"), ("30", "250 ms")] {
            browser.click(&format!("[data-range=\"{range}\"]"));
            browser.eventually(&format!(
                "document.querySelector('[data-range][aria-pressed=\"true\"]').dataset.range === '{range}'
                  && document.getElementById('scale').ariaLabel.includes('in {width}')"
            ));
            browser.eventually(&format!("{COLOURED} > 0"));
        }
        for stage in ["queue", "rescued", "wake"] {
            browser.click(&format!("[data-stage=\"{stage}\"]"));
            browser.eventually(&format!(
                "document.querySelector('#strips canvas').ariaLabel.includes('{stage}-late')
                  && document.querySelector('[data-stage-name]').textContent === '{stage}'"
            ));
        }
        themes(&mut browser);
        check_the_tips(&mut browser);
    });
    check_clean(&mut browser, &watched);
}

fn themes(browser: &mut Browser) {
    let ground = "getComputedStyle(document.body).backgroundColor";
    let dark = browser.eval(ground);
    browser.click("#theme");
    assert_eq!(browser.text("#theme"), "Theme: dark");
    assert_eq!(browser.eval(ground), dark);
    browser.click("#theme");
    assert_eq!(browser.text("#theme"), "Theme: light");
    let light = browser.eval(ground);
    assert_ne!(light, dark);
    // Drawings have the colours of the style sheet.
    browser.eval("import('/canvas.js').then((module) => { window.drawn = module.color; })");
    browser.eventually(
        "drawn('card') === getComputedStyle(document.querySelector('.card')).backgroundColor",
    );
    browser.click("#theme");
    assert_eq!(browser.text("#theme"), "Theme: auto");
    assert_eq!(browser.eval(ground), dark);
    browser.prefer("light");
    browser.eventually(&format!("{ground} === {light}"));
    browser.prefer("dark");
}

/// Checks that the mouse and the arrow keys show what is in the cell where they are.
fn check_the_tips(browser: &mut Browser) {
    browser.eval("document.querySelector('#strips canvas').scrollIntoView({ block: 'center', behavior: 'instant' })");
    let place = browser.eval(
        "(() => { const box = document.querySelector('#strips canvas').getBoundingClientRect(); return [box.right - 60, box.top + box.height / 2]; })()",
    );
    let [x, y] = [0, 1].map(|i| place[i].as_f64().unwrap());
    browser.point(x, y);
    let tip = r"!document.getElementById('tip').hidden && /^worker 0, \d\d:\d\d:\d\d\.\d – [^]* late: [\d,.]+\np50 .*, p99 /.test(document.getElementById('tip').textContent)";
    browser.eventually(tip);
    browser.point(1.0, 1.0);
    browser.eventually("document.getElementById('tip').hidden");
    browser.eval("document.querySelector('#strips canvas').focus({ preventScroll: true })");
    browser.press("ArrowLeft", "ArrowLeft", "");
    browser.eventually(tip);
    browser.press("Escape", "Escape", "");
    browser.eventually("document.getElementById('tip').hidden");
}

#[test]
fn a_stall_is_shown_with_its_cause() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    browser.eventually("document.getElementById('no-stalls').checkVisibility()");
    cause_a_stall(&watched.runtime);
    browser.eventually("document.getElementById('stall-rows').rows.length === 1");
    let row = browser.text("#stall-rows tr");
    assert!(
        row.contains("load::the_culprit<alloc::string::String>"),
        "{row}"
    );
    assert!(row.contains("load.rs:"), "{row}");
    assert_eq!(browser.text("#tile-stalls"), "1");
    assert!(!browser.text("#stalls").contains("None so far"));
    cause_a_stall(&watched.runtime);
    // One row per job: the newest stall of the job, and how many there were.
    browser.eventually("document.querySelector('#stall-rows th').textContent === '2'");
    assert_eq!(
        browser.eval("document.getElementById('stall-rows').rows.length"),
        1
    );
    assert_eq!(browser.text("#stall-rows td"), "2");
    // Equal stacks are one row with a count, and the line of the user is its title.
    for recent in watched.runtime.recent_stalls() {
        let stack = "[futex]\nstd::wait at m.rs:1\nshop::<T>::sum at a.rs:7\nshop::main";
        watched
            .runtime
            .handle()
            .add_stack(&recent.stall, stack.into());
    }
    browser.eventually("document.querySelectorAll('#stall-stacks details').length === 1");
    let title = browser.text("#stall-stacks summary");
    assert!(
        title.starts_with("2 × shop::<T>::sum at a.rs:7 – "),
        "{title}"
    );
    browser.eval("document.querySelector('#stall-stacks summary').click()");
    let whole = browser.text("#stall-stacks pre");
    assert!(whole.starts_with("[futex]\nstd::wait"), "{whole}");
    check_clean(&mut browser, &watched);
}

#[test]
fn groups_are_shown_with_their_jobs_and_stalls() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    // A runtime without groups has no line of them.
    assert_eq!(browser.text("#groups"), "");
    let batch = Group::builder("<b>batch").shares(50);
    let batch = batch.build_on(watched.runtime.handle()).unwrap();
    browser.eventually("/default .* 100 shares.*<b>batch .* of a core, 50 shares, [0-9]+ queued/.test(document.getElementById('groups').textContent)");
    // Two groups run the same function, and each stalls.
    cause_a_stall(&watched.runtime);
    cause_a_stall_of(&watched.runtime, &batch);
    // Where others have the cores, other jobs may be stalls as well.
    for rows in [
        "the_culprit.* of group <b>batch",
        "the_culprit(?!.* of group )",
    ] {
        browser.eventually(&format!(
            "[...document.getElementById('stall-rows').rows].filter((row) => /{rows}/.test(row.textContent)).length === 1"
        ));
    }
    check_clean(&mut browser, &watched);
}

#[test]
fn a_narrow_window_does_not_scroll_sideways() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    cause_a_stall(&watched.runtime);
    watched.under_load(|| {
        for width in [1440, 800, 360] {
            browser.resize(width, 800);
            browser.eventually(&format!("innerWidth === {width} && {COLOURED} > 0"));
            // Where others have the cores, jobs of the load are stalls as well.
            browser.eventually("document.getElementById('stall-rows').rows.length >= 1");
            let widths = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
            let [needed, has] = [0, 1].map(|i| widths[i].as_u64().unwrap());
            assert!(needed <= has, "{needed} of {has}");
        }
    });
    check_clean(&mut browser, &watched);
}

#[test]
fn incremental_updates_agree_with_a_full_redraw() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    let wrong = browser.eval(include_str!("arithmetic.js"));
    assert_eq!(wrong, serde_json::json!([]));
    check_clean(&mut browser, &watched);
}

#[test]
fn a_lost_connection_is_shown_and_restored() {
    let watched = Watched::start();
    let Some(mut browser) = open(&watched) else {
        return;
    };
    check_clean(&mut browser, &watched);
    let addr = watched.addr();
    watched.inspector.shutdown();
    browser.eventually("document.getElementById('banner').checkVisibility()");
    assert!(browser.text("#banner").starts_with("Connection lost"));
    assert_eq!(browser.text("#status"), "lost");
    // Serve the page of another runtime at the same address.
    let again = crate::common::runtime(1);
    let serve = until_ok(async || Inspector::builder(again.handle()).serve(addr));
    let inspector = again.block_on(serve);
    browser.eventually("document.getElementById('status').textContent === 'live'");
    assert!(
        !browser
            .eval("document.getElementById('banner').checkVisibility()")
            .as_bool()
            .unwrap()
    );
    browser.eventually("document.getElementById('workers').textContent === '1'");
    inspector.shutdown();
}

#[test]
fn the_end_of_the_runtime_is_shown() {
    let Watched { runtime, inspector } = Watched::start();
    let Some(mut browser) = Browser::start() else {
        return;
    };
    browser.open(&format!("http://{}/", inspector.local_addr()));
    browser.eventually("document.getElementById('status').textContent === 'live'");
    drop(runtime);
    browser.eventually("document.getElementById('status').textContent === 'ended'");
    assert!(
        browser
            .text("#banner")
            .starts_with("The runtime has ended.")
    );
    inspector.shutdown();
}

#[test]
fn other_sites_can_read_nothing() {
    let watched = Watched::start();
    let rebound = "--host-resolver-rules=MAP rebound.test 127.0.0.1";
    let Some(mut browser) = Browser::start_with(&[rebound]) else {
        return;
    };
    let inspector = watched.origin();
    // The inspector's own page can read in all of these ways, so the ways work.
    browser.open(&inspector);
    browser.eventually("document.getElementById('status').textContent === 'live'");
    let read = browser.eval(&ways_to_read(&inspector));
    for way in [
        "fetched",
        "opaque",
        "asked_before",
        "metrics",
        "events",
        "script",
        "module",
        "style",
    ] {
        assert!(read[way].is_string(), "{way}: {read}");
    }

    let other = OtherSite::start();
    // Another port is the same site and another origin; another name is another site.
    for host in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{host}:{}/", other.addr.port()));
        browser.eventually(&format!(
            "document.title === 'other' && location.hostname === '{host}'"
        ));
        let before = browser.answers().len();
        let read = browser.eval(&ways_to_read(&inspector));
        for (way, what) in read.as_object().unwrap() {
            assert_eq!(*what, Value::Null, "{way} from {host}");
        }
        let answers = browser.answers();
        let answers: Vec<_> = answers[before..]
            .iter()
            .filter(|(url, _)| url.starts_with(&inspector))
            .collect();
        assert!(!answers.is_empty());
        for (url, status) in answers {
            assert!(matches!(status, 403 | 405), "{url}: {status}");
        }
    }

    // A name that leads to the inspector's address makes its page a page of the same origin.
    browser.open(&format!("http://rebound.test:{}/", watched.addr().port()));
    browser
        .eventually("location.hostname === 'rebound.test' && document.readyState === 'complete'");
    assert_eq!(
        browser.eval("fetch('/snapshot.json').then((answer) => answer.status)"),
        421
    );
    assert_eq!(
        browser.eval("document.querySelector('script')"),
        Value::Null
    );
}

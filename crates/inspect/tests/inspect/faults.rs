//! A system that fails or refuses calls: a page that cannot be served is an error, nothing leaks,
//! and the runtime continues.

use std::{fs, io, io::ErrorKind, time::Duration};

use tourbillon::time::sleep;
use tourbillon_inspect::serve;

use crate::{
    client::{get, inspect},
    common::{
        alarm, eventually, fds,
        net::ANY_PORT,
        process::alone,
        runtime,
        system_calls::{Faulty, call, dispensable, refuse},
        threads, use_up_descriptors,
    },
};

#[test]
fn a_live_page_without_a_thread_is_an_error_and_the_runtime_continues() {
    alone(|| {
        let _alarm = alarm();
        let Some(faulty) = Faulty::calls(&[call(libc::SYS_clone3), call(libc::SYS_clone)]) else {
            return;
        };
        let runtime = runtime(1);
        let _entered = runtime.enter();
        let page = || serve(ANY_PORT);
        page().unwrap().shutdown();
        let (others, open) = (threads(), fds());
        let mut refused = 0;
        for pass in 0.. {
            let failed = faulty.failed();
            faulty.after(pass, 1, libc::EAGAIN);
            let served = page();
            faulty.heal();
            if faulty.failed() == failed {
                served.expect("it got all its threads").shutdown();
                break;
            }
            let error = served.expect_err("one thread is missing");
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            refused += 1;
            eventually("nothing is left", || threads() <= others && fds() <= open);
            runtime.block_on(sleep(Duration::from_millis(1)));
        }
        assert!(refused >= 2, "its own thread, and its runtime's");
    });
}

/// Returns whether an error is that of a process that has no descriptors left. That of the page's
/// runtime says more.
fn is_emfile(error: &io::Error) -> bool {
    let said = format!("{error:?}");
    error.raw_os_error() == Some(libc::EMFILE) || said.contains(&format!("code: {}", libc::EMFILE))
}

#[test]
fn a_live_page_without_a_descriptor_is_an_error_and_the_runtime_continues() {
    alone(|| {
        let _alarm = alarm();
        let runtime = runtime(1);
        let _entered = runtime.enter();
        // This opens what a process opens once and keeps.
        serve(ANY_PORT).unwrap().shutdown();
        let others = threads();
        let mut refused = 0;
        for more in 0.. {
            let before = fds();
            let mut used_up = use_up_descriptors();
            used_up.truncate(used_up.len() - more);
            let served = serve(ANY_PORT);
            drop(used_up);
            match served {
                Ok(page) => {
                    assert_eq!(get(page.local_addr(), "/").status, 200);
                    page.shutdown();
                    break;
                }
                Err(error) => assert!(is_emfile(&error), "with {more}: {error:?}"),
            }
            refused += 1;
            eventually("nothing is left", || threads() <= others && fds() <= before);
            runtime.block_on(sleep(Duration::from_millis(1)));
            assert!(more < 200, "it never has enough");
        }
        assert!(refused >= 3, "its runtime's descriptors, and its socket");
    });
}

/// Returns how many descriptors of this process a new program would inherit.
fn inherited() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_inherited = |entry: &fs::DirEntry| {
        let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
        // SAFETY: the call takes no pointers. A descriptor that is closed by now is an error.
        let flags = fd.map_or(-1, |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) });
        flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    open.filter(is_inherited).count()
}

#[test]
fn no_descriptor_of_the_page_is_inherited_by_another_program() {
    alone(|| {
        let _alarm = alarm();
        let (before, open) = (inherited(), fds());
        let runtime = runtime(1);
        let page = inspect(runtime.handle());
        assert!(fds() > open && inherited() == before, "not closed on exec");
        assert_eq!(get(page.local_addr(), "/").status, 200);
    });
}

/// Serves a page where calls have this answer that only make it quicker or more polite.
fn is_shown_without_what_is_dispensable(answer: libc::c_int) {
    let _alarm = alarm();
    let calls: Vec<_> = dispensable().into_iter().map(|it| (it, answer)).collect();
    if !refuse(&calls) {
        return;
    }
    // SAFETY: the call takes no pointers.
    let refused = unsafe { libc::syscall(libc::SYS_setpriority, 0, 0, 1) };
    assert_eq!(refused, -1, "the fault is there");
    let runtime = runtime(2);
    let page = inspect(runtime.handle());
    let metrics = get(page.local_addr(), "/metrics").body;
    assert!(metrics.contains("\ntourbillon_workers 2\n"), "{metrics}");
    page.shutdown();
}

#[test]
fn a_page_is_served_where_optional_calls_are_missing() {
    alone(|| is_shown_without_what_is_dispensable(libc::ENOSYS));
}

#[test]
fn a_page_is_served_where_optional_calls_are_forbidden() {
    alone(|| is_shown_without_what_is_dispensable(libc::EPERM));
}

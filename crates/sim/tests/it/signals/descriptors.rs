//! Descriptors of eventfds, of which a program that listens for signals has several.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr, thread,
    time::Duration,
};

use tourbillon_sim::Simulation;

fn eventfd() -> OwnedFd {
    // SAFETY: the call takes numbers, and nothing else owns the new descriptor.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

fn write(fd: &OwnedFd) -> isize {
    let one = 1_u64;
    // SAFETY: the buffer has eight bytes.
    unsafe { libc::write(fd.as_raw_fd(), ptr::from_ref(&one).cast(), 8) }
}

/// Returns the count of an eventfd, or an error number.
fn read(fd: &OwnedFd) -> Result<u64, i32> {
    let mut count = 0_u64;
    // SAFETY: the buffer has room for eight bytes.
    match unsafe { libc::read(fd.as_raw_fd(), ptr::from_mut(&mut count).cast(), 8) } {
        8 => Ok(count),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Waits until a descriptor is readable.
fn wait_readable(fd: &OwnedFd) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        // SAFETY: the pointer is that of one entry.
        match unsafe { libc::poll(&mut entry, 1, 60_000) } {
            1 => return entry.revents == libc::POLLIN,
            0 => return false,
            _ => {}
        }
    }
}

/// Returns the tokens of all events that an instance has.
fn events(instance: &OwnedFd) -> Vec<u64> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
    loop {
        // SAFETY: there is room for eight events.
        let count = unsafe { libc::epoll_wait(instance.as_raw_fd(), events.as_mut_ptr(), 8, 0) };
        if let Ok(count) = usize::try_from(count) {
            let mut tokens: Vec<u64> = events[..count].iter().map(|it| it.u64).collect();
            tokens.sort_unstable();
            return tokens;
        }
    }
}

/// Does much with the descriptors of an eventfd, and returns what it saw.
fn use_descriptors() -> Vec<String> {
    let mut seen = Vec::new();
    let first = eventfd();
    let second = first.try_clone().unwrap();
    // This number belongs to another eventfd before.
    let third = eventfd();
    // SAFETY: both are descriptors of this function.
    let to = unsafe { libc::dup2(first.as_raw_fd(), third.as_raw_fd()) };
    seen.push(format!("dup2 {}", to == third.as_raw_fd()));
    // SAFETY: the descriptor is one of this function, and nothing else owns the new one.
    let fourth = unsafe { OwnedFd::from_raw_fd(libc::dup(first.as_raw_fd())) };

    let waits = second.try_clone().unwrap();
    let waiter = thread::spawn(move || wait_readable(&waits));
    thread::sleep(Duration::from_millis(1));
    write(&first);
    write(&fourth);
    seen.push(format!("waited {}", waiter.join().unwrap()));
    seen.push(format!("read {:?} {:?}", read(&third), read(&first)));

    // SAFETY: nothing else owns the new descriptor.
    let instance = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    for (token, fd) in [&second, &third].into_iter().enumerate() {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: token as u64,
        };
        let (instance, fd) = (instance.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the pointer is that of an event.
        let added = unsafe { libc::epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, &mut event) };
        seen.push(format!("added {added}"));
    }
    write(&fourth);
    seen.push(format!(
        "events {:?} {:?}",
        events(&instance),
        events(&instance)
    ));
    drop(first);
    write(&fourth);
    seen.push(format!("events {:?}", events(&instance)));
    seen.push(format!("read {:?} {:?}", read(&second), read(&third)));
    drop((second, third));
    seen.push(format!("write {} read {:?}", write(&fourth), read(&fourth)));
    seen
}

#[tourbillon_sim::test(seeds = 50)]
fn an_eventfd_has_several_descriptors(sim: &mut Simulation) {
    // This thread is not part of the simulation.
    let on_linux = use_descriptors();
    sim.host("a", move || {
        let on_linux = on_linux.clone();
        async move {
            // One of the faults is a write to an eventfd, any of the host.
            tourbillon_sim::raw::settle();
            assert_eq!(use_descriptors(), on_linux);
        }
    });
}

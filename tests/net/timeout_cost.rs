//! The cost of a socket timeout: no allocation, except in the first operation that waits.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
use tourbillon::net::UnixStream;

use crate::common::{HOUR, alarm, runtime};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The counter of a thread that ends may be gone.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads `count` times, each time before there is data. Returns the number of allocations.
async fn waits(reader: &mut UnixStream, writer: &mut UnixStream, count: u32) -> u64 {
    let before = COUNT.get();
    for _ in 0..count {
        let mut buf = [0; 8];
        let (read, written) = zip(reader.read(&mut buf), writer.write_all(&[1])).await;
        assert_eq!(read.unwrap(), 1);
        written.unwrap();
    }
    COUNT.get() - before
}

#[test]
fn a_timeout_adds_no_allocation_to_a_waiting_read() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // Run on the worker, so that one thread makes all allocations of the reads.
    let task = runtime.spawn(async {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        waits(&mut reader, &mut writer, 10).await;
        let without = waits(&mut reader, &mut writer, 1000).await;
        reader.set_read_timeout(Some(HOUR)).unwrap();
        waits(&mut reader, &mut writer, 10).await;
        let with = waits(&mut reader, &mut writer, 1000).await;
        (without, with)
    });
    let (without, with) = runtime.block_on(task).unwrap();
    // The worker may allocate for itself in between, for example to report a stall. An allocation
    // in each read would add a thousand.
    assert!(with < without + 100, "{with} allocations, not {without}");
}

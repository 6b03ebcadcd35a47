//! The allocation of a task: its header, then its future, later its output.

use std::{
    alloc::{Layout, handle_alloc_error},
    mem::{self, ManuallyDrop, MaybeUninit, needs_drop},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    ptr::NonNull,
    task::{Context, Poll, RawWakerVTable, Waker},
};

use tourbillon_sync::{UnsafeCell, foreign::contained};

use crate::{
    Panic, Policy, Runnable, Task, Woken,
    header::{Header, VTable},
    state::{AfterPoll, End, State},
    waker,
};

/// A task. `repr(C)`: the header is at the task's address, whatever the type of the future.
#[repr(C)]
pub(crate) struct Cell<F: Future, P: Policy> {
    header: Header<P::Metadata>,
    stage: UnsafeCell<Stage<F>>,
}

/// The future until it is dropped, then the output, if there is one.
union Stage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Result<F::Output, Panic>>,
}

/// The content of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Future,
    Nothing,
    Output,
}

/// The address of a task with its full type, for a thread that runs it or has a reference.
struct Full<F: Future, P: Policy>(NonNull<Cell<F, P>>);

impl<F: Future, P: Policy> Clone for Full<F, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Future, P: Policy> Copy for Full<F, P> {}

impl<F: Future, P: Policy> Cell<F, P> {
    const VTABLE: &'static VTable<P::Metadata> = &VTable {
        run: Self::run,
        cancel: Self::cancel,
        schedule: P::schedule,
        output: Self::output,
        drop_output: Self::drop_output,
        free: Self::free,
        name: P::name::<F>,
        waker: waker::vtable::<P>(),
        traced: const { &waker::traced::<P>() },
    };

    /// Allocates a task with a `Runnable` and a `Join`, and returns its address.
    pub(crate) fn allocate(future: F, metadata: P::Metadata) -> NonNull<Header<P::Metadata>> {
        let layout = Layout::new::<Self>();
        // SAFETY: the layout has a nonzero size, because it contains the header.
        let memory = unsafe { P::alloc(layout) };
        let Some(cell) = NonNull::new(memory.cast::<Self>()) else {
            handle_alloc_error(layout)
        };
        let header = Header {
            state: State::new(),
            vtable: Self::VTABLE,
            awaiter: UnsafeCell::new(MaybeUninit::uninit()),
            metadata,
        };
        let stage = UnsafeCell::new(Stage {
            future: ManuallyDrop::new(future),
        });
        let cell = cell.as_ptr();
        // SAFETY: the memory has this layout, and only this thread knows it. Each part is written
        // alone, so that a large future moves only once.
        unsafe {
            (&raw mut (*cell).header).write(header);
            (&raw mut (*cell).stage).write(stage);
        }
        // SAFETY: `NonNull::new` above checked the pointer.
        unsafe { NonNull::new_unchecked(cell.cast()) }
    }

    /// Converts the address of a task to its full type.
    ///
    /// # Safety
    ///
    /// `header` comes from [`allocate`](Cell::allocate) of this type. The task stays allocated
    /// while the result is used.
    #[inline]
    unsafe fn at(header: NonNull<Header<P::Metadata>>) -> Full<F, P> {
        Full(header.cast())
    }

    /// Runs the task. See [`VTable::run`].
    ///
    /// # Safety
    ///
    /// `header` is a task of this type. The caller passes on the reference of its `Runnable`.
    /// `waker` is `waker` or `traced` of the task's vtable.
    unsafe fn run(header: NonNull<Header<P::Metadata>>, waker: &'static RawWakerVTable) {
        // SAFETY: the reference of the `Runnable` keeps the task allocated. Only the last step on
        // each path here releases it.
        unsafe {
            let task = Self::at(header);
            if !task.header().state.begin() {
                return task.drop_and_end();
            }
            if let Some(has_output) = task.poll(waker) {
                return task.end(has_output);
            }
            // Tell the policy while this thread still runs the task: after `end_poll` another
            // thread may run it.
            let view = Task::at(header);
            P::pending(&view);
            match task.header().state.end_poll() {
                AfterPoll::Waiting => {}
                AfterPoll::Again => P::schedule(Runnable::of(header), Woken::WhileRunning),
                AfterPoll::Cancelled => task.drop_and_end(),
            }
        }
    }

    /// Drops the future and ends the task. See [`VTable::cancel`].
    ///
    /// # Safety
    ///
    /// `header` is a task of this type. The caller passes on the reference of its `Runnable`.
    unsafe fn cancel(header: NonNull<Header<P::Metadata>>) {
        // SAFETY: as in `run`.
        unsafe {
            let task = Self::at(header);
            // Cancelled or not, the future must be dropped, so ignore the answer.
            task.header().state.begin();
            task.drop_and_end();
        }
    }

    /// Returns the address of the output. See [`VTable::output`].
    ///
    /// # Safety
    ///
    /// `header` is a task of this type that has ended. The caller owns the output.
    unsafe fn output(header: NonNull<Header<P::Metadata>>) -> *mut () {
        // SAFETY: by the contract of this function.
        unsafe { Self::at(header) }
            .stage()
            .with_mut(<*mut Stage<F>>::cast)
    }

    /// Drops the output in place. See [`VTable::drop_output`].
    ///
    /// # Safety
    ///
    /// See [`output`](Cell::output). The output is not used afterwards.
    unsafe fn drop_output(header: NonNull<Header<P::Metadata>>) {
        // SAFETY: by the contract of this function.
        unsafe { Self::at(header).drop_output() };
    }

    /// Frees the task. See [`VTable::free`].
    ///
    /// # Safety
    ///
    /// `header` is a task of this type that has ended. No reference and no `Join` is left.
    unsafe fn free(header: NonNull<Header<P::Metadata>>) {
        struct Free<F: Future, P: Policy>(NonNull<Cell<F, P>>);
        impl<F: Future, P: Policy> Drop for Free<F, P> {
            fn drop(&mut self) {
                // SAFETY: `allocate` allocated it with this layout, and it is not used afterwards.
                unsafe { P::dealloc(self.0.as_ptr().cast(), Layout::new::<Cell<F, P>>()) };
            }
        }
        // Frees the memory even if the destructor of the metadata panics.
        let _free = Free::<F, P>(header.cast());
        // SAFETY: this thread has the only access to the task, and the stage is empty.
        unsafe { header.drop_in_place() };
    }
}

impl<F: Future, P: Policy> Full<F, P> {
    #[inline]
    fn header(&self) -> &Header<P::Metadata> {
        // SAFETY: by the contract of `Cell::at`, the task is allocated. Its header is never
        // borrowed mutably.
        unsafe { &(*self.0.as_ptr()).header }
    }

    #[inline]
    fn metadata(&self) -> &P::Metadata {
        &self.header().metadata
    }

    #[inline]
    fn stage(&self) -> &UnsafeCell<Stage<F>> {
        // SAFETY: see `header`. The owner of the content justifies each access to it there.
        unsafe { &(*self.0.as_ptr()).stage }
    }

    /// Calls user code. Catches its panic and reports it to the policy. Catches a panic of the
    /// policy, too, because another panic may be unwinding.
    fn contain(&self, f: impl FnOnce()) {
        if !contained(f) {
            _ = contained(|| P::panicked(self.metadata()));
        }
    }

    /// Polls the future. Returns `None` if it is pending. Otherwise the future has been dropped,
    /// and the value tells whether there is an output in its place.
    ///
    /// # Safety
    ///
    /// The caller runs the task, and the future is in the stage. `waker` is as for
    /// [`run`](Cell::run).
    #[inline]
    unsafe fn poll(&self, waker: &'static RawWakerVTable) -> Option<bool> {
        // SAFETY: the caller's reference keeps the task allocated during this function, and the
        // caller vouches for `waker`.
        let waker = unsafe { Task::<P::Metadata>::at(self.0.cast()).lent_waker(waker) };
        let mut content = Content::Future;
        let poll = || {
            let guard = DropFuture {
                task: *self,
                content: &mut content,
            };
            let cx = &mut Context::from_waker(&waker);
            let poll = self.stage().with_mut(|stage| {
                // SAFETY: the caller runs the task, so it has exclusive access to the future. The
                // future is pinned: it never moves, and is dropped in place.
                unsafe { Pin::new_unchecked(&mut *(*stage).future) }.poll(cx)
            });
            match poll {
                // Keep the future for the next poll.
                Poll::Pending => mem::forget(guard),
                // SAFETY: the caller runs the task, and the future has just returned this output.
                Poll::Ready(output) => unsafe { guard.ready(output) },
            }
        };
        let poll = || P::polling(self.metadata(), poll);
        let caught = catch_unwind(AssertUnwindSafe(poll));
        // `content` tells how far the poll got before it returned or panicked.
        match (caught, content) {
            (Ok(()), Content::Future) => None,
            (Ok(()), content) => Some(content == Content::Output),
            (Err(panic), content) => {
                // SAFETY: by the contract of this function; `content` is what `poll` has left.
                unsafe { self.panicked(panic, content) };
                Some(true)
            }
        }
    }

    /// Stores a panic as the output.
    ///
    /// # Safety
    ///
    /// The caller runs the task, and `content` is the content of its stage.
    #[cold]
    unsafe fn panicked(&self, panic: Panic, content: Content) {
        P::poll_panicked(self.metadata());
        // SAFETY: by the contract of this function.
        unsafe {
            match content {
                // The policy itself panicked, without a call of `poll` or after a pending one.
                Content::Future => self.contain(|| self.drop_future()),
                Content::Output => self.drop_output(),
                Content::Nothing => {}
            }
            self.write_output(Err(panic));
        }
    }

    /// Drops the future of a task that was cancelled, and ends the task.
    ///
    /// # Safety
    ///
    /// The caller runs the task, and the future is in the stage. This consumes the reference of the
    /// `Runnable`.
    #[inline(never)]
    unsafe fn drop_and_end(self) {
        // The policy may panic, or return without calling `drop`. Then the future is still there.
        let mut is_there = true;
        let drop = || {
            is_there = false;
            // SAFETY: by the contract of this function.
            unsafe { self.drop_future() };
        };
        let caught = catch_unwind(AssertUnwindSafe(|| P::dropping(self.metadata(), drop)));
        // SAFETY: by the contract of this function. `is_there` ensures that the future is dropped
        // once.
        unsafe {
            if is_there {
                self.contain(|| self.drop_future());
            }
            let has_output = caught.is_err();
            if let Err(panic) = caught {
                P::panicked(self.metadata());
                self.write_output(Err(panic));
            }
            self.end(has_output);
        }
    }

    /// Ends the task.
    ///
    /// # Safety
    ///
    /// The caller runs the task. The future has been dropped, and `has_output` tells whether there
    /// is an output in its place. This consumes the reference of the `Runnable`.
    #[inline]
    unsafe fn end(self, has_output: bool) {
        let header: NonNull<Header<P::Metadata>> = self.0.cast();
        // Release the executor's reference in the same step as our own: one atomic operation
        // instead of two.
        let others = match P::ended(self.metadata()) {
            None => 0,
            Some(kept) => {
                // A reference to another task would be subtracted from the count of this one.
                assert_eq!(kept.address(), header, "the reference is to this task");
                kept.into_address();
                1
            }
        };
        let end = match self.header().state.end(has_output, others) {
            End::DropOutput => {
                // SAFETY: `has_output` told that there is an output. No `Join` is left, so it
                // belongs to this thread.
                unsafe { self.drop_output() };
                self.header().state.end(false, others)
            }
            end => end,
        };
        match end {
            // SAFETY: the state has just returned `released` to this thread.
            End::Done(released) => unsafe { Task::released(header, released) },
            _ => self.wake_awaiter(),
        }
    }

    /// Wakes the task that polls the `Join`, and releases the reference of the `Runnable`.
    fn wake_awaiter(self) {
        let header: NonNull<Header<P::Metadata>> = self.0.cast();
        // SAFETY: the state gave the slot, with a waker in it, to this thread. The `Join` may at
        // most compare the bytes of the waker meanwhile.
        let take = |slot: *const MaybeUninit<Waker>| unsafe { slot.read().assume_init() };
        let waker = self.header().awaiter.with(take);
        let released = self.header().state.release();
        // Release before waking: then it is usually the joining thread that frees the task.
        // SAFETY: the state has just returned `released` to this thread.
        unsafe { Task::released(header, released) };
        // Wakers are user code. A panic here does not belong to this task, so catch it.
        contained(|| waker.wake());
    }

    /// Drops the future in place.
    ///
    /// # Safety
    ///
    /// The caller runs the task. The future is in the stage, and is not used afterwards.
    #[inline]
    unsafe fn drop_future(&self) {
        // SAFETY: by the contract of this function.
        self.stage()
            .with_mut(|stage| unsafe { ManuallyDrop::drop(&mut (*stage).future) });
    }

    /// Writes the output into the stage.
    ///
    /// # Safety
    ///
    /// The caller runs the task, and the stage is empty.
    #[inline]
    unsafe fn write_output(&self, output: Result<F::Output, Panic>) {
        // SAFETY: by the contract of this function.
        self.stage()
            .with_mut(|stage| unsafe { (*stage).output = ManuallyDrop::new(output) });
    }

    /// Drops the output in place.
    ///
    /// # Safety
    ///
    /// The caller owns the output, which is in the stage and is not used afterwards.
    #[inline]
    unsafe fn drop_output(&self) {
        // SAFETY: by the contract of this function.
        let has_destructor = needs_drop::<F::Output>()
            || self
                .stage()
                .with(|stage| unsafe { (*(*stage).output).is_err() });
        if has_destructor {
            // SAFETY: by the contract of this function.
            unsafe { self.run_destructor_of_output() };
        }
    }

    /// Drops an output that may run user code, inside of the policy's frame.
    ///
    /// # Safety
    ///
    /// See [`drop_output`](Full::drop_output).
    #[inline(never)]
    unsafe fn run_destructor_of_output(&self) {
        let mut is_there = true;
        let mut drop = || {
            if !mem::take(&mut is_there) {
                return;
            }
            // SAFETY: by the contract of this function. `is_there` ensures that it happens once.
            self.stage()
                .with_mut(|stage| unsafe { ManuallyDrop::drop(&mut (*stage).output) });
        };
        self.contain(|| P::dropping_output(self.metadata(), &mut drop));
        // If the policy did not call `drop`, or panicked before it did.
        self.contain(drop);
    }
}

/// Drops the future if its poll panics. This happens while the panic unwinds, so that destructors
/// see [`thread::panicking`](std::thread::panicking).
struct DropFuture<'a, F: Future, P: Policy> {
    task: Full<F, P>,
    content: &'a mut Content,
}

impl<F: Future, P: Policy> DropFuture<'_, F, P> {
    /// Replaces the future by the output.
    ///
    /// # Safety
    ///
    /// The caller runs the task. The future is in the stage and has returned `output`.
    #[inline]
    unsafe fn ready(self, output: F::Output) {
        // If the destructor of the future panics, this panic becomes the output, as in tokio.
        // `output` is then dropped by this guard.
        let output = Contained(ManuallyDrop::new(output));
        *self.content = Content::Nothing;
        // SAFETY: by the contract of this function. `content` is set first, so a panic drops
        // nothing twice.
        unsafe {
            self.task.drop_future();
            self.task.write_output(Ok(output.into_inner()));
        }
        *self.content = Content::Output;
    }
}

impl<F: Future, P: Policy> Drop for DropFuture<'_, F, P> {
    #[inline]
    fn drop(&mut self) {
        if *self.content == Content::Future {
            *self.content = Content::Nothing;
            let task = self.task;
            // Catch a second panic: it would abort the process if it left this destructor.
            // SAFETY: this thread runs the task, and `content` told that the future is in the
            // stage.
            task.contain(|| unsafe { task.drop_future() });
        }
    }
}

/// An output whose destructor may panic while another panic unwinds. Its drop catches the panic.
struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    #[inline]
    fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `self` is in a `ManuallyDrop`, so the value is taken once and not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: a destructor runs once, and nothing uses the value afterwards.
        contained(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

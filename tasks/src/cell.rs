//! The allocation of a task: its header, and behind it the future, and later its output.

use std::{
    alloc::{Layout, handle_alloc_error},
    mem::{self, ManuallyDrop, MaybeUninit, needs_drop},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    ptr::NonNull,
    task::{Context, Poll, Waker},
};

use crate::{
    Panic, Policy, Runnable, Task, Woken,
    contain::contained,
    header::{Header, VTable},
    state::{AfterPoll, End, State},
    sync::{UnsafeCell, alloc, dealloc},
    waker,
};

/// A task. `repr(C)`: the header stands at its address, whatever the future is.
#[repr(C)]
pub(crate) struct Cell<F: Future, P: Policy> {
    header: Header<P::Metadata>,
    stage: UnsafeCell<Stage<F>>,
}

/// The future until it is dropped; then the output, if there is one.
union Stage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Result<F::Output, Panic>>,
}

/// What is in the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Future,
    Nothing,
    Output,
}

/// A task whose type is known, for the thread that runs it, or that has a reference.
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
    };

    /// Makes a task, with a `Runnable` and a `Join`.
    pub(crate) fn allocate(future: F, metadata: P::Metadata) -> NonNull<Header<P::Metadata>> {
        let layout = Layout::new::<Self>();
        // SAFETY: it has a size, that of the header at least.
        let memory = unsafe { alloc(layout) };
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
        // SAFETY: the memory is of this layout, and nobody else's. One part after the other, so
        // that a large future is moved there once.
        unsafe {
            (&raw mut (*cell).header).write(header);
            (&raw mut (*cell).stage).write(stage);
        }
        // SAFETY: it was not null before.
        unsafe { NonNull::new_unchecked(cell.cast()) }
    }

    /// # Safety
    ///
    /// It is the address of such a task, from [`allocate`](Cell::allocate), which is there for as
    /// long as what is answered is used.
    #[inline]
    unsafe fn at(header: NonNull<Header<P::Metadata>>) -> Full<F, P> {
        Full(header.cast())
    }

    /// See [`VTable::run`].
    ///
    /// # Safety
    ///
    /// It is the address of such a task. The caller has its `Runnable`, and forgets it.
    unsafe fn run(header: NonNull<Header<P::Metadata>>) {
        // SAFETY: the reference of the `Runnable` keeps the task until it is given up, in the last
        // step here.
        unsafe {
            let task = Self::at(header);
            if !task.header().state.begin() {
                return task.drop_and_end();
            }
            if let Some(has_output) = task.poll() {
                return task.end(has_output);
            }
            let view = Task::at(header);
            P::pending(&view);
            match task.header().state.end_poll() {
                AfterPoll::Waiting => {}
                AfterPoll::Again => P::schedule(Runnable::of(header), Woken::WhileRunning),
                AfterPoll::Cancelled => task.drop_and_end(),
            }
        }
    }

    /// See [`VTable::cancel`].
    ///
    /// # Safety
    ///
    /// As for [`run`](Cell::run).
    unsafe fn cancel(header: NonNull<Header<P::Metadata>>) {
        // SAFETY: as in `run`.
        unsafe {
            let task = Self::at(header);
            // Whether it was cancelled before makes no difference.
            task.header().state.begin();
            task.drop_and_end();
        }
    }

    /// See [`VTable::output`].
    ///
    /// # Safety
    ///
    /// It is the address of such a task, which has ended with an output that is the caller's.
    unsafe fn output(header: NonNull<Header<P::Metadata>>) -> *mut () {
        // SAFETY: as the caller says.
        unsafe { Self::at(header) }
            .stage()
            .with_mut(<*mut Stage<F>>::cast)
    }

    /// See [`VTable::drop_output`].
    ///
    /// # Safety
    ///
    /// As for [`output`](Cell::output); it is not used after this.
    unsafe fn drop_output(header: NonNull<Header<P::Metadata>>) {
        // SAFETY: as the caller says.
        unsafe { Self::at(header).drop_output() };
    }

    /// See [`VTable::free`].
    ///
    /// # Safety
    ///
    /// It is the address of such a task, which has ended, of which nobody has anything any more.
    unsafe fn free(header: NonNull<Header<P::Metadata>>) {
        struct Free(*mut u8, Layout);
        impl Drop for Free {
            fn drop(&mut self) {
                // SAFETY: it was allocated with this layout, and is not used any more.
                unsafe { dealloc(self.0, self.1) };
            }
        }
        // The memory is freed even if the destructor of the metadata panics.
        let _free = Free(header.as_ptr().cast(), Layout::new::<Self>());
        // SAFETY: nobody has it any more, as the caller says. Neither a future nor an output is
        // there.
        unsafe { header.drop_in_place() };
    }
}

impl<F: Future, P: Policy> Full<F, P> {
    #[inline]
    fn header(&self) -> &Header<P::Metadata> {
        // SAFETY: the task is there, as whoever has made this said, and its header is never lent
        // mutably.
        unsafe { &(*self.0.as_ptr()).header }
    }

    #[inline]
    fn metadata(&self) -> &P::Metadata {
        &self.header().metadata
    }

    #[inline]
    fn stage(&self) -> &UnsafeCell<Stage<F>> {
        // SAFETY: see above; what is in it is reached by its owner, who says so there.
        unsafe { &(*self.0.as_ptr()).stage }
    }

    /// Calls user code. A panic of it goes no further, and is reported to the policy. A panic of the
    /// policy ends here as well: this may run while another panic unwinds.
    fn contain(&self, f: impl FnOnce()) {
        if !contained(f) {
            _ = contained(|| P::panicked(self.metadata()));
        }
    }

    /// Polls the future. `None` if it is pending; else the future was dropped, and the answer is
    /// whether there is an output in its place.
    ///
    /// # Safety
    ///
    /// The caller runs the task.
    #[inline]
    unsafe fn poll(&self) -> Option<bool> {
        // SAFETY: the caller's reference is there for as long as this runs.
        let view = unsafe { Task::<P::Metadata>::at(self.0.cast()) };
        let waker = view.lent_waker();
        let mut content = Content::Future;
        let poll = || {
            let guard = DropFuture {
                task: *self,
                content: &mut content,
            };
            let cx = &mut Context::from_waker(&waker);
            let poll = self.stage().with_mut(|stage| {
                // SAFETY: the caller runs the task, so the future is there, and its alone. It is
                // pinned: it is dropped in its place.
                unsafe { Pin::new_unchecked(&mut *(*stage).future) }.poll(cx)
            });
            match poll {
                Poll::Pending => mem::forget(guard),
                // SAFETY: the caller runs the task, and this is what the future has returned.
                Poll::Ready(output) => unsafe { guard.ready(output) },
            }
        };
        let poll = || P::polling(self.metadata(), poll);
        let caught = catch_unwind(AssertUnwindSafe(poll));
        match (caught, content) {
            (Ok(()), Content::Future) => None,
            (Ok(()), content) => Some(content == Content::Output),
            (Err(panic), content) => {
                // SAFETY: as the caller says.
                unsafe { self.panicked(panic, content) };
                Some(true)
            }
        }
    }

    /// Makes a panic the output.
    ///
    /// # Safety
    ///
    /// The caller runs the task, and `content` is what is in its stage.
    #[cold]
    unsafe fn panicked(&self, panic: Panic, content: Content) {
        P::panicked(self.metadata());
        // SAFETY: as the caller says.
        unsafe {
            match content {
                // The policy itself has panicked.
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
    /// The caller runs the task, and has not dropped the future. The reference of the `Runnable` is
    /// given up.
    #[inline(never)]
    unsafe fn drop_and_end(self) {
        let mut is_there = true;
        let drop = || {
            is_there = false;
            // SAFETY: as the caller says.
            unsafe { self.drop_future() };
        };
        let caught = catch_unwind(AssertUnwindSafe(|| P::dropping(self.metadata(), drop)));
        // SAFETY: as the caller says, and the marks.
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
    /// The caller runs the task. The future was dropped, and `has_output` says whether there is an
    /// output in its place. The reference of the `Runnable` is given up.
    #[inline]
    unsafe fn end(self, has_output: bool) {
        let header: NonNull<Header<P::Metadata>> = self.0.cast();
        let others = match P::ended(self.metadata()) {
            None => 0,
            Some(kept) => {
                // One of another task would be taken from this one's count.
                assert_eq!(kept.address(), header, "the reference is to this task");
                kept.into_address();
                1
            }
        };
        let end = match self.header().state.end(has_output, others) {
            End::DropOutput => {
                // SAFETY: it is there, as the caller says, and nobody else's.
                unsafe { self.drop_output() };
                self.header().state.end(false, others)
            }
            end => end,
        };
        match end {
            // SAFETY: the state has just said so.
            End::Done(released) => unsafe { Task::released(header, released) },
            _ => self.wake_awaiter(),
        }
    }

    /// Wakes whoever polls the `Join`, and gives the reference of the `Runnable` up.
    fn wake_awaiter(self) {
        let header: NonNull<Header<P::Metadata>> = self.0.cast();
        // SAFETY: the state has left the slot to this thread, with a waker in it. The `Join`
        // compares its bytes at most.
        let take = |slot: *const MaybeUninit<Waker>| unsafe { slot.read().assume_init() };
        let waker = self.header().awaiter.with(take);
        let released = self.header().state.release();
        // Before the waker: then it is mostly the thread that joins the task that frees it.
        // SAFETY: the state has just said so.
        unsafe { Task::released(header, released) };
        // User code. A panic of it goes no further: it is none of this task's.
        contained(|| waker.wake());
    }

    /// # Safety
    ///
    /// The caller runs the task, and has not dropped the future, which is not used after this.
    #[inline]
    unsafe fn drop_future(&self) {
        // SAFETY: as the caller says.
        self.stage()
            .with_mut(|stage| unsafe { ManuallyDrop::drop(&mut (*stage).future) });
    }

    /// # Safety
    ///
    /// The caller runs the task, and the stage is empty.
    #[inline]
    unsafe fn write_output(&self, output: Result<F::Output, Panic>) {
        // SAFETY: as the caller says.
        self.stage()
            .with_mut(|stage| unsafe { (*stage).output = ManuallyDrop::new(output) });
    }

    /// Drops the output in its place.
    ///
    /// # Safety
    ///
    /// It is there, and the caller's, who does not use it after this.
    #[inline]
    unsafe fn drop_output(&self) {
        // SAFETY: as the caller says.
        let has_destructor = needs_drop::<F::Output>()
            || self
                .stage()
                .with(|stage| unsafe { (*(*stage).output).is_err() });
        if has_destructor {
            // SAFETY: as the caller says.
            unsafe { self.run_destructor_of_output() };
        }
    }

    /// # Safety
    ///
    /// As for [`drop_output`](Full::drop_output).
    #[inline(never)]
    unsafe fn run_destructor_of_output(&self) {
        let mut is_there = true;
        let mut drop = || {
            if !mem::take(&mut is_there) {
                return;
            }
            // SAFETY: as the caller says; once, by the mark.
            self.stage()
                .with_mut(|stage| unsafe { ManuallyDrop::drop(&mut (*stage).output) });
        };
        self.contain(|| P::dropping_output(self.metadata(), &mut drop));
        // Where the policy has not.
        self.contain(drop);
    }
}

/// Drops the future if its poll panics: while that panic unwinds, so that destructors see
/// [`thread::panicking`](std::thread::panicking).
struct DropFuture<'a, F: Future, P: Policy> {
    task: Full<F, P>,
    content: &'a mut Content,
}

impl<F: Future, P: Policy> DropFuture<'_, F, P> {
    /// Puts the output into the place of the future.
    ///
    /// # Safety
    ///
    /// The caller runs the task. The future is there, and has returned the output.
    #[inline]
    unsafe fn ready(self, output: F::Output) {
        // If the destructor of the future panics, that is what the task has come to, as in tokio.
        let output = Contained(ManuallyDrop::new(output));
        *self.content = Content::Nothing;
        // SAFETY: as the caller says, and the mark.
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
            // A second panic would end the process, if it left this destructor.
            // SAFETY: this thread has polled the future, and the mark says that it is there.
            task.contain(|| unsafe { task.drop_future() });
        }
    }
}

/// An output, whose destructor may panic while another panic unwinds.
struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    #[inline]
    fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: it is taken once, since this is not dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, here.
        contained(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

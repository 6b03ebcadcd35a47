//! Values that belong to a task, or to a part of one.

use std::{
    cell::RefCell,
    error::Error,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

/// Declares static variables of type [`LocalKey`](crate::task::LocalKey), whose values belong to a
/// task.
///
/// Attributes and visibility of each variable are kept.
///
/// ```
/// tourbillon::task_local! {
///     /// The number of the request that the task serves.
///     pub static REQUEST: u64;
///     static USER: String;
/// }
///
/// async fn log(text: &str) -> String {
///     format!("{} {}: {text}", REQUEST.get(), USER.with(String::clone))
/// }
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let served = REQUEST.scope(7, USER.scope("ann".to_owned(), log("begins")));
/// assert_eq!(tourbillon::spawn(served).await.unwrap(), "7 ann: begins");
/// # });
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty);* $(;)?) => {
        $($(#[$attr])*
        $vis static $name: $crate::task::LocalKey<$ty> = {
            ::std::thread_local! {
                static VALUE: ::std::cell::RefCell<::std::option::Option<$ty>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::task::LocalKey::new(VALUE)
        };)*
    };
}

/// A variable with a value for each task. [`task_local!`](crate::task_local) declares it.
///
/// It has a value only within a [`scope`](LocalKey::scope). Tasks that are spawned there do not
/// inherit the value.
pub struct LocalKey<T: 'static> {
    /// The value of the scope that this thread is in.
    value: thread::LocalKey<RefCell<Option<T>>>,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(value: thread::LocalKey<RefCell<Option<T>>>) -> Self {
        Self { value }
    }

    /// Returns a future that runs `future` with `value` as the value of this variable. The value of
    /// an outer scope returns when the inner one ends.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled within [`with`](LocalKey::with) or
    /// [`try_with`](LocalKey::try_with) of the same variable, or after it is ready.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture {
            key: self,
            value: Some(value),
            future: Some(future),
        }
    }

    /// Runs `f` with `value` as the value of this variable, and drops the value.
    ///
    /// ```
    /// tourbillon::task_local! {
    ///     static NUMBER: u32;
    /// }
    /// assert_eq!(NUMBER.sync_scope(42, || NUMBER.get()), 42);
    /// assert!(NUMBER.try_get().is_err());
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if it is called within [`with`](LocalKey::with) or [`try_with`](LocalKey::try_with)
    /// of the same variable, or while the thread's local variables are destroyed.
    #[track_caller]
    pub fn sync_scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        match self.enter(&mut Some(value), f) {
            Ok(result) => result,
            Err(denied) => denied.panic(),
        }
    }

    /// Calls `f` with a reference to the value, and returns its result.
    ///
    /// # Panics
    ///
    /// Panics if the variable has no value.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(result) => result,
            Err(error) => panic!("{error}"),
        }
    }

    /// Calls `f` with a reference to the value, and returns its result, or an error.
    ///
    /// # Errors
    ///
    /// Returns [`AccessError`] if the variable has no value.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        // This borrow cannot fail: no user code runs during the mutable one in `swap`.
        let called = self.value.try_with(|value| value.borrow().as_ref().map(f));
        called.ok().flatten().ok_or(AccessError(()))
    }

    /// Runs `f` with the value of this variable taken from `value`, and puts it back there, also on
    /// a panic.
    fn enter<R>(&'static self, value: &mut Option<T>, f: impl FnOnce() -> R) -> Result<R, Denied> {
        struct Leave<'a, T: 'static>(&'static LocalKey<T>, &'a mut Option<T>);
        impl<T> Drop for Leave<'_, T> {
            fn drop(&mut self) {
                // It worked before `f`, and all references from `with` have ended.
                let _ = self.0.swap(self.1);
            }
        }
        self.swap(value)?;
        let _leave = Leave(self, value);
        Ok(f())
    }

    fn swap(&'static self, value: &mut Option<T>) -> Result<(), Denied> {
        let swapped = self.value.try_with(|current| {
            let mut current = current.try_borrow_mut().map_err(|_| Denied::Borrowed)?;
            mem::swap(value, &mut *current);
            Ok(())
        });
        swapped.unwrap_or(Err(Denied::Destroyed))
    }
}

impl<T: Clone + 'static> LocalKey<T> {
    /// Returns a clone of the value.
    ///
    /// # Panics
    ///
    /// Panics if the variable has no value.
    #[track_caller]
    pub fn get(&'static self) -> T {
        self.with(T::clone)
    }

    /// Returns a clone of the value, or an error.
    ///
    /// # Errors
    ///
    /// Returns [`AccessError`] if the variable has no value.
    pub fn try_get(&'static self) -> Result<T, AccessError> {
        self.try_with(T::clone)
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// Why a scope could not be entered.
enum Denied {
    /// The variable is in use by `with`.
    Borrowed,
    /// The thread ends.
    Destroyed,
}

impl Denied {
    #[track_caller]
    fn panic(self) -> ! {
        match self {
            Self::Borrowed => panic!("a task-local scope is entered within `with` of its variable"),
            Self::Destroyed => panic!("a task-local scope is entered while its thread ends"),
        }
    }
}

/// The future of [`LocalKey::scope`]. It drops the inner future within the scope.
#[must_use = "futures do nothing unless polled"]
pub struct TaskLocalFuture<T: 'static, F> {
    key: &'static LocalKey<T>,
    /// The value between polls.
    value: Option<T>,
    /// `None` once it is ready.
    future: Option<F>,
}

impl<T: 'static, F> TaskLocalFuture<T, F> {
    /// Takes the value out of the scope, or returns `None` if it was taken before.
    ///
    /// The value is there also after the future is ready. If the future is not ready, it goes on
    /// without a value.
    ///
    /// ```
    /// tourbillon::task_local! {
    ///     static NUMBER: u32;
    /// }
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut scope = std::pin::pin!(NUMBER.scope(42, async {}));
    /// scope.as_mut().await;
    /// assert_eq!(scope.take_value(), Some(42));
    /// # });
    /// ```
    pub fn take_value(self: Pin<&mut Self>) -> Option<T> {
        // SAFETY: only `future` is pinned, and it is not moved here.
        unsafe { self.get_unchecked_mut() }.value.take()
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is only polled in place, and dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        let slot = &mut this.future;
        let polled = this.key.enter(&mut this.value, || {
            // SAFETY: the future is pinned whenever `self` is: nothing moves it, the destructor of
            // `self` drops it in place, and Unpin is derived from it.
            let future = unsafe { Pin::new_unchecked(slot.as_mut()?) };
            let polled = future.poll(cx);
            if polled.is_ready() {
                // Within the scope: its destructors may use the value.
                *slot = None;
            }
            Some(polled)
        });
        match polled {
            Ok(Some(polled)) => polled,
            Ok(None) => panic!("a task-local scope is polled after it is ready"),
            Err(denied) => denied.panic(),
        }
    }
}

impl<T: 'static, F> Drop for TaskLocalFuture<T, F> {
    fn drop(&mut self) {
        if mem::needs_drop::<F>() && self.future.is_some() {
            let future = &mut self.future;
            // If the scope cannot be entered, the future is dropped outside of it.
            let _ = self.key.enter(&mut self.value, || *future = None);
        }
    }
}

impl<T: fmt::Debug, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture")
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

/// The error of an access to a [`LocalKey`] that has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError(());

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task-local variable has no value here: set one by `scope`")
    }
}

impl Error for AccessError {}

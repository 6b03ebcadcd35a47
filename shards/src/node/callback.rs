//! Payloads of timers that run callbacks, and their vtables.

use std::{
    marker::PhantomData,
    mem::{MaybeUninit, needs_drop},
    num::NonZeroU64,
    ptr::NonNull,
};

use tourbillon_sync::{TypeName, UnsafeCell};

use crate::{
    answer::{Flow, Kind, Outcome},
    names::Name,
    node::{
        Node, NodeRef,
        extras::Extras,
        header::{Header, VTable},
        state::Claim,
        wait::Wait,
    },
    owner::Owner,
    shard::home::Home,
};

/// Callback of a node. It is initialized until the thread that won the claim to it has run or
/// dropped it.
struct Callback<F>(UnsafeCell<MaybeUninit<F>>);

impl<F> Callback<F> {
    #[inline]
    fn new(f: F) -> Self {
        Self(UnsafeCell::new(MaybeUninit::new(f)))
    }

    /// Moves the callback out of the node.
    ///
    /// # Safety
    ///
    /// The callback is initialized, and the caller won the claim that gives it the callback for
    /// good.
    unsafe fn take(&self) -> F {
        // SAFETY: by contract it is initialized, and no thread reads it after this.
        self.0.with_mut(|f| unsafe { (*f).assume_init_read() })
    }

    /// Calls `run` with the callback in its place.
    ///
    /// # Safety
    ///
    /// The callback is initialized, and the caller won the claim to run it.
    unsafe fn with<R>(&self, run: impl FnOnce(&mut F) -> R) -> R {
        // SAFETY: by contract it is initialized, and only the caller uses it.
        self.0.with_mut(|f| run(unsafe { (*f).assume_init_mut() }))
    }
}

/// Returns the payload of a node.
///
/// # Safety
///
/// `ptr` is to a live `Node<O, P>`.
unsafe fn payload<'a, O: Owner, P>(ptr: NonNull<Header<O>>) -> &'a P {
    // SAFETY: by contract the node is alive and of this type; references to a node stay shared.
    unsafe { &ptr.cast::<Node<O, P>>().as_ref().payload }
}

/// Origin of a timer without options, if it has one: see [`Due::origin`](crate::Due::origin).
pub(crate) trait Origin: Send + 'static {
    /// Whether there is one.
    const IS_KNOWN: bool;

    fn get(&self) -> Option<NonZeroU64>;
}

impl Origin for () {
    const IS_KNOWN: bool = false;

    fn get(&self) -> Option<NonZeroU64> {
        None
    }
}

impl Origin for NonZeroU64 {
    const IS_KNOWN: bool = true;

    fn get(&self) -> Option<NonZeroU64> {
        Some(*self)
    }
}

/// Payload of a timer without options. Without an origin it is only the callback.
struct Bare<F, G> {
    callback: Callback<F>,
    origin: G,
}

/// Vtables of nodes without options.
struct Plain<O, F, G>(PhantomData<(O, F, G)>);

impl<O: Owner, F: Send + 'static, G: Origin> Plain<O, F, G> {
    const fn table(kind: Kind, run: unsafe fn(NonNull<Header<O>>) -> Flow) -> VTable<O> {
        VTable {
            kind,
            name: TypeName::new::<F>(),
            run,
            end: if needs_drop::<F>() {
                Some(Self::end)
            } else {
                None
            },
            deliver: None,
            extras: None,
            origin: if G::IS_KNOWN {
                Some(Self::origin)
            } else {
                None
            },
            leave_name: None,
            free: NodeRef::<O>::free::<Bare<F, G>, Wait>,
        }
    }

    unsafe fn end(ptr: NonNull<Header<O>>) {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        drop(unsafe { payload::<O, Bare<F, G>>(ptr).callback.take() });
    }

    unsafe fn origin(ptr: NonNull<Header<O>>) -> Option<NonZeroU64> {
        // SAFETY: by the vtable's contract, this is a live node of this type.
        unsafe { payload::<O, Bare<F, G>>(ptr).origin.get() }
    }
}

impl<O: Owner, F: FnOnce() + Send + 'static, G: Origin> Plain<O, F, G> {
    const ONCE: VTable<O> = Self::table(Kind::Once, Self::run_once);

    unsafe fn run_once(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        unsafe { payload::<O, Bare<F, G>>(ptr).callback.take()() };
        Flow::Break(Outcome::Fired)
    }
}

impl<O: Owner, F: FnMut() + Send + 'static, G: Origin> Plain<O, F, G> {
    const RECURRING: VTable<O> = Self::table(Kind::Recurring, Self::run_again);

    unsafe fn run_again(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        unsafe { payload::<O, Bare<F, G>>(ptr).callback.with(|f| f()) };
        Flow::Continue(())
    }
}

/// Allocates a node for a callback that runs once. Returns two references: for the handle and for
/// the shard.
#[inline]
pub(crate) fn once<O: Owner, F: FnOnce() + Send + 'static, G: Origin>(
    home: Home<O>,
    claim: Claim,
    wait: u64,
    origin: G,
    f: F,
) -> (NodeRef<O>, NodeRef<O>) {
    NodeRef::pair(move || Node {
        header: Header::new(&Plain::<O, F, G>::ONCE, home, claim),
        wait: Wait::new(wait),
        payload: Bare {
            callback: Callback::new(f),
            origin,
        },
    })
}

/// Allocates a node for a callback that runs repeatedly. The second reference is for the holder.
pub(crate) fn recurring<O: Owner, F: FnMut() + Send + 'static, G: Origin>(
    home: Home<O>,
    claim: Claim,
    wait: u64,
    origin: G,
    f: F,
) -> (NodeRef<O>, NodeRef<O>) {
    NodeRef::pair(move || Node {
        header: Header::new(&Plain::<O, F, G>::RECURRING, home, claim),
        wait: Wait::new(wait),
        payload: Bare {
            callback: Callback::new(f),
            origin,
        },
    })
}

/// Payload of a timer with options.
struct Optioned<O: Owner, F> {
    extras: Extras,
    name: Option<Name<O>>,
    callback: Callback<F>,
}

/// Vtables of nodes with options: by once or recurring, and by whether the callback takes outcomes.
/// The reported type name is that of `N`.
struct Table<O, F, N>(PhantomData<(O, F, N)>);

impl<O: Owner, F: FnMut(Outcome) -> Flow + Send + 'static, N: 'static> Table<O, F, N> {
    /// By whether the timer recurs, and by whether its callback takes outcomes.
    const TABLES: [[VTable<O>; 2]; 2] = [
        [
            Self::table(Kind::Once, false),
            Self::table(Kind::Once, true),
        ],
        [
            Self::table(Kind::Recurring, false),
            Self::table(Kind::Recurring, true),
        ],
    ];

    const fn table(kind: Kind, takes_outcome: bool) -> VTable<O> {
        let once = matches!(kind, Kind::Once);
        VTable {
            kind,
            name: TypeName::new::<N>(),
            run: if once {
                Self::run_once
            } else {
                Self::run_again
            },
            end: if needs_drop::<F>() {
                Some(Self::end)
            } else {
                None
            },
            deliver: if takes_outcome {
                Some(Self::deliver)
            } else {
                None
            },
            extras: Some(Self::extras),
            // The extras have it.
            origin: None,
            leave_name: Some(Self::leave_name),
            free: NodeRef::<O>::free::<Optioned<O, F>, Wait>,
        }
    }

    unsafe fn run_once(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        let mut f = unsafe { payload::<O, Optioned<O, F>>(ptr).callback.take() };
        // The timer runs once, so it ends here even if the callback answers `Continue`.
        match f(Outcome::Fired) {
            Flow::Continue(()) => Flow::Break(Outcome::Fired),
            over => over,
        }
    }

    unsafe fn run_again(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        unsafe {
            payload::<O, Optioned<O, F>>(ptr)
                .callback
                .with(|f| f(Outcome::Fired))
        }
    }

    unsafe fn end(ptr: NonNull<Header<O>>) {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        drop(unsafe { payload::<O, Optioned<O, F>>(ptr).callback.take() });
    }

    unsafe fn deliver(ptr: NonNull<Header<O>>, how: Outcome) {
        // SAFETY: by the vtable's contract, this is a live node of this type. The caller won the
        // claim to its callback.
        let mut f = unsafe { payload::<O, Optioned<O, F>>(ptr).callback.take() };
        _ = f(how);
    }

    unsafe fn extras(ptr: NonNull<Header<O>>) -> NonNull<Extras> {
        // SAFETY: by the vtable's contract, this is a live node of this type.
        NonNull::from(unsafe { &payload::<O, Optioned<O, F>>(ptr).extras })
    }

    unsafe fn leave_name(ptr: NonNull<Header<O>>) {
        // SAFETY: by the vtable's contract, this is a live node of this type.
        let Optioned { extras, name, .. } = unsafe { payload::<O, Optioned<O, F>>(ptr) };
        if let Some(name) = name {
            name.leave(&extras.place);
        }
    }
}

/// Allocates a node for a callback with options. The reported type name is that of `N`.
pub(crate) fn optioned<N, O, F>(
    home: Home<O>,
    claim: Claim,
    wait: u64,
    (recurring, takes_outcome): (bool, bool),
    (extras, name): (Extras, Option<Name<O>>),
    f: F,
) -> NodeRef<O>
where
    N: 'static,
    O: Owner,
    F: FnMut(Outcome) -> Flow + Send + 'static,
{
    let tables: &'static [[VTable<O>; 2]; 2] = &Table::<O, F, N>::TABLES;
    let table = &tables[usize::from(recurring)][usize::from(takes_outcome)];
    let header = Header::new(table, home, claim);
    let callback = Callback::new(f);
    NodeRef::new(move || Node {
        header,
        wait: Wait::new(wait),
        payload: Optioned {
            extras,
            name,
            callback,
        },
    })
}

/// Adds a node to the list of its name, if it has one. Called once, before another thread has the
/// node.
///
/// # Safety
///
/// `node` is from [`optioned`] with this `F`.
pub(crate) unsafe fn join_name<O: Owner, F>(node: &NodeRef<O>) {
    // SAFETY: by contract it is a node of this type, and the reference keeps it alive.
    if let Some(name) = unsafe { &payload::<O, Optioned<O, F>>(node.as_ptr()).name } {
        name.join(node);
    }
}

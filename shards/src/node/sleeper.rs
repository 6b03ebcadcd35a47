//! Payload of sleeps, which is a waker slot, and its vtable.

use std::{marker::PhantomData, ptr::NonNull, task::Waker};

use tourbillon_sync::TypeName;

use crate::{
    answer::{Flow, Kind, Outcome},
    node::{
        Node, NodeRef,
        header::{Header, VTable},
        state::Claim,
        waker::WakerSlot,
    },
    owner::Owner,
    shard::home::Home,
};

/// Vtable of a sleep's node. The reported type name is that of `N`.
struct Table<O, N>(PhantomData<(O, N)>);

impl<O: Owner, N: 'static> Table<O, N> {
    const SLEEP: VTable<O> = VTable {
        kind: Kind::Sleep,
        name: TypeName::new::<N>(),
        run: Self::run,
        end: Some(Self::wake),
        deliver: None,
        extras: None,
        origin: None,
        leave_name: None,
        free: NodeRef::<O>::free::<WakerSlot, ()>,
    };

    unsafe fn run(ptr: NonNull<Header<O>>) -> Flow {
        // SAFETY: the caller keeps the table's contract.
        unsafe { Self::wake(ptr) };
        Flow::Break(Outcome::Fired)
    }

    unsafe fn wake(ptr: NonNull<Header<O>>) {
        // SAFETY: by the table's contract `ptr` is a live `Node<O, WakerSlot, ()>`, and no thread
        // makes a mutable reference to a node.
        let node = unsafe { ptr.cast::<Node<O, WakerSlot, ()>>().as_ref() };
        if let Some(waker) = node.payload.take() {
            waker.wake();
        }
    }
}

/// Allocates the node of a sleep. The reported type name is that of `N`. The second reference is
/// for the holder.
#[inline(always)]
pub(crate) fn sleep<N: 'static, O: Owner>(
    home: Home<O>,
    claim: Claim,
    waker: Option<Waker>,
) -> (NodeRef<O>, NodeRef<O>) {
    NodeRef::pair(move || Node {
        header: Header::new(&Table::<O, N>::SLEEP, home, claim),
        wait: (),
        payload: WakerSlot::new(waker),
    })
}

/// Returns the waker slot of a sleep.
///
/// # Safety
///
/// `node` is the node of a sleep.
#[inline]
pub(crate) unsafe fn slot<O: Owner>(node: &NodeRef<O>) -> &WakerSlot {
    // SAFETY: by contract the node is a `Node<O, WakerSlot, ()>`, and the reference keeps it alive.
    unsafe {
        &node
            .as_ptr()
            .cast::<Node<O, WakerSlot, ()>>()
            .as_ref()
            .payload
    }
}

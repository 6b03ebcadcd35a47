//! What threads may share and send. The compiler checks it here, and in no model: loom's `spawn` takes
//! what is not `Send`, too.
#![cfg(not(loom))]

use handover::{
    mailbox::Mailbox,
    queue::{Receiver, Sender},
    spin_lock::SpinLock,
};

fn send<T: Send>() {}
fn sync<T: Sync>() {}

#[test]
fn threads_share_and_send_the_structures() {
    sync::<Mailbox<u8>>();
    sync::<SpinLock<u8>>();
    send::<Sender<u8>>();
    send::<Receiver<u8>>();
}

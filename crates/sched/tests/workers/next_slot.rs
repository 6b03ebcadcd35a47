//! The next slot, on one thread.

use std::sync::Arc;

use tourbillon_sched::NextSlot;

#[test]
fn a_value_is_in_the_slot_until_it_is_taken_replaced_or_stolen() {
    let slot = NextSlot::default();
    assert!(slot.is_empty());
    assert_eq!((slot.take(), slot.steal()), (None, None));
    assert_eq!(slot.put(Box::new(1)), None);
    assert!(!slot.is_empty());
    assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
    assert_eq!(slot.take(), Some(Box::new(2)));
    assert!(slot.is_empty());
    assert_eq!(slot.put(Box::new(3)), None);
    assert_eq!(slot.steal(), Some(Box::new(3)));
    assert!(slot.is_empty());
}

#[test]
fn a_value_is_dropped_with_its_slot() {
    let value = Arc::new(());
    let slot = NextSlot::default();
    assert!(slot.put(Box::new(value.clone())).is_none());
    drop(slot);
    assert_eq!(Arc::strong_count(&value), 1);
}

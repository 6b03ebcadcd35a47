//! Queues that are paused: a set, which the scripts of holds and begins read.

use redis::Value;

use super::{
    Redis,
    answers::{array, text},
    prepare,
};
use crate::store::StoreError;

impl Redis {
    /// Pauses a queue, or lets it go on.
    pub(super) async fn change_pause(
        &self,
        queue: &str,
        is_paused: bool,
    ) -> Result<(), StoreError> {
        let mut call = prepare(&self.scripts.set_paused);
        call.arg(queue).arg(i32::from(is_paused));
        match self.clients.run(&call).await? {
            Value::Nil => Err(StoreError::EarlierNodes),
            _ => Ok(()),
        }
    }

    /// Returns the queues that are paused.
    pub(super) async fn all_paused(&self) -> Result<Vec<String>, StoreError> {
        let answer = self.clients.run(&prepare(&self.scripts.paused)).await?;
        let names = array(&answer)?.iter().map(text);
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        names.sort();
        Ok(names)
    }
}

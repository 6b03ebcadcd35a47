//! An exchange by a crate.

use std::{future::Future, pin::Pin};

use crate::servers::{Addresses, Program};

type Exchange = Box<dyn Fn(Addresses) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// A row of the table: exchanges that show one ability.
pub struct Case {
    pub(crate) package: &'static str,
    pub(crate) what: &'static str,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) needs: Vec<Program>,
}

impl Case {
    /// Creates a case. The exchange runs in a task and panics if it fails.
    pub fn new<F>(
        package: &'static str,
        what: &'static str,
        exchange: impl Fn(Addresses) -> F + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let case = Self {
            package,
            what,
            exchanges: Vec::new(),
            needs: Vec::new(),
        };
        case.and(exchange)
    }

    /// Adds an exchange.
    pub fn and<F>(mut self, exchange: impl Fn(Addresses) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.exchanges
            .push(Box::new(move |addresses| Box::pin(exchange(addresses))));
        self
    }

    /// Adds a program that must run.
    pub fn needs(mut self, program: Program) -> Self {
        self.needs.push(program);
        self
    }
}

//! An exchange by a crate, and its expected results.

use std::{future::Future, pin::Pin};

use crate::servers::{Addresses, Program};

/// The expected result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The exchange succeeds, and nothing panics.
    Works,
    /// The crate panics. The first panic has this text in its message.
    Panics(&'static str),
    /// The crate returns an error with this text, which the exchange unwraps.
    Fails(&'static str),
}

type Exchange = Box<dyn Fn(Addresses) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// A row of the table: exchanges that have the same results.
pub struct Case {
    pub(crate) package: &'static str,
    pub(crate) what: &'static str,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) as_it_is: Expected,
    pub(crate) with_compat: Expected,
    pub(crate) remark: &'static str,
    pub(crate) needs: Vec<Program>,
}

impl Case {
    /// Creates a case that works in both runtimes. The exchange runs in a task of Tourbillon and
    /// panics if it fails.
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
            as_it_is: Expected::Works,
            with_compat: Expected::Works,
            remark: "",
            needs: Vec::new(),
        };
        case.and(exchange)
    }

    /// Adds an exchange. Each one runs in a runtime of its own, and must have the same results.
    pub fn and<F>(mut self, exchange: impl Fn(Addresses) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.exchanges
            .push(Box::new(move |addresses| Box::pin(exchange(addresses))));
        self
    }

    /// Sets the text of the crate's panic where tokio's runtime is missing.
    pub fn panics(mut self, text: &'static str) -> Self {
        self.as_it_is = Expected::Panics(text);
        self
    }

    /// Sets the text of the crate's error where tokio's runtime is missing.
    pub fn fails(mut self, text: &'static str) -> Self {
        self.as_it_is = Expected::Fails(text);
        self
    }

    /// Adds the reason of the results, or a hint.
    pub fn because(mut self, remark: &'static str) -> Self {
        self.remark = remark;
        self
    }

    /// Adds a program that must run.
    pub fn needs(mut self, program: Program) -> Self {
        self.needs.push(program);
        self
    }
}

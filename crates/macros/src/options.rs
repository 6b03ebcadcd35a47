//! The options in the parentheses of an attribute.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{
    Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
};

/// The options of an attribute.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) worker_threads: Option<usize>,
    pub(crate) current_thread: bool,
    pub(crate) start_paused: Option<bool>,
    pub(crate) crate_path: Option<Path>,
    pub(crate) name: Option<LitStr>,
    /// Of a simulation: how many seeds run, and for how long at most.
    pub(crate) seeds: Option<usize>,
    pub(crate) seconds: Option<usize>,
}

/// The names of the options, for error messages.
const KNOWN: &str = "`worker_threads`, `start_paused`, `name`, `flavor` and `crate`";

/// The names of the options of a simulation.
const KNOWN_OF_SIM: &str = "`seeds`, `seconds`, `workers` and `crate`";

/// An option: `name = value`.
struct Pair {
    name: Ident,
    value: Expr,
}

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // `parse_any` also accepts keywords, such as `crate`.
        let name = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            let message = "expected `name = value`, as in `worker_threads = 2` or `seeds = 200`";
            return Err(Error::new(name.span(), message));
        }
        input.parse::<Token![=]>()?;
        let value = input.parse()?;
        Ok(Self { name, value })
    }
}

impl Options {
    /// Parses the options. Returns all errors at once.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        Self::parse_by(Self::set, tokens)
    }

    /// Parses the options of a simulation.
    pub(crate) fn parse_sim(tokens: TokenStream) -> Result<Self> {
        Self::parse_by(Self::set_of_sim, tokens)
    }

    fn parse_by(
        set: fn(&mut Self, &Ident, &Expr) -> Result<()>,
        tokens: TokenStream,
    ) -> Result<Self> {
        let pairs = Punctuated::<Pair, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut options = Self::default();
        let mut seen = Vec::<Ident>::new();
        let mut errors = Errors::default();
        for Pair { name, value } in pairs {
            if seen.contains(&name) {
                let message = format!("`{name}` is given twice");
                errors.add(Error::new(name.span(), message));
                continue;
            }
            errors.note(set(&mut options, &name, &value));
            seen.push(name);
        }
        if options.current_thread && options.worker_threads.is_some() {
            let workers = seen.iter().find(|name| *name == "worker_threads");
            let span = workers.map_or_else(Span::call_site, Ident::span);
            let message = "`worker_threads` has no meaning with the flavor \"current_thread\": \
                           leave one of them out";
            errors.add(Error::new(span, message));
        }
        errors.or(options)
    }

    fn set(&mut self, name: &Ident, value: &Expr) -> Result<()> {
        match name.to_string().as_str() {
            "worker_threads" => self.worker_threads = Some(number(name, value)?),
            "start_paused" => self.start_paused = Some(switch(name, value)?),
            "name" => {
                self.name = match literal(value) {
                    Some(Lit::Str(name)) if !name.value().trim().is_empty() => Some(name.clone()),
                    _ => {
                        let message = "`name` must be a text in quotes that is not empty";
                        return Err(Error::new_spanned(value, message));
                    }
                };
            }
            "flavor" => self.current_thread = flavor(value)?,
            "crate" => self.crate_path = Some(path(value)?),
            _ => return Err(unknown(name, KNOWN)),
        }
        Ok(())
    }

    fn set_of_sim(&mut self, name: &Ident, value: &Expr) -> Result<()> {
        match name.to_string().as_str() {
            "seeds" => self.seeds = Some(number(name, value)?),
            "seconds" => self.seconds = Some(number(name, value)?),
            "workers" => self.worker_threads = Some(number(name, value)?),
            "crate" => self.crate_path = Some(path(value)?),
            _ => return Err(unknown(name, KNOWN_OF_SIM)),
        }
        Ok(())
    }
}

fn unknown(name: &Ident, known: &str) -> Error {
    let message = format!("unknown option `{name}`: the options are {known}");
    Error::new(name.span(), message)
}

fn path(value: &Expr) -> Result<Path> {
    let wrong = "`crate` must be a path in quotes, such as \"crate::tourbillon\"";
    let Some(Lit::Str(path)) = literal(value) else {
        return Err(Error::new_spanned(value, wrong));
    };
    let path = path.parse_with(Path::parse_mod_style);
    path.map_err(|_| Error::new_spanned(value, wrong))
}

fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

fn switch(name: &Ident, value: &Expr) -> Result<bool> {
    match literal(value) {
        Some(Lit::Bool(is_on)) => Ok(is_on.value),
        _ => {
            let message = format!("`{name}` must be `true` or `false`");
            Err(Error::new_spanned(value, message))
        }
    }
}

fn number(name: &Ident, value: &Expr) -> Result<usize> {
    let number = match literal(value) {
        Some(Lit::Int(number)) => number.base10_parse::<usize>().ok(),
        _ => None,
    };
    number.filter(|&number| number > 0).ok_or_else(|| {
        Error::new_spanned(value, format!("`{name}` must be a number of at least 1"))
    })
}

/// Returns whether the flavor is `current_thread`.
fn flavor(value: &Expr) -> Result<bool> {
    match literal(value) {
        Some(Lit::Str(flavor)) if flavor.value() == "multi_thread" => Ok(false),
        Some(Lit::Str(flavor)) if flavor.value() == "current_thread" => Ok(true),
        _ => Err(Error::new_spanned(
            value,
            "`flavor` must be \"multi_thread\" or \"current_thread\"",
        )),
    }
}

/// Collects errors, to report them together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the value, or records the error.
    pub(crate) fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Records an error at `tokens`, or at `otherwise` if there are none.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, otherwise: Span, message: &str) {
        let tokens = tokens.into_token_stream();
        self.add(if tokens.is_empty() {
            Error::new(otherwise, message)
        } else {
            Error::new_spanned(tokens, message)
        });
    }

    pub(crate) fn or<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

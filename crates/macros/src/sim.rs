//! Expands a function under `#[tourbillon_sim::test]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, Path, parse_quote};

use crate::options::{Errors, Options};

/// How many seeds run, unless the attribute says it.
const SEEDS: usize = 200;
/// For how many seconds they run at most.
const SECONDS: usize = 60;

/// Returns the test that the attribute generates, or compile errors.
pub(crate) fn expand(options: TokenStream, function: TokenStream) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(function.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #function);
        }
    };
    let mut errors = Errors::default();
    let options = errors.note(Options::parse_sim(options));
    let (sig, span) = (&function.sig, function.sig.fn_token.span);
    let arguments = sig.inputs.len();
    let message = match (sig.asyncness.is_some(), arguments) {
        (true, 0) | (false, 1) => None,
        (true, _) => Some("an `async` test has no arguments: write `async fn name()`"),
        (false, _) => Some(
            "a test has one argument, or is `async`: write `fn name(sim: &mut Simulation)`, or \
             `async fn name()`",
        ),
    };
    if let Some(message) = message {
        errors.at(&sig.ident, span, message);
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, span, "a test must not be generic");
    }
    match (errors.or(()), options) {
        (Ok(()), Some(options)) => runs(&options, &function),
        (Err(error), _) => error.into_compile_error(),
        (Ok(()), None) => unreachable!("options that were not read are an error"),
    }
}

fn runs(options: &Options, function: &ItemFn) -> TokenStream {
    let krate = options.crate_path.clone();
    let krate: Path = krate.unwrap_or_else(|| parse_quote!(::tourbillon_sim));
    let seeds = options.seeds.unwrap_or(SEEDS) as u64;
    let seconds = options.seconds.unwrap_or(SECONDS) as u64;
    let workers = options
        .worker_threads
        .map(|workers| quote!(simulation.workers(#workers);));
    let (attrs, vis, name) = (&function.attrs, &function.vis, &function.sig.ident);
    let (inputs, output, body) = (&function.sig.inputs, &function.sig.output, &function.block);
    let (inner, describe) = match function.sig.asyncness {
        Some(_) => (
            quote!(async fn __tourbillon_body() #output #body),
            quote!(simulation.client("main", __tourbillon_body);),
        ),
        None => (
            quote!(fn __tourbillon_body(#inputs) #output #body),
            quote!(__tourbillon_body(simulation);),
        ),
    };
    quote! {
        #(#attrs)*
        #[::core::prelude::v1::test]
        #vis fn #name() {
            #inner

            #krate::check(
                #krate::Test {
                    name: ::core::concat!(
                        ::core::module_path!(), "::", ::core::stringify!(#name)
                    ),
                    seeds: #seeds,
                    seconds: #seconds,
                },
                |simulation| {
                    #workers
                    #describe
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(options: &str, function: &str) -> String {
        let (options, function) = (options.parse().unwrap(), function.parse().unwrap());
        expand(options, function).to_string().replace(' ', "")
    }

    #[test]
    fn the_options_reach_the_test() {
        let code = expanded("seeds = 7, seconds = 3, workers = 4", "async fn races() {}");
        assert!(code.contains("seeds:7u64,seconds:3u64"), "{code}");
        assert!(code.contains("simulation.workers(4usize);simulation.client(\"main\""));
        let code = expanded("", "fn talks(sim: &mut Simulation) {}");
        assert!(code.contains("seeds:200u64,seconds:60u64"), "{code}");
        assert!(code.contains("__tourbillon_body(simulation);"), "{code}");
        assert!(expanded("crate = \"a::b\"", "async fn f() {}").contains("a::b::check("));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (options, function, message) in [
            ("", "fn f() {}", "one argument, or is `async`"),
            ("", "async fn f(a: u8) {}", "no arguments"),
            ("", "async fn f<T>() {}", "not be generic"),
            ("seeds = 0", "async fn f() {}", "at least 1"),
            ("runs = 1", "async fn f() {}", "unknown option `runs`"),
            ("start_paused = true", "async fn f() {}", "unknown option"),
        ] {
            let (options, function) = (options.parse().unwrap(), function.parse().unwrap());
            let code = expand(options, function).to_string();
            assert!(
                code.contains("compile_error") && code.contains(message),
                "{code}"
            );
        }
    }
}

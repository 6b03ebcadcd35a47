//! Expands a function under an attribute.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, Path, ReturnType, Signature, parse_quote};

use crate::options::{Errors, Options};

/// The attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Main,
    Test,
}

impl Attribute {
    fn name(self) -> &'static str {
        match self {
            Attribute::Main => "#[tourbillon::main]",
            Attribute::Test => "#[tourbillon::test]",
        }
    }
}

/// Returns the function that an attribute generates, or compile errors.
pub(crate) fn expand(
    attribute: Attribute,
    options: TokenStream,
    function: TokenStream,
) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(function.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #function);
        }
    };
    // Collect all errors, so that the user sees them at once.
    let mut errors = Errors::default();
    let options = errors.note(Options::parse(options));
    check(attribute, &function, &mut errors);
    match (errors.or(()), options) {
        (Ok(()), Some(options)) => runs(attribute, &options, &function),
        (Err(error), _) => {
            let error = error.into_compile_error();
            let stub = stub(&function);
            quote!(#error #stub)
        }
        (Ok(()), None) => unreachable!("options that were not read are an error"),
    }
}

/// Checks that the attribute supports the function.
fn check(attribute: Attribute, function: &ItemFn, errors: &mut Errors) {
    let name = attribute.name();
    let sig = &function.sig;
    let fn_span = sig.fn_token.span;
    if sig.asyncness.is_none() {
        let message = format!("{name} needs an `async` function: write `async fn`");
        errors.at(sig.fn_token, fn_span, &message);
    }
    if !sig.inputs.is_empty() {
        let message = format!("a function under {name} must have no arguments");
        errors.at(&sig.inputs, fn_span, &message);
    }
    if !sig.generics.params.is_empty() {
        let message = format!("a function under {name} must not be generic");
        errors.at(&sig.generics, fn_span, &message);
    }
    if attribute == Attribute::Test {
        for attr in &function.attrs {
            let path = attr.path().segments.last();
            if path.is_some_and(|last| last.ident == "test") {
                errors.at(attr, fn_span, "the function is marked as a test twice");
            }
        }
    }
}

/// Returns the function with a runtime around its body.
fn runs(attribute: Attribute, options: &Options, function: &ItemFn) -> TokenStream {
    let krate = options.crate_path.clone();
    let krate: Path = krate.unwrap_or_else(|| parse_quote!(::tourbillon));
    let mut builder = quote!(#krate::runtime::Builder::new());
    // By default, a test has one worker, not pinned: tests run in parallel.
    let workers = match attribute {
        Attribute::Main => options.worker_threads,
        Attribute::Test => Some(options.worker_threads.unwrap_or(1)),
    };
    if let Some(workers) = workers {
        builder.extend(quote!(.worker_threads(#workers)));
    }
    if attribute == Attribute::Test {
        builder.extend(quote!(.pin(false)));
    }
    if let Some(paused) = options.start_paused {
        builder.extend(quote!(.start_paused(#paused)));
    }
    // `tourbillon` has the method only with its feature `tokio-compat`.
    if options.enable_tokio == Some(true) {
        builder.extend(quote!(.enable_tokio()));
    }
    let test = (attribute == Attribute::Test).then(|| quote!(#[::core::prelude::v1::test]));
    let (attrs, vis, body) = (&function.attrs, &function.vis, &function.block);
    let outer = Signature {
        asyncness: None,
        ..function.sig.clone()
    };
    let output = &function.sig.output;
    // The body is a function of its own, not an async block. So the compiler knows its return type
    // and can point to it.
    quote! {
        #(#attrs)*
        #test
        #vis #outer {
            async fn __tourbillon_body() #output #body

            match #builder.build() {
                ::core::result::Result::Ok(runtime) => runtime.block_on(__tourbillon_body()),
                ::core::result::Result::Err(error) => {
                    ::core::panic!("the function's runtime could not be built: {error}")
                }
            }
        }
    }
}

/// Returns a stub for a function with errors, so that the compiler does not also report it as
/// missing.
fn stub(function: &ItemFn) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    let output = match &function.sig.output {
        ReturnType::Type(_, ty) if matches!(**ty, syn::Type::ImplTrait(_)) => return quote!(),
        output => output,
    };
    quote! {
        #[allow(dead_code)]
        #vis fn #name() #output {
            loop {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Attribute::{Main, Test};

    fn expanded(attribute: Attribute, options: &str, function: &str) -> String {
        let (options, function) = (options.parse().unwrap(), function.parse().unwrap());
        expand(attribute, options, function).to_string()
    }

    /// Returns the error messages, and the source that each points to.
    fn errors(attribute: Attribute, options: &str, function: &str) -> Vec<(String, String)> {
        let options: TokenStream = options.parse().unwrap();
        let function: ItemFn = syn::parse_str(function).unwrap();
        let mut errors = Errors::default();
        errors.note(Options::parse(options));
        check(attribute, &function, &mut errors);
        let Err(errors) = errors.or(()) else {
            return Vec::new();
        };
        errors
            .into_iter()
            .map(|error| (error.to_string(), error.span().source_text().unwrap()))
            .collect()
    }

    #[track_caller]
    fn fails(options: &str, function: &str, message: &str, source: &str) {
        for attribute in [Main, Test] {
            let errors = errors(attribute, options, function);
            let [(said, pointed)] = &errors[..] else {
                panic!("one error is expected: {errors:?}");
            };
            assert!(said.contains(message), "{said}");
            assert_eq!(pointed, source);
            assert!(expanded(attribute, options, function).contains("compile_error"));
        }
    }

    const FINE: &str = "async fn main() {}";

    #[test]
    fn an_unsupported_function_is_reported_at_its_place() {
        fails("", "fn main() {}", "write `async fn`", "fn");
        let with_arguments = "async fn main(a: u8, b: u8) {}";
        fails("", with_arguments, "no arguments", "a: u8, b: u8");
        fails("", "async fn main<T>() {}", "not be generic", "<T>");
        let twice = errors(Test, "", "#[test] async fn works() {}");
        assert_eq!(twice[0].1, "#[test]");
        assert!(errors(Main, "", "#[test] async fn works() {}").is_empty());
    }

    #[test]
    fn a_wrong_option_is_reported_at_its_place() {
        fails("workers = 2", FINE, "unknown option `workers`", "workers");
        fails("start_paused", FINE, "`name = value`", "start_paused");
        for value in [
            "\"two\"",
            "0",
            "-1",
            "true",
            "1.5",
            "n",
            "99999999999999999999",
        ] {
            let options = format!("worker_threads = {value}");
            fails(&options, FINE, "number of at least 1", value);
        }
        for value in ["1", "\"true\""] {
            for name in ["start_paused", "enable_tokio"] {
                let options = format!("{name} = {value}");
                fails(&options, FINE, "`true` or `false`", value);
            }
        }
        for value in ["tourbillon", "\"not a path\"", "\"\""] {
            fails(&format!("crate = {value}"), FINE, "path in quotes", value);
        }
        let single = "flavor = \"current_thread\"";
        fails(single, FINE, "`worker_threads = 1`", "\"current_thread\"");
        fails("flavor = \"local\"", FINE, "\"multi_thread\"", "\"local\"");
        fails("flavor = 7", FINE, "\"multi_thread\"", "7");
        let twice = "start_paused = true, worker_threads = 1, start_paused = false";
        fails(twice, FINE, "`start_paused` is given twice", "start_paused");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let all = errors(Main, "workers = 1, start_paused = 1", "fn main(arg: u8) {}");
        assert_eq!(all.len(), 4, "{all:?}");
    }

    #[test]
    fn other_items_are_kept_in_the_output() {
        let expanded = expanded(Main, "", "struct Main;");
        assert!(expanded.contains("compile_error") && expanded.contains("struct Main"));
    }

    #[test]
    fn options_reach_the_builder() {
        let builds = |attribute, options, calls: &str| {
            let code = expanded(attribute, options, FINE).replace(' ', "");
            let calls = format!("match{calls}.build()");
            assert!(code.contains(&calls), "{code}");
        };
        let builder = "::tourbillon::runtime::Builder::new()";
        builds(Main, "", builder);
        builds(Main, "flavor = \"multi_thread\",", builder);
        let two = format!("{builder}.worker_threads(2usize).start_paused(true)");
        builds(Main, "start_paused = true, worker_threads = 2", &two);
        let with_tokio = format!("{builder}.enable_tokio()");
        builds(Main, "enable_tokio", &with_tokio);
        builds(Main, "enable_tokio = true", &with_tokio);
        builds(Main, "enable_tokio = false", builder);
        let one = format!("{builder}.worker_threads(1usize).pin(false)");
        builds(Test, "", &one);
        let renamed = "a::b::runtime::Builder::new().start_paused(false)";
        builds(Main, "crate = \"a::b\", start_paused = false", renamed);
    }
}

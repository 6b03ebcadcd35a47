//! Expands a function under an attribute.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{FnArg, ItemFn, Path, ReturnType, Signature, Stmt, parse_quote};

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
    // Other functions may have both. The compiler checks the arguments of tests: another attribute
    // may supply them.
    if attribute == Attribute::Main && sig.ident == "main" {
        if !sig.inputs.is_empty() {
            errors.at(&sig.inputs, fn_span, "`main` must have no arguments");
        }
        if !sig.generics.params.is_empty() {
            errors.at(&sig.generics, fn_span, "`main` must not be generic");
        }
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
    let new = if options.current_thread {
        quote!(new_current_thread)
    } else {
        quote!(new)
    };
    let mut builder = quote!(#krate::runtime::Builder::#new());
    // By default, a test has one worker, not pinned: tests run in parallel.
    let workers = match attribute {
        Attribute::Main => options.worker_threads,
        Attribute::Test => Some(options.worker_threads.unwrap_or(1)),
    };
    if let Some(workers) = workers.filter(|_| !options.current_thread) {
        builder.extend(quote!(.worker_threads(#workers)));
    }
    if attribute == Attribute::Test && !options.current_thread {
        builder.extend(quote!(.pin(false)));
    }
    if let Some(paused) = options.start_paused {
        builder.extend(quote!(.start_paused(#paused)));
    }
    if let Some(name) = &options.name {
        builder.extend(quote!(.name(#name)));
    }
    let test = (attribute == Attribute::Test).then(|| quote!(#[::core::prelude::v1::test]));
    let (attrs, vis, body) = (&function.attrs, &function.vis, &function.block);
    let outer = Signature {
        asyncness: None,
        ..function.sig.clone()
    };
    let output = &function.sig.output;
    // Other functions may be methods of a generic type.
    let is_free = attribute == Attribute::Test || function.sig.ident == "main";
    let (future, call) = if is_free && is_closed(function) {
        // A function of its own, not an async block. So the compiler knows its return type and can
        // point to it.
        let future = quote!(async fn __tourbillon_body() #output #body);
        (future, quote!(__tourbillon_body()))
    } else {
        // Only a block can use the arguments, generics and `Self` of the function around it.
        let typed = typed(output);
        let future = quote!(let __tourbillon_body = async move { #typed #body };);
        (future, quote!(__tourbillon_body))
    };
    quote! {
        #(#attrs)*
        #test
        #vis #outer {
            #future

            match #builder.build() {
                ::core::result::Result::Ok(runtime) => runtime.block_on(#call),
                ::core::result::Result::Err(error) => {
                    ::core::panic!("the function's runtime could not be built: {error}")
                }
            }
        }
    }
}

/// Returns code that tells the compiler the type of a block, from the output of its function. So
/// the block's results are converted to that type, as those of a function are. An `impl Trait` and
/// `!` cannot be told.
fn typed(output: &ReturnType) -> Option<TokenStream> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    let is_known = !matches!(**ty, syn::Type::Never(_)) && !names("impl", ty.to_token_stream());
    is_known.then(|| {
        quote! {
            #[allow(unreachable_code, clippy::all)]
            if false {
                let output: #ty = loop {};
                return output;
            }
        }
    })
}

/// Returns whether the function uses nothing of its own signature or of the `impl` around it.
fn is_closed(function: &ItemFn) -> bool {
    let (sig, stmts) = (&function.sig, &function.block.stmts);
    // An item in the body has a `Self` of its own.
    let mut code = stmts.iter().filter(|stmt| !matches!(stmt, Stmt::Item(_)));
    sig.inputs.is_empty()
        && sig.generics.params.is_empty()
        && !names("Self", sig.output.to_token_stream())
        && !code.any(|stmt| names("Self", stmt.to_token_stream()))
}

/// Returns whether code has this word, also in groups.
fn names(word: &str, code: TokenStream) -> bool {
    code.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => names(word, group.stream()),
        _ => false,
    })
}

/// Returns a stub for a function with errors, so that the compiler does not also report it as
/// missing.
fn stub(function: &ItemFn) -> TokenStream {
    if let ReturnType::Type(_, ty) = &function.sig.output {
        if matches!(**ty, syn::Type::ImplTrait(_)) {
            return quote!();
        }
    }
    let (vis, mut sig) = (&function.vis, function.sig.clone());
    sig.asyncness = None;
    if sig.ident == "main" {
        (sig.inputs, sig.generics) = Default::default();
    }
    // The attributes that give the attributes of arguments a meaning are not in the stub.
    for input in &mut sig.inputs {
        match input {
            FnArg::Receiver(receiver) => receiver.attrs.clear(),
            FnArg::Typed(argument) => argument.attrs.clear(),
        }
    }
    quote! {
        #[allow(dead_code, unused_mut, unused_variables)]
        #vis #sig {
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
        for (function, message, source) in [
            (
                "async fn main(a: u8, b: u8) {}",
                "no arguments",
                "a: u8, b: u8",
            ),
            ("async fn main<T>() {}", "not be generic", "<T>"),
        ] {
            let [(said, pointed)] = &errors(Main, "", function)[..] else {
                panic!("one error is expected");
            };
            assert!(said.contains(message), "{said}");
            assert_eq!(pointed, source);
            // Another attribute may supply the arguments of a test.
            assert!(errors(Test, "", function).is_empty());
            assert!(errors(Main, "", &function.replace("main", "program")).is_empty());
        }
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
        for value in ["\"\"", "\" \"", "7"] {
            fails(&format!("name = {value}"), FINE, "not empty", value);
        }
        for value in ["1", "\"true\""] {
            let options = format!("start_paused = {value}");
            fails(&options, FINE, "`true` or `false`", value);
        }
        for value in ["tourbillon", "\"not a path\"", "\"\""] {
            fails(&format!("crate = {value}"), FINE, "path in quotes", value);
        }
        fails("flavor = \"local\"", FINE, "\"multi_thread\"", "\"local\"");
        fails("flavor = 7", FINE, "\"multi_thread\"", "7");
        let twice = "start_paused = true, worker_threads = 1, start_paused = false";
        fails(twice, FINE, "`start_paused` is given twice", "start_paused");
        let both = "worker_threads = 2, flavor = \"current_thread\"";
        fails(both, FINE, "leave one of them out", "worker_threads");
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
    fn a_stub_keeps_the_signature() {
        let function = "async fn f<T>(&self, #[case] a: T) -> T { a }";
        let code = expanded(Test, "workers = 1", function);
        assert!(code.contains("compile_error") && !code.contains("case"));
        assert!(
            code.replace(' ', "")
                .contains("fnf<T>(&self,a:T)->T{loop{}}")
        );
    }

    #[test]
    fn an_attribute_below_gets_the_arguments() {
        let code = expanded(Test, "", "#[rstest] async fn f(#[case] a: u8) {}").replace(' ', "");
        assert!(code.starts_with("#[rstest]#[::core::prelude::v1::test]fnf(#[case]a:u8)"));
    }

    #[test]
    fn only_a_body_that_needs_its_surroundings_is_a_block() {
        for (function, is_block) in [
            ("async fn main() { g(|s| s.me) }", false),
            (
                "async fn main() { impl S { fn new() -> Self { S } } }",
                false,
            ),
            // It may be a method of a generic type.
            ("async fn f() { g(|s| s.me) }", true),
            ("async fn f(a: u8) {}", true),
            ("async fn f<T>() {}", true),
            ("async fn f(&self) {}", true),
            ("async fn f() -> Option<Self> { None }", true),
            ("async fn main() { [Self::N]; }", true),
        ] {
            let code = expanded(Main, "", function);
            assert_eq!(code.contains("async move"), is_block, "{code}");
        }
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
        let current = "::tourbillon::runtime::Builder::new_current_thread()";
        for attribute in [Main, Test] {
            let paused = format!("{current}.start_paused(true)");
            let options = "flavor = \"current_thread\", start_paused = true";
            builds(attribute, options, &paused);
        }
        builds(Main, "name = \"api\"", &format!("{builder}.name(\"api\")"));
        let one = format!("{builder}.worker_threads(1usize).pin(false)");
        builds(Test, "", &one);
        let renamed = "a::b::runtime::Builder::new().start_paused(false)";
        builds(Main, "crate = \"a::b\", start_paused = false", renamed);
    }
}

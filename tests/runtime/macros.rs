//! The attributes `main` and `test`, with all their options.

use std::{
    error::Error,
    num::ParseIntError,
    time::{Duration, Instant as StdInstant},
};

use tourbillon::{
    Handle,
    time::{Instant, advance, sleep},
};

const DAY: Duration = Duration::from_secs(86_400);

#[tourbillon::test]
async fn a_test_has_one_worker_and_a_clock_that_runs() {
    assert_eq!(Handle::current().metrics().num_workers(), 1);
    let start = StdInstant::now();
    sleep(Duration::from_millis(1)).await;
    assert!(start.elapsed() >= Duration::from_millis(1));
}

#[tourbillon::test(worker_threads = 3, flavor = "multi_thread")]
async fn a_test_has_as_many_workers_as_it_says() {
    assert_eq!(Handle::current().metrics().num_workers(), 3);
}

#[tourbillon::test(name = "a name")]
async fn the_runtime_can_have_a_name() {
    assert_eq!(Handle::current().name(), Some("a name"));
}

#[tourbillon::test(start_paused = true)]
async fn a_test_can_start_paused() {
    let start = Instant::now();
    sleep(DAY).await;
    assert_eq!(start.elapsed(), DAY);
    advance(DAY).await;
    assert_eq!(start.elapsed(), 2 * DAY);
}

#[tourbillon::test(start_paused = true, worker_threads = 4)]
async fn a_paused_test_can_have_many_workers() {
    let start = Instant::now();
    let tasks: Vec<_> = (1..=50)
        .map(|days| {
            tourbillon::spawn(async move {
                sleep(days * DAY).await;
                start.elapsed()
            })
        })
        .collect();
    for (days, task) in (1..).zip(tasks) {
        assert_eq!(task.await.unwrap(), days * DAY);
    }
}

#[tourbillon::test]
async fn a_test_can_return_a_result() -> Result<(), Box<dyn Error + Send + Sync>> {
    let task = tourbillon::spawn(async { 6 * 7 });
    let answer: i32 = "42".parse()?;
    assert_eq!(task.await?, answer);
    Ok(())
}

#[tourbillon::test]
#[should_panic(expected = "as it should")]
async fn a_test_can_be_expected_to_panic() {
    panic!("as it should");
}

#[should_panic = "before it"]
#[tourbillon::test]
async fn a_test_can_have_other_attributes() {
    panic!("before it");
}

#[tourbillon::test]
#[ignore = "it is there to be ignored"]
async fn a_test_can_be_ignored() {
    unreachable!("it is ignored");
}

mod renamed {
    pub mod inner {
        pub use tourbillon::*;
    }

    #[tourbillon::test(crate = "crate::macros::renamed::inner")]
    async fn the_crate_can_have_another_name() {}
}

#[tourbillon::main(worker_threads = 2, start_paused = true)]
async fn program(/* no arguments */) -> Result<i32, ParseIntError> {
    assert_eq!(Handle::current().metrics().num_workers(), 2);
    sleep(DAY).await;
    let number: i32 = "17".parse()?;
    Ok(number + 4)
}

#[test]
fn main_returns_the_result_of_its_body() {
    assert_eq!(program(), Ok(21));
}

/// The names that the attribute generates do not collide with names that the body uses.
#[test]
fn the_attribute_does_not_shadow_names_of_the_body() {
    fn body() -> &'static str {
        "mine"
    }
    let runtime = "a local of the test";
    #[tourbillon::main(worker_threads = 1)]
    async fn entry() -> &'static str {
        body()
    }
    assert_eq!(entry(), "mine");
    assert_eq!(runtime.len(), 19);
}

/// A type with a constructor, methods and generics. As under tokio's attribute, each body can use
/// what is around it.
struct Adder(u32);

impl Adder {
    #[tourbillon::main(worker_threads = 1)]
    async fn new() -> Self {
        sleep(Duration::from_millis(1)).await;
        Self(1)
    }

    #[tourbillon::main(worker_threads = 1)]
    async fn add<T: Copy, const N: u32>(&mut self, number: T, mut more: u32) -> &mut Self
    where
        u32: From<T>,
    {
        more += N;
        tourbillon::task::yield_now().await;
        self.0 += u32::from(number) + more;
        self
    }

    #[tourbillon::main(worker_threads = 1)]
    async fn parsed(self, text: &str) -> Result<u32, ParseIntError> {
        let number: u32 = text.parse()?;
        Ok(self.0 + number)
    }

    #[tokio::main(flavor = "current_thread")]
    async fn parsed_by_tokio(self, text: &str) -> Result<u32, ParseIntError> {
        let number: u32 = text.parse()?;
        Ok(self.0 + number)
    }
}

/// Its methods use the parameter of the type, which they do not name in their signatures.
struct Holder<T>(T);

impl<T: Default + Into<u32>> Holder<T> {
    #[tourbillon::main(worker_threads = 1)]
    async fn read() -> u32 {
        T::default().into() + 5
    }
}

/// The error is converted to the type that the function returns.
#[tourbillon::main(worker_threads = 1)]
async fn fails() -> Result<(), Box<dyn std::error::Error>> {
    let error: ParseIntError = "one".parse::<u32>().unwrap_err();
    Err(Box::new(error))
}

#[test]
fn the_body_knows_the_type_that_it_returns() {
    assert!(fails().unwrap_err().is::<ParseIntError>());
}

#[test]
fn a_method_may_use_the_parameters_of_its_type() {
    assert_eq!(Holder::<u8>::read(), 5);
    assert_eq!(Holder(1_u8).0, 1);
}

#[test]
fn a_function_may_have_a_receiver_arguments_and_generics() {
    let mut adder = Adder::new();
    assert_eq!(adder.add::<u8, 10>(7, 100).0, 118);
    for (text, sum) in [("1", Ok(119)), ("one", Err(()))] {
        let [ours, tokios] = [Adder(118).parsed(text), Adder(118).parsed_by_tokio(text)];
        assert_eq!(ours.clone().map_err(drop), sum);
        assert_eq!(ours, tokios);
    }
}

#[tourbillon::main(worker_threads = 1)]
async fn borrows<'a>((_, text): (u8, &'a str), _: impl Send) -> &'a str {
    &text[1..]
}

#[tourbillon::main(worker_threads = 1)]
async fn never(text: &str) -> ! {
    panic!("{text}");
}

#[test]
fn arguments_may_be_patterns_and_references() {
    let text = String::from("text");
    assert_eq!(borrows((1, &text), ()), "ext");
    let panic = std::panic::catch_unwind(|| never(&text)).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>(), Some(&text));
}

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tourbillon_fuzz::shard::run(data));

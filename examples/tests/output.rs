//! What each example does if its output is lost.

use crate::clients::{
    example,
    output::{fails_if_output_is_lost, server_fails_if_output_is_lost},
};

#[test]
fn a_program_whose_output_is_lost_fails() {
    for (program, args) in [
        ("tour", &[][..]),
        ("why_late", &[]),
        ("beside_compaction", &[]),
        ("game_cooldowns", &["--players", "10", "--length", "1s"]),
        ("cron_jobs", &["--dry-run", "1", "--job", "@daily -- true"]),
    ] {
        fails_if_output_is_lost(example(program).args(args));
    }
}

#[test]
fn help_that_is_lost_is_a_failure() {
    for program in [
        "cron_jobs",
        "delayed_reply",
        "game_cooldowns",
        "heartbeat",
        "live_chat",
        "retry_proxy",
        "ttl_cache",
    ] {
        fails_if_output_is_lost(example(program).arg("--help"));
    }
}

#[test]
fn a_server_whose_output_is_lost_serves_and_fails_at_its_end() {
    for program in ["delayed_reply", "heartbeat", "live_chat", "ttl_cache"] {
        server_fails_if_output_is_lost(example(program).args(["--listen", "127.0.0.1:0"]));
    }
    let proxy = ["--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:9"];
    server_fails_if_output_is_lost(example("retry_proxy").args(proxy));
    server_fails_if_output_is_lost(example("cron_jobs").args(["--job", "@yearly -- true"]));
    for program in ["chat_tokio", "chat_tourbillon"] {
        server_fails_if_output_is_lost(example(program).arg("127.0.0.1:0"));
    }
}

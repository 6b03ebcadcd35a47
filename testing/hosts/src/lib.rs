//! Unmodified programs for tokio on simulated hosts: see the tests.

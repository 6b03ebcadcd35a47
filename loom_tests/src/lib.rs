//! loom models of the protocols of `tourbillon-shards`; see `tests/`.

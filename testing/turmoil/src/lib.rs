//! The programs with planted bugs of `tourbillon-sim`, in turmoil: see the tests.

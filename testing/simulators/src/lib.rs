//! The programs with planted bugs of `tourbillon-sim`, in other simulations: see the tests.

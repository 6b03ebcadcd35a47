#![doc = include_str!("../README.md")]

mod admission;
mod answer;
mod budget;
mod layer;
mod probe;
mod shares;

pub use self::{
    admission::{Admission, Builder, Counts},
    answer::{Priority, Shed},
    layer::{AdmissionLayer, AdmissionService, Admitted},
};

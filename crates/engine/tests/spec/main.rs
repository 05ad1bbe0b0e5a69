//! The laws of the engine, section by section.

mod autograd;
mod checkpoint;
mod devices;
mod interrupt;
mod lifetime;
mod lock;
mod look;
mod memory;
mod mutation;
mod precision;
mod profile;
mod random;
mod regions;
mod step;
mod threads;
mod tokens;
mod view_programs;
mod views;

use ir::DType;
use std::sync::Arc;
use tensorloom_engine::{Engine, Tensor};

const F: DType = DType::F32;

fn engine() -> Engine {
    Engine::new(Arc::new(cpu::Cpu::new(1)))
}

fn vec1(e: &Engine, data: &[f32]) -> Tensor {
    e.tensor(data, &[data.len()])
}

#[track_caller]
fn is(t: &Tensor, expected: &[f32]) {
    assert_eq!(t.to_vec::<f32>().unwrap(), expected);
}

//! WebGPU and reads that end later. The device is JavaScript's (`js/gpu.js`); this is where it tells what came of its work.

use crate::exports::{give_bytes, say, taken_bytes};
use crate::objects::tensor;
use crate::value::fault;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tensorloom::{Config, configure};

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    /// What [`begin_read`] or [`gpu_sync`] began is done: there are so many bytes, or -1, and the text says why.
    safe fn arrived(number: u32, bytes: i32);
}

type Later = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>>>>;

#[derive(Default)]
struct Reads {
    next: u32,
    open: BTreeMap<u32, Later>,
}

thread_local! {
    static READS: RefCell<Reads> = RefCell::default();
}

fn begin(work: Later) -> i32 {
    READS.with_borrow_mut(|r| {
        r.next = (r.next + 1) & 0x3fff_ffff;
        let number = r.next;
        r.open.insert(number, work);
        number as i32
    })
}

/// Gives the engine the device that JavaScript has opened, as device 1; 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_open() -> i32 {
    let both = Config { devices: vec!["cpu".into(), "wgpu".into()], ..Config::default() };
    match configure(&both) {
        Ok(()) => 0,
        Err(e) => {
            say(e.to_string());
            -1
        }
    }
}

/// Memory for the bytes of a read of the device.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_place(signal: u32, bytes: u32) -> *mut u8 {
    gpu::wgpu::browser::place(signal, bytes as usize)
}

/// Something that the device was asked is done; if it failed, the bytes say why.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_done(signal: u32, well: u32) {
    gpu::wgpu::browser::done(signal, if well == 1 { Ok(()) } else { Err(taken_bytes()) });
}

/// The device failed at something, or for good; the bytes say why.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_fault(lost: u32) {
    gpu::wgpu::browser::fault(lost == 1, &taken_bytes());
}

/// Bytes of the GPU's memory that tensors and programs use.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_bytes() -> f64 {
    gpu::wgpu::browser::live() as f64
}

/// The device of a tensor, 0 or 1; -1 if there is no such tensor.
#[unsafe(no_mangle)]
pub extern "C" fn device_of(handle: u32) -> i32 {
    match tensor(handle) {
        Ok(t) => t.device() as i32,
        Err(e) => {
            say(e);
            -1
        }
    }
}

/// Says where tensors are made from now on. WebGPU has no 64-bit types: there they are 32-bit ones.
#[unsafe(no_mangle)]
pub extern "C" fn set_device(device: u32) {
    tensorloom::set_default_device(device as usize);
    tensorloom::disable_x64(device == 1);
}

/// Begins to compute a tensor and to copy its elements; gives a number for `arrived`, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn begin_read(handle: u32) -> i32 {
    match tensor(handle) {
        Ok(t) => {
            let literal = t.read_literal();
            begin(Box::pin(async move { literal.await.map(|l| l.bytes().to_vec()).map_err(fault) }))
        }
        Err(e) => {
            say(e);
            -1
        }
    }
}

/// Begins to wait for everything that the GPU was given; gives a number for `arrived`.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_sync() -> i32 {
    let fence = gpu::wgpu::browser::settled();
    begin(Box::pin(async move { fence.await.map(|()| Vec::new()).map_err(|e| e.to_string()) }))
}

/// Looks which reads are done, and says so.
#[unsafe(no_mangle)]
pub extern "C" fn poll_reads() {
    let all = READS.with_borrow_mut(|r| std::mem::take(&mut r.open));
    for (number, mut work) in all {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => drop(READS.with_borrow_mut(|r| r.open.insert(number, work))),
            Poll::Ready(Ok(bytes)) => {
                let n = bytes.len();
                give_bytes(bytes);
                arrived(number, n as i32);
            }
            Poll::Ready(Err(e)) => {
                say(e);
                arrived(number, -1);
            }
        }
    }
}

//! Tests of kernels on disk, of out-of-memory errors, and of a lost device.

use crate::device::{Device, bind, load, outputs, run, same_bits};
use crate::report::Report;
use crate::sizes::chain;
use compiler::{Backend, Error, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type};
use tensorloom_gpu::cuda::Cuda;
use testing::{FillKind, Rng};

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn sample() -> (Graph, Vec<Literal>) {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[300, 200]);
    let made = (|| {
        let y = chain(&mut b, x)?;
        let s = b.sum(y, &[1])?;
        Ok::<_, ir::Error>(vec![y, s])
    })();
    let graph = b.finish(&made.expect("it type-checks"));
    let x = FillKind::Smooth.random_tensor(&Type::new(DType::F32, &[300, 200]), &mut Rng::new(5));
    (graph, vec![x])
}

/// A matrix product, which loads code of cuBLASLt.
fn product() -> (Graph, Vec<Literal>) {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[64, 64]);
    let y = b.matmul(x, x).expect("it type-checks");
    let x = FillKind::Smooth.random_tensor(&Type::new(DType::F32, &[64, 64]), &mut Rng::new(6));
    (b.finish(&[y]), vec![x])
}

pub(crate) fn cache(device: Device, report: &mut Report) {
    let Some(first) = device.cuda.clone() else { return };
    let check = || -> Result<(), String> {
        let (graph, inputs) = sample();
        let want = run(&*first, &graph, &inputs, &Options::default())?;
        let cold = first.num_compiled_kernels();
        if cold == 0 {
            return Err("nothing was compiled at first".into());
        }
        let second = Cuda::open(0, device.cpu.clone()).map_err(text)?;
        let got = run(&second, &graph, &inputs, &Options::default())?;
        if second.num_compiled_kernels() != 0 {
            return Err(format!("{} kernels were compiled again", second.num_compiled_kernels()));
        }
        same_bits(&want, &got, "kernels from disk")?;
        // If every file is damaged, kernels are compiled again, with the same results.
        let folder = std::env::var("TENSORLOOM_CACHE").map_err(text)?;
        for f in std::fs::read_dir(std::path::Path::new(&folder).join("cuda")).map_err(text)? {
            let f = f.map_err(text)?.path();
            let mut bytes = std::fs::read(&f).map_err(text)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x55;
            std::fs::write(&f, bytes).map_err(text)?;
        }
        let third = Cuda::open(0, device.cpu.clone()).map_err(text)?;
        let got = run(&third, &graph, &inputs, &Options::default())?;
        if third.num_compiled_kernels() != cold {
            return Err(format!("{cold} kernels at first, {} after damage", third.num_compiled_kernels()));
        }
        same_bits(&want, &got, "kernels compiled again")
    };
    report.check("kernels are found on disk", check, String::new);
}

pub(crate) fn memory(device: Device, report: &mut Report) {
    let backend = device.backend();
    let absurd = || match backend.alloc(1 << 50).map(|_| ()) {
        Err(Error::OutOfMemory { bytes, hint }) if bytes == 1 << 50 && !hint.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    };
    report.check("a petabyte", absurd, String::new);
    let Some(cuda) = &device.cuda else { return };
    let full = || -> Result<(), String> {
        let (graph, inputs) = sample();
        let want = run(&**cuda, &graph, &inputs, &Options::default())?;
        let mut held = Vec::new();
        let error = loop {
            match cuda.alloc(4 << 30) {
                Ok(b) => held.push(b),
                Err(e) => break e,
            }
            if held.len() > 1000 {
                return Err("four terabytes were given".into());
            }
        };
        println!("memory full after {} × 4 GiB: {error}", held.len());
        if !matches!(error, Error::OutOfMemory { bytes, .. } if bytes == 4 << 30) {
            return Err(format!("{error:?}"));
        }
        held.pop();
        same_bits(&want, &run(&**cuda, &graph, &inputs, &Options::default())?, "with little memory left")?;
        // Freed memory is used for requests of another size.
        drop(held);
        let large = cuda.alloc(20 << 30).map_err(text)?;
        large.write((20 << 30) - 8, &[7; 8]).map_err(text)?;
        let mut end = [0; 8];
        large.read((20 << 30) - 8, &mut end).map_err(text)?;
        drop(large);
        let given_back = cuda.empty_cache().map_err(text)?;
        println!("memory {:?} after {given_back} bytes were given back", cuda.memory_stats());
        if end == [7; 8] { Ok(()) } else { Err(format!("{end:?}")) }
    };
    report.check("memory runs out", full, String::new);
    report.check("more than 2³¹ elements", || wide(cuda), String::new);
}

/// Tests indices that need 64 bits.
fn wide(cuda: &Cuda) -> Result<(), String> {
    let n = (1usize << 31) + 4099;
    let mut b = Builder::new();
    let x = b.input(DType::U8, &[n]);
    let made = (|| {
        let y = b.offset(x, 3.0)?;
        let m = b.reduce(ir::ops::ReduceKind::Max, x, &[0])?;
        Ok::<_, ir::Error>(vec![y, m])
    })();
    let graph = b.finish(&made.map_err(text)?);
    let exe = load(cuda, &graph, &Options::default())?;
    let mut b = bind(cuda, &*exe, &[])?;
    let marks = [(0usize, 1u8), (1 << 30, 20), ((1 << 31) - 1, 30), (1 << 31, 40), (n - 1, 50)];
    let zeros = vec![0; 64 << 20];
    for at in (0..n).step_by(zeros.len()) {
        b.inputs[0].write(at, &zeros[..zeros.len().min(n - at)]).map_err(text)?;
    }
    for (at, x) in marks {
        b.inputs[0].write(at, &[x]).map_err(text)?;
    }
    exe.run(&mut b).map_err(text)?;
    for (at, x) in marks {
        let mut got = [0];
        b.outputs[0].read(at, &mut got).map_err(text)?;
        if got != [x + 3] {
            return Err(format!("element {at} is {got:?}, not {}", x + 3));
        }
    }
    let mut most = [0];
    b.outputs[1].read(0, &mut most).map_err(text)?;
    if most == [50] { Ok(()) } else { Err(format!("the largest is {most:?}, not 50")) }
}

pub(crate) fn faults(device: Device, report: &mut Report) {
    let Some(cuda) = &device.cuda else { return };
    let lost = || -> Result<(), String> {
        let (graph, inputs) = sample();
        let exe = load(&**cuda, &graph, &Options::default())?;
        let mut b = bind(&**cuda, &*exe, &inputs)?;
        exe.run(&mut b).map_err(text)?;
        let want = outputs(&b, exe.program())?;
        let (matmul, operands) = product();
        let wanted = run(&**cuda, &matmul, &operands, &Options::default())?;
        let buffer = cuda.alloc(100).map_err(text)?;
        let _ = cuda.trigger_trap();
        let said = match cuda.synchronize() {
            Err(e) => e.to_string(),
            Ok(()) => return Err("a trap went by without an error".into()),
        };
        println!("after a trap: {said}");
        if !said.contains("was lost") {
            return Err(said);
        }
        let later = [
            cuda.alloc(10).err(),
            buffer.read(0, &mut [0]).err(),
            buffer.write(0, &[0]).err(),
            exe.run(&mut b).err(),
            cuda.load(exe.program().clone()).err(),
        ];
        if let Some(i) = later.iter().position(|e| e.as_ref().map(ToString::to_string).as_deref() != Some(&said)) {
            return Err(format!("call {i} after the trap gave {:?}", later[i]));
        }
        // The driver may make the device available only to a new process; then the error message says so. Otherwise it must work.
        match Cuda::open(0, device.cpu.clone()) {
            Err(e) if said.contains("new process") => Ok(println!("opening it again: {e}")),
            Err(e) => Err(format!("opening it again: {e}")),
            Ok(again) => {
                same_bits(&want, &run(&again, &graph, &inputs, &Options::default())?, "after opening it again")?;
                drop((b, exe, buffer));
                let product = run(&again, &matmul, &operands, &Options::default())?;
                same_bits(&wanted, &product, "a product after opening it again")
            }
        }
    };
    report.check("a kernel that traps", lost, String::new);
    let host = || {
        let (graph, inputs) = sample();
        let want = ir::interp::run(&graph, &inputs).map_err(text)?;
        let got = run(&*device.cpu, &graph, &inputs, &Options::default())?;
        testing::compare::compare_all(&got, &want, 4.0).map_err(text)
    };
    report.check("the process goes on", host, String::new);
    let absent = || match Cuda::open(999, device.cpu.clone()) {
        Err(e) if e.to_string().contains("cuda:999") => Ok(println!("no such device: {e}")),
        Err(e) => Err(e.to_string()),
        Ok(_) => Err("there is a device 999".into()),
    };
    report.check("a device that isn't there", absent, String::new);
}

//! The device under test, and how graphs are run on it.

use compiler::{Backend, Bindings, Executable, Options, Program};
use cpu::Cpu;
use ir::{Graph, Literal};
use std::sync::Arc;
use tensorloom_gpu::cuda::{AotTarget, Cuda};
#[cfg(feature = "wgpu")]
#[cfg(feature = "wgpu")]
use tensorloom_gpu::wgpu::{Wgpu, WgpuOptions};

/// The device; a lost GPU is opened again.
pub(crate) struct Device {
    pub(crate) cuda: Option<Arc<Cuda>>,
    #[cfg(feature = "wgpu")]
    pub(crate) wgpu: Option<Arc<Wgpu>>,
    /// Set if kernels are only compiled, and nothing runs.
    pub(crate) offline: Option<AotTarget>,
    pub(crate) cpu: Arc<Cpu>,
}

impl Device {
    pub(crate) fn open(name: &str) -> Result<Device, String> {
        let cpu = Arc::new(Cpu::new(2));
        let offline = match name {
            "offline" => Some(AotTarget::new((9, 0)).map_err(|e| e.to_string())?),
            _ => None,
        };
        let cuda = match name {
            "cuda" => Some(Arc::new(Cuda::open(0, cpu.clone()).map_err(|e| e.to_string())?)),
            _ => None,
        };
        #[cfg(feature = "wgpu")]
        let wgpu = match choice(name) {
            Some(c) => Some(Arc::new(Wgpu::open(c, cpu.clone()).map_err(|e| e.to_string())?)),
            None => None,
        };
        Ok(Device {
            cuda,
            #[cfg(feature = "wgpu")]
            wgpu,
            offline,
            cpu,
        })
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        #[cfg(feature = "wgpu")]
        if let Some(w) = &self.wgpu {
            return &**w;
        }
        match (&self.cuda, &self.offline) {
            (Some(c), _) => &**c,
            (None, Some(o)) => o,
            (None, None) => &*self.cpu,
        }
    }

    /// Opens the device again if an error states that it is lost.
    pub(crate) fn mend(&mut self, error: &str) {
        if error.contains("was lost") && self.cuda.take().is_some() {
            match Cuda::open(0, self.cpu.clone()) {
                Ok(c) => self.cuda = Some(Arc::new(c)),
                Err(e) => {
                    println!("bad could not open the device again: {e}");
                    std::process::exit(3);
                }
            }
        }
    }

    /// Compiles the kernels of a graph, if only that is requested.
    pub(crate) fn compiled(&self, graph: &Graph) -> Option<Result<(), String>> {
        let offline = self.offline.as_ref()?;
        let program = compiler::compile(graph, offline, &Options::default()).map_err(|e| e.to_string());
        Some(program.and_then(|p| offline.compile(&p).map(|_| ()).map_err(|e| e.to_string())))
    }

    /// Checks that a graph with dtypes that the device does not support is rejected with a clear error, if it is such a graph.
    pub(crate) fn refused(&self, graph: &Graph) -> Option<Result<(), String>> {
        if testing::backend::has_types(self.backend(), graph) {
            return None;
        }
        match compiler::compile(graph, self.backend(), &Options::default()) {
            Err(compiler::Error::Backend(e)) if e.contains("does not support") => Some(Ok(())),
            Err(e) => Some(Err(e.to_string())),
            // Unused values are removed before the check.
            Ok(_) => None,
        }
    }

    /// The program of a graph and the source of its kernels.
    pub(crate) fn show(&self, graph: &Graph, options: &Options) -> String {
        let program = match compiler::compile(graph, self.backend(), options) {
            Ok(p) => p,
            Err(e) => return format!("{graph}\n{e}\n"),
        };
        let kernels = self.cuda.as_ref().map_or(Vec::new(), |c| c.sources(&program));
        let kernels: String = kernels.iter().map(|(name, text)| format!("-- {name}\n{text}\n")).collect();
        format!("{graph}\n{program}\n{kernels}")
    }
}

/// The adapter for a name: `wgpu`, or `wgpu-strict` with default limits and the rules of browsers.
#[cfg(feature = "wgpu")]
pub(crate) fn choice(name: &str) -> Option<WgpuOptions> {
    match name {
        "wgpu" => Some(WgpuOptions::default()),
        "wgpu-strict" => Some(WgpuOptions { default_limits_only: true, ..WgpuOptions::default() }),
        _ => None,
    }
}

/// The results of a run.
pub(crate) fn outputs(b: &Bindings, program: &Program) -> Result<Vec<Literal>, String> {
    let mut outs = Vec::new();
    for (buffer, ty) in b.outputs.iter().zip(&program.outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(|e| e.to_string())?;
        outs.push(Literal::from_bytes(ty.clone(), &bytes).ok_or("a result of another size")?);
    }
    Ok(outs)
}

/// Compiles and loads a program.
pub(crate) fn load(backend: &dyn Backend, graph: &Graph, options: &Options) -> Result<Arc<dyn Executable>, String> {
    let program = compiler::compile(graph, backend, options).map_err(|e| format!("compile: {e}"))?;
    backend.load(program).map_err(|e| format!("load: {e}"))
}

/// Bindings with these inputs.
pub(crate) fn bind(backend: &dyn Backend, exe: &dyn Executable, inputs: &[Literal]) -> Result<Bindings, String> {
    let b = Bindings::for_program(exe.program(), backend).map_err(|e| e.to_string())?;
    for (buffer, x) in b.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).map_err(|e| e.to_string())?;
    }
    Ok(b)
}

/// Runs a graph once.
pub(crate) fn run(
    backend: &dyn Backend,
    graph: &Graph,
    inputs: &[Literal],
    options: &Options,
) -> Result<Vec<Literal>, String> {
    let exe = load(backend, graph, options)?;
    let mut b = bind(backend, &*exe, inputs)?;
    exe.run(&mut b).map_err(|e| format!("run: {e}"))?;
    outputs(&b, exe.program())
}

/// Describes where two lists of results differ in their bits.
pub(crate) fn same_bits(a: &[Literal], b: &[Literal], what: &str) -> Result<(), String> {
    for (k, (x, y)) in a.iter().zip(b).enumerate() {
        if let Some(i) = (0..x.ty().numel()).find(|&i| x.get(i).bits() != y.get(i).bits()) {
            return Err(format!("{what}: result {k} of {} differs at {i}: {} and {}", x.ty(), x.get(i), y.get(i)));
        }
    }
    if a.len() == b.len() { Ok(()) } else { Err(format!("{what}: {} and {} results", a.len(), b.len())) }
}

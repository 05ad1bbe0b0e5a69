//! Host fallback for ops that the device does not support: copies the operands to the host, runs the host backend, and copies
//! the results back.

use compiler::program::{BufferSlice, library_name};
use compiler::{Backend, Bindings, Error, Executable, Options, Result};
use ir::{Graph, Loc, Op, Type};
use std::sync::{Arc, Mutex};

/// An op that runs on the host.
pub(crate) struct HostFallback {
    exe: Arc<dyn Executable>,
    /// The host memory of operands and results; one run at a time uses it.
    bindings: Mutex<Bindings>,
    pub(crate) args: Vec<(BufferSlice, usize)>,
    pub(crate) outs: Vec<(BufferSlice, usize)>,
}

impl HostFallback {
    pub(crate) fn new(
        host: &Arc<dyn Backend>,
        op: &Op,
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
    ) -> Result<HostFallback> {
        let mut graph = Graph::new();
        let inputs: Vec<_> = args.iter().map(|(_, t)| graph.input(t.clone())).collect();
        let results = graph.push(op.clone(), &inputs, Loc::default())?;
        graph.set_outputs(results.to_vec());
        if graph.output_types() != outs.iter().map(|(_, t)| t.clone()).collect::<Vec<_>>() {
            return Err(Error::Internal(format!("the result types of `{}` do not match its step", library_name(op))));
        }
        let exe = host.load(compiler::compile(&graph, &**host, &Options::default())?)?;
        let bindings = Mutex::new(Bindings::for_program(exe.program(), &**host)?);
        let sized = |x: &[(BufferSlice, Type)]| x.iter().map(|(p, t)| (p.clone(), t.bytes())).collect();
        Ok(HostFallback { exe, bindings, args: sized(args), outs: sized(outs) })
    }

    /// Runs the op on operands that have been copied.
    pub(crate) fn run(&self, args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let mut bindings = self.bindings.lock().unwrap_or_else(|e| e.into_inner());
        for (data, to) in args.iter().zip(&bindings.inputs) {
            to.write(0, data)?;
        }
        self.exe.run(&mut bindings)?;
        let read = |((_, bytes), from): (&(BufferSlice, usize), &Arc<dyn compiler::DeviceBuffer>)| {
            let mut data = vec![0; *bytes];
            from.read(0, &mut data).map(|()| data)
        };
        self.outs.iter().zip(&bindings.outputs).map(read).collect()
    }
}

//! A server in one call.

use crate::BatchOptions;
use crate::serve::{Error, ModelRegistry, Result, ServeEngineOptions, Server, ServerLimits};
use compiler::Backend;
use ir::DType;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serves HuggingFace directories, and those of adapters, at an address such as `127.0.0.1:8080` until the process ends: in f32, on the
/// CPU with all its cores, with the default limits. [`Served::load`] and [`Server::bind`] leave everything to the caller.
pub fn run<P: AsRef<Path>>(dirs: impl IntoIterator<Item = P>, address: &str) -> Result<()> {
    let dirs: Vec<PathBuf> = dirs.into_iter().map(|dir| dir.as_ref().to_path_buf()).collect();
    if dirs.is_empty() {
        return Err(Error::Setup("no model to serve; give a HuggingFace model directory".into()));
    }
    let host_and_port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = host_and_port.ok_or_else(|| {
        Error::Setup(format!("`{address}` is no address; give a host and a port, as in 127.0.0.1:8080"))
    })?;
    let backend: Arc<dyn Backend> = Arc::new(cpu::Cpu::for_machine());
    let (sizes, options) = (BatchOptions::default(), ServeEngineOptions::default());
    let served = ModelRegistry::load(&dirs, None, DType::F32, sizes, options, &backend, &mut |_| ())?;
    // A host in brackets is an IPv6 address.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Server::bind(host, port, served, ServerLimits::default())?.start()?.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_served_is_said() {
        let fault = |dirs: &[&str], address: &str| run(dirs, address).unwrap_err().to_string();
        assert!(fault(&[], "127.0.0.1:0").contains("no model to serve"));
        assert!(fault(&["nowhere"], "nonsense").contains("`nonsense` is no address"));
        assert!(fault(&["nowhere"], "127.0.0.1:0").contains("nowhere: not a directory"));
    }
}

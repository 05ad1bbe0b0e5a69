//! GPUs of several ranks. Collectives use NCCL between devices, or go through host memory if NCCL is not available.

use crate::output::errln;
use compiler::Backend;
use dist::Comm;
use dist::groups::NcclGroups;
use dist::nccl::Nccl;
use gpu::cuda::Cuda;
use std::sync::Arc;

/// Opens the GPU of a rank. `host` runs the ops that the GPU backend lacks, and collectives if NCCL is not available.
pub(crate) fn open(ordinal: usize, host: Arc<dyn Backend>, comm: &Arc<Comm>) -> Result<Arc<dyn Backend>, String> {
    let opened = match nccl(comm)? {
        Some(nccl) => Cuda::open_with_communicator(ordinal, host, Arc::new(NcclGroups::new(nccl, comm.clone()))),
        None => Cuda::open(ordinal, host),
    };
    Ok(Arc::new(opened.map_err(|e| e.to_string())?))
}

/// Opens NCCL, unless it is disabled or is missing on the machine of any rank: all ranks must use the same transport.
fn nccl(comm: &Comm) -> Result<Option<Arc<Nccl>>, String> {
    let found = match std::env::var("TENSORLOOM_NCCL").as_deref() {
        Ok("off") => Err("TENSORLOOM_NCCL=off".to_string()),
        Ok(_) => Nccl::open().map_err(|e| e.to_string()),
        Err(_) => Nccl::open()
            .or_else(|e| match gpu::cuda::find_library("libnccl.so.2") {
                Some(file) => Nccl::load(&file.to_string_lossy()),
                None => Err(e),
            })
            .map_err(|e| e.to_string()),
    };
    if comm.all_reduce_any(found.is_err()).map_err(|e| e.to_string())? {
        if comm.rank() == 0 {
            let why = found.err().unwrap_or_else(|| "NCCL is missing on another rank".into());
            errln!("loom: NCCL is not used, collectives go through host memory: {why}");
        }
        return Ok(None);
    }
    found.map(Some)
}

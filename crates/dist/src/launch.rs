//! The identity of this process among the ranks, from the environment variables that launchers set.

use crate::comm::Comm;
use crate::error::{Error, Result};
pub use crate::secret::Secret;
use ir::Mesh;
use std::sync::Arc;

/// The identity of a process among the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its rank.
    pub rank: usize,
    /// The number of ranks.
    pub world_size: usize,
    /// The address where rank 0 listens: `host:port`.
    pub master_addr: String,
    /// The secret that all processes of one launch share, which keeps other processes out.
    pub secret: Secret,
}

/// The variables of launchers for the rank and the number of ranks.
const LAUNCHER_VARS: [(&str, &str); 5] = [
    ("LOOM_RANK", "LOOM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("RANK", "WORLD_SIZE"),
];

/// The variables of launchers for the local rank on a machine.
const LOCAL_RANK_VARS: [&str; 5] =
    ["LOOM_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"];

/// The local rank of this process on its machine, if the launcher provides it.
pub fn local_rank() -> Option<usize> {
    LOCAL_RANK_VARS.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok())
}

/// The default address of rank 0.
const ADDRESS: &str = "127.0.0.1:29671";

impl ProcessInfo {
    /// Reads the environment of `loom launch`, mpirun, srun or torchrun; `None` for a process that was started alone.
    pub fn from_env() -> Result<Option<ProcessInfo>> {
        ProcessInfo::from_env_vars(&|name| std::env::var(name).ok())
    }

    /// Reads variables.
    pub fn from_env_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Option<ProcessInfo>> {
        for (rank_name, world_name) in LAUNCHER_VARS {
            let (Some(rank), Some(world)) = (var(rank_name), var(world_name)) else { continue };
            let number = |name: &str, text: &str| {
                let fault = || Error::Rendezvous(format!("{name} is `{text}`, which is not a valid rank number"));
                text.trim().parse::<usize>().map_err(|_| fault())
            };
            let (rank, world) = (number(rank_name, &rank)?, number(world_name, &world)?);
            if rank >= world {
                return Err(Error::Rendezvous(format!(
                    "{rank_name} is {rank}, but {world_name} is {world}: ranks are numbered from 0 to the world size \
                     minus 1"
                )));
            }
            let address = var("LOOM_ADDRESS").or_else(|| {
                let (host, port) = (var("MASTER_ADDR")?, var("MASTER_PORT")?);
                Some(format!("{host}:{port}"))
            });
            let address = address.unwrap_or_else(|| ADDRESS.to_string());
            return Ok(Some(ProcessInfo {
                rank,
                world_size: world,
                master_addr: address,
                secret: Secret::from_vars(var)?,
            }));
        }
        Ok(None)
    }

    /// Connects to the other ranks of a mesh: through MPI if `mpirun` started the process and MPI is compiled in, else over TCP.
    pub fn join(&self, mesh: &Mesh) -> Result<Arc<Comm>> {
        #[cfg(feature = "mpi")]
        if std::env::var("OMPI_COMM_WORLD_RANK").is_ok() || std::env::var("PMI_RANK").is_ok() {
            let comm = Comm::new(Arc::new(crate::mpi::Mpi::start()?), mesh.clone())?;
            comm.assert_same_on_all_ranks(&format!("{} {mesh}", crate::tcp::VERSION))?;
            return Ok(Arc::new(comm));
        }
        let transport = crate::tcp::TcpTransport::join(self, &mesh.to_string())?;
        Ok(Arc::new(Comm::new(Arc::new(transport), mesh.clone())?))
    }
}

//! Who this process is among others, from the variables that launchers set.

use crate::comm::Comm;
use crate::error::{Error, Result};
pub use crate::secret::Secret;
use ir::Mesh;
use std::sync::Arc;

/// A process among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its rank.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// Where rank 0 listens: `host:port`.
    pub address: String,
    /// What all processes of one start share, so that no other process takes part.
    pub secret: Secret,
}

/// The variables of launchers: rank, number of ranks.
const LAUNCHERS: [(&str, &str); 5] = [
    ("LOOM_RANK", "LOOM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("RANK", "WORLD_SIZE"),
];

/// The variables of launchers that number the ranks of one machine.
const ON_MACHINE: [&str; 5] =
    ["LOOM_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"];

/// This process's number among those of its machine, if the launcher says so.
pub fn on_machine() -> Option<usize> {
    ON_MACHINE.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok())
}

/// Where rank 0 listens if nothing says otherwise.
const ADDRESS: &str = "127.0.0.1:29671";

impl Place {
    /// From the environment: `loom launch`, mpirun, srun, torchrun; `None` for a process that was started alone.
    pub fn from_env() -> Result<Option<Place>> {
        Place::from_vars(&|name| std::env::var(name).ok())
    }

    /// From variables.
    pub fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>> {
        for (rank_name, world_name) in LAUNCHERS {
            let (Some(rank), Some(world)) = (var(rank_name), var(world_name)) else { continue };
            let number = |name: &str, text: &str| {
                let fault = || Error::Start(format!("{name} is `{text}`, which is not a valid rank number"));
                text.trim().parse::<usize>().map_err(|_| fault())
            };
            let (rank, world) = (number(rank_name, &rank)?, number(world_name, &world)?);
            if rank >= world {
                return Err(Error::Start(format!(
                    "{rank_name} is {rank}, but {world_name} is {world}: ranks are numbered from 0 to the world size \
                     minus 1"
                )));
            }
            let address = var("LOOM_ADDRESS").or_else(|| {
                let (host, port) = (var("MASTER_ADDR")?, var("MASTER_PORT")?);
                Some(format!("{host}:{port}"))
            });
            let address = address.unwrap_or_else(|| ADDRESS.to_string());
            return Ok(Some(Place { rank, world, address, secret: Secret::from_vars(var)? }));
        }
        Ok(None)
    }

    /// Joins the others as a rank of a mesh: through MPI where `mpirun` started us and we were built with it, else over TCP.
    pub fn join(&self, mesh: &Mesh) -> Result<Arc<Comm>> {
        #[cfg(feature = "mpi")]
        if std::env::var("OMPI_COMM_WORLD_RANK").is_ok() || std::env::var("PMI_RANK").is_ok() {
            let comm = Comm::new(Arc::new(crate::mpi::Mpi::start()?), mesh.clone())?;
            comm.agree(&format!("{} {mesh}", crate::tcp::VERSION))?;
            return Ok(Arc::new(comm));
        }
        let transport = crate::tcp::Tcp::join(self, &mesh.to_string())?;
        Ok(Arc::new(Comm::new(Arc::new(transport), mesh.clone())?))
    }
}

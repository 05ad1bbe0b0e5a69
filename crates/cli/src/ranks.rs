//! Commands that run as one of several ranks: joining the group, and opening a device whose programs communicate.

use crate::command::UsageError;
use crate::device;
use crate::gpus;
use compiler::Backend;
use cpu::Cpu;
use dist::Comm;
use dist::launch::ProcessInfo;
use ir::Mesh;
use std::sync::Arc;

/// Joins the group of ranks if this process was launched as one of several.
pub(crate) fn join_ranks(mesh: &str) -> Result<Option<Arc<Comm>>, UsageError> {
    let wrong = |e: &dyn std::fmt::Display| UsageError(e.to_string());
    let place = ProcessInfo::from_env().map_err(|e| wrong(&e))?;
    let given = Mesh::parse(mesh).map_err(|e| wrong(&e))?;
    let Some(place) = place else {
        return match given.ranks() {
            1 => Ok(None),
            n => Err(UsageError(format!(
                "`--mesh {given}` needs {n} processes: loom launch -n {n} loom .. (or mpirun -n {n} loom ..)"
            ))),
        };
    };
    let mesh = match mesh.is_empty() {
        true => Mesh::new(&[("dp", place.world_size)]).map_err(|e| wrong(&e))?,
        false => given,
    };
    if mesh.ranks() != place.world_size {
        return Err(UsageError(format!(
            "`--mesh {mesh}` has {} ranks, but {} were started: make the two equal",
            mesh.ranks(),
            place.world_size
        )));
    }
    place.join(&mesh).map(Some).map_err(|e| wrong(&e))
}

/// Returns the mesh in the `topology:` block of a file, if this process is one of several; experts share the ranks of `dp`
/// (§7.6.0).
pub(crate) fn topology(file: &str) -> Result<String, UsageError> {
    if ProcessInfo::from_env().map_err(|e| UsageError(e.to_string()))?.is_none() {
        return Ok(String::new());
    }
    let program = crate::run::load_program(file)?;
    let mut sizes = std::collections::BTreeMap::new();
    for item in program.files.first().into_iter().flat_map(|file| &file.ast.items) {
        let lang::ast::Item::Recipe(recipe) = item else { continue };
        for (key, value) in recipe.entries.iter().filter(|_| recipe.topology) {
            if let lang::ast::ExprKind::Int(n) = value.peel().kind {
                sizes.insert(key.name.trim_end_matches("_size").to_string(), n.max(1) as usize);
            }
        }
    }
    let size = |name: &str| sizes.get(name).copied().unwrap_or(1);
    let (dp, ep) = (size("dp"), size("ep"));
    let dp = if ep > 1 && dp.is_multiple_of(ep) { dp / ep } else { dp };
    let axes = [("pp", size("pp")), ("dp", dp), ("ep", ep), ("tp", size("tp"))];
    let axes: Vec<String> = axes.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name}={n}")).collect();
    Ok(axes.join(","))
}

/// Opens the device of a rank. The ranks of a machine divide its cores evenly unless a number of threads is given. With `cuda`,
/// each rank of a machine has its own GPU; with `cuda:1`, all ranks share that GPU.
pub(crate) fn open(name: &str, threads: Option<usize>, comm: &Arc<Comm>) -> Result<Arc<dyn Backend>, UsageError> {
    let own = (device::cores() / comm.mesh().ranks()).max(1);
    let cpu = Arc::new(Cpu::with_flush_denormals(threads.unwrap_or(own)).with_communicator(comm.clone()));
    let ordinal = match name.split_once(':').unwrap_or((name, "")) {
        ("" | "auto" | "cpu", "") => return Ok(cpu),
        ("cuda", "") => dist::launch::local_rank().unwrap_or_else(|| comm.rank()),
        ("cuda", number) => number.parse().map_err(|_| {
            UsageError(format!("`--device {name}`: `{number}` is not a GPU index; use a number, as in cuda:0"))
        })?,
        _ => {
            return Err(UsageError(format!(
                "`--device {name}` is not supported with several ranks: use `cpu`, `cuda` or `cuda:N`"
            )));
        }
    };
    gpus::open(ordinal, cpu, comm).map_err(UsageError)
}

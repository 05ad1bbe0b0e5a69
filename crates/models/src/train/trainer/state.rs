//! The state of a trainer in checkpoints: full tensors or a rank's shards, by the names of tensors.

use super::LanguageModelTrainer;
use crate::error::{Error, Result};
use crate::param_sharding::axis_indices;
use crate::train::sharding::failed;
use ir::{DType, Type};
use std::path::{Path, PathBuf};
use train::NamedTensor;
use train::checkpoint::{self, CheckpointMeta, TensorShard};

impl LanguageModelTrainer {
    /// The type of a trainable tensor (kind 0) or of one of its moments.
    fn state_type(&self, kind: usize, i: usize) -> &Type {
        match kind {
            0 => &self.names[i].1,
            // Moments have the same sharding as their tensors.
            _ => match self.local_index[i].and_then(|at| self.train_step.layout().moments.get(at)) {
                Some(moment) if moment.scales.is_some() => &moment.codes,
                _ => &self.names[i].1,
            },
        }
    }

    /// The state besides trainable tensors and moments: names, types and inputs of scales and
    /// amax histories. It exists only in one process.
    fn extra_state(&self) -> Vec<(String, Type, usize)> {
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        self.train_step.extra_state(&names)
    }

    /// Full trainable tensors and moments by name, for any mesh; all ranks take part, and only the main rank gets the result.
    /// Then scales of 8-bit moments, and amax histories of delayed scaling.
    pub fn state(&self) -> Result<Vec<NamedTensor>> {
        let mut tensors = Vec::with_capacity(3 * self.names.len());
        for (name, ty, input) in self.extra_state() {
            let bytes = self.train_step.read(input)?;
            tensors.push(NamedTensor { name, shape: ty.shape.to_vec(), dtype: ty.dtype, bytes });
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let ty = self.state_type(k, i);
                let bytes = self.gather_whole(self.input_of(k, i), i, ty)?;
                let (name, shape) = (format!("{kind}.{name}"), ty.shape.to_vec());
                if self.is_main_process() {
                    tensors.push(NamedTensor { name, shape, dtype: ty.dtype, bytes });
                }
            }
        }
        Ok(tensors)
    }

    /// Writes a checkpoint: one file in one process; of several ranks each writes its shards, and the main rank writes its file
    /// last, after all others have finished. All ranks call this.
    pub(crate) fn save(&self, folder: &Path, at: &CheckpointMeta, keep: usize) -> Result<PathBuf> {
        let Some(division) = &self.sharding else { return Ok(checkpoint::write(folder, at, &self.state()?, keep)?) };
        let (mesh, rank) = (division.comm.mesh(), division.comm.rank());
        let mut parts = Vec::new();
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let placement = &division.params[i];
                let Some(input) = self.input_of(k, i).filter(|_| division.is_first_holder(i).unwrap_or(false)) else {
                    continue;
                };
                let own = placement.local_type(mesh, ty);
                let bytes = self.train_step.read(input)?;
                let (name, shape) = (format!("{kind}.{name}"), own.shape.to_vec());
                let tensor = NamedTensor { name, shape, dtype: DType::F32, bytes };
                parts.push(TensorShard {
                    tensor,
                    full_shape: ty.shape.to_vec(),
                    axis_indices: axis_indices(placement, ty, mesh, rank),
                });
            }
        }
        // A message to the main rank: nothing to write, a checksum, or a failure.
        const EMPTY_MARK: [u8; 8] = [b'-'; 8];
        const FAILED_MARK: [u8; 8] = [b'!'; 8];
        if rank > 0 {
            let written = match parts.is_empty() {
                true => Ok(None),
                false => checkpoint::write_rank_file(folder, at.step, rank, &parts).map(Some),
            };
            let mut said = match &written {
                Ok(None) => EMPTY_MARK,
                Ok(Some(_)) => [0; 8],
                Err(_) => FAILED_MARK,
            };
            if let Ok(Some(sum)) = &written {
                said.copy_from_slice(sum.as_bytes());
            }
            division.comm.send_recv("saved", &[(0, &said)], &mut []).map_err(failed)?;
            return Ok(written.map(|_| PathBuf::new())?);
        }
        let mut told = vec![EMPTY_MARK; mesh.ranks()];
        let mut receives: Vec<(usize, &mut [u8])> =
            told.iter_mut().enumerate().skip(1).map(|(r, b)| (r, &mut b[..])).collect();
        division.comm.send_recv("saved", &[], &mut receives).map_err(failed)?;
        if let Some(rank) = told.iter().position(|said| *said == FAILED_MARK) {
            return Err(Error::Input(format!("rank {rank} could not write its part of the checkpoint")));
        }
        let sums = told.iter().enumerate().filter(|(_, said)| **said != EMPTY_MARK);
        let sums = sums.map(|(r, said)| (r, String::from_utf8_lossy(said).to_string())).collect();
        Ok(checkpoint::write_main_file(folder, at, &parts, &sums, keep)?)
    }

    /// Restores the state of a checkpoint; this rank reads only its shards.
    pub(crate) fn resume(&mut self, from: &checkpoint::Checkpoint) -> Result<()> {
        let whole = |ty: &Type| ty.shape.iter().map(|n| (0..*n).collect()).collect::<Vec<_>>();
        for (name, ty, input) in self.extra_state() {
            self.train_step.write(input, &from.read_shard(&name, &ty, &whole(&ty))?)?;
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let Some(input) = self.input_of(k, i) else { continue };
                let ty = self.state_type(k, i);
                let own = match &self.sharding {
                    None => whole(ty),
                    Some(d) => axis_indices(&d.params[i], ty, d.comm.mesh(), d.comm.rank()),
                };
                let bytes = from.read_shard(&format!("{kind}.{name}"), ty, &own)?;
                self.train_step.write(input, &bytes)?;
            }
        }
        Ok(())
    }

    /// Restores a state; it must contain every tensor with its shape.
    pub fn restore(&mut self, state: &[NamedTensor]) -> Result<()> {
        let find = |name: String, ty: &Type| {
            let found = state.iter().find(|tensor| tensor.name == name);
            let fits = |tensor: &&NamedTensor| tensor.shape[..] == ty.shape[..] && tensor.dtype == ty.dtype;
            found.filter(fits).ok_or_else(|| {
                Error::Input(format!(
                    "the checkpoint has no `{name}` of shape {:?}: it does not belong to this model",
                    ty.shape
                ))
            })
        };
        for (name, ty, input) in self.extra_state() {
            self.train_step.write(input, &find(name, &ty)?.bytes)?;
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let ty = self.state_type(k, i);
                let found = find(format!("{kind}.{name}"), ty)?;
                let Some(input) = self.input_of(k, i) else { continue };
                match &self.sharding {
                    None => self.train_step.write(input, &found.bytes)?,
                    Some(d) => self.train_step.write(input, &d.local_part(&d.params[i], ty, &found.bytes))?,
                }
            }
        }
        Ok(())
    }
}

//! The state of a trainer in checkpoints: whole or a rank's part, by the names of tensors.

use super::Trainer;
use crate::error::{Error, Result};
use crate::placing::places;
use crate::train::division::failed;
use ir::{DType, Type};
use std::path::{Path, PathBuf};
use train::NamedTensor;
use train::saved::{self, Part, Saved};

impl Trainer {
    /// What is kept of each trained tensor, with its type: itself and its moments, by their kinds.
    fn kept(&self, kind: usize, i: usize) -> &Type {
        match kind {
            0 => &self.names[i].1,
            // Ranks have parts of moments as they have of tensors.
            _ => match self.held[i].and_then(|at| self.core.layout().moments.get(at)) {
                Some(moment) if moment.scales.is_some() => &moment.codes,
                _ => &self.names[i].1,
            },
        }
    }

    /// State beside trained tensors and moments: names, types and inputs of scales and histories. One process has all of it.
    fn further(&self) -> Vec<(String, Type, usize)> {
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        self.core.further(&names)
    }

    /// Trained tensors and moments, by name and whole, whatever the mesh; none on ranks that don't lead, which take part. Then
    /// scales of moments in 8 bits, and histories of delayed scaling.
    pub fn state(&self) -> Result<Vec<NamedTensor>> {
        let mut tensors = Vec::with_capacity(3 * self.names.len());
        for (name, ty, input) in self.further() {
            let bytes = self.core.read(input)?;
            tensors.push(NamedTensor { name, shape: ty.shape.to_vec(), dtype: ty.dtype, bytes });
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let ty = self.kept(k, i);
                let bytes = self.whole(self.input_of(k, i), i, ty)?;
                let (name, shape) = (format!("{kind}.{name}"), ty.shape.to_vec());
                if self.leads() {
                    tensors.push(NamedTensor { name, shape, dtype: ty.dtype, bytes });
                }
            }
        }
        Ok(tensors)
    }

    /// Writes a checkpoint: in one process one file; of several ranks each writes its parts, and the one that leads, which knows
    /// that all have, the last. All ranks call it.
    pub(crate) fn save(&self, folder: &Path, at: &Saved, keep: usize) -> Result<PathBuf> {
        let Some(division) = &self.division else { return Ok(saved::write(folder, at, &self.state()?, keep)?) };
        let (mesh, rank) = (division.comm.mesh(), division.comm.rank());
        let mut parts = Vec::new();
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, ty)) in self.names.iter().enumerate() {
                let placement = &division.params[i];
                let Some(input) = self.input_of(k, i).filter(|_| division.holds(i).unwrap_or(false)) else { continue };
                let own = placement.local(mesh, ty);
                let bytes = self.core.read(input)?;
                let (name, shape) = (format!("{kind}.{name}"), own.shape.to_vec());
                let tensor = NamedTensor { name, shape, dtype: DType::F32, bytes };
                parts.push(Part { tensor, whole: ty.shape.to_vec(), places: places(placement, ty, mesh, rank) });
            }
        }
        // What the one that leads is told: nothing to write, a checksum, or that it could not be written.
        const NOTHING: [u8; 8] = [b'-'; 8];
        const FAILED: [u8; 8] = [b'!'; 8];
        if rank > 0 {
            let written = match parts.is_empty() {
                true => Ok(None),
                false => saved::write_rank(folder, at.step, rank, &parts).map(Some),
            };
            let mut said = match &written {
                Ok(None) => NOTHING,
                Ok(Some(_)) => [0; 8],
                Err(_) => FAILED,
            };
            if let Ok(Some(sum)) = &written {
                said.copy_from_slice(sum.as_bytes());
            }
            division.comm.exchange("saved", &[(0, &said)], &mut []).map_err(failed)?;
            return Ok(written.map(|_| PathBuf::new())?);
        }
        let mut told = vec![NOTHING; mesh.ranks()];
        let mut receives: Vec<(usize, &mut [u8])> =
            told.iter_mut().enumerate().skip(1).map(|(r, b)| (r, &mut b[..])).collect();
        division.comm.exchange("saved", &[], &mut receives).map_err(failed)?;
        if let Some(rank) = told.iter().position(|said| *said == FAILED) {
            return Err(Error::Input(format!("rank {rank} could not write its part")));
        }
        let sums = told.iter().enumerate().filter(|(_, said)| **said != NOTHING);
        let sums = sums.map(|(r, said)| (r, String::from_utf8_lossy(said).to_string())).collect();
        Ok(saved::write_main(folder, at, &parts, &sums, keep)?)
    }

    /// Puts the state of a checkpoint back, of which this rank reads its part alone.
    pub(crate) fn resume(&mut self, from: &saved::Checkpoint) -> Result<()> {
        let whole = |ty: &Type| ty.shape.iter().map(|n| (0..*n).collect()).collect::<Vec<_>>();
        for (name, ty, input) in self.further() {
            self.core.write(input, &from.part(&name, &ty, &whole(&ty))?)?;
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let Some(input) = self.input_of(k, i) else { continue };
                let ty = self.kept(k, i);
                let own = match &self.division {
                    None => whole(ty),
                    Some(d) => places(&d.params[i], ty, d.comm.mesh(), d.comm.rank()),
                };
                let bytes = from.part(&format!("{kind}.{name}"), ty, &own)?;
                self.core.write(input, &bytes)?;
            }
        }
        Ok(())
    }

    /// Puts a state back; it must name every tensor with its shape.
    pub fn restore(&mut self, state: &[NamedTensor]) -> Result<()> {
        let find = |name: String, ty: &Type| {
            let found = state.iter().find(|tensor| tensor.name == name);
            let fits = |tensor: &&NamedTensor| tensor.shape[..] == ty.shape[..] && tensor.dtype == ty.dtype;
            found.filter(fits).ok_or_else(|| {
                Error::Input(format!("the checkpoint has no `{name}` of shape {:?}: it is another model's", ty.shape))
            })
        };
        for (name, ty, input) in self.further() {
            self.core.write(input, &find(name, &ty)?.bytes)?;
        }
        for (k, kind) in ["param", "first", "second"].iter().enumerate() {
            for (i, (name, _)) in self.names.iter().enumerate() {
                let ty = self.kept(k, i);
                let found = find(format!("{kind}.{name}"), ty)?;
                let Some(input) = self.input_of(k, i) else { continue };
                match &self.division {
                    None => self.core.write(input, &found.bytes)?,
                    Some(d) => self.core.write(input, &d.part(&d.params[i], ty, &found.bytes))?,
                }
            }
        }
        Ok(())
    }
}

//! What has come of training: the model, its adapter, its heads, and texts that it writes.

use super::Trainer;
use crate::adapter::Adapter;
use crate::error::Result;
use crate::generate::{GenerateOptions, Generation};
use crate::model::Model;
use crate::sample::Sampling;
use crate::session::Buffer;
use crate::weight::Weight;
use compiler::Backend;
use ir::{DType, Type};
use train::NamedTensor;
use train::named_tensor::{from_bytes, to_bytes};

impl Trainer {
    /// Matrices that were trained beside the model, by name; of several ranks all ask, and the one that leads has them.
    pub fn heads(&self) -> Result<Vec<NamedTensor>> {
        let first = self.names.len() - self.heads;
        let mut found = Vec::new();
        for (i, (name, ty)) in self.names.iter().enumerate().skip(first) {
            let bytes = self.whole(self.input_of(0, i), i, ty)?;
            found.push(NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: DType::F32, bytes });
        }
        Ok(found)
    }

    /// Takes part in [`Trainer::model`] of the rank that leads.
    pub fn give_model(&self) -> Result<()> {
        self.trained_values().map(|_| ())?;
        for i in 0..self.core.fixed() {
            let param = match &self.adapter {
                Some(_) => self.model.params.get(i),
                None => self.model.params.iter().filter(|param| !param.trainable).nth(i),
            };
            if let Some(param) = param {
                self.fixed_values(i, &param.ty)?;
            }
        }
        Ok(())
    }

    fn trained_values(&self) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::new();
        for (i, (_, ty)) in self.names.iter().enumerate() {
            all.push(from_bytes(&self.whole(self.input_of(0, i), i, ty)?, DType::F32));
        }
        Ok(all)
    }

    fn fixed_values(&self, at: usize, ty: &Type) -> Result<Vec<f32>> {
        let input = self.core.layout().first_fixed() + at;
        Ok(from_bytes(&self.whole(Some(input), self.names.len() + at, ty)?, ty.dtype))
    }

    /// The adapter as it stands, if one is trained.
    pub fn adapter(&self) -> Result<Option<Adapter>> {
        let Some(mut adapter) = self.adapter.clone() else { return Ok(None) };
        adapter.values = self.trained_values()?;
        adapter.values.truncate(self.names.len() - self.heads);
        Ok(Some(adapter))
    }

    /// The model as it stands, an adapter merged into it.
    pub fn model(&self) -> Result<Model> {
        let mut values = Vec::new();
        if let Some(adapter) = self.adapter()? {
            let mut at = 0;
            for (i, param) in self.model.params.iter().enumerate() {
                values.push(match self.model.packed(i) {
                    Some(packed) => packed.values(),
                    None => self.fixed_values(at, &param.ty)?,
                });
                at += self.model.parts_of(i);
            }
            let mut model = self.model.with_values(&values);
            model.merge(&adapter)?;
            return Ok(model);
        }
        let mut trained = self.trained_values()?.into_iter();
        let mut fixed = 0;
        for param in &self.model.params {
            values.push(match param.trainable {
                true => trained.next().unwrap_or_default(),
                false => {
                    fixed += 1;
                    self.fixed_values(fixed - 1, &param.ty)?
                }
            });
        }
        // Masters are f32, and so is what is saved.
        let params = self.model.architecture.lower(1, 1, DType::F32, None)?.params;
        let mut model = Model { dtype: DType::F32, params, ..self.model.with_values(&[]) };
        model.weights = values.iter().map(|values| Weight::Held(DType::F32, to_bytes(values, DType::F32))).collect();
        Ok(model)
    }

    /// Continues a prompt with the model as it stands, whose weights stay where they are.
    pub fn write(
        &self,
        prompt: &[i32],
        most: usize,
        sampling: &Sampling,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let n = self.names.len();
        let own = self.core.inputs();
        // A second model's parameters come behind the model's own.
        let own_fixed = self.model.param_inputs() - if self.adapter.is_some() { 0 } else { n - self.heads };
        let first = self.core.layout().first_fixed();
        let fixed = own[first..first + own_fixed].iter().cloned();
        let params: Vec<Buffer> = match &self.adapter {
            Some(_) => own[..n - self.heads].iter().cloned().chain(fixed).collect(),
            None => {
                let (mut trained, mut fixed) = (own[..n].iter(), fixed);
                let mut params = Vec::new();
                for param in &self.model.params {
                    let Some(master) = trained.as_slice().first().filter(|_| param.trainable) else {
                        params.extend(fixed.next());
                        continue;
                    };
                    trained.next();
                    // Masters are f32: where the model computes in less, they are rounded on their way.
                    params.push(match param.ty.dtype {
                        DType::F32 => master.clone(),
                        dtype => {
                            let mut bytes = vec![0; param.ty.numel() * 4];
                            master.read(0, &mut bytes)?;
                            let rounded = to_bytes(&from_bytes(&bytes, DType::F32), dtype);
                            let buffer = backend.alloc(rounded.len())?;
                            buffer.write(0, &rounded)?;
                            buffer
                        }
                    });
                }
                params
            }
        };
        let writing = GenerateOptions { max_new_tokens: most, sampling: Some(*sampling), ..GenerateOptions::default() };
        self.model.write_on(Some((params, self.adapter.as_ref())), prompt, &writing, backend, heard)
    }
}

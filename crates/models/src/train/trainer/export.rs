//! The results of training: the model, its adapter, its heads, and generated text.

use super::LanguageModelTrainer;
use crate::adapter::Adapter;
use crate::error::Result;
use crate::generate::{GenerateOptions, Generation};
use crate::model::Model;
use crate::sample::SamplingOptions;
use crate::session::Buffer;
use crate::weight::Weight;
use compiler::Backend;
use ir::{DType, Type};
use train::NamedTensor;
use train::named_tensor::{from_bytes, to_bytes};

impl LanguageModelTrainer {
    /// The heads that were trained beside the model, by name; all ranks call this, and the main rank gets the result.
    pub fn heads(&self) -> Result<Vec<NamedTensor>> {
        let first = self.names.len() - self.num_heads_trained;
        let mut found = Vec::new();
        for (i, (name, ty)) in self.names.iter().enumerate().skip(first) {
            let bytes = self.gather_whole(self.input_of(0, i), i, ty)?;
            found.push(NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: DType::F32, bytes });
        }
        Ok(found)
    }

    /// Takes part in the main rank's [`LanguageModelTrainer::model`].
    pub fn join_model_gather(&self) -> Result<()> {
        self.trained_values().map(|_| ())?;
        for i in 0..self.train_step.num_frozen() {
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
            all.push(from_bytes(&self.gather_whole(self.input_of(0, i), i, ty)?, DType::F32));
        }
        Ok(all)
    }

    fn fixed_values(&self, at: usize, ty: &Type) -> Result<Vec<f32>> {
        let input = self.train_step.layout().first_frozen() + at;
        Ok(from_bytes(&self.gather_whole(Some(input), self.names.len() + at, ty)?, ty.dtype))
    }

    /// The current adapter, if one is trained.
    pub fn adapter(&self) -> Result<Option<Adapter>> {
        let Some(mut adapter) = self.adapter.clone() else { return Ok(None) };
        adapter.values = self.trained_values()?;
        adapter.values.truncate(self.names.len() - self.num_heads_trained);
        Ok(Some(adapter))
    }

    /// The current model, with its adapter merged.
    pub fn model(&self) -> Result<Model> {
        let mut values = Vec::new();
        if let Some(adapter) = self.adapter()? {
            let mut at = 0;
            for (i, param) in self.model.params.iter().enumerate() {
                values.push(match self.model.packed(i) {
                    Some(packed) => packed.values(),
                    None => self.fixed_values(at, &param.ty)?,
                });
                at += self.model.inputs_of(i);
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
        // Master weights are f32, and so are the saved weights.
        let params = self.model.architecture.lower(1, 1, DType::F32, None)?.params;
        let mut model = Model { dtype: DType::F32, params, ..self.model.with_values(&[]) };
        model.weights =
            values.iter().map(|values| Weight::InMemory(DType::F32, to_bytes(values, DType::F32))).collect();
        Ok(model)
    }

    /// Generates a continuation of a prompt with the current model, whose weights stay on the device.
    pub fn generate_sample(
        &self,
        prompt: &[i32],
        most: usize,
        sampling: &SamplingOptions,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let n = self.names.len();
        let own = self.train_step.inputs();
        // A second model's parameters follow the model's own.
        let own_fixed = self.model.param_inputs() - if self.adapter.is_some() { 0 } else { n - self.num_heads_trained };
        let first = self.train_step.layout().first_frozen();
        let fixed = own[first..first + own_fixed].iter().cloned();
        let params: Vec<Buffer> = match &self.adapter {
            Some(_) => own[..n - self.num_heads_trained].iter().cloned().chain(fixed).collect(),
            None => {
                let (mut trained, mut fixed) = (own[..n].iter(), fixed);
                let mut params = Vec::new();
                for param in &self.model.params {
                    let Some(master) = trained.as_slice().first().filter(|_| param.trainable) else {
                        params.extend(fixed.next());
                        continue;
                    };
                    trained.next();
                    // Master weights are f32: they are cast to the model's compute dtype.
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
        self.model.generate_on(Some((params, self.adapter.as_ref())), prompt, &writing, backend, heard)
    }
}

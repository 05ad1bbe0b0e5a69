//! Reading values: the only functions that copy a tensor's elements to the host.

use super::{Tensor, TensorKind};
use crate::context;
use crate::engine::download;
use crate::error::{Error, Result};
use crate::intern::Ty;
use crate::plan::PlanRoots;
use crate::storage::StoredValue;
use compiler::ReadFuture;
use ir::{Element, Literal, Loc};
use std::sync::atomic::Ordering;

impl Tensor {
    /// Computes the tensor and copies the elements to the host, converted to `T`.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.read_to_literal("to_vec", &Loc::caller())?.to_vec())
    }

    /// The value of a tensor with one element.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let at = Loc::caller();
        self.check_at(&at)?;
        if self.numel() != 1 {
            let reason = format!("{} has {} elements; use to_vec", self.ty(), self.numel());
            return Err(Error::call("item", reason, &at));
        }
        let literal = self.read_to_literal("item", &at)?;
        Ok(T::from_scalar(literal.get(0).cast(T::DTYPE)))
    }

    /// An asynchronous `to_vec`. On the CPU it is ready at the first poll.
    #[track_caller]
    pub fn read<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> + use<T> {
        let literal = self.read_literal();
        async move { Ok(literal.await?.to_vec()) }
    }

    /// An asynchronous `to_literal`; it does not block, so it works in the browser, on any device.
    #[track_caller]
    pub fn read_literal(&self) -> impl Future<Output = Result<Literal>> + use<> {
        let (t, at) = (self.clone(), Loc::caller());
        let staging = context::trace().is_some();
        async move {
            if staging {
                return Err(Error::AsyncInCompile { at });
            }
            let (ty, reading) = t.begin_read("read", &at)?;
            literal(&ty, &reading.await?)
        }
    }

    /// Computes the tensor and copies it to the host.
    #[track_caller]
    pub fn to_literal(&self) -> Result<Literal> {
        self.read_to_literal("to_literal", &Loc::caller())
    }

    pub(crate) fn read_to_literal(&self, what: &'static str, at: &Loc) -> Result<Literal> {
        Ok(download(&self.materialize(what, at)?)?)
    }

    /// Starts to copy the tensor to the host.
    fn begin_read(&self, what: &'static str, at: &Loc) -> Result<(Ty, ReadFuture)> {
        let dense = self.materialize(what, at)?;
        let reading = dense.storage.buffer().read_async(0, dense.ty.bytes())?;
        Ok((dense.ty, reading))
    }

    /// Computes the tensor; returns its value without views.
    pub(crate) fn materialize(&self, what: &'static str, at: &Loc) -> Result<StoredValue> {
        self.check_at(at)?;
        let lazy = match &self.0.kind {
            TensorKind::Lazy(l) => l,
            _ => return Err(Error::HostReadInCompile { what, at: at.clone() }),
        };
        if context::trace().is_some_and(|t| t.is_region()) {
            return Err(Error::HostReadInCompile { what, at: at.clone() });
        }
        let shared = &lazy.engine.shared;
        let entered = shared.enter(what)?;
        let value = self.current_value(at)?;
        shared.force(&entered.guard, &PlanRoots { values: vec![value.clone()], tokens: Vec::new() })?;
        let stored = value.value().ok_or_else(|| Error::MissingExternalState { loc: format!("{self}") })?;
        let dense = shared.dense(&stored).map_err(|e| shared.memory_error(what, at, e.into()))?;
        shared.drain_finalize_queue();
        self.0.seen.store(true, Ordering::Relaxed);
        Ok(dense)
    }
}

fn literal(ty: &Ty, bytes: &[u8]) -> Result<Literal> {
    let made = Literal::from_bytes((**ty).clone(), bytes);
    Ok(made.ok_or_else(|| compiler::Error::Internal("a buffer of another size than its type".into()))?)
}

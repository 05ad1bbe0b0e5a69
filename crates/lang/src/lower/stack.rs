//! Lowers stacks of blocks: unrolled, or a scan over stacked parameters.

use super::checkpoint::RecomputeRegion;
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame};
use super::graph::LoweredOperand;
use super::hooks::LayerIndex;
use super::{Lowerer, Result, op_error};
use crate::ast::Call;
use crate::resolve::ModuleView;
use ir::ops::Scan;
use ir::{DType, GraphBuilder, Type, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

impl Lowerer<'_> {
    /// Each block is applied to the results of the previous one; additional operands are passed to every block unchanged.
    pub(super) fn stack(
        &mut self,
        call: &Call,
        blocks: &[Rc<LoweredInstance>],
        operands: Vec<LoweredOperand>,
    ) -> Result<Vec<Value>> {
        let mut values = optional(&operands, call)?;
        let mut results = values.len();
        let outer = self.layer;
        for block in blocks {
            self.layer = layer_of(&block.path).map(LayerIndex::Number).or(outer);
            let outputs = self.block(block, &values, call);
            self.layer = outer;
            let outputs = outputs?;
            results = outputs.len().min(values.len());
            values.splice(..results, outputs.into_iter().map(Some));
        }
        values.truncate(results);
        Ok(values.into_iter().flatten().collect())
    }

    /// Lowers one block, recomputed in the backward pass if requested.
    fn block(&mut self, block: &Rc<LoweredInstance>, values: &[Option<Value>], call: &Call) -> Result<Vec<Value>> {
        let Some(region) = self.checkpoint_blocks.take() else {
            return self.run_instance(block, values.to_vec(), call.span);
        };
        let outputs = self.recomputed_block(block, values, region.clone(), call);
        self.checkpoint_blocks = Some(region);
        outputs
    }

    fn recomputed_block(
        &mut self,
        block: &Rc<LoweredInstance>,
        values: &[Option<Value>],
        region: RecomputeRegion,
        call: &Call,
    ) -> Result<Vec<Value>> {
        let mut frame = ModuleFrame::new(block.item.file, BTreeMap::new());
        frame.entries.insert("block".to_string(), FrameEntry::Instance(block.clone()));
        let operands: Vec<LoweredOperand> = values.iter().flatten().copied().map(LoweredOperand::Tensor).collect();
        let there: Vec<bool> = values.iter().map(Option::is_some).collect();
        let results = self.recomputed(&frame, &operands, region, call.span, |l, frame, operands| {
            let mut inner = tensors(&operands, call)?.into_iter();
            let inputs = there.iter().map(|there| if *there { inner.next() } else { None }).collect();
            let outputs = match frame.entries.get("block").cloned() {
                Some(FrameEntry::Instance(block)) => l.run_instance(&block, inputs, call.span)?,
                _ => Vec::new(),
            };
            Ok(outputs.into_iter().map(LoweredOperand::Tensor).collect())
        })?;
        tensors(&results, call)
    }

    /// Lowers a range of the stacked blocks to a scan. A decode step has caches for each layer, so there they are unrolled.
    pub(super) fn scan(
        &mut self,
        call: &Call,
        stacked: &Rc<LoweredInstance>,
        count: usize,
        range: Range<usize>,
        operands: Vec<LoweredOperand>,
    ) -> Result<Vec<Value>> {
        let fault = |e: ir::Error| op_error(&e, call.span, "StackedBlocks");
        let outputs = match ModuleView::new(self.program, stacked.item) {
            Some(view) if view.pattern.is_none() || view.forward.graph.is_some() => view.forward.outputs.len(),
            _ => 1,
        };
        let all = optional(&operands, call)?;
        let values: Vec<Value> = all.iter().flatten().copied().collect();
        let carries = outputs.min(values.len());
        let lacks = all.len() > values.len();
        if self.options.decode.is_some() || outputs > carries || range.is_empty() || lacks {
            let mut blocks = Vec::new();
            for index in range {
                let taken =
                    self.replace_tensors(stacked, &mut |b, value| slice_layer(b, value, index)).map_err(fault)?;
                let path = stacked.path.replacen("[*]", &format!("[{index}]"), 1);
                blocks.push(Rc::new(LoweredInstance { path, ..taken }));
            }
            return self.stack(call, &blocks, operands);
        }

        // The rows of the stacked parameters, in order, then the layer index.
        let mut rows = Vec::new();
        let (first, length) = (range.start, range.len());
        self.replace_tensors(stacked, &mut |b, value| {
            let part = if length == count { value } else { b.slice_axis(value, 0, first, first + length)? };
            rows.push(part);
            Ok(value)
        })
        .map_err(fault)?;
        let numbers = self.b.iota(DType::I32, &[length], 0).map_err(fault)?;
        let numbers = if first == 0 { Ok(numbers) } else { self.b.offset(numbers, first as f64) };
        rows.push(numbers.map_err(fault)?);

        let types: Vec<Type> = values.iter().map(|v| self.b.graph.ty(*v).clone()).collect();
        let row_types: Vec<Type> = rows.iter().map(|v| self.b.graph.ty(*v).unbatched()).collect();
        let outer = (std::mem::take(&mut self.b), std::mem::take(&mut self.tables), self.layer);
        let consts: Vec<Value> = types[carries..].iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let carried: Vec<Value> = types[..carries].iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let own: Vec<Value> = row_types.into_iter().map(|ty| self.b.graph.input(ty)).collect();
        let mut next = own.iter();
        let block = self.replace_tensors(stacked, &mut |_, value| Ok(next.next().copied().unwrap_or(value)));
        self.layer = own.last().copied().map(LayerIndex::Traced);
        let results = self.with_observed(|l| {
            let block = Rc::new(block.map_err(fault)?);
            let inputs: Vec<Option<Value>> = carried.iter().chain(&consts).copied().map(Some).collect();
            l.block(&block, &inputs, call)
        });
        let body = std::mem::replace(&mut self.b, outer.0);
        (self.tables, self.layer) = (outer.1, outer.2);
        let (mut outs, seen) = results?;
        outs.truncate(carries);
        outs.extend(seen.iter().map(|(_, value)| *value));
        let scan = Scan::over(consts.len(), carries, length, body.finish(&outs));
        let mut args = values[carries..].to_vec();
        args.extend(&values[..carries]);
        args.extend(rows);
        let found = self.b.emit(scan.into(), &args).map_err(fault)?;
        self.import_observations(seen, &found[carries..]);
        Ok(found[..carries].to_vec())
    }

    /// Replaces every tensor of the instance, in the order of their names.
    fn replace_tensors(
        &mut self,
        instance: &LoweredInstance,
        replace: &mut dyn FnMut(&mut ir::Builder, Value) -> ir::Result<Value>,
    ) -> ir::Result<LoweredInstance> {
        let mut entries = BTreeMap::new();
        for (name, entry) in &instance.entries {
            let entry = match entry {
                FrameEntry::Tensor(value) => FrameEntry::Tensor(replace(&mut self.b, *value)?),
                FrameEntry::Instance(inner) => FrameEntry::Instance(Rc::new(self.replace_tensors(inner, replace)?)),
                FrameEntry::Array(all) => {
                    let all = all.iter().map(|one| Ok(Rc::new(self.replace_tensors(one, replace)?)));
                    FrameEntry::Array(all.collect::<ir::Result<_>>()?)
                }
                other => other.clone(),
            };
            entries.insert(name.clone(), entry);
        }
        Ok(LoweredInstance { item: instance.item, given: instance.given.clone(), entries, path: instance.path.clone() })
    }
}

/// Slices one layer of a stacked tensor.
fn slice_layer(b: &mut ir::Builder, value: Value, index: usize) -> ir::Result<Value> {
    let shape = b.ty(value).shape;
    let row = b.slice_axis(value, 0, index, index + 1)?;
    b.reshape(row, &shape[1..])
}

/// The last number in brackets of a path.
fn layer_of(path: &str) -> Option<usize> {
    let (_, rest) = path.rsplit_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// The operands of a block; absent optional inputs are none.
fn optional(operands: &[LoweredOperand], call: &Call) -> Result<Vec<Option<Value>>> {
    let value = |operand: &LoweredOperand| match operand {
        LoweredOperand::Absent(_) => Ok(None),
        operand => operand.tensor(call.span).map(Some),
    };
    operands.iter().map(value).collect()
}

fn tensors(operands: &[LoweredOperand], call: &Call) -> Result<Vec<Value>> {
    operands.iter().map(|operand| operand.tensor(call.span)).collect()
}

//! Exports loops and branches. Bodies refer to constants outside by name.

use super::info;
use super::writer::{ExportedValue, ModelWriter, int, ints, subgraph};
use crate::error::Result;
use crate::proto::GraphProto;
use ir::ops::{Cond, Scan, While};
use ir::{Compare, DType, Graph, Scalar, Type};

impl ModelWriter {
    /// A body graph: its own inputs, then the nodes that `write` adds.
    fn body(
        &mut self,
        inputs: &[Type],
        write: impl FnOnce(&mut ModelWriter, &[ExportedValue]) -> Result<Vec<ExportedValue>>,
    ) -> Result<GraphProto> {
        let own: Vec<ExportedValue> =
            inputs.iter().map(|ty| ExportedValue { name: self.fresh_name(), ty: ty.clone() }).collect();
        let outside = std::mem::take(&mut self.nodes);
        let outs = write(self, &own);
        let mut node = std::mem::replace(&mut self.nodes, outside);
        let mut output = Vec::new();
        for out in outs? {
            // Each output must be a separate value of the body.
            let name = self.fresh_name();
            node.push(crate::proto::NodeProto {
                input: vec![out.name.clone()],
                output: vec![name.clone()],
                name: Some(format!("Identity_{name}")),
                op_type: Some("Identity".into()),
                ..Default::default()
            });
            output.push(info(&name, &out.ty));
        }
        let input = own.iter().map(|v| info(&v.name, &v.ty)).collect();
        Ok(GraphProto { node, name: Some("body".into()), input, output, ..GraphProto::default() })
    }

    pub(super) fn scan(&mut self, s: &Scan, args: &[ExportedValue], types: &[Type]) -> Result<Vec<ExportedValue>> {
        let (count, args) = if s.bounded { (Some(args[0].clone()), &args[1..]) } else { (None, args) };
        let (consts, rest) = args.split_at(s.consts);
        let (carries, xs) = rest.split_at(s.carries);
        if s.length == 0 {
            let mut outs = carries.to_vec();
            for ty in &types[s.carries..] {
                let zero = self.scalar(Scalar::zero(ty.dtype));
                outs.push(self.expand(&zero, &ty.shape));
            }
            return Ok(outs);
        }
        // The iteration number is an operand: a scan needs something to scan over, and a bound something to compare with.
        let mut order: Vec<i64> = (0..s.length as i64).collect();
        if s.reverse {
            order.reverse();
        }
        let numbers = self.literal(&ir::Literal::new(&[s.length], &order));
        let step = ExportedValue { name: numbers.name.clone(), ty: numbers.ty.clone() };
        let mut inputs: Vec<Type> = carries.iter().map(|v| v.ty.clone()).collect();
        inputs.extend(xs.iter().map(|v| v.ty.unbatched()));
        inputs.push(Type::scalar(DType::I64));
        let n = s.carries;
        let body = self.body(&inputs, |w, own| {
            let number = &own[own.len() - 1];
            let args: Vec<ExportedValue> = consts.iter().chain(&own[..own.len() - 1]).cloned().collect();
            let mut outs = w.graph(&s.body, &args)?;
            if let Some(count) = &count {
                // In reverse, the first iterations are those at the end of the bound.
                let c = w.cast(count, DType::I64);
                let on = w.compare(Compare::Lt, number, &c);
                for (k, out) in outs.iter_mut().enumerate() {
                    let other = match k < n {
                        true => own[k].clone(),
                        false => {
                            let zero = w.scalar(Scalar::zero(out.ty.dtype));
                            w.expand(&zero, &out.ty.shape.to_vec())
                        }
                    };
                    let ty = out.ty.clone();
                    *out = w.node("Where", &[&on, out, &other], &ty);
                }
            }
            Ok(outs)
        })?;
        let m = xs.len() + 1;
        let mut attributes = vec![subgraph("body", body), int("num_scan_inputs", m as i64)];
        if s.reverse {
            // The numbers are reversed already.
            let mut directions = vec![1i64; m];
            directions[m - 1] = 0;
            attributes.push(ints("scan_input_directions", &directions));
            attributes.push(ints("scan_output_directions", &vec![1; types.len() - n]));
        }
        let operands: Vec<&ExportedValue> = carries.iter().chain(xs).chain([&step]).collect();
        Ok(self.node_with_outputs("Scan", &operands, attributes, types))
    }

    pub(super) fn cond(&mut self, c: &Cond, args: &[ExportedValue], types: &[Type]) -> Result<Vec<ExportedValue>> {
        self.choose(&c.branches.iter().map(|b| &**b).collect::<Vec<_>>(), 0, &args[0], &args[1..], types)
    }

    /// Nested If nodes that select the branch with this index or a later one.
    fn choose(
        &mut self,
        branches: &[&Graph],
        index: usize,
        which: &ExportedValue,
        args: &[ExportedValue],
        types: &[Type],
    ) -> Result<Vec<ExportedValue>> {
        if index + 1 >= branches.len() {
            return self.graph(branches[index], args);
        }
        let at = self.scalar(Scalar::from_i64(DType::I32, index as i64));
        let here = self.compare(Compare::Le, which, &at);
        let yes = self.body(&[], |w, _| w.graph(branches[index], args))?;
        let no = self.body(&[], |w, _| w.choose(branches, index + 1, which, args, types))?;
        let attributes = vec![subgraph("then_branch", yes), subgraph("else_branch", no)];
        Ok(self.node_with_outputs("If", &[&here], attributes, types))
    }

    pub(super) fn while_loop(&mut self, l: &While, args: &[ExportedValue]) -> Result<Vec<ExportedValue>> {
        let (cond_consts, rest) = args.split_at(l.cond_consts);
        let (body_consts, carries) = rest.split_at(l.body_consts);
        let test = |w: &mut ModelWriter, carries: &[ExportedValue]| -> Result<ExportedValue> {
            let args: Vec<ExportedValue> = cond_consts.iter().chain(carries).cloned().collect();
            Ok(w.graph(&l.cond, &args)?.remove(0))
        };
        let first = test(self, carries)?;
        let types: Vec<Type> = carries.iter().map(|v| v.ty.clone()).collect();
        let mut inputs = vec![Type::scalar(DType::I64), Type::scalar(DType::Bool)];
        inputs.extend(types.iter().cloned());
        let body = self.body(&inputs, |w, own| {
            let args: Vec<ExportedValue> = body_consts.iter().chain(&own[2..]).cloned().collect();
            let outs = w.graph(&l.body, &args)?;
            let on = test(w, &outs)?;
            Ok(std::iter::once(on).chain(outs).collect())
        })?;
        let none = self.omitted_operand();
        let operands: Vec<&ExportedValue> = [&none, &first].into_iter().chain(carries).collect();
        Ok(self.node_with_outputs("Loop", &operands, vec![subgraph("body", body)], &types))
    }
}

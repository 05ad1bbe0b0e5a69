//! Ops with data-dependent result shapes: evaluated during import, from known values.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::NodeContext;
use ir::{DType, GraphBuilder, Literal, Scalar, Type};

/// Selects the boxes of a class in order of descending score, without those that overlap a better one too much.
pub(super) fn non_max_suppression(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (boxes, scores) = (cx.static_operand(0, "boxes")?, cx.static_operand(1, "scores")?);
    let number = |cx: &mut NodeContext, i: usize, what: &str| -> Result<Option<f64>> {
        match cx.item(i) {
            Some(_) => Ok(cx.static_operand(i, what)?.scalars().next().map(Scalar::to_f64)),
            None => Ok(None),
        }
    };
    let most = number(cx, 2, "max_output_boxes_per_class")?.unwrap_or(0.0).max(0.0) as usize;
    let overlap = number(cx, 3, "iou_threshold")?.unwrap_or(0.0);
    let least = number(cx, 4, "score_threshold")?;
    let centre = cx.flag("center_point_box");
    let (&[batches, count, 4], &[sb, classes, sc]) = (&boxes.ty().shape[..], &scores.ty().shape[..]) else {
        return Err(Error::node_error("its inputs must be [N, boxes, 4] and [N, classes, boxes]"));
    };
    if sb != batches || sc != count {
        return Err(Error::node_error("its boxes and scores don't fit each other"));
    }
    let bounds = |b: usize, i: usize| -> [f64; 4] {
        let at = |k: usize| boxes.get((b * count + i) * 4 + k).to_f64();
        let [p, q, r, s] = [at(0), at(1), at(2), at(3)];
        if centre {
            [p - r / 2.0, q - s / 2.0, p + r / 2.0, q + s / 2.0]
        } else {
            [p.min(r), q.min(s), p.max(r), q.max(s)]
        }
    };
    let iou = |a: [f64; 4], b: [f64; 4]| {
        let side = |k: usize| (a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
        let area = |x: [f64; 4]| (x[2] - x[0]) * (x[3] - x[1]);
        let both = side(0) * side(1);
        let union = area(a) + area(b) - both;
        if both <= 0.0 || area(a) <= 0.0 || area(b) <= 0.0 || union <= 0.0 { 0.0 } else { both / union }
    };
    let mut found: Vec<[i64; 3]> = Vec::new();
    for b in 0..batches {
        for c in 0..classes {
            let score = |i: usize| scores.get((b * classes + c) * count + i).to_f64();
            let mut order: Vec<usize> = (0..count).filter(|&i| least.is_none_or(|t| score(i) > t)).collect();
            order.sort_by(|&i, &j| score(j).total_cmp(&score(i)).then(i.cmp(&j)));
            let mut kept: Vec<usize> = Vec::new();
            for i in order {
                if kept.len() >= most {
                    break;
                }
                if kept.iter().all(|&k| iou(bounds(b, k), bounds(b, i)) <= overlap) {
                    kept.push(i);
                }
            }
            found.extend(kept.iter().map(|&i| [b as i64, c as i64, i as i64]));
        }
    }
    let ty = Type::new(DType::I64, &[found.len(), 3]);
    one(cx.constant(Literal::from_fn(ty, |i| Scalar::from_i64(DType::I64, found[i / 3][i % 3])))?)
}

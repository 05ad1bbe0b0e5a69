//! Training steps of convolutional networks: depthwise convolutions, and transposed convolutions with skip connections.

use crate::models::mean_loss;
use ir::composites::activation;
use ir::ops::window::WindowConfig;
use ir::ops::{Conv, Dot, ReduceKind};
use ir::{Builder, DType, Graph, GraphBuilder, Result, Unary, Value};

const F: DType = DType::F32;

/// The number of output features of each pair of depthwise and pointwise convolutions, and the stride of the depthwise one.
const PAIRS: [(usize, usize); 5] = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1)];

/// The parameters that a network creates, and its graph.
struct NetworkBuilder {
    b: Builder,
    params: usize,
}

impl NetworkBuilder {
    /// Builds a network with `params` parameters, which are the first inputs of the graph.
    fn new(shapes: &[Vec<usize>]) -> (NetworkBuilder, Vec<Value>) {
        let mut b = Builder::new();
        let p = shapes.iter().map(|s| b.input(F, s)).collect();
        (NetworkBuilder { b, params: shapes.len() }, p)
    }

    fn relu(&mut self, x: Value) -> Result<Value> {
        let relu = activation::relu(&self.b.ty(x))?;
        Ok(self.b.emit(relu.into(), &[x])?[0])
    }

    fn conv(&mut self, x: Value, w: Value, stride: usize, groups: usize) -> Result<Value> {
        let low = (self.b.ty(w).shape[2] / 2) as i64;
        let windows = WindowConfig::strided(&[stride, stride], &[low, low]);
        self.b.one(Conv { groups, ..Conv::new(F, windows) }.into(), &[x, w])
    }

    /// Batch norm in training mode, then relu.
    fn norm_relu(&mut self, x: Value, weight: Value, bias: Value) -> Result<Value> {
        let b = &mut self.b;
        let (shape, axes) = (b.ty(x).shape, [0, 2, 3]);
        let n = (shape[0] * shape[2] * shape[3]) as f64;
        let sum = b.sum(x, &axes)?;
        let mean = b.scale(sum, 1.0 / n)?;
        let mean = b.expand_reduced(mean, &shape, &axes)?;
        let centred = b.sub(x, mean)?;
        let square = b.mul(centred, centred)?;
        let sum = b.sum(square, &axes)?;
        let var = b.scale(sum, 1.0 / n)?;
        let var = b.offset(var, 1e-5)?;
        let scale = b.unary(Unary::Rsqrt, var)?;
        let scale = b.mul(scale, weight)?;
        let (scale, bias) = (b.broadcast(scale, &shape, &[1])?, b.broadcast(bias, &shape, &[1])?);
        let y = b.mul(centred, scale)?;
        let y = b.add(y, bias)?;
        self.relu(y)
    }

    fn bias_relu(&mut self, x: Value, bias: Value) -> Result<Value> {
        let shape = self.b.ty(x).shape;
        let bias = self.b.broadcast(bias, &shape, &[1])?;
        let y = self.b.add(x, bias)?;
        self.relu(y)
    }

    /// Upsamples to twice the height and width.
    fn upsample2x(&mut self, x: Value, w: Value) -> Result<Value> {
        let windows = WindowConfig { base_dilation: [2, 2][..].into(), ..WindowConfig::strided(&[1, 1], &[1, 1]) };
        self.b.one(Conv::new(F, windows).into(), &[x, w])
    }

    fn pool(&mut self, x: Value) -> Result<Value> {
        self.b.reduce_window(ReduceKind::Max, x, &[1, 1, 2, 2], WindowConfig::strided(&[1, 1, 2, 2], &[0; 4]))
    }

    /// Appends one SGD step on a loss.
    fn step(self, loss: Value) -> Result<Graph> {
        let n = self.params;
        let f = self.b.finish(&[loss]);
        let grad = transform::value_and_grad(&f, &(0..n).collect::<Vec<_>>())?;
        let mut b = Builder::new();
        let args: Vec<Value> = grad.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let outs = b.inline(&grad, &args)?;
        let mut results = vec![outs[0]];
        for i in 0..n {
            let step = b.scale(outs[1 + i], 1e-2)?;
            results.push(b.sub(args[i], step)?);
        }
        Ok(b.finish(&results))
    }
}

/// One SGD step of a network of depthwise and pointwise convolutions with batch norm on 32 images of 3×32×32.
pub(crate) fn mobile_step() -> Graph {
    let build = || -> Result<Graph> {
        let mut shapes = vec![vec![32, 3, 3, 3], vec![32], vec![32]];
        let mut features = 32;
        for (out, _) in PAIRS {
            shapes.extend([vec![features, 1, 3, 3], vec![features], vec![features]]);
            shapes.extend([vec![out, features, 1, 1], vec![out], vec![out]]);
            features = out;
        }
        shapes.push(vec![10, features]);
        let (mut net, p) = NetworkBuilder::new(&shapes);
        let images = net.b.input(F, &[32, 3, 32, 32]);
        let labels = net.b.input(DType::I32, &[32]);
        let mut x = net.conv(images, p[0], 1, 1)?;
        x = net.norm_relu(x, p[1], p[2])?;
        for ((_, stride), p) in PAIRS.into_iter().zip(p[3..].chunks(6)) {
            let groups = net.b.ty(x).shape[1];
            x = net.conv(x, p[0], stride, groups)?;
            x = net.norm_relu(x, p[1], p[2])?;
            x = net.conv(x, p[3], 1, 1)?;
            x = net.norm_relu(x, p[4], p[5])?;
        }
        let shape = net.b.ty(x).shape;
        let sum = net.b.sum(x, &[2, 3])?;
        let pooled = net.b.scale(sum, 1.0 / (shape[2] * shape[3]) as f64)?;
        let logits = net.b.one(Dot::last_axes(F, 2, 2).into(), &[pooled, p[shapes.len() - 1]])?;
        let loss = mean_loss(&mut net.b, logits, labels)?;
        net.step(loss)
    };
    build().expect("the model is a valid graph")
}

/// One SGD step of a network with two downsampling stages and two transposed convolutions that upsample again, on 8 images of
/// 3×64×64.
pub(crate) fn unet_step() -> Graph {
    let build = || -> Result<Graph> {
        let convs = [(16, 3), (32, 16), (64, 32), (32, 64), (16, 32)];
        let mut shapes: Vec<Vec<usize>> = convs.iter().flat_map(|&(o, i)| [vec![o, i, 3, 3], vec![o]]).collect();
        shapes.extend([vec![32, 64, 2, 2], vec![16, 32, 2, 2], vec![2, 16, 1, 1]]);
        let (mut net, p) = NetworkBuilder::new(&shapes);
        let images = net.b.input(F, &[8, 3, 64, 64]);
        let labels = net.b.input(DType::I32, &[8, 64, 64]);
        let block = |net: &mut NetworkBuilder, x: Value, i: usize| {
            let y = net.conv(x, p[2 * i], 1, 1)?;
            net.bias_relu(y, p[2 * i + 1])
        };
        let first = block(&mut net, images, 0)?;
        let down = net.pool(first)?;
        let second = block(&mut net, down, 1)?;
        let down = net.pool(second)?;
        let bottom = block(&mut net, down, 2)?;
        let up = net.upsample2x(bottom, p[10])?;
        let joint = net.b.concat(&[second, up], 1)?;
        let x = block(&mut net, joint, 3)?;
        let up = net.upsample2x(x, p[11])?;
        let joint = net.b.concat(&[first, up], 1)?;
        let x = block(&mut net, joint, 4)?;
        let logits = net.conv(x, p[12], 1, 1)?;
        let logits = net.b.permute(logits, &[0, 2, 3, 1])?;
        let loss = mean_loss(&mut net.b, logits, labels)?;
        net.step(loss)
    };
    build().expect("the model is a valid graph")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_graphs_that_give_a_loss_and_every_parameter() {
        for g in [mobile_step(), unet_step()] {
            let (inputs, outputs) = (g.input_types(), g.output_types());
            assert_eq!(outputs.len() + 1, inputs.len());
            assert_eq!(outputs[0], ir::Type::new(F, &[]));
            assert_eq!(outputs[1..], inputs[..inputs.len() - 2]);
        }
    }
}

//! The Graph IR as JSON (§9.7.1): nodes with their attributes, and the edges between them.

use ir::attr::Attr;
use ir::{Graph, Type, Value};
use lang::lower::Lowered;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// A lowered declaration: forward, and forward with backward where something is trained.
pub(crate) fn json(name: &str, lowered: &Lowered, backward: Option<&Graph>) -> Json {
    let params = lowered.params.iter().map(|p| p.path.clone());
    let inputs: Vec<String> = params.chain(lowered.inputs.iter().cloned()).collect();
    let trained = lowered.params.iter().filter(|p| p.trainable).map(|p| format!("d_{}", p.path));
    let cotangents = lowered.outputs.iter().map(|name| format!("d_{name}"));
    let all_in: Vec<String> = inputs.iter().cloned().chain(cotangents).collect();
    let all_out: Vec<String> = lowered.outputs.iter().cloned().chain(trained).collect();
    json!({
        "name": name,
        "forward": graph(&lowered.graph, &inputs, &lowered.outputs),
        "backward": backward.map(|backward| graph(backward, &all_in, &all_out)),
    })
}

fn typed(ty: &Type) -> Json {
    json!({ "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec() })
}

/// One graph; inputs and outputs without a name go by their number.
fn graph(graph: &Graph, inputs: &[String], outputs: &[String]) -> Json {
    let tensor = |names: &[String], i: usize, value: &Value| {
        let ty = graph.ty(*value);
        let name = names.get(i).cloned().unwrap_or_else(|| i.to_string());
        json!({ "name": name, "value": value.0, "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec() })
    };
    let mut made: BTreeMap<Value, (usize, usize)> = BTreeMap::new();
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for (id, node) in graph.nodes().iter().enumerate() {
        for (slot, value) in node.args.iter().enumerate() {
            // An edge without a source comes from an input.
            let (source, output) = made.get(value).map_or((None, None), |(node, output)| (Some(node), Some(output)));
            let ty = graph.ty(*value);
            edges.push(json!({
                "source_node": source, "source_output": output, "dest_node": id, "dest_input": slot, "value": value.0,
                "dtype": ty.dtype.to_string(), "shape": ty.shape.to_vec(),
            }));
        }
        made.extend(node.outs.iter().enumerate().map(|(output, value)| (*value, (id, output))));
        let attributes: serde_json::Map<String, Json> =
            node.op.rules().attrs().iter().map(|(name, attr)| (name.to_string(), attribute(attr))).collect();
        let outs: Vec<Json> = node.outs.iter().map(|value| typed(graph.ty(*value))).collect();
        let place = node.loc.to_string();
        nodes.push(json!({
            "id": id, "op_type": node.op.name(), "attributes": attributes, "outputs": outs,
            "place": (!place.is_empty()).then_some(place),
        }));
    }
    let listed = |values: &[Value], names: &[String]| -> Vec<Json> {
        values.iter().enumerate().map(|(i, value)| tensor(names, i, value)).collect()
    };
    json!({
        "inputs": listed(graph.inputs(), inputs), "outputs": listed(graph.outputs(), outputs), "nodes": nodes,
        "edges": edges,
    })
}

fn attribute(attr: &Attr) -> Json {
    match attr {
        Attr::Int(n) => json!(n),
        Attr::Bool(value) => json!(value),
        Attr::Word(text) | Attr::Str(text) => json!(text),
        Attr::List(items) => items.iter().map(attribute).collect(),
        Attr::Scalar(scalar) => json!(scalar.to_f64()),
        // Tables of rotations and the like would fill pages.
        Attr::Literal(literal) => typed(literal.ty()),
        Attr::Graph(inner) => graph(inner, &[], &[]),
    }
}

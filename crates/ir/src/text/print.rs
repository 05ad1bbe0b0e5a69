//! The printer: Graph → text.

use crate::attr::Attr;
use crate::graph::{Graph, Value};
use std::fmt::{self, Write};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        print(self, 0, &mut out)?;
        f.write_str(&out)
    }
}

/// Numbers values in order of definition, inputs first, regardless of their indices.
fn numbering(graph: &Graph) -> Vec<usize> {
    let mut names = vec![usize::MAX; graph.num_values()];
    let order = graph.inputs().iter().chain(graph.nodes().iter().flat_map(|n| &n.outs));
    for (i, v) in order.enumerate() {
        if let Some(name) = names.get_mut(v.0 as usize) {
            *name = i;
        }
    }
    names
}

fn print(graph: &Graph, depth: usize, out: &mut String) -> fmt::Result {
    let names = numbering(graph);
    let name = |v: &Value| names.get(v.0 as usize).copied().unwrap_or(usize::MAX);
    let pad = "  ".repeat(depth);
    out.write_str("graph (")?;
    for (i, v) in graph.inputs().iter().enumerate() {
        write!(out, "{}%{}: {}", comma(i), name(v), graph.ty(*v))?;
    }
    out.write_str(") {\n")?;
    for node in graph.nodes() {
        write!(out, "{pad}  ")?;
        for (i, v) in node.outs.iter().enumerate() {
            write!(out, "{}%{}", comma(i), name(v))?;
        }
        write!(out, "{}{}(", if node.outs.is_empty() { "" } else { " = " }, node.op.name())?;
        for (i, a) in node.args.iter().enumerate() {
            write!(out, "{}%{}", comma(i), name(a))?;
        }
        out.push(')');
        let attrs = node.op.attrs();
        if !attrs.is_empty() {
            out.write_str(" {")?;
            for (i, (key, value)) in attrs.iter().enumerate() {
                write!(out, "{}{key}=", comma(i))?;
                print_attr(value, depth + 1, out)?;
            }
            out.push('}');
        }
        for (i, v) in node.outs.iter().enumerate() {
            write!(out, "{}{}", if i == 0 { " : " } else { ", " }, graph.ty(*v))?;
        }
        out.push('\n');
    }
    write!(out, "{pad}  return")?;
    for (i, v) in graph.outputs().iter().enumerate() {
        write!(out, "{}%{}", if i == 0 { " " } else { ", " }, name(v))?;
    }
    write!(out, "\n{pad}}}")?;
    if depth == 0 {
        out.push('\n');
    }
    Ok(())
}

fn comma(i: usize) -> &'static str {
    if i == 0 { "" } else { ", " }
}

fn print_attr(attr: &Attr, depth: usize, out: &mut String) -> fmt::Result {
    match attr {
        Attr::Int(i) => write!(out, "{i}"),
        Attr::Bool(b) => write!(out, "{b}"),
        Attr::Word(w) => out.write_str(w),
        Attr::Str(s) => write!(out, "{s:?}"),
        Attr::Scalar(s) => write!(out, "{} {s}", s.dtype()),
        Attr::Literal(l) => {
            write!(out, "{} [", l.ty())?;
            for (i, s) in l.scalars().enumerate() {
                write!(out, "{}{s}", comma(i))?;
            }
            out.write_str("]")
        }
        Attr::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.write_str(comma(i))?;
                print_attr(item, depth, out)?;
            }
            out.push(']');
            Ok(())
        }
        Attr::Graph(g) => print(g, depth, out),
    }
}

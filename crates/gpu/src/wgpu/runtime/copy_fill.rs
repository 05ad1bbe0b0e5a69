//! Copies and fills of byte ranges. A thread has a word of the destination; bytes outside the range are preserved.

use super::binding::Bound;
use super::encode::Encoder;
use super::launch::blocks;
use super::pool::Block;
use crate::wgpu::{Binding, ShaderSource};
use compiler::Result;

const THREADS: usize = 256;

/// The number of workgroups for this many bytes.
pub(super) fn grid(bytes: usize) -> [u32; 3] {
    [blocks(bytes / 4 + 2, THREADS), 1, 1]
}

/// Parameters: destination and source in bytes, and the number of bytes.
pub(super) fn copy_text(homes: &[usize]) -> ShaderSource {
    text(homes, true)
}

/// Parameters: destination in bytes, and the number of bytes.
pub(super) fn zero_text(homes: &[usize]) -> ShaderSource {
    text(homes, false)
}

fn text(homes: &[usize], copies: bool) -> ShaderSource {
    let (from, count) = if copies { ("params.v[0].y", "params.v[0].z") } else { ("0u", "params.v[0].y") };
    let separate = copies && homes[0] != homes[1];
    let source = format!("g{}", if separate { 1 } else { 0 });
    let second = if separate { "@group(0) @binding(1) var<storage, read> g1: array<u32>;\n" } else { "" };
    let (whole, byte) = match copies {
        true => (
            format!(
                "let s = src + (first - to);\n            let by = (s & 3u) << 3u;\n            var w = {source}[s >> 2u] >> by;\n            \
                 if (by != 0u) {{ w |= {source}[(s >> 2u) + 1u] << (32u - by); }}"
            ),
            format!("let s = src + (p - to); let b = ({source}[s >> 2u] >> ((s & 3u) << 3u)) & 0xffu;"),
        ),
        false => ("var w = 0u;".into(), "let b = 0u;".into()),
    };
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> g0: array<u32>;
{second}struct Params {{ v: array<vec4<u32>, 1> }}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size({THREADS}) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {{
    let to = params.v[0].x;
    let src = {from};
    let end = to + {count};
    for (var k = (to >> 2u) + id.x; (k << 2u) < end; k += n.x * {THREADS}u) {{
        let first = k << 2u;
        if (first >= to && first + 4u <= end) {{
            {whole}
            g0[k] = w;
        }} else {{
            var w = g0[k];
            for (var j = 0u; j < 4u; j += 1u) {{
                let p = first + j;
                if (p >= to && p < end) {{
                    {byte}
                    w = (w & ~(0xffu << (j << 3u))) | (b << (j << 3u));
                }}
            }}
            g0[k] = w;
        }}
    }}
}}
"
    );
    let mut bindings = vec![Binding { writable: true }];
    bindings.extend(separate.then_some(Binding { writable: false }));
    ShaderSource { source, bindings, params: 4, shared: 0 }
}

/// Copies between two buffers, outside of a program.
pub(super) fn copy(
    encoder: &mut Encoder<'_>,
    to: &Block,
    to_byte: usize,
    from: &Block,
    from_byte: usize,
    bytes: usize,
) -> Result<()> {
    if bytes == 0 || (to.id == from.id && to_byte == from_byte) {
        return Ok(());
    }
    // A kernel is faster than the copies of some drivers, and needs no separate pass; but it cannot bind all buffers.
    let words = [to_byte, from_byte, bytes].iter().all(|n| n.is_multiple_of(4));
    let large = to.size.max(from.size) > encoder.device.binding();
    if words && large && to.id != from.id {
        encoder.copy(to, to_byte, from, from_byte, bytes);
        return Ok(());
    }
    let same = to.id == from.id;
    let homes: &[usize] = if same { &[0, 0] } else { &[0, 1] };
    let both = [Bound::whole(to), Bound::whole(from)];
    let bound = if same { &both[..1] } else { &both[..] };
    let pipeline = encoder.device.moves(homes)?;
    encoder.dispatch(&pipeline, bound, &[to_byte as u32, from_byte as u32, bytes as u32], grid(bytes))
}

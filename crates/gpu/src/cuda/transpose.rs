//! Transposes of byte matrices, through tiles in shared memory (`templates/turn.cu`).

use super::template::{TURN, TemplateArg, TemplateLaunch};

/// The rows and columns of a tile.
const TILE: (usize, usize) = (128, 64);

/// The number that both sizes must be multiples of.
pub const TRANSPOSE_MULTIPLE: usize = 16;

/// The launch that transposes a matrix of `rows` × `cols` bytes, both multiples of [`TRANSPOSE_MULTIPLE`].
pub fn transpose_launch(rows: usize, cols: usize, from: TemplateArg, to: TemplateArg) -> TemplateLaunch {
    let entry = "turn_bytes".to_string();
    let text = format!(
        "{TURN}extern \"C\" __global__ void __launch_bounds__(256) {entry}(const u8* from, u8* to, i64 rows, i64 cols) {{\n    \
         __shared__ u32 tile[2048];\n    wait_turn();\n    turn_block(from, to, tile, rows, cols);\n}}\n"
    );
    let blocks = rows.div_ceil(TILE.0) * cols.div_ceil(TILE.1);
    TemplateLaunch {
        entry_point: entry,
        source: text,
        blocks,
        threads: 256,
        dynamic_shared_bytes: 0,
        args: vec![from, to],
        sizes: vec![rows as i64, cols as i64],
    }
}

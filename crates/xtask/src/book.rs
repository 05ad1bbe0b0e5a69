//! `book` draws the diagrams from real programs, checks the links, and builds the pages with mdBook if it is installed.
//!
//! `loom run FILE --emit FORM` prints each form of a graph in the compiler. The diagrams are drawn from that output only, so they
//! show what this version does. They are written to `book/src/pictures`, which git ignores.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Draws the diagrams, checks the links and builds the pages.
pub(crate) fn book(root: &Path) -> Result<(), String> {
    let src = root.join("book/src");
    let pictures = src.join("pictures");
    fs::create_dir_all(&pictures).map_err(|e| format!("{}: {e}", pictures.display()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // The environment variable `LOOM` may name a `loom` binary that is already built.
    let loom = match std::env::var_os("LOOM") {
        Some(loom) => PathBuf::from(loom),
        None => {
            crate::run("cargo", &["build", "-q", "-p", "tensorloom-cli"])?;
            target.join("debug/loom")
        }
    };
    let layer = src.join("layer.ir");
    let form = |words: &[&str]| -> Result<String, String> {
        let mut command = Command::new(&loom);
        command.arg("run").arg(&layer).args(words).args(["--threads", "1"]);
        let out = command.output().map_err(|e| format!("{}: {e}", loom.display()))?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    };
    let back = |emit: &'static str| form(&["--transform", "vjp", "--emit", emit]);
    let (explained, program) = (back("explain")?, back("program")?);
    let drawn = [
        ("graph.svg", graph(&form(&["--emit", "graph"])?)),
        ("backward.svg", graph(&back("graph")?)),
        ("fusion.svg", fusion(&explained, &program)),
        ("memory.svg", memory(&program)),
        ("kernel.svg", kernel(&back("loops")?, &back("asm")?)),
    ];
    for (name, svg) in drawn {
        fs::write(pictures.join(name), svg).map_err(|e| format!("{name}: {e}"))?;
        println!("book/src/pictures/{name}");
    }
    links(&src)?;
    match Command::new("mdbook").args(["build", "book", "-d"]).arg(target.join("book")).current_dir(root).status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("mdbook ended with {s}")),
        Err(_) => {
            println!("mdbook is not here (`cargo install mdbook`): pictures and links are fine, pages were not made");
            Ok(())
        }
    }
}

/// Checks that every link of every page leads to an existing file or heading, and that every page is in the summary.
pub(crate) fn links(src: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut pages: Vec<PathBuf> = fs::read_dir(src).map_err(|e| e.to_string())?.flatten().map(|f| f.path()).collect();
    pages.retain(|p| p.extension().is_some_and(|e| e == "md"));
    pages.sort();
    let summary = fs::read_to_string(src.join("SUMMARY.md")).map_err(|e| format!("SUMMARY.md: {e}"))?;
    for page in &pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != "SUMMARY.md" && !summary.contains(&format!("({name})")) {
            wrong.push(format!("{name} is not in SUMMARY.md"));
        }
        let text = fs::read_to_string(page).map_err(|e| format!("{name}: {e}"))?;
        for link in targets(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let at = if file.is_empty() { page.clone() } else { src.join(file) };
            if !at.exists() {
                wrong.push(format!("{name}: {link} leads nowhere"));
            } else if !heading.is_empty()
                && !headings(&fs::read_to_string(&at).unwrap_or_default()).contains(&heading.to_string())
            {
                wrong.push(format!("{name}: {link}: there is no such heading"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Returns the targets of the links of a page, except links to other sites.
fn targets(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let mut rest = if code { "" } else { line };
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let link = &rest[..rest.find(')').unwrap_or(rest.len())];
            if !link.contains("://") {
                out.push(link.to_string());
            }
        }
    }
    out
}

/// Returns the anchors of the headings of a page.
fn headings(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|l| l.starts_with('#'));
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    lines
        .map(|l| {
            l.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").chars().filter(|c| keep(*c)).collect()
        })
        .collect()
}

const FONT: &str = "font-family=\"ui-monospace, monospace\"";
const COLOURS: [&str; 8] = ["#cfe3ff", "#d8f3d0", "#ffe4c4", "#eadcff", "#ffd6dd", "#d2f1f1", "#f5efc0", "#e3e3e3"];

/// Diagrams have a white background, so that they are readable on dark pages too.
fn svg(width: usize, height: usize, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn text(body: &mut String, x: usize, y: usize, size: usize, shown: &str) {
    let shown = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        body,
        "<text x=\"{x}\" y=\"{y}\" {FONT} font-size=\"{size}\" fill=\"#222\" xml:space=\"preserve\">{shown}</text>"
    );
}

fn rect(body: &mut String, [x, y, w, h]: [usize; 4], colour: &str) {
    let _ = writeln!(
        body,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"5\" fill=\"{colour}\" stroke=\"#888\"/>"
    );
}

/// Draws a curve downward through points that ends in an arrow. Each point is (x, height where the curve enters, height where it
/// leaves).
fn arrow(body: &mut String, points: &[[usize; 3]]) {
    let [x, _, mut y] = points[0];
    let mut path = format!("M{x} {y}");
    let mut from = x;
    for &[x, meets, leaves] in &points[1..] {
        let middle = (y + meets) / 2;
        let _ = write!(path, "C{from} {middle} {x} {middle} {x} {meets}");
        if leaves > meets {
            let _ = write!(path, "V{leaves}");
        }
        (from, y) = (x, leaves);
    }
    let _ = writeln!(body, "<path d=\"{path}\" fill=\"none\" stroke=\"#777\" marker-end=\"url(#a)\"/>");
}

/// Returns the value names that occur in a text.
fn values(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '%')).filter(|w| w.starts_with('%'));
    words.map(str::to_string).collect()
}

/// A box of a layered diagram.
struct Node {
    label: Vec<String>,
    from: Vec<usize>,
    colour: usize,
}

/// Arranges boxes in layers: each box is below all boxes that it depends on.
fn layered(nodes: &[Node]) -> String {
    let mut depth = vec![0usize; nodes.len()];
    for (i, n) in nodes.iter().enumerate() {
        depth[i] = n.from.iter().map(|&f| depth[f] + 1).max().unwrap_or(0);
    }
    // A box without dependencies is placed in the layer above its first user.
    for i in 0..nodes.len() {
        if nodes[i].from.is_empty() {
            let first = (0..nodes.len()).filter(|&j| nodes[j].from.contains(&i)).map(|j| depth[j]).min();
            depth[i] = first.map_or(0, |d| d.saturating_sub(1));
        }
    }
    // An edge that spans several layers gets its own gap in each layer, so that it is not hidden behind a box.
    let mut above: Vec<Vec<usize>> = nodes.iter().map(|n| n.from.clone()).collect();
    let mut gaps: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut paths = Vec::new();
    for (i, n) in nodes.iter().enumerate() {
        for (k, &f) in n.from.iter().enumerate() {
            let mut path = vec![f];
            for layer in depth[f] + 1..depth[i] {
                let gap = *gaps.entry((f, layer)).or_insert_with(|| {
                    depth.push(layer);
                    above.push(vec![path[path.len() - 1]]);
                    depth.len() - 1
                });
                path.push(gap);
            }
            above[i][k] = path[path.len() - 1];
            path.push(i);
            paths.push(path);
        }
    }
    let layers = depth.iter().max().map_or(0, |d| d + 1);
    let size = |i: usize| match nodes.get(i) {
        Some(n) => {
            (n.label.iter().map(|l| l.chars().count()).max().unwrap_or(0) * 15 / 2 + 18, n.label.len() * 15 + 12)
        }
        None => (8, 0),
    };
    let row = |l: usize| (0..depth.len()).filter(|&i| depth[i] == l).collect::<Vec<_>>();
    let tall: Vec<usize> = (0..layers).map(|l| row(l).into_iter().map(|i| size(i).1).max().unwrap_or(0)).collect();
    let wide = |l: usize| row(l).into_iter().map(|i| size(i).0 + 16).sum::<usize>();
    let width = (0..layers).map(wide).max().unwrap_or(0) + 20;
    let mut place = vec![[0; 4]; depth.len()];
    let mut y = 14;
    for l in 0..layers {
        let mut x = (width - wide(l)) / 2 + 8;
        // Boxes are sorted by the position of their dependencies, so that fewer edges cross.
        let mut row = row(l);
        let centre = |i: usize, place: &[[usize; 4]]| {
            let above: Vec<usize> = above[i].iter().map(|&f| place[f][0] + place[f][2] / 2).collect();
            if above.is_empty() { usize::MAX / 2 } else { above.iter().sum::<usize>() / above.len() }
        };
        row.sort_by_key(|&i| (centre(i, &place), i));
        for i in row {
            let (w, h) = size(i);
            place[i] = [x, y, w, if i < nodes.len() { h } else { tall[l] }];
            x += w + 16;
        }
        y += tall[l] + 30;
    }
    let mut body = String::new();
    for path in &paths {
        let mut points: Vec<[usize; 3]> =
            path.iter().map(|&i| place[i]).map(|[x, y, w, h]| [x + w / 2, y, y + h]).collect();
        if let Some(end) = points.last_mut() {
            end[2] = end[1];
        }
        arrow(&mut body, &points);
    }
    for (n, p) in nodes.iter().zip(&place) {
        rect(&mut body, *p, COLOURS[n.colour % COLOURS.len()]);
        for (k, line) in n.label.iter().enumerate() {
            text(&mut body, p[0] + 9, p[1] + 18 + 15 * k, 12, line);
        }
    }
    svg(width, y, &body)
}

/// Draws a graph: a box for each op, and an edge for each value.
fn graph(shown: &str) -> String {
    let mut nodes: Vec<Node> = Vec::new();
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for line in shown.lines().map(str::trim) {
        if let Some(inputs) = line.strip_prefix("graph (") {
            let inputs = inputs.trim_end_matches(") {");
            for (name, ty) in inputs.split("%").filter_map(|p| p.split_once(": ")) {
                made.insert(format!("%{name}"), nodes.len());
                let ty = ty.trim_end_matches([',', ' ']);
                nodes.push(Node { label: vec!["input".into(), ty.into()], from: Vec::new(), colour: 0 });
            }
        } else if let Some(results) = line.strip_prefix("return ") {
            let from = values(results).iter().filter_map(|v| made.get(v).copied()).collect();
            nodes.push(Node { label: vec!["results".into()], from, colour: 2 });
        } else if let Some((left, right)) = line.split_once(" = ") {
            let op = right.split('(').next().unwrap_or("");
            let operands = right.split(')').next().unwrap_or("");
            let ty = right.rsplit(" : ").next().unwrap_or("");
            let from = values(operands).iter().filter_map(|v| made.get(v).copied()).collect();
            made.extend(values(left).into_iter().map(|v| (v, nodes.len())));
            let colour = match op {
                "dot" => 4,
                op if op.starts_with("reduce") => 3,
                _ => 1,
            };
            nodes.push(Node { label: vec![op.into(), ty.into()], from, colour });
        }
    }
    layered(&nodes)
}

/// Draws the fusion groups: a box for each step with the ops inside it, and edges for the buffers between steps.
fn fusion(explained: &str, program: &str) -> String {
    let mut nodes: Vec<Node> = Vec::new();
    for line in explained.lines() {
        if let Some((number, what)) = line.split_once(": ")
            && number.parse::<usize>().is_ok()
        {
            let colour = if what.starts_with("dot") { 4 } else { 1 };
            nodes.push(Node { label: vec![format!("{number}: {what}")], from: Vec::new(), colour });
        } else if let (Some(node), Some((_, ops))) = (nodes.last_mut(), line.split_once(" = ")) {
            node.label.push(format!("  {}", ops.trim()));
        }
    }
    let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
    for line in program.lines().map(str::trim) {
        let Some((number, rest)) = line.split_once(": ") else { continue };
        let Ok(step) = number.parse::<usize>() else { continue };
        let Some(node) = nodes.get_mut(step) else { continue };
        for word in rest.split_whitespace() {
            if let Some(&from) = writers.get(word)
                && !node.from.contains(&from)
            {
                node.from.push(from);
            }
        }
        for word in rest.split_whitespace().filter_map(|w| w.strip_prefix('→')) {
            writers.insert(word, step);
        }
    }
    layered(&nodes)
}

/// Returns the size in bytes of a type such as `f32[64,128]`.
fn bytes(ty: &str) -> usize {
    let (dtype, sizes) = ty.trim_end_matches(']').split_once('[').unwrap_or((ty, ""));
    let bits: usize = dtype.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(8);
    sizes.split(',').filter_map(|n| n.trim().parse::<usize>().ok()).product::<usize>() * bits / 8
}

/// Draws the arena over time: steps from left to right, addresses from the bottom up.
fn memory(program: &str) -> String {
    let mut steps = 0;
    let mut blocks = Vec::new();
    let mut arena = 1;
    for line in program.lines().map(str::trim) {
        if let Some(n) = line.strip_prefix("program: arena ") {
            arena = n.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1).max(1);
        }
        let Some((name, rest)) = line.split_once(": ") else { continue };
        if let Ok(step) = name.parse::<usize>() {
            steps = steps.max(step + 1);
        }
        let Some((ty, place)) = rest.split_once(" arena at ") else { continue };
        let Some((offset, live)) = place.split_once(", steps ") else { continue };
        let (Ok(offset), Some((a, z))) = (offset.parse::<usize>(), live.split_once("..=")) else { continue };
        let (Ok(a), Ok(z)) = (a.parse::<usize>(), z.parse::<usize>()) else { continue };
        blocks.push((name.to_string(), ty.to_string(), offset, bytes(ty), a, z));
    }
    let (left, top, column, tall) = (90, 24, 110, 260);
    let mut body = String::new();
    for s in 0..steps {
        text(&mut body, left + s * column + 8, top + tall + 20, 12, &format!("step {s}"));
        let x = left + s * column;
        let _ = writeln!(body, "<path d=\"M{x} {top}V{}\" stroke=\"#ddd\"/>", top + tall);
    }
    text(&mut body, 8, top + 10, 11, &format!("{} KiB", arena / 1024));
    text(&mut body, 8, top + tall, 11, "0");
    for (i, (name, ty, offset, size, a, z)) in blocks.iter().enumerate() {
        let h = (size * tall / arena).max(4);
        let y = top + tall - (offset + size) * tall / arena;
        // A result that is written in place of its operand occupies the address from its own step on.
        let over =
            |b: &&(String, String, usize, usize, usize, usize)| b.4 > *a && b.2 < offset + size && *offset < b.2 + b.3;
        let end = blocks.iter().filter(over).map(|b| b.4).min().unwrap_or(usize::MAX).min(z + 1);
        rect(&mut body, [left + a * column + 2, y, (end - a) * column - 4, h], COLOURS[i % COLOURS.len()]);
        text(&mut body, left + a * column + 10, y + h / 2, 12, name);
        text(&mut body, left + a * column + 10, y + h / 2 + 14, 11, ty);
    }
    svg(left + steps * column + 20, top + tall + 36, &body)
}

/// Draws a kernel as loops, with the machine code of its innermost loop beside it.
fn kernel(loops: &str, asm: &str) -> String {
    let first = |text: &str| -> Vec<String> {
        let mut lines = text.lines();
        let head = lines.next().unwrap_or("").to_string();
        let name = |l: &str| !l.starts_with([' ', '}']) && !l.is_empty();
        std::iter::once(head).chain(lines.take_while(|l| !name(l)).map(str::to_string)).collect()
    };
    let left = first(loops);
    let code = first(asm);
    // The innermost loop is taken to be the part with the longest sequence of vector instructions.
    let vector = |l: &String| usize::from(l.contains("zmm") || l.contains("ymm"));
    let window = left.len().min(code.len()).max(1);
    let best = (0..=code.len().saturating_sub(window))
        .max_by_key(|&i| (code[i..i + window].iter().map(vector).sum::<usize>(), code.len() - i));
    let right = &code[best.unwrap_or(0)..(best.unwrap_or(0) + window).min(code.len())];
    let mut shown: Vec<String> = right.to_vec();
    if let Some(first) = shown.first_mut().filter(|_| best.is_some_and(|b| b > 0)) {
        *first = "    ..".into();
    }
    if let Some(last) = shown.last_mut().filter(|_| best.unwrap_or(0) + window < code.len()) {
        *last = "    ..".into();
    }
    let right = &shown[..];
    let mut body = String::new();
    let width = |lines: &[String]| lines.iter().map(|l| l.chars().count()).max().unwrap_or(0) * 15 / 2 + 30;
    let (a, b) = (width(&left), width(right).max(300));
    let h = left.len().max(right.len() + 1) * 15 + 24;
    rect(&mut body, [6, 6, a, h], COLOURS[1]);
    rect(&mut body, [a + 16, 6, b, h], COLOURS[0]);
    for (k, line) in left.iter().enumerate() {
        text(&mut body, 14, 26 + 15 * k, 12, line);
    }
    text(&mut body, a + 24, 26, 12, "from its innermost loop, on this machine:");
    for (k, line) in right.iter().enumerate() {
        text(&mut body, a + 24, 41 + 15 * k, 12, line);
    }
    svg(a + b + 24, h + 14, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_book_lead_somewhere() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src");
        // The diagrams are generated by the build; here only their names are checked.
        let found = links(&src).err().unwrap_or_default();
        let wrong: Vec<&str> = found.lines().filter(|l| !l.contains("pictures/")).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let known = ["graph.svg", "backward.svg", "fusion.svg", "memory.svg", "kernel.svg"];
        for page in fs::read_dir(&src).unwrap().flatten().filter(|f| f.path().extension().is_some_and(|e| e == "md")) {
            for link in targets(&fs::read_to_string(page.path()).unwrap()) {
                if let Some(name) = link.strip_prefix("pictures/") {
                    assert!(known.contains(&name), "{link}");
                }
            }
        }
    }

    #[test]
    fn pictures_show_what_the_text_says() {
        let shown = "graph (%0: f32[2,3], %1: f32[3]) {\n  %2 = broadcast(%1) {shape=[2, 3], dims=[1]} : f32[2,3]\n  \
                     %3 = add(%0, %2) : f32[2,3]\n  return %3\n}\n";
        let drawn = graph(shown);
        assert_eq!((drawn.matches("<rect x").count(), drawn.matches("<path d=\"M").count() - 1), (5, 4));
        let program = "program: arena 2048 bytes\n  b0: f32[4] input 0, steps 0..=1\n  b1: f32[256] arena at 0, steps 0..=1\n  \
                       b2: f32[256] arena at 1024, steps 1..=2\n  0: kernel a b0 →b1\n  1: kernel c b1 →b2\n  2: kernel d b2 →b3\n";
        let drawn = memory(program);
        assert!(
            drawn.contains("b1</text>")
                && drawn.contains("f32[256]")
                && drawn.contains("2 KiB")
                && drawn.matches("<rect x").count() == 2
        );
        let drawn = fusion(
            "0: kernel over [4]\n    %1 f32[4] = add, mul\n1: dot f32[4], f32[4]\n",
            "  0: kernel a b0 →b1\n  1: matmul b1 b0 →b2\n",
        );
        assert!(
            drawn.contains("add, mul")
                && drawn.matches("<rect x").count() == 2
                && drawn.matches("marker-end").count() == 1
        );
        let drawn = kernel("kernel a(b0: in f32) {\n  x\n}\nkernel b\n", "a:\n  0 push\n  1 vaddps zmm0\n");
        assert!(drawn.contains("vaddps") && !drawn.contains("kernel b"));
    }
}

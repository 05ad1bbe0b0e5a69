//! Programs as bytes: what one process compiled, another loads and runs.
//!
//! A file is a mark, the version of the format, a checksum and the program in postcard's encoding. Kernels are stored as
//! loops, not as machine code, so a program runs wherever its backend does. Reading checks the whole program: a file
//! that was cut, altered or written by another version is refused, and what is accepted stays inside its buffers' bounds
//! as far as steps say them. Kernels themselves are trusted: load only programs from writers that you trust.

use crate::program::{Class, Factor, KernelArg, Place, Program, Slot, Step, Trip};
use crate::{Error, Result, loops};

const MARK: &[u8; 8] = b"loomprog";
/// Goes up with every change of the encoded types.
const VERSION: u32 = 2;
const HEADER: usize = 8 + 4 + 8;

impl Program {
    /// The program as bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body =
            postcard::to_allocvec(self).map_err(|e| Error::Internal(format!("a program can't be saved: {e}")))?;
        let mut out = Vec::with_capacity(HEADER + body.len());
        out.extend_from_slice(MARK);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&checksum(&body).to_le_bytes());
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// Reads what [`Program::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Program> {
        let fault = |what: &str| Error::Program(what.to_string());
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return Err(fault("too short; it is not a saved program"));
        };
        if &header[..8] != MARK {
            return Err(fault("it is not a saved program"));
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(fault(&format!("format {version}, this is for format {VERSION}; compile it again")));
        }
        if u64::from_le_bytes(header[12..20].try_into().expect("eight bytes")) != checksum(body) {
            return Err(fault("damaged: its checksum is wrong"));
        }
        let program: Program = postcard::from_bytes(body).map_err(|e| fault(&format!("unreadable: {e}")))?;
        check(&program)?;
        Ok(program)
    }
}

/// FNV-1a over 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Buffers, places and kernels fit together.
fn check(p: &Program) -> Result<()> {
    let fault = |what: String| Err(Error::Program(what));
    for (i, b) in p.buffers.iter().enumerate() {
        let fits = match &b.class {
            Class::Input(n) => p.inputs.get(*n) == Some(&b.ty),
            Class::Output(n) => p.outputs.get(*n) == Some(&b.ty),
            Class::Constant(l) => *l.ty() == b.ty,
            Class::Activation => {
                let end = b.offset.checked_add(b.ty.bytes());
                b.live.is_none() || (b.offset.is_multiple_of(crate::ALIGN) && end.is_some_and(|end| end <= p.arena))
            }
        };
        if !fits {
            return fault(format!("buffer {i} doesn't fit"));
        }
    }
    if p.donated.iter().any(|&(i, o)| i >= p.inputs.len() || p.inputs.get(i) != p.outputs.get(o)) {
        return fault("a donated input doesn't fit its output".into());
    }
    steps(p, &p.steps)
}

fn steps(p: &Program, list: &[Step]) -> Result<()> {
    for step in list {
        let mut bad = None;
        step.places(&mut |place, _| {
            if !known(p, place) {
                bad = Some(place.clone());
            }
        });
        if let Some(place) = bad {
            return Err(Error::Program(format!("{place} is no buffer")));
        }
        if let Step::Matmul { a, b, .. } = step {
            for factor in [a, b] {
                let Factor::Computed(c) = factor else { continue };
                if c.args.len() + 1 != c.kernel.buffers.len() {
                    return Err(Error::Program(format!("wrong arguments for {}", c.kernel.name)));
                }
                loops::verify(&c.kernel).map_err(|e| Error::Program(format!("{}: {e}", c.kernel.name)))?;
            }
        }
        let kernel = match step {
            Step::Kernel { kernel, args, .. } => {
                let private = |a: &KernelArg| matches!(a, KernelArg::Scratch(_));
                let scratch = |b: &loops::Buffer| matches!(b.mode, loops::Mode::Scratch(_));
                if args.len() != kernel.buffers.len()
                    || args.iter().zip(&kernel.buffers).any(|(a, b)| private(a) != scratch(b))
                {
                    return Err(Error::Program(format!("wrong arguments for {}", kernel.name)));
                }
                Some(kernel)
            }
            Step::Matmul { epilogue: Some(e), .. } => {
                if e.args.len() + 1 != e.kernel.buffers.len() {
                    return Err(Error::Program(format!("wrong arguments for {}", e.kernel.name)));
                }
                Some(&e.kernel)
            }
            Step::Matmul { epilogue: None, c: None, .. } => {
                return Err(Error::Program("a product without a result".into()));
            }
            Step::Loop(l) => {
                if let Trip::While { test, .. } = &l.trip {
                    steps(p, test)?;
                }
                steps(p, &l.body)?;
                if l.level >= p.levels {
                    return Err(Error::Program("a loop deeper than said".into()));
                }
                None
            }
            Step::Branch { branches, .. } => {
                branches.iter().try_for_each(|b| steps(p, b))?;
                None
            }
            _ => None,
        };
        if let Some(kernel) = kernel {
            loops::verify(kernel).map_err(|e| Error::Program(format!("{}: {e}", kernel.name)))?;
        }
    }
    Ok(())
}

fn known(p: &Program, place: &Place) -> bool {
    let levels = place.strides.iter().map(|s| s.0).chain(match place.slot {
        Slot::Alternating(level, ..) => Some(level),
        Slot::Fixed(_) => None,
    });
    let mut levels = levels;
    let inside = |b: crate::program::BufferId| {
        let bytes = p.buffers.get(b.0 as usize).map(|b| b.ty.bytes() as i64);
        bytes.is_some_and(|bytes| (0..=bytes).contains(&place.offset))
    };
    levels.all(|l| l < p.levels) && place.buffers().all(inside)
}

/// A library step's op is stored as the text of a graph that holds it alone.
pub(crate) mod library {
    use crate::program::Place;
    use ir::{Graph, Loc, Op, Type};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    type Operands = Vec<(Place, Type)>;

    pub(crate) fn serialize<S: Serializer>(op: &Op, args: &Operands, outs: &Operands, s: S) -> Result<S::Ok, S::Error> {
        let mut g = Graph::new();
        let inputs: Vec<_> = args.iter().map(|(_, t)| g.input(t.clone())).collect();
        let results = g.push(op.clone(), &inputs, Loc::Unknown).map_err(ser::Error::custom)?;
        g.set_outputs(results.to_vec());
        (g.to_string(), args, outs).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<(Box<Op>, Operands, Operands), D::Error> {
        let (text, args, outs) = <(String, Operands, Operands)>::deserialize(d)?;
        let g = ir::text::parse(&text).map_err(de::Error::custom)?;
        let [node] = g.nodes() else { return Err(de::Error::custom("a library step of several ops")) };
        let fits = g.input_types().iter().eq(args.iter().map(|(_, t)| t))
            && node.outs.len() == outs.len()
            && node.outs.iter().zip(&outs).all(|(v, (_, t))| g.ty(*v) == t);
        if !fits {
            return Err(de::Error::custom("a library step whose operands don't fit its op"));
        }
        Ok((Box::new(node.op.clone()), args, outs))
    }
}

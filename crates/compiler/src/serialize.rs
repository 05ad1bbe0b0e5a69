//! Serialization of programs, so that one process can load and run a program that another one compiled.
//!
//! A file has magic bytes, the format version, a checksum and the program in the postcard encoding. Kernels are stored as
//! kernel IR, not as machine code, so a program runs wherever its backend does. A file that was truncated, modified or
//! written by another version is rejected. Deserialization returns an [`UncheckedProgram`]; its verification proves that a
//! run stays inside its buffers.

use crate::program::{Program, UncheckedProgram};
use crate::{Error, Result};
use serde::{Deserialize, Deserializer};
use std::cell::Cell;

const MAGIC: &[u8; 8] = b"loomprog";
/// The format version; increases with every change of the encoded types.
const VERSION: u32 = 2;
const HEADER: usize = 8 + 4 + 8;

impl Program {
    /// Serializes the program.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body =
            postcard::to_allocvec(&**self).map_err(|e| Error::Internal(format!("cannot save the program: {e}")))?;
        let mut out = Vec::with_capacity(HEADER + body.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&checksum(&body).to_le_bytes());
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// Deserializes the output of [`Program::to_bytes`]. A device accepts the program once it is verified:
    /// `Program::from_bytes(&bytes)?.verify()?`.
    pub fn from_bytes(bytes: &[u8]) -> Result<UncheckedProgram> {
        let fault = |what: &str| Error::Program(what.to_string());
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return Err(fault("the file is too short to be a saved program"));
        };
        if &header[..8] != MAGIC {
            return Err(fault("the file is not a saved program"));
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(fault(&format!(
                "the file has format {version}, but this version reads format {VERSION}; compile it again"
            )));
        }
        if u64::from_le_bytes(header[12..20].try_into().expect("eight bytes")) != checksum(body) {
            return Err(fault("damaged: its checksum is wrong"));
        }
        let parts = postcard::from_bytes(body).map_err(|e| fault(&format!("unreadable: {e}")))?;
        Ok(UncheckedProgram::new(parts))
    }
}

/// The 64-bit FNV-1a hash.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The maximum nesting of loops and branches.
const MAX_NESTING: usize = 64;

/// Deserializes a nested list of steps or statements; the depth is limited so that the stack does not overflow.
pub(crate) fn nested<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> std::result::Result<T, D::Error> {
    thread_local!(static OPEN: Cell<usize> = const { Cell::new(0) });
    struct Close;
    impl Drop for Close {
        fn drop(&mut self) {
            OPEN.set(OPEN.get() - 1);
        }
    }
    OPEN.set(OPEN.get() + 1);
    let _close = Close;
    match OPEN.get() > MAX_NESTING {
        true => {
            Err(serde::de::Error::custom(format!("loops or branches are nested more than {MAX_NESTING} levels deep")))
        }
        false => T::deserialize(d),
    }
}

/// A library step's op is stored as the text of a graph that holds it alone.
pub(crate) mod library {
    use crate::program::BufferSlice;
    use ir::{Graph, Loc, Op, Type};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    type Operands = Vec<(BufferSlice, Type)>;

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
        ir::verify::verify(&g).map_err(de::Error::custom)?;
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

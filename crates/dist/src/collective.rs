//! Collectives implemented by point-to-point exchanges. Each sends as many bytes as the best ring algorithm, in one round or
//! two: a rank sends [`ir::ops::Collective::sent_bytes`]; `all_to_all` omits zeros.

use crate::error::{Error, Result};
use crate::reduce::{CollectiveKind as Kind, reduce};
use crate::transport::{Tag, Transport};
use crate::zero_compression::{packed, unpacked};
use ir::Type;

/// A collective among some ranks.
pub(crate) struct CollectiveContext<'a> {
    pub(crate) transport: &'a dyn Transport,
    /// The participating ranks, in the order in which values are combined.
    pub(crate) group: &'a [usize],
    /// This rank's index among them.
    pub(crate) rank: usize,
    /// The tag of the first exchange; a second one has the next sequence number.
    pub(crate) tag: Tag,
}

/// A tensor as `outer` rows of `parts` equal pieces along an axis.
struct AxisPieces {
    outer: usize,
    bytes: usize,
    parts: usize,
}

impl AxisPieces {
    /// The pieces of a tensor along `dim`.
    fn from_axis(ty: &Type, dim: usize, parts: usize) -> AxisPieces {
        let outer = ty.shape[..dim].iter().product();
        let inner: usize = ty.shape[dim + 1..].iter().product();
        AxisPieces { outer, bytes: ty.shape[dim] / parts * inner * ty.dtype.size(), parts }
    }

    /// Copies piece `i` to dense memory.
    fn get(&self, whole: &[u8], i: usize) -> Vec<u8> {
        let mut piece = Vec::with_capacity(self.outer * self.bytes);
        for o in 0..self.outer {
            let at = (o * self.parts + i) * self.bytes;
            piece.extend_from_slice(&whole[at..at + self.bytes]);
        }
        piece
    }

    /// Writes piece `i` to its position.
    fn write_piece(&self, whole: &mut [u8], i: usize, piece: &[u8]) {
        for o in 0..self.outer {
            let at = (o * self.parts + i) * self.bytes;
            whole[at..at + self.bytes].copy_from_slice(&piece[o * self.bytes..(o + 1) * self.bytes]);
        }
    }
}

impl CollectiveContext<'_> {
    /// Runs a collective and returns the number of bytes sent.
    pub(crate) fn run(&self, kind: &Kind, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<usize> {
        let n = self.group.len();
        match kind {
            Kind::PVary => {
                to.copy_from_slice(from);
                Ok(0)
            }
            Kind::AxisIndex => {
                to.copy_from_slice(&(self.rank as i32).to_le_bytes());
                Ok(0)
            }
            Kind::ShardSlice { dim } => {
                to.copy_from_slice(&AxisPieces::from_axis(ty, *dim, n).get(from, self.rank));
                Ok(0)
            }
            Kind::Sum | Kind::Max | Kind::Min => self.all_reduce(kind, ty, from, to),
            Kind::AllGather { dim, .. } => {
                let outs = self.all_gather_bytes(from, self.tag)?;
                let mut whole = ty.clone();
                whole.shape[*dim] *= n;
                let pieces = AxisPieces::from_axis(&whole, *dim, n);
                outs.iter().enumerate().for_each(|(i, piece)| pieces.write_piece(to, i, piece));
                Ok(from.len() * (n - 1))
            }
            Kind::ReduceScatter { dim } => {
                let pieces = AxisPieces::from_axis(ty, *dim, n);
                let cut: Vec<Vec<u8>> = (0..n).map(|i| pieces.get(from, i)).collect();
                let came = self.all_to_all_bytes(&cut)?;
                let came: Vec<&[u8]> = came.iter().map(Vec::as_slice).collect();
                reduce(kind, ty.dtype, &came, to);
                Ok(from.len() - cut[self.rank].len())
            }
            Kind::AllToAll { split, join } => {
                let pieces = AxisPieces::from_axis(ty, *split, n);
                let cut: Vec<Vec<u8>> = (0..n).map(|i| pieces.get(from, i)).collect();
                let (came, sent) = self.all_to_all_compressed(cut)?;
                let mut whole = ty.clone();
                whole.shape[*split] /= n;
                whole.shape[*join] *= n;
                let pieces = AxisPieces::from_axis(&whole, *join, n);
                came.iter().enumerate().for_each(|(i, piece)| pieces.write_piece(to, i, piece));
                Ok(sent)
            }
            Kind::Permute { pairs } => {
                let target = pairs.iter().find(|(a, _)| *a == self.rank).map(|(_, b)| *b);
                let source = pairs.iter().find(|(_, b)| *b == self.rank).map(|(a, _)| *a);
                to.fill(0);
                if source == Some(self.rank) {
                    to.copy_from_slice(from);
                    return Ok(0);
                }
                let sends: Vec<(usize, &[u8])> = target.map(|t| (self.group[t], from)).into_iter().collect();
                let mut receives: Vec<(usize, &mut [u8])> = source.map(|s| (self.group[s], to)).into_iter().collect();
                self.transport.send_recv(self.tag, &sends, &mut receives)?;
                Ok(sends.len() * from.len())
            }
        }
    }

    /// All-gathers bytes, whose length may differ between ranks if `lengths` is set.
    fn all_gather_bytes(&self, own: &[u8], tag: Tag) -> Result<Vec<Vec<u8>>> {
        let lengths = vec![own.len(); self.group.len()];
        self.to_all_of(own, &lengths, tag)
    }

    fn to_all_of(&self, own: &[u8], lengths: &[usize], tag: Tag) -> Result<Vec<Vec<u8>>> {
        let mut came: Vec<Vec<u8>> = lengths.iter().map(|n| vec![0; *n]).collect();
        let others = || (0..self.group.len()).filter(|i| *i != self.rank);
        let sends: Vec<(usize, &[u8])> = others().map(|i| (self.group[i], own)).collect();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (i, bytes) in came.iter_mut().enumerate() {
            match i == self.rank {
                true => bytes.copy_from_slice(own),
                false => receives.push((self.group[i], bytes)),
            }
        }
        self.transport.send_recv(tag, &sends, &mut receives)?;
        Ok(came)
    }

    /// Sends piece `i` to rank `i`; all pieces that a rank receives have the length of its own.
    fn all_to_all_bytes(&self, cut: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let own = &cut[self.rank];
        let mut came: Vec<Vec<u8>> = cut.iter().map(|_| vec![0; own.len()]).collect();
        let mut receives: Vec<(usize, &mut [u8])> = Vec::new();
        for (i, bytes) in came.iter_mut().enumerate() {
            match i == self.rank {
                true => bytes.copy_from_slice(own),
                false => receives.push((self.group[i], bytes)),
            }
        }
        let others = (0..cut.len()).filter(|i| *i != self.rank);
        let sends: Vec<(usize, &[u8])> = others.map(|i| (self.group[i], cut[i].as_slice())).collect();
        self.transport.send_recv(self.tag, &sends, &mut receives)?;
        Ok(came)
    }

    /// The same with zero compression: ranks first send the lengths. Also returns the number of bytes sent.
    fn all_to_all_compressed(&self, cut: Vec<Vec<u8>>) -> Result<(Vec<Vec<u8>>, usize)> {
        let (n, bytes) = (cut.len(), cut[self.rank].len());
        let mut short: Vec<Vec<u8>> = Vec::with_capacity(n);
        for (i, piece) in cut.into_iter().enumerate() {
            short.push(if i == self.rank { piece } else { packed(piece) });
        }
        let others = || (0..n).filter(|i| *i != self.rank);
        let told: Vec<[u8; 8]> = short.iter().map(|piece| (piece.len() as u64).to_le_bytes()).collect();
        let sends: Vec<(usize, &[u8])> = others().map(|i| (self.group[i], &told[i][..])).collect();
        let mut lengths = vec![[0; 8]; n];
        let of_others = lengths.iter_mut().enumerate().filter(|(i, _)| *i != self.rank);
        let mut receives: Vec<(usize, &mut [u8])> = of_others.map(|(i, l)| (self.group[i], &mut l[..])).collect();
        self.transport.send_recv(self.tag, &sends, &mut receives)?;
        let mut came: Vec<Vec<u8>> = Vec::with_capacity(n);
        for (i, length) in lengths.iter().enumerate() {
            let length = u64::from_le_bytes(*length);
            if length > bytes as u64 {
                let reason = format!("it says that {length} bytes come, and {bytes} are all there are");
                return Err(Error::Mismatch { rank: self.group[i], reason });
            }
            came.push(if i == self.rank { std::mem::take(&mut short[i]) } else { vec![0; length as usize] });
        }
        let sends: Vec<(usize, &[u8])> = others().map(|i| (self.group[i], short[i].as_slice())).collect();
        let from_others = came.iter_mut().enumerate().filter(|(i, _)| *i != self.rank);
        let mut receives: Vec<(usize, &mut [u8])> = from_others.map(|(i, b)| (self.group[i], &mut b[..])).collect();
        let tag = Tag { sequence_number: self.tag.sequence_number.wrapping_add(1), ..self.tag };
        self.transport.send_recv(tag, &sends, &mut receives)?;
        let sent = sends.iter().map(|(_, b)| b.len()).sum();
        let whole = |(i, short): (usize, Vec<u8>)| match i == self.rank {
            true => Ok(short),
            false => unpacked(short, bytes, self.group[i]),
        };
        Ok((came.into_iter().enumerate().map(whole).collect::<Result<_>>()?, sent))
    }

    /// Each rank reduces its part of the elements; then all parts are gathered.
    fn all_reduce(&self, kind: &Kind, ty: &Type, from: &[u8], to: &mut [u8]) -> Result<usize> {
        let (n, size) = (self.group.len(), ty.dtype.size());
        let elements = ty.numel();
        let bounds: Vec<usize> = (0..=n).map(|i| elements * i / n * size).collect();
        let cut: Vec<Vec<u8>> = (0..n).map(|i| from[bounds[i]..bounds[i + 1]].to_vec()).collect();
        let came = self.all_to_all_bytes(&cut)?;
        let came: Vec<&[u8]> = came.iter().map(Vec::as_slice).collect();
        let mut own = vec![0; cut[self.rank].len()];
        reduce(kind, ty.dtype, &came, &mut own);
        let lengths: Vec<usize> = cut.iter().map(Vec::len).collect();
        let tag = Tag { sequence_number: self.tag.sequence_number.wrapping_add(1), ..self.tag };
        let shares = self.to_all_of(&own, &lengths, tag)?;
        for (i, share) in shares.iter().enumerate() {
            to[bounds[i]..bounds[i + 1]].copy_from_slice(share);
        }
        Ok(from.len() - own.len() + own.len() * (n - 1))
    }
}

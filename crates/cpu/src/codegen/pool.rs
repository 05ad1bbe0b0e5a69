//! The constant pool of one kernel: equal constants are stored once.

use rustc_hash::FxHashMap;

/// One constant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Const {
    /// 32 bits in every lane.
    Lane32(u32),
    /// 64 bits in every lane.
    Lane64(u64),
    /// 64 bytes as they are.
    Whole([u8; 64]),
}

/// Constants, in the order of their first use.
pub(crate) struct Pool {
    /// Whether single elements suffice: EVEX broadcasts from one element; VEX needs whole vectors.
    broadcasts: bool,
    ids: FxHashMap<Const, u32>,
    entries: Vec<(u32, bool)>,
    bytes: Vec<u8>,
}

impl Pool {
    pub(crate) fn new(broadcasts: bool) -> Pool {
        Pool { broadcasts, ids: FxHashMap::default(), entries: vec![], bytes: vec![] }
    }

    /// Returns the number of a constant.
    pub(crate) fn id(&mut self, c: Const) -> u32 {
        if let Some(&id) = self.ids.get(&c) {
            return id;
        }
        let id = self.entries.len() as u32;
        let (element, whole): (&[u8], bool) = match &c {
            Const::Lane32(x) => (&x.to_le_bytes(), false),
            Const::Lane64(x) => (&x.to_le_bytes(), false),
            Const::Whole(b) => (b, true),
        };
        let align = if whole || !self.broadcasts { 32 } else { element.len() };
        let at = self.bytes.len().next_multiple_of(align);
        self.bytes.resize(at, 0);
        let copies = if whole || self.broadcasts { 1 } else { 32 / element.len() };
        for _ in 0..copies {
            self.bytes.extend_from_slice(element);
        }
        self.entries.push((at as u32, !whole));
        self.ids.insert(c, id);
        id
    }

    /// Returns the byte offset of a constant, and whether it is a single element to broadcast.
    pub(crate) fn get(&self, id: u32) -> (u32, bool) {
        let (at, element) = self.entries[id as usize];
        (at, element && self.broadcasts)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

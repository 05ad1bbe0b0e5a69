//! Parquet files, as data sets have them: rows as JSON objects, row group by row group.
//!
//! Texts, numbers, lists and structures in any nesting; Snappy, gzip, Zstandard and LZ4; every encoding that current writers
//! choose. Only the columns that are asked for are read. What is damaged is an error that names the file and the column.

mod page;
mod thrift;
mod unpack;

use crate::error::{Error, Result};
use page::{Item, Kind};
use serde_json::{Map, Value as Json};
use std::fs::File;
use std::path::{Path, PathBuf};
use thrift::{Field, Reader};
use train::files;

/// The longest description, and the longest page.
const FOOTER: u64 = 256 << 20;
const PAGE: usize = 1 << 30;
/// The most values of a page.
const VALUES: usize = 1 << 24;
/// A page's head is looked for in so many bytes, and then in more.
const HEAD: usize = 1 << 10;
const MOST_HEAD: usize = 16 << 20;
/// Fields in fields up to this depth.
const DEEPEST: usize = 24;

/// An open file.
pub(crate) struct Parquet {
    path: PathBuf,
    file: File,
    root: Node,
    groups: Vec<Group>,
}

/// A field of the schema with what is below it.
#[derive(Debug)]
struct Node {
    name: String,
    /// 0 required, 1 optional, 2 repeated.
    repetition: i64,
    children: Vec<Node>,
    /// Whether it only wraps the elements of a list.
    list: bool,
    /// Levels from which on it is there.
    def: u32,
    rep: u32,
    leaf: Option<(usize, Kind)>,
}

struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

/// A column of a row group.
struct Chunk {
    codec: i64,
    start: usize,
    bytes: usize,
    values: usize,
}

/// What a column says, and how far it has been read.
struct Column {
    levels: Vec<(u32, u32)>,
    values: Vec<Item>,
    level: usize,
    value: usize,
}

impl Parquet {
    pub(crate) fn open(path: &Path) -> Result<Parquet> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let fault = |what: &str| Error::file(path, format!("not Parquet: {what}"));
        let mut tail = [0; 8];
        if length < 12 {
            return Err(fault("too short"));
        }
        files::read_at(&file, path, length - 8, &mut tail)?;
        if &tail[4..] != b"PAR1" {
            return Err(fault(if &tail[4..] == b"PARE" { "encrypted" } else { "no mark at its end" }));
        }
        let size = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if size > FOOTER || size + 12 > length {
            return Err(fault("a description longer than the file"));
        }
        let mut footer = files::room(path, size)?;
        footer.resize(size as usize, 0);
        files::read_at(&file, path, length - 8 - size, &mut footer)?;
        let meta = Reader::new(&footer).structure().ok_or_else(|| fault("its description is damaged"))?;
        let schema = meta.list(2).ok_or_else(|| fault("no schema"))?;
        let (mut at, mut leaves) = (0, 0);
        let root = Node::read(schema, &mut at, &mut leaves, (0, 0), DEEPEST).ok_or_else(|| fault("its schema"))?;
        let mut groups = Vec::new();
        for group in meta.list(4).unwrap_or_default() {
            groups.push(Group::read(group, leaves).ok_or_else(|| fault("a row group is damaged"))?);
        }
        for group in &groups {
            for chunk in &group.chunks {
                if chunk.start.checked_add(chunk.bytes).is_none_or(|end| end as u64 > length) {
                    return Err(fault("a column outside of the file"));
                }
            }
        }
        Ok(Parquet { path: path.to_path_buf(), file, root, groups })
    }

    /// How many row groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The rows of a group, with those fields that are wanted (all, if none are named).
    pub(crate) fn rows(&self, group: usize, wanted: &[&str]) -> Result<Vec<Json>> {
        let group = &self.groups[group];
        let chosen: Vec<&Node> =
            self.root.children.iter().filter(|n| wanted.is_empty() || wanted.contains(&&*n.name)).collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.root.children.iter().map(|node| &*node.name).collect();
            return Err(self.fault(&wanted.join("`, `"), format!("not there; there are: {}", names.join(", "))));
        }
        let mut columns: Vec<Option<Column>> = Vec::new();
        columns.resize_with(group.chunks.len(), || None);
        for node in &chosen {
            self.load(node, node, group, &mut columns)?;
        }
        let mut rows = Vec::with_capacity(group.rows.min(1 << 20));
        for _ in 0..group.rows {
            let mut fields = Map::new();
            for node in &chosen {
                let value = node.assemble(&mut columns);
                let value = value.ok_or_else(|| self.fault(&node.name, "its levels don't fit together"))?;
                fields.insert(node.name.clone(), value);
            }
            rows.push(Json::Object(fields));
        }
        Ok(rows)
    }

    fn fault(&self, column: &str, what: impl std::fmt::Display) -> Error {
        Error::file(&self.path, format!("column `{column}`: {what}"))
    }

    /// Reads the columns below a field.
    fn load(&self, node: &Node, top: &Node, group: &Group, columns: &mut [Option<Column>]) -> Result<()> {
        for child in &node.children {
            self.load(child, top, group, columns)?;
        }
        let Some((leaf, kind)) = node.leaf else { return Ok(()) };
        let chunk = &group.chunks[leaf];
        let column = self.column(chunk, node, kind).map_err(|e| match e {
            Fault::Page(what) => self.fault(&top.name, what),
            Fault::File(error) => error,
        })?;
        columns[leaf] = Some(column);
        Ok(())
    }

    fn column(&self, chunk: &Chunk, node: &Node, kind: Kind) -> std::result::Result<Column, Fault> {
        let mut column = Column { levels: Vec::new(), values: Vec::new(), level: 0, value: 0 };
        let mut dictionary: Option<Vec<Item>> = None;
        let (mut at, end) = (chunk.start, chunk.start + chunk.bytes);
        while column.levels.len() < chunk.values {
            let (head, after) = self.head(at, end)?;
            let number = |field: Option<&Field>, id: i16| {
                field.and_then(|f| f.size(id)).ok_or_else(|| Fault::Page("a page's head is damaged".into()))
            };
            let (whole, packed) = (number(Some(&head), 2)?, number(Some(&head), 3)?);
            if whole > PAGE || after.checked_add(packed).is_none_or(|to| to > end) {
                return Err(Fault::Page("a page longer than its column".into()));
            }
            let mut bytes = vec![0; packed];
            files::read_at(&self.file, &self.path, after as u64, &mut bytes).map_err(|e| Fault::File(e.into()))?;
            at = after + packed;
            match head.number(1) {
                Some(2) => {
                    let about = head.get(7);
                    let bytes = unpack::unpack(chunk.codec, &bytes, whole)?;
                    dictionary = Some(page::values(&bytes, 0, kind, number(about, 1)?.min(VALUES), None)?);
                }
                Some(0) => {
                    let about = head.get(5);
                    let (count, encoding) = (some(number(about, 1)?)?, number(about, 2)? as i64);
                    let bytes = unpack::unpack(chunk.codec, &bytes, whole)?;
                    let mut rest = &bytes[..];
                    let mut levels = |most: u32| -> std::result::Result<Vec<u32>, Fault> {
                        if most == 0 {
                            return Ok(vec![0; count]);
                        }
                        let n = rest.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize);
                        let n = n.filter(|n| *n + 4 <= rest.len()).ok_or_else(|| Fault::Page("its levels".into()))?;
                        let found = page::hybrid(&rest[4..4 + n], width(most), count)?;
                        rest = &rest[4 + n..];
                        Ok(found)
                    };
                    let (rep, def) = (levels(node.rep)?, levels(node.def)?);
                    column.add(&rep, &def, node.def, rest, encoding, kind, dictionary.as_deref())?;
                }
                Some(3) => {
                    let about = head.get(8);
                    let (count, encoding) = (some(number(about, 1)?)?, number(about, 4)? as i64);
                    let (defs, reps) = (number(about, 5)?, number(about, 6)?);
                    if defs.checked_add(reps).is_none_or(|n| n > bytes.len() || n > whole) {
                        return Err(Fault::Page("its levels".into()));
                    }
                    let is_packed = about.and_then(|a| a.number(7)) != Some(0);
                    let rest = &bytes[defs + reps..];
                    let rest = match is_packed {
                        true => unpack::unpack(chunk.codec, rest, whole - defs - reps)?,
                        false => rest.to_vec(),
                    };
                    let levels = |most: u32, bytes: &[u8]| match most {
                        0 => Ok(vec![0; count]),
                        _ => page::hybrid(bytes, width(most), count),
                    };
                    let rep = levels(node.rep, &bytes[..reps])?;
                    let def = levels(node.def, &bytes[reps..reps + defs])?;
                    column.add(&rep, &def, node.def, &rest, encoding, kind, dictionary.as_deref())?;
                }
                // Indices and what is yet to come.
                Some(_) => {}
                None => return Err(Fault::Page("a page of no kind".into())),
            }
        }
        Ok(column)
    }

    /// A page's head, and where its bytes begin.
    fn head(&self, at: usize, end: usize) -> std::result::Result<(Field, usize), Fault> {
        let mut size = HEAD;
        loop {
            let n = size.min(end.saturating_sub(at));
            let mut bytes = vec![0; n];
            files::read_at(&self.file, &self.path, at as u64, &mut bytes).map_err(|e| Fault::File(e.into()))?;
            let mut reader = Reader::new(&bytes);
            match reader.structure() {
                Some(head) => return Ok((head, at + reader.at)),
                None if n < size || size > MOST_HEAD => return Err(Fault::Page("a page's head is damaged".into())),
                None => size *= 16,
            }
        }
    }
}

enum Fault {
    Page(String),
    File(Error),
}

impl From<String> for Fault {
    fn from(what: String) -> Fault {
        Fault::Page(what)
    }
}

/// How many values a page says that it has, if that can be.
fn some(count: usize) -> std::result::Result<usize, Fault> {
    match count {
        1..=VALUES => Ok(count),
        _ => Err(Fault::Page(format!("a page of {count} values"))),
    }
}

/// Bits of a level.
fn width(most: u32) -> usize {
    (u32::BITS - most.leading_zeros()) as usize
}

impl Column {
    #[expect(clippy::too_many_arguments, reason = "what the two kinds of pages have in common")]
    fn add(
        &mut self,
        rep: &[u32],
        def: &[u32],
        full: u32,
        bytes: &[u8],
        encoding: i64,
        kind: Kind,
        dictionary: Option<&[Item]>,
    ) -> std::result::Result<(), Fault> {
        let count = def.iter().filter(|d| **d == full).count();
        let values = page::values(bytes, encoding, kind, count, dictionary)?;
        if values.len() != count || count == 0 && def.is_empty() {
            return Err(Fault::Page(format!("{} values where {count} are due", values.len())));
        }
        self.values.extend(values);
        self.levels.extend(rep.iter().copied().zip(def.iter().copied()));
        Ok(())
    }

    fn peek(&self) -> Option<(u32, u32)> {
        self.levels.get(self.level).copied()
    }
}

impl Group {
    fn read(field: &Field, leaves: usize) -> Option<Group> {
        let mut chunks = Vec::new();
        for chunk in field.list(1)? {
            let about = chunk.get(3)?;
            let data = about.size(9)?;
            let start = about.size(11).filter(|at| *at > 0 && *at < data).unwrap_or(data);
            chunks.push(Chunk { codec: about.number(4)?, start, bytes: about.size(7)?, values: about.size(5)? });
        }
        (chunks.len() == leaves).then_some(Group { rows: field.size(3)?, chunks })
    }
}

impl Node {
    /// The field at a place of the schema's list, with those below it, which follow it there.
    fn read(
        schema: &[Field],
        at: &mut usize,
        leaves: &mut usize,
        (def, rep): (u32, u32),
        deeper: usize,
    ) -> Option<Node> {
        let field = schema.get(*at)?;
        let is_root = *at == 0;
        *at += 1;
        let repetition = if is_root { 0 } else { field.number(3)? };
        let (def, rep) = (def + u32::from(repetition > 0), rep + u32::from(repetition == 2));
        let name = field.get(4)?.text()?.to_string();
        let children = field.size(5).unwrap_or(0);
        let mut node = Node { name, repetition, children: Vec::new(), list: false, def, rep, leaf: None };
        if children == 0 && !is_root {
            let converted = field.number(6);
            // UINT_8 to UINT_64.
            let unsigned = converted.is_some_and(|c| (11..=14).contains(&c));
            node.leaf =
                Some((*leaves, Kind { physical: field.number(1)?, length: field.size(2).unwrap_or(0), unsigned }));
            *leaves += 1;
        }
        for _ in 0..children {
            node.children.push(Node::read(schema, at, leaves, (def, rep), deeper.checked_sub(1)?)?);
        }
        // LIST by its old name or its new one.
        let logical = field.get(10).is_some_and(|kind| kind.get(3).is_some());
        node.list = (field.number(6) == Some(3) || logical) && node.children.len() == 1;
        Some(node)
    }

    /// The first column below.
    fn first(&self) -> Option<usize> {
        match self.leaf {
            Some((leaf, _)) => Some(leaf),
            None => self.children.first()?.first(),
        }
    }

    /// Passes over one level of every column below.
    fn skip(&self, columns: &mut [Option<Column>]) -> Option<()> {
        if let Some((leaf, _)) = self.leaf {
            columns.get_mut(leaf)?.as_mut()?.level += 1;
        }
        self.children.iter().try_for_each(|child| child.skip(columns))
    }

    /// The next value; none where levels contradict the schema.
    fn assemble(&self, columns: &mut [Option<Column>]) -> Option<Json> {
        if self.repetition != 2 {
            return self.one(columns);
        }
        let first = self.first()?;
        let peek = |columns: &[Option<Column>]| columns.get(first)?.as_ref()?.peek();
        if peek(columns)?.1 < self.def {
            self.skip(columns)?;
            return Some(Json::Array(Vec::new()));
        }
        let mut items = Vec::new();
        loop {
            items.push(self.one(columns)?);
            match peek(columns) {
                Some((rep, _)) if rep >= self.rep => {}
                _ => return Some(Json::Array(items)),
            }
        }
    }

    fn one(&self, columns: &mut [Option<Column>]) -> Option<Json> {
        if let Some((leaf, _)) = self.leaf {
            let column = columns.get_mut(leaf)?.as_mut()?;
            let (_, def) = column.peek()?;
            column.level += 1;
            if def < self.def {
                return Some(Json::Null);
            }
            column.value += 1;
            return Some(column.values.get(column.value - 1)?.json());
        }
        if self.repetition == 1 && columns.get(self.first()?)?.as_ref()?.peek()?.1 < self.def {
            self.skip(columns)?;
            return Some(Json::Null);
        }
        if self.list {
            let inner = &self.children[0];
            let found = inner.assemble(columns)?;
            // The group in between has one field, the element.
            let Json::Array(items) = found else { return Some(found) };
            let wrapped = inner.children.len() == 1 && (inner.name == "list" || inner.name == "bag");
            let open = |item: Json| match item {
                Json::Object(fields) if wrapped => fields.into_iter().next().map_or(Json::Null, |(_, value)| value),
                other => other,
            };
            return Some(Json::Array(items.into_iter().map(open).collect()));
        }
        let mut fields = Map::new();
        for child in &self.children {
            fields.insert(child.name.clone(), child.assemble(columns)?);
        }
        Some(Json::Object(fields))
    }
}

#[cfg(test)]
mod tests;

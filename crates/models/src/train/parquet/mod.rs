//! Reads Parquet files of data sets: rows as JSON objects, by row group.
//!
//! Supports strings, numbers, lists and structs in any nesting; Snappy, gzip, Zstandard and LZ4; all encodings that current
//! writers use. Only requested columns are read. Corruption is an error that names the file and the column.

mod decompress;
mod page;
mod thrift;

use crate::error::{Error, Result};
use page::{ColumnType, PageValue};
use serde_json::{Map, Value as Json};
use std::fs::File;
use std::path::{Path, PathBuf};
use thrift::{ThriftReader, ThriftValue};
use train::files;

/// Maximum size of the footer, and of a page.
const MAX_FOOTER_BYTES: u64 = 256 << 20;
const MAX_PAGE_BYTES: usize = 1 << 30;
/// Maximum number of values of a page.
const MAX_PAGE_VALUES: usize = 1 << 24;
/// The number of bytes that are first read for a page header; more are read if needed.
const PAGE_HEADER_BYTES: usize = 1 << 10;
const MAX_PAGE_HEADER_BYTES: usize = 16 << 20;
/// Maximum depth of nested fields.
const MAX_DEPTH: usize = 24;

/// An open file.
pub(crate) struct Parquet {
    path: PathBuf,
    file: File,
    root: SchemaNode,
    groups: Vec<RowGroup>,
}

/// A field of the schema with its children.
#[derive(Debug)]
struct SchemaNode {
    name: String,
    /// 0 required, 1 optional, 2 repeated.
    repetition: i64,
    children: Vec<SchemaNode>,
    /// Whether it only wraps the elements of a list.
    list: bool,
    /// The definition level from which on the field is present.
    def: u32,
    rep: u32,
    leaf: Option<(usize, ColumnType)>,
}

struct RowGroup {
    rows: usize,
    chunks: Vec<ColumnChunk>,
}

/// A column chunk of a row group.
struct ColumnChunk {
    codec: i64,
    start: usize,
    bytes: usize,
    values: usize,
}

/// The contents of a column, and the read position.
struct ColumnReader {
    levels: Vec<(u32, u32)>,
    values: Vec<PageValue>,
    level: usize,
    value: usize,
}

impl Parquet {
    pub(crate) fn open(path: &Path) -> Result<Parquet> {
        let file = files::open(path)?;
        let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
        let fault = |what: &str| Error::file(path, format!("not a valid Parquet file: {what}"));
        let mut tail = [0; 8];
        if length < 12 {
            return Err(fault("the file is too short"));
        }
        files::read_at(&file, path, length - 8, &mut tail)?;
        if &tail[4..] != b"PAR1" {
            return Err(fault(if &tail[4..] == b"PARE" {
                "encrypted"
            } else {
                "the magic number at the end is missing"
            }));
        }
        let size = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if size > MAX_FOOTER_BYTES || size + 12 > length {
            return Err(fault("the metadata is longer than the file"));
        }
        let mut footer = files::checked_with_capacity(path, size)?;
        footer.resize(size as usize, 0);
        files::read_at(&file, path, length - 8 - size, &mut footer)?;
        let meta = ThriftReader::new(&footer).structure().ok_or_else(|| fault("the metadata is damaged"))?;
        let schema = meta.list(2).ok_or_else(|| fault("the schema is missing"))?;
        let (mut at, mut leaves) = (0, 0);
        let root = SchemaNode::read(schema, &mut at, &mut leaves, (0, 0), MAX_DEPTH)
            .ok_or_else(|| fault("the schema is damaged"))?;
        let mut groups = Vec::new();
        for group in meta.list(4).unwrap_or_default() {
            groups.push(RowGroup::read(group, leaves).ok_or_else(|| fault("a row group is damaged"))?);
        }
        for group in &groups {
            for chunk in &group.chunks {
                if chunk.start.checked_add(chunk.bytes).is_none_or(|end| end as u64 > length) {
                    return Err(fault("a column lies outside the file"));
                }
            }
        }
        Ok(Parquet { path: path.to_path_buf(), file, root, groups })
    }

    /// The number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The rows of a group, with the requested fields (all, if none are given).
    pub(crate) fn rows(&self, group: usize, wanted: &[&str]) -> Result<Vec<Json>> {
        let group = &self.groups[group];
        let chosen: Vec<&SchemaNode> =
            self.root.children.iter().filter(|n| wanted.is_empty() || wanted.contains(&&*n.name)).collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.root.children.iter().map(|node| &*node.name).collect();
            return Err(self.fault(&wanted.join("`, `"), format!("not found; the columns are: {}", names.join(", "))));
        }
        let mut columns: Vec<Option<ColumnReader>> = Vec::new();
        columns.resize_with(group.chunks.len(), || None);
        for node in &chosen {
            self.load(node, node, group, &mut columns)?;
        }
        let mut rows = Vec::with_capacity(group.rows.min(1 << 20));
        for _ in 0..group.rows {
            let mut fields = Map::new();
            for node in &chosen {
                let value = node.assemble(&mut columns);
                let value =
                    value.ok_or_else(|| self.fault(&node.name, "its repetition and definition levels do not match"))?;
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
    fn load(
        &self,
        node: &SchemaNode,
        top: &SchemaNode,
        group: &RowGroup,
        columns: &mut [Option<ColumnReader>],
    ) -> Result<()> {
        for child in &node.children {
            self.load(child, top, group, columns)?;
        }
        let Some((leaf, kind)) = node.leaf else { return Ok(()) };
        let chunk = &group.chunks[leaf];
        let column = self.column(chunk, node, kind).map_err(|e| match e {
            ParquetError::Page(what) => self.fault(&top.name, what),
            ParquetError::File(error) => error,
        })?;
        columns[leaf] = Some(column);
        Ok(())
    }

    fn column(
        &self,
        chunk: &ColumnChunk,
        node: &SchemaNode,
        kind: ColumnType,
    ) -> std::result::Result<ColumnReader, ParquetError> {
        let mut column = ColumnReader { levels: Vec::new(), values: Vec::new(), level: 0, value: 0 };
        let mut dictionary: Option<Vec<PageValue>> = None;
        let (mut at, end) = (chunk.start, chunk.start + chunk.bytes);
        while column.levels.len() < chunk.values {
            let (head, after) = self.page_header(at, end)?;
            let number = |field: Option<&ThriftValue>, id: i16| {
                field.and_then(|f| f.size(id)).ok_or_else(|| ParquetError::Page("a page header is damaged".into()))
            };
            let (whole, packed) = (number(Some(&head), 2)?, number(Some(&head), 3)?);
            if whole > MAX_PAGE_BYTES || after.checked_add(packed).is_none_or(|to| to > end) {
                return Err(ParquetError::Page("a page is longer than its column".into()));
            }
            let mut bytes = vec![0; packed];
            files::read_at(&self.file, &self.path, after as u64, &mut bytes)
                .map_err(|e| ParquetError::File(e.into()))?;
            at = after + packed;
            match head.number(1) {
                Some(2) => {
                    let about = head.get(7);
                    let bytes = decompress::decompress(chunk.codec, &bytes, whole)?;
                    dictionary =
                        Some(page::decode_values(&bytes, 0, kind, number(about, 1)?.min(MAX_PAGE_VALUES), None)?);
                }
                Some(0) => {
                    let about = head.get(5);
                    let (count, encoding) = (checked_count(number(about, 1)?)?, number(about, 2)? as i64);
                    let bytes = decompress::decompress(chunk.codec, &bytes, whole)?;
                    let mut rest = &bytes[..];
                    let mut levels = |most: u32| -> std::result::Result<Vec<u32>, ParquetError> {
                        if most == 0 {
                            return Ok(vec![0; count]);
                        }
                        let n = rest.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize);
                        let n = n
                            .filter(|n| *n + 4 <= rest.len())
                            .ok_or_else(|| ParquetError::Page("its levels are damaged".into()))?;
                        let found = page::decode_rle_bit_packed(&rest[4..4 + n], bit_width(most), count)?;
                        rest = &rest[4 + n..];
                        Ok(found)
                    };
                    let (rep, def) = (levels(node.rep)?, levels(node.def)?);
                    column.add(&rep, &def, node.def, rest, encoding, kind, dictionary.as_deref())?;
                }
                Some(3) => {
                    let about = head.get(8);
                    let (count, encoding) = (checked_count(number(about, 1)?)?, number(about, 4)? as i64);
                    let (defs, reps) = (number(about, 5)?, number(about, 6)?);
                    if defs.checked_add(reps).is_none_or(|n| n > bytes.len() || n > whole) {
                        return Err(ParquetError::Page("its levels are damaged".into()));
                    }
                    let is_packed = about.and_then(|a| a.number(7)) != Some(0);
                    let rest = &bytes[defs + reps..];
                    let rest = match is_packed {
                        true => decompress::decompress(chunk.codec, rest, whole - defs - reps)?,
                        false => rest.to_vec(),
                    };
                    let levels = |most: u32, bytes: &[u8]| match most {
                        0 => Ok(vec![0; count]),
                        _ => page::decode_rle_bit_packed(bytes, bit_width(most), count),
                    };
                    let rep = levels(node.rep, &bytes[..reps])?;
                    let def = levels(node.def, &bytes[reps..reps + defs])?;
                    column.add(&rep, &def, node.def, &rest, encoding, kind, dictionary.as_deref())?;
                }
                // Index pages and unknown page types are skipped.
                Some(_) => {}
                None => return Err(ParquetError::Page("a page without type".into())),
            }
        }
        Ok(column)
    }

    /// Parses a page header; returns the offset of the page's bytes too.
    fn page_header(&self, at: usize, end: usize) -> std::result::Result<(ThriftValue, usize), ParquetError> {
        let mut size = PAGE_HEADER_BYTES;
        loop {
            let n = size.min(end.saturating_sub(at));
            let mut bytes = vec![0; n];
            files::read_at(&self.file, &self.path, at as u64, &mut bytes).map_err(|e| ParquetError::File(e.into()))?;
            let mut reader = ThriftReader::new(&bytes);
            match reader.structure() {
                Some(head) => return Ok((head, at + reader.at)),
                None if n < size || size > MAX_PAGE_HEADER_BYTES => {
                    return Err(ParquetError::Page("a page header is damaged".into()));
                }
                None => size *= 16,
            }
        }
    }
}

enum ParquetError {
    Page(String),
    File(Error),
}

impl From<String> for ParquetError {
    fn from(what: String) -> ParquetError {
        ParquetError::Page(what)
    }
}

/// Checks the number of values that a page header gives.
fn checked_count(count: usize) -> std::result::Result<usize, ParquetError> {
    match count {
        1..=MAX_PAGE_VALUES => Ok(count),
        _ => Err(ParquetError::Page(format!("a page with {count} values"))),
    }
}

/// Bit width of a level.
fn bit_width(most: u32) -> usize {
    (u32::BITS - most.leading_zeros()) as usize
}

impl ColumnReader {
    #[expect(clippy::too_many_arguments, reason = "what the two kinds of pages have in common")]
    fn add(
        &mut self,
        rep: &[u32],
        def: &[u32],
        full: u32,
        bytes: &[u8],
        encoding: i64,
        kind: ColumnType,
        dictionary: Option<&[PageValue]>,
    ) -> std::result::Result<(), ParquetError> {
        let count = def.iter().filter(|d| **d == full).count();
        let values = page::decode_values(bytes, encoding, kind, count, dictionary)?;
        if values.len() != count || count == 0 && def.is_empty() {
            return Err(ParquetError::Page(format!("{} values, expected {count}", values.len())));
        }
        self.values.extend(values);
        self.levels.extend(rep.iter().copied().zip(def.iter().copied()));
        Ok(())
    }

    fn peek(&self) -> Option<(u32, u32)> {
        self.levels.get(self.level).copied()
    }
}

impl RowGroup {
    fn read(field: &ThriftValue, leaves: usize) -> Option<RowGroup> {
        let mut chunks = Vec::new();
        for chunk in field.list(1)? {
            let about = chunk.get(3)?;
            let data = about.size(9)?;
            let start = about.size(11).filter(|at| *at > 0 && *at < data).unwrap_or(data);
            chunks.push(ColumnChunk { codec: about.number(4)?, start, bytes: about.size(7)?, values: about.size(5)? });
        }
        (chunks.len() == leaves).then_some(RowGroup { rows: field.size(3)?, chunks })
    }
}

impl SchemaNode {
    /// Parses the field at an index of the schema's list, and its children, which follow it in the list.
    fn read(
        schema: &[ThriftValue],
        at: &mut usize,
        leaves: &mut usize,
        (def, rep): (u32, u32),
        deeper: usize,
    ) -> Option<SchemaNode> {
        let field = schema.get(*at)?;
        let is_root = *at == 0;
        *at += 1;
        let repetition = if is_root { 0 } else { field.number(3)? };
        let (def, rep) = (def + u32::from(repetition > 0), rep + u32::from(repetition == 2));
        let name = field.get(4)?.text()?.to_string();
        let children = field.size(5).unwrap_or(0);
        let mut node = SchemaNode { name, repetition, children: Vec::new(), list: false, def, rep, leaf: None };
        if children == 0 && !is_root {
            let converted = field.number(6);
            // UINT_8 to UINT_64.
            let unsigned = converted.is_some_and(|c| (11..=14).contains(&c));
            node.leaf = Some((
                *leaves,
                ColumnType { physical: field.number(1)?, length: field.size(2).unwrap_or(0), unsigned },
            ));
            *leaves += 1;
        }
        for _ in 0..children {
            node.children.push(SchemaNode::read(schema, at, leaves, (def, rep), deeper.checked_sub(1)?)?);
        }
        // LIST by its old annotation or its new one.
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

    /// Skips one entry of every column below.
    fn skip(&self, columns: &mut [Option<ColumnReader>]) -> Option<()> {
        if let Some((leaf, _)) = self.leaf {
            columns.get_mut(leaf)?.as_mut()?.level += 1;
        }
        self.children.iter().try_for_each(|child| child.skip(columns))
    }

    /// The next value; none if levels contradict the schema.
    fn assemble(&self, columns: &mut [Option<ColumnReader>]) -> Option<Json> {
        if self.repetition != 2 {
            return self.one(columns);
        }
        let first = self.first()?;
        let peek = |columns: &[Option<ColumnReader>]| columns.get(first)?.as_ref()?.peek();
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

    fn one(&self, columns: &mut [Option<ColumnReader>]) -> Option<Json> {
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
            // The middle group has a single field, the element.
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

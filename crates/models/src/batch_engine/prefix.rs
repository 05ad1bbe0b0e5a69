//! A cache of prompt prefixes: pages of keys and values, looked up by the tokens up to their end.
//!
//! A page contains the positions of one prefill chunk. Prompts are always split into the same chunks, so a page is bitwise equal
//! to recomputing it. All pages have the same size, and the memory of an evicted page is reused.

use crate::batch_engine::cache::CacheLayout;
use crate::error::Result;
use crate::session::Buffer;
use std::collections::BTreeMap;

/// A prefix cache with a byte limit. The least recently used page is evicted first.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    /// Maximum number of pages, and bytes per page.
    max_pages: usize,
    page_bytes: usize,
    /// A counter of uses.
    clock: u64,
    pages: BTreeMap<Vec<i32>, CachePage>,
    /// Memory of unused pages.
    free: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct CachePage {
    used: u64,
    /// The contents, cache after cache.
    bytes: Vec<u8>,
}

impl PrefixCache {
    /// Creates a cache with pages of `part` tokens and at most `bytes` bytes, for sequences of up to `context` tokens.
    pub(super) fn new(bytes: usize, part: usize, context: usize, layouts: &[CacheLayout]) -> PrefixCache {
        let size = layouts.iter().map(|layout| layout.size(part)).sum::<usize>();
        PrefixCache { max_pages: bytes / (size + 4 * context), page_bytes: size, ..PrefixCache::default() }
    }

    /// The bytes of all pages in use.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * self.page_bytes
    }

    /// Allocates the memory of all pages.
    pub(super) fn allocate(&mut self) {
        // Zeroed memory would only be mapped at its first use; other values are written now.
        self.free.resize_with(self.max_pages - self.pages.len(), || vec![1; self.page_bytes]);
    }

    /// Writes the cached chunks of a prompt's prefix into an entry; returns the number of positions.
    ///
    /// At least one token remains to be prefilled: its logits are needed.
    pub(super) fn restore(
        &mut self,
        key: i32,
        prompt: &[i32],
        part: usize,
        layouts: &[CacheLayout],
        to: &[Buffer],
    ) -> Result<usize> {
        let mut done = 0;
        while done + part < prompt.len() {
            self.clock += 1;
            let Some(page) = self.pages.get_mut(&page_key(key, &prompt[..done + part])) else { break };
            page.used = self.clock;
            let mut bytes = &page.bytes[..];
            for (layout, buffer) in layouts.iter().zip(to) {
                let (here, rest) = bytes.split_at(layout.size(part));
                layout.write(buffer, 0, done..done + part, here)?;
                bytes = rest;
            }
            done += part;
        }
        Ok(done)
    }

    /// Inserts the page that ends at this position.
    pub(super) fn insert(
        &mut self,
        key: i32,
        prompt: &[i32],
        part: usize,
        layouts: &[CacheLayout],
        from: &[Buffer],
    ) -> Result<()> {
        let name = page_key(key, prompt);
        if self.max_pages == 0 || self.pages.contains_key(&name) {
            return Ok(());
        }
        let mut bytes = match self.free.pop() {
            Some(bytes) => bytes,
            None if self.pages.len() < self.max_pages => vec![0; self.page_bytes],
            None => {
                let oldest = self.pages.iter().min_by_key(|(_, page)| page.used).map(|(name, _)| name.clone());
                let Some(page) = oldest.and_then(|oldest| self.pages.remove(&oldest)) else { return Ok(()) };
                page.bytes
            }
        };
        let mut to = &mut bytes[..];
        for (layout, buffer) in layouts.iter().zip(from) {
            let (here, rest) = to.split_at_mut(layout.size(part));
            layout.read_to(buffer, 0, prompt.len() - part..prompt.len(), here)?;
            to = rest;
        }
        self.clock += 1;
        self.pages.insert(name, CachePage { used: self.clock, bytes });
        Ok(())
    }
}

/// The key of a page; pages of different adapters are distinct.
fn page_key(key: i32, tokens: &[i32]) -> Vec<i32> {
    std::iter::once(key).chain(tokens.iter().copied()).collect()
}

//! Prefixes of prompts that were run before: pages of keys and values, found by the tokens up to their end.
//!
//! A page holds the positions of one part of a prompt. Prompts are always run in the same parts, so a page has the very bits
//! that running it again would give. All pages have one size, and the memory of a page that is evicted is used again.

use crate::batch_engine::cache::CacheLayout;
use crate::error::Result;
use crate::session::Buffer;
use std::collections::BTreeMap;

/// Pages up to a number of bytes. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    /// Pages at most, and bytes of a page.
    max_pages: usize,
    page_bytes: usize,
    /// Counts uses.
    clock: u64,
    pages: BTreeMap<Vec<i32>, CachePage>,
    /// Memory of pages that nothing is in.
    free: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct CachePage {
    used: u64,
    /// Cache after cache.
    bytes: Vec<u8>,
}

impl PrefixCache {
    /// Pages for parts of so many tokens, in at most so many bytes, with the tokens by which they are found.
    pub(super) fn new(bytes: usize, part: usize, context: usize, layouts: &[CacheLayout]) -> PrefixCache {
        let size = layouts.iter().map(|layout| layout.size(part)).sum::<usize>();
        PrefixCache { max_pages: bytes / (size + 4 * context), page_bytes: size, ..PrefixCache::default() }
    }

    /// Bytes that pages have.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * self.page_bytes
    }

    /// Allocates the memory of all pages.
    pub(super) fn allocate(&mut self) {
        // Zeros would only be promised by the system; other bytes are there.
        self.free.resize_with(self.max_pages - self.pages.len(), || vec![1; self.page_bytes]);
    }

    /// Writes what is known of a prompt's prefix, whole parts of it, into an entry; gives how many positions.
    ///
    /// At least one token is left to run: its logits are what is asked for.
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

    /// Keeps the page that ends here.
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

/// Pages of different adapters have nothing in common.
fn page_key(key: i32, tokens: &[i32]) -> Vec<i32> {
    std::iter::once(key).chain(tokens.iter().copied()).collect()
}

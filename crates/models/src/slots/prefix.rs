//! Beginnings of prompts that were run before: pages of keys and values, found by the ids up to their end.
//!
//! A page holds the positions of one part of a prompt. Prompts are always run in the same parts, so a page has the very bits
//! that running it again would give.

use crate::error::Result;
use crate::session::Buffer;
use crate::slots::cache::Layout;
use std::collections::BTreeMap;

/// Pages up to a number of bytes; those that were not used for longest go first.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    most: usize,
    bytes: usize,
    clock: u64,
    pages: BTreeMap<Vec<i32>, Page>,
}

#[derive(Debug)]
struct Page {
    used: u64,
    caches: Vec<Vec<u8>>,
}

impl Prefixes {
    pub(super) fn new(most: usize) -> Prefixes {
        Prefixes { most, ..Prefixes::default() }
    }

    /// Bytes that pages have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes what is known of a prompt's beginning, whole parts of it, into an entry; gives how many positions.
    ///
    /// At least one id is left to run: its logits are what is asked for.
    pub(super) fn restore(
        &mut self,
        key: i32,
        prompt: &[i32],
        part: usize,
        layouts: &[Layout],
        to: &[Buffer],
    ) -> Result<usize> {
        let mut done = 0;
        while done + part < prompt.len() {
            self.clock += 1;
            let Some(page) = self.pages.get_mut(&name(key, &prompt[..done + part])) else { break };
            page.used = self.clock;
            for ((layout, buffer), bytes) in layouts.iter().zip(to).zip(&page.caches) {
                layout.write(buffer, 0, done..done + part, bytes)?;
            }
            done += part;
        }
        Ok(done)
    }

    /// Keeps the page that ends here.
    pub(super) fn keep(
        &mut self,
        key: i32,
        ids: &[i32],
        part: usize,
        layouts: &[Layout],
        from: &[Buffer],
    ) -> Result<()> {
        let name = name(key, ids);
        if self.most == 0 || self.pages.contains_key(&name) {
            return Ok(());
        }
        let positions = ids.len() - part..ids.len();
        let mut caches = Vec::new();
        for (layout, buffer) in layouts.iter().zip(from) {
            caches.push(layout.read(buffer, 0, positions.clone())?);
        }
        let size = caches.iter().map(Vec::len).sum::<usize>() + 4 * name.len();
        while self.bytes + size > self.most {
            let oldest = self.pages.iter().min_by_key(|(_, page)| page.used).map(|(name, _)| name.clone());
            match oldest.and_then(|oldest| Some((self.pages.remove(&oldest)?, oldest.len()))) {
                Some((page, ids)) => self.bytes -= page.caches.iter().map(Vec::len).sum::<usize>() + 4 * ids,
                None => return Ok(()),
            }
        }
        self.clock += 1;
        self.bytes += size;
        self.pages.insert(name, Page { used: self.clock, caches });
        Ok(())
    }
}

/// Pages of different adapters have nothing in common.
fn name(key: i32, ids: &[i32]) -> Vec<i32> {
    std::iter::once(key).chain(ids.iter().copied()).collect()
}

//! Clients, and how they share bounded resources.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// The identity of a client: the owner of an API key if keys are configured, otherwise an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientId {
    /// The index among the server's keys.
    Key(usize),
    Address(IpAddr),
}

impl ClientId {
    /// Groups IPv6 addresses by /64, since a host has a whole /64.
    pub(crate) fn of(address: IpAddr) -> ClientId {
        ClientId::Address(match address.to_canonical() {
            IpAddr::V6(six) => IpAddr::V6((six.to_bits() >> 64 << 64).into()),
            four => four,
        })
    }
}

/// Whether a client that uses `own` of `all` used units may have `more`: only if it then has no more than it leaves free. So a
/// single client gets half, two get a third each, and a new client always gets some.
pub(crate) fn within_fair_share(most: usize, all: usize, own: usize, more: usize) -> bool {
    let Some(left) = most.checked_sub(all).and_then(|left| left.checked_sub(more)) else { return false };
    own + more <= left.max(1)
}

/// The maximum that one client can ever have.
pub(crate) fn max_per_client(most: usize) -> usize {
    (most / 2).max(1)
}

/// A shared amount.
pub(crate) struct ClientQuota {
    capacity: usize,
    taken: Mutex<QuotaUsage>,
}

#[derive(Default)]
struct QuotaUsage {
    total: usize,
    per_client: BTreeMap<ClientId, usize>,
}

/// A part of a shared amount, returned when it is dropped.
pub(crate) struct QuotaGuard {
    from: Arc<ClientQuota>,
    client: ClientId,
    amount: usize,
}

impl ClientQuota {
    pub(crate) fn new(most: usize) -> Arc<ClientQuota> {
        Arc::new(ClientQuota { capacity: most, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, QuotaUsage> {
        self.taken.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn acquire(self: &Arc<Self>, client: ClientId, amount: usize) -> Option<QuotaGuard> {
        let mut taken = self.lock();
        let own = taken.per_client.get(&client).copied().unwrap_or(0);
        if !within_fair_share(self.capacity, taken.total, own, amount) {
            return None;
        }
        taken.total += amount;
        taken.per_client.insert(client, own + amount);
        Some(QuotaGuard { from: self.clone(), client, amount })
    }
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        let mut taken = self.from.lock();
        taken.total -= self.amount;
        if let Some(own) = taken.per_client.get_mut(&self.client) {
            *own -= self.amount;
            if *own == 0 {
                taken.per_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many clients take all they can, the next one still gets some.
    #[test]
    fn nobody_takes_everything() {
        let shares = ClientQuota::new(1000);
        let client = |n: usize| ClientId::Key(n);
        let mut kept = Vec::new();
        for n in 0..8 {
            let mut own = 0;
            while let Some(share) = shares.acquire(client(n), 1) {
                kept.push(share);
                own += 1;
            }
            // A half, then a quarter, and so on.
            assert_eq!(own, (1000 - kept.len() + own) / 2, "client {n}");
        }
        assert!(shares.acquire(client(0), 1).is_none() && shares.acquire(client(9), 1).is_some());
        assert!(shares.acquire(client(9), 600).is_none());
        drop(kept);
        assert!(
            shares.acquire(client(0), max_per_client(1000)).is_some()
                && shares.acquire(client(0), max_per_client(1000) + 1).is_none()
        );
        let one = ClientQuota::new(1);
        let only = one.acquire(client(0), 1);
        assert!(only.is_some() && one.acquire(client(1), 1).is_none());
    }

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let of = |text: &str| ClientId::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}

//! Clients, and how they share what is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Who asks: the owner of a key where keys are asked for, otherwise an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// By its place among the server's keys.
    Key(usize),
    Address(IpAddr),
}

impl Client {
    /// A host has a whole /64 of IPv6 addresses.
    pub(crate) fn of(address: IpAddr) -> Client {
        Client::Address(match address.to_canonical() {
            IpAddr::V6(six) => IpAddr::V6((six.to_bits() >> 64 << 64).into()),
            four => four,
        })
    }
}

/// Whether a client that has `own` of `all` that is taken may have `more`: as long as it has no more than it leaves to others. So one
/// client gets half, two get a third each, and whoever has nothing always finds something.
pub(crate) fn fits(most: usize, all: usize, own: usize, more: usize) -> bool {
    let Some(left) = most.checked_sub(all).and_then(|left| left.checked_sub(more)) else { return false };
    own + more <= left.max(1)
}

/// The most that one client can ever have.
pub(crate) fn largest(most: usize) -> usize {
    (most / 2).max(1)
}

/// An amount that is shared.
pub(crate) struct Shares {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    own: BTreeMap<Client, usize>,
}

/// A part of it, given back when it is dropped.
pub(crate) struct Share {
    from: Arc<Shares>,
    client: Client,
    amount: usize,
}

impl Shares {
    pub(crate) fn new(most: usize) -> Arc<Shares> {
        Arc::new(Shares { most, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn take(self: &Arc<Self>, client: Client, amount: usize) -> Option<Share> {
        let mut taken = self.lock();
        let own = taken.own.get(&client).copied().unwrap_or(0);
        if !fits(self.most, taken.all, own, amount) {
            return None;
        }
        taken.all += amount;
        taken.own.insert(client, own + amount);
        Some(Share { from: self.clone(), client, amount })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.from.lock();
        taken.all -= self.amount;
        if let Some(own) = taken.own.get_mut(&self.client) {
            *own -= self.amount;
            if *own == 0 {
                taken.own.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many clients take all they can, the next one finds something.
    #[test]
    fn nobody_takes_everything() {
        let shares = Shares::new(1000);
        let client = |n: usize| Client::Key(n);
        let mut kept = Vec::new();
        for n in 0..8 {
            let mut own = 0;
            while let Some(share) = shares.take(client(n), 1) {
                kept.push(share);
                own += 1;
            }
            // A half, then a quarter, and so on of what is left.
            assert_eq!(own, (1000 - kept.len() + own) / 2, "client {n}");
        }
        assert!(shares.take(client(0), 1).is_none() && shares.take(client(9), 1).is_some());
        assert!(shares.take(client(9), 600).is_none());
        drop(kept);
        assert!(shares.take(client(0), largest(1000)).is_some() && shares.take(client(0), largest(1000) + 1).is_none());
        let one = Shares::new(1);
        let only = one.take(client(0), 1);
        assert!(only.is_some() && one.take(client(1), 1).is_none());
    }

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let of = |text: &str| Client::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}

//! Machines as tables: speeds of devices and of links between them.

use crate::error::{Error, Result};
use ir::{DType, Mesh, MeshAxis};

/// A way between ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second that a rank sends.
    pub speed: f64,
    /// Seconds of each step of a collective.
    pub latency: f64,
}

/// A kind of device, and how many of them share a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Operations a second of products of 16 bits, and of 32.
    pub flops: (f64, f64),
    /// The share of that which products of models reach.
    pub efficiency: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Bytes a second of memory.
    pub bandwidth: f64,
    /// Devices of one machine.
    pub node: usize,
    /// Inside of a machine.
    pub near: Link,
    /// Between machines.
    pub far: Link,
}

/// From the makers' data sheets; dense products, one direction of links, a network card of 400 Gb/s (A100: 200) for each device.
pub const DEVICES: &[Device] = &[
    Device {
        name: "H200",
        flops: (989e12, 67e12),
        efficiency: 0.5,
        memory: 141e9,
        bandwidth: 4.8e12,
        node: 8,
        near: Link { speed: 450e9, latency: 4e-6 },
        far: Link { speed: 50e9, latency: 12e-6 },
    },
    Device {
        name: "H100",
        flops: (989e12, 67e12),
        efficiency: 0.5,
        memory: 80e9,
        bandwidth: 3.35e12,
        node: 8,
        near: Link { speed: 450e9, latency: 4e-6 },
        far: Link { speed: 50e9, latency: 12e-6 },
    },
    Device {
        name: "A100",
        flops: (312e12, 19.5e12),
        efficiency: 0.5,
        memory: 80e9,
        bandwidth: 2.0e12,
        node: 8,
        near: Link { speed: 300e9, latency: 4e-6 },
        far: Link { speed: 25e9, latency: 12e-6 },
    },
    Device {
        name: "B200",
        flops: (2250e12, 80e12),
        efficiency: 0.45,
        memory: 180e9,
        bandwidth: 8.0e12,
        node: 8,
        near: Link { speed: 900e9, latency: 4e-6 },
        far: Link { speed: 50e9, latency: 12e-6 },
    },
];

impl Device {
    /// Reads `256xH200`.
    pub fn parse(text: &str) -> Result<(usize, &'static Device)> {
        let known = || DEVICES.iter().map(|d| d.name).collect::<Vec<_>>().join(", ");
        let bad = || {
            Error::Input(format!(
                "`--devices {text}` must be a number and a kind, such as 256xH200 (kinds: {})",
                known()
            ))
        };
        let (count, name) = text.split_once(['x', '×']).ok_or_else(bad)?;
        let count: usize = count.trim().parse().ok().filter(|n| (1..=1 << 16).contains(n)).ok_or_else(bad)?;
        let device = DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name.trim())).ok_or_else(bad)?;
        Ok((count, device))
    }

    /// Seconds of products.
    pub fn compute(&self, flops: f64, bytes: f64, dtype: DType) -> f64 {
        let peak = if dtype.size() <= 2 { self.flops.0 } else { self.flops.1 };
        (flops / (peak * self.efficiency)).max(bytes / self.bandwidth)
    }

    /// The link over which ranks along these axes talk: ranks lie on machines in their order, the last axis fastest.
    pub fn link(&self, mesh: &Mesh, axes: &[MeshAxis]) -> Link {
        let mut inside = 1;
        let mut reach = 1;
        for a in mesh.axes().iter().rev() {
            if axes.iter().any(|b| b.name == a.name) {
                reach = inside * a.size;
            }
            inside *= a.size;
        }
        if reach <= self.node { self.near } else { self.far }
    }

    /// Seconds of collectives over axes.
    pub fn talk(&self, mesh: &Mesh, axes: &[MeshAxis], calls: f64, bytes: f64) -> f64 {
        let (link, ranks) = (self.link(mesh, axes), axes.iter().map(|a| a.size).product::<usize>());
        // Trees and rings of such libraries take about log₂ steps where messages are short.
        bytes / link.speed + calls * link.latency * (ranks as f64).log2().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_links() {
        let (n, device) = Device::parse("16xh200").unwrap();
        assert_eq!((n, device.name), (16, "H200"));
        for bad in ["H200", "0xH200", "8xTPU", "x", "-1xH200"] {
            assert!(Device::parse(bad).unwrap_err().to_string().contains("256xH200"), "{bad}");
        }
        let mesh = Mesh::parse("dp=2,tp=8").unwrap();
        assert_eq!(device.link(&mesh, &mesh.axes()[1..]), device.near);
        assert_eq!(device.link(&mesh, &mesh.axes()[..1]), device.far);
        assert_eq!(device.link(&mesh, mesh.axes()), device.far);
        let small = Mesh::parse("dp=2,tp=4").unwrap();
        assert_eq!(device.link(&small, &small.axes()[..1]), device.near);
    }
}

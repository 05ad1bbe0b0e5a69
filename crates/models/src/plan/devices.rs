//! Tables of machines: the speeds of devices and of the interconnects between them.

use crate::error::{Error, Result};
use ir::{DType, Mesh, MeshAxis};

/// An interconnect between ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interconnect {
    /// Bytes per second that a rank can send.
    pub bandwidth: f64,
    /// Latency in seconds of each step of a collective.
    pub latency: f64,
}

/// A type of device, and the number of devices per machine.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// The device's name.
    pub name: &'static str,
    /// Peak FLOPs per second of products in 16-bit and in 32-bit types.
    pub flops: (f64, f64),
    /// The fraction of the peak that a model's products reach.
    pub efficiency: f64,
    /// Memory in bytes.
    pub memory: f64,
    /// Memory bandwidth in bytes per second.
    pub bandwidth: f64,
    /// Number of devices per machine.
    pub devices_per_node: usize,
    /// The interconnect within a machine.
    pub intra_node: Interconnect,
    /// The interconnect between machines.
    pub inter_node: Interconnect,
}

/// From the vendors' data sheets: dense products, one direction of links, a network card of 400 Gb/s (A100: 200) per device.
pub const DEVICES: &[DeviceSpec] = &[
    DeviceSpec {
        name: "H200",
        flops: (989e12, 67e12),
        efficiency: 0.5,
        memory: 141e9,
        bandwidth: 4.8e12,
        devices_per_node: 8,
        intra_node: Interconnect { bandwidth: 450e9, latency: 4e-6 },
        inter_node: Interconnect { bandwidth: 50e9, latency: 12e-6 },
    },
    DeviceSpec {
        name: "H100",
        flops: (989e12, 67e12),
        efficiency: 0.5,
        memory: 80e9,
        bandwidth: 3.35e12,
        devices_per_node: 8,
        intra_node: Interconnect { bandwidth: 450e9, latency: 4e-6 },
        inter_node: Interconnect { bandwidth: 50e9, latency: 12e-6 },
    },
    DeviceSpec {
        name: "A100",
        flops: (312e12, 19.5e12),
        efficiency: 0.5,
        memory: 80e9,
        bandwidth: 2.0e12,
        devices_per_node: 8,
        intra_node: Interconnect { bandwidth: 300e9, latency: 4e-6 },
        inter_node: Interconnect { bandwidth: 25e9, latency: 12e-6 },
    },
    DeviceSpec {
        name: "B200",
        flops: (2250e12, 80e12),
        efficiency: 0.45,
        memory: 180e9,
        bandwidth: 8.0e12,
        devices_per_node: 8,
        intra_node: Interconnect { bandwidth: 900e9, latency: 4e-6 },
        inter_node: Interconnect { bandwidth: 50e9, latency: 12e-6 },
    },
];

impl DeviceSpec {
    /// Parses `256xH200`.
    pub fn parse(text: &str) -> Result<(usize, &'static DeviceSpec)> {
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

    /// The time of products in seconds.
    pub fn compute_time(&self, flops: f64, bytes: f64, dtype: DType) -> f64 {
        let peak = if dtype.size() <= 2 { self.flops.0 } else { self.flops.1 };
        (flops / (peak * self.efficiency)).max(bytes / self.bandwidth)
    }

    /// The interconnect used along these axes: ranks are assigned to machines in order, the last axis fastest.
    pub fn link(&self, mesh: &Mesh, axes: &[MeshAxis]) -> Interconnect {
        let mut inside = 1;
        let mut reach = 1;
        for a in mesh.axes().iter().rev() {
            if axes.iter().any(|b| b.name == a.name) {
                reach = inside * a.size;
            }
            inside *= a.size;
        }
        if reach <= self.devices_per_node { self.intra_node } else { self.inter_node }
    }

    /// The time of collectives over these axes in seconds.
    pub fn communication_time(&self, mesh: &Mesh, axes: &[MeshAxis], calls: f64, bytes: f64) -> f64 {
        let (link, ranks) = (self.link(mesh, axes), axes.iter().map(|a| a.size).product::<usize>());
        // Tree and ring algorithms take about log₂ steps for short messages.
        bytes / link.bandwidth + calls * link.latency * (ranks as f64).log2().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_links() {
        let (n, device) = DeviceSpec::parse("16xh200").unwrap();
        assert_eq!((n, device.name), (16, "H200"));
        for bad in ["H200", "0xH200", "8xTPU", "x", "-1xH200"] {
            assert!(DeviceSpec::parse(bad).unwrap_err().to_string().contains("256xH200"), "{bad}");
        }
        let mesh = Mesh::parse("dp=2,tp=8").unwrap();
        assert_eq!(device.link(&mesh, &mesh.axes()[1..]), device.intra_node);
        assert_eq!(device.link(&mesh, &mesh.axes()[..1]), device.inter_node);
        assert_eq!(device.link(&mesh, mesh.axes()), device.inter_node);
        let small = Mesh::parse("dp=2,tp=4").unwrap();
        assert_eq!(device.link(&small, &small.axes()[..1]), device.intra_node);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! ferroce: a software RDMA device, RoCEv2 over UDP.
//!
//! This is the crate root: what the module registers, in what order, and how it is taken down.
//!
//! | room | content | may use |
//! |---|---|---|
//! | [`verbs`] | objects of ib_core | link, datapath, observe, sys, core |
//! | [`link`] | `rdma link add`, netdev events, sockets | sys |
//! | [`datapath`] | post, transmit, receive, complete | observe, sys, core |
//! | [`observe`] | counters | sys, core |
//! | [`sys`] | safe types over the kernel: the only unsafe code | core::{uabi, gate, batch} |
//! | [`core`](crate::core) | protocol, queues, offload: neither the kernel nor unsafe | |
//!
//! Of the core, these stand alone and use nothing of it: `core::uabi`, the rings and structures
//! shared with the provider; `core::wire`, packets; `core::gate` and `core::batch`.
//!
//! `tests/lab/rules.py` checks this table and the imports.

#![crate_name = "ferroce"]

pub mod core;
pub mod datapath;
pub mod link;
pub mod observe;
pub mod sys;
pub mod verbs;

use crate::core::uabi::MODULE_VERSION;
use datapath::directory::{
    Directory,
    DIRECTORY, //
};
use datapath::receive::Input;
use kernel::prelude::*;
use verbs::Ferroce;

module! {
    type: FerroceModule,
    name: "ferroce",
    authors: ["ferroce contributors"],
    description: "Software RDMA over Converged Ethernet v2",
    license: "GPL",
    alias: ["rdma-link-ferroce"],
    params: {
        most_objects: u32 {
            default: 0xffff_ffff,
            description: "Most objects of each kind that a device may have, if fewer than usual",
        },
    },
}

/// The loaded module. The fields are dropped in this order: with the links all devices and QPs are
/// gone, and nothing uses the directory.
#[pin_data]
struct FerroceModule {
    #[pin]
    _links: link::Registration<Ferroce, Input>,
    _directory: DirectoryGuard,
    /// Waits for what the others have removed.
    _reclaimer: sys::reclaim::Reclaimer,
}

/// Keeps [`DIRECTORY`] filled.
struct DirectoryGuard;

impl DirectoryGuard {
    fn new() -> Result<Self> {
        DIRECTORY.set(Directory::new()?);
        Ok(Self)
    }
}

impl Drop for DirectoryGuard {
    fn drop(&mut self) {
        // Waits for the workers, which may hold the last references to QPs.
        drop(DIRECTORY.clear());
    }
}

impl kernel::InPlaceModule for FerroceModule {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: { sys::ib::device::install::<Ferroce>()? },
            _reclaimer: sys::reclaim::Reclaimer::new()?,
            _directory: DirectoryGuard::new()?,
            _links <- link::Registration::new(),
        })
    }
}

/// What the entry of the version in `modinfo` begins with.
const VERSION_KEY: &[u8] = b"version=";
/// Three numbers of up to five digits, two dots, and the end.
const VERSION_ROOM: usize = VERSION_KEY.len() + 3 * 5 + 2 + 1;

// The version in `modinfo`, for which `module!` has no key.
//
// As `module!` has it: later compilers take plain `used` for the linker's, which makes a section of
// its own, and modpost reads one.
#[cfg(MODULE)]
#[link_section = ".modinfo"]
#[used(compiler)]
static VERSION: [u8; VERSION_ROOM] = version(MODULE_VERSION);

/// The entry; what is left of its room is zero, which readers of the section skip.
#[cfg_attr(not(MODULE), expect(dead_code))]
const fn version(numbers: [u16; 3]) -> [u8; VERSION_ROOM] {
    let mut text = [0; VERSION_ROOM];
    let mut at = 0;
    while at < VERSION_KEY.len() {
        text[at] = VERSION_KEY[at];
        at += 1;
    }
    let mut n = 0;
    while n < numbers.len() {
        if n > 0 {
            text[at] = b'.';
            at += 1;
        }
        let mut scale = 10_000;
        while scale > 0 {
            if numbers[n] >= scale || scale == 1 {
                text[at] = b'0' + (numbers[n] / scale % 10) as u8;
                at += 1;
            }
            scale /= 10;
        }
        n += 1;
    }
    text
}

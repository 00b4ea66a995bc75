// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The transport headers as they lie on the wire, in big-endian.
//!
//! Every bit pattern is a value of these structs, so reading one cannot fail; [`super::packet`]
//! judges what was read.
//!
//! | header | file |
//! |---|---|
//! | BTH, which every packet has | `bth` |
//! | DETH, immediate data | `datagram` |
//! | RETH, FETH, AtomicETH, AtomicAckETH: remote memory | `remote` |
//! | AETH: acknowledgements, and what they say | `aeth` |

/// A struct that is the bytes of a header.
macro_rules! header {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($fields)*
        }
    };
}

mod aeth;
mod bth;
mod datagram;
mod remote;

pub use aeth::rnr_delay_ns;
pub use aeth::Aeth;
pub use aeth::AethSyndrome;
pub use aeth::NakCode;
pub use bth::Bth;
pub use datagram::Deth;
pub use datagram::ImmDt;
pub use remote::AtomicAckEth;
pub use remote::AtomicEth;
pub use remote::Feth;
pub use remote::Reth;

const _: () = {
    assert!(size_of::<Bth>() == 12 && size_of::<Reth>() == 16);
    assert!(size_of::<Aeth>() == 4 && size_of::<Deth>() == 8 && size_of::<ImmDt>() == 4);
    assert!(
        size_of::<Feth>() == 4 && size_of::<AtomicEth>() == 28 && size_of::<AtomicAckEth>() == 8
    );
};

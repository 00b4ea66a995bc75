// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Performance management: datagrams that ask for the counters of a port (IBTA 13.4.3, 16.1).
//!
//! ib_core asks so too, for the files in `counters/` of the port in sysfs.

use zerocopy::byteorder::{BigEndian, U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Ref};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// A management datagram.
pub type PmaMad = [u8; MAD_LEN];

/// Where the attribute begins in one of performance management: behind the common header and 40
/// reserved bytes.
const ATTRIBUTE: usize = 64;

/// Counters of a port. Bytes are those of packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets received that were damaged or are none.
    pub receive_errors: u64,
    /// Packets that could not be sent.
    pub send_discards: u64,
}

/// The header that all management datagrams have.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16<BigEndian>,
    class_specific: U16<BigEndian>,
    transaction: [u8; 8],
    attribute: U16<BigEndian>,
    reserved: U16<BigEndian>,
    modifier: U32<BigEndian>,
}

const CLASS: u8 = 0x04;
const GET: u8 = 0x01;
const SET: u8 = 0x02;
const GET_RESPONSE: u8 = 0x81;
const UNSUPPORTED_VERSION: u16 = 1 << 2;
const UNSUPPORTED_ATTRIBUTE: u16 = 3 << 2;
const INVALID_FIELD: u16 = 7 << 2;

const CLASS_PORT_INFO: u16 = 0x0001;
const PORT_COUNTERS: u16 = 0x0012;
const PORT_COUNTERS_EXTENDED: u16 = 0x001d;

/// ClassPortInfo: PortCountersExtended is there, but for those of unicast and multicast.
const EXTENDED_WIDTH_NO_IETF: u16 = 1 << 10;
/// ClassPortInfo: a PortSelect of all ones means all ports.
const ALL_PORTS: u16 = 1 << 8;

/// The beginning of ClassPortInfo.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ClassPortInfo {
    base_version: u8,
    class_version: u8,
    capabilities: U16<BigEndian>,
    /// Beginning with 27 bits of more capabilities; the rest is the time to respond: 4.096 us
    /// times 2 to this power.
    response_time: U32<BigEndian>,
}

/// PortCounters. They stop at all ones.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PmaPortCounters {
    reserved: u8,
    port: u8,
    select: U16<BigEndian>,
    symbol_errors: U16<BigEndian>,
    link_recoveries: u8,
    link_downed: u8,
    receive_errors: U16<BigEndian>,
    remote_physical_errors: U16<BigEndian>,
    switch_relay_errors: U16<BigEndian>,
    send_discards: U16<BigEndian>,
    send_constraint_errors: u8,
    receive_constraint_errors: u8,
    reserved_too: u8,
    integrity_and_overrun_errors: u8,
    reserved_three: U16<BigEndian>,
    vl15_dropped: U16<BigEndian>,
    sent_words: U32<BigEndian>,
    received_words: U32<BigEndian>,
    sent_packets: U32<BigEndian>,
    received_packets: U32<BigEndian>,
    send_wait: U32<BigEndian>,
}

/// The part of PortCountersExtended that is there.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PortCountersExtended {
    reserved: u8,
    port: u8,
    select: U16<BigEndian>,
    reserved_too: U32<BigEndian>,
    sent_words: U64<BigEndian>,
    received_words: U64<BigEndian>,
    sent_packets: U64<BigEndian>,
    received_packets: U64<BigEndian>,
}

fn short(value: u64) -> U16<BigEndian> {
    U16::new(u16::try_from(value).unwrap_or(u16::MAX))
}

fn long(value: u64) -> U32<BigEndian> {
    U32::new(u32::try_from(value).unwrap_or(u32::MAX))
}

/// What is answered to `request`, which came to the port `port` of a device; `None` if it asks
/// nothing of this kind. Nothing can be set: what is counted cannot be taken back.
pub fn answer(request: &PmaMad, port: u8, totals: impl FnOnce() -> Totals) -> Option<PmaMad> {
    let (header, _) = Ref::<_, Header>::from_prefix(request.as_slice()).ok()?;
    if header.class != CLASS || !matches!(header.method, GET | SET) {
        return None;
    }
    let (head, body) = request.split_at_checked(ATTRIBUTE)?;
    let mut response: PmaMad = [0; MAD_LEN];
    let (head_to, body_to) = response.split_at_mut_checked(ATTRIBUTE)?;
    head_to.copy_from_slice(head);
    let status = if header.base_version != 1 || header.class_version != 1 {
        Err(UNSUPPORTED_VERSION)
    } else if header.method != GET {
        Err(UNSUPPORTED_ATTRIBUTE)
    } else {
        fill(header.attribute.get(), body, port, totals, body_to)
    };
    let (header, _) = Ref::<_, Header>::from_prefix(head_to).ok()?;
    let header = Ref::into_mut(header);
    header.method = GET_RESPONSE;
    header.status = U16::new(status.err().unwrap_or(0));
    Some(response)
}

/// Fills the attribute that is asked for.
fn fill(
    attribute: u16,
    asked: &[u8],
    port: u8,
    totals: impl FnOnce() -> Totals,
    to: &mut [u8],
) -> Result<(), u16> {
    // In both kinds of counters: the port, and which of them are meant. All are answered, whatever
    // was selected, for that only matters where they are set.
    let of_this_port = || match asked.get(1) {
        Some(&asked) if asked == port || asked == 0xff => Ok(asked),
        _ => Err(INVALID_FIELD),
    };
    // Data are counted in words of four bytes.
    let words = |bytes: u64| bytes >> 2;
    match attribute {
        CLASS_PORT_INFO => {
            let info = ClassPortInfo {
                base_version: 1,
                class_version: 1,
                capabilities: U16::new(EXTENDED_WIDTH_NO_IETF | ALL_PORTS),
                // A second.
                response_time: U32::new(18),
            };
            put(&info, to)
        }
        PORT_COUNTERS => {
            let port = of_this_port()?;
            let totals = totals();
            let counters = PmaPortCounters {
                port,
                receive_errors: short(totals.receive_errors),
                send_discards: short(totals.send_discards),
                sent_words: long(words(totals.sent_bytes)),
                received_words: long(words(totals.received_bytes)),
                sent_packets: long(totals.sent_packets),
                received_packets: long(totals.received_packets),
                ..PmaPortCounters::default()
            };
            put(&counters, to)
        }
        PORT_COUNTERS_EXTENDED => {
            let port = of_this_port()?;
            let totals = totals();
            let counters = PortCountersExtended {
                port,
                sent_words: U64::new(words(totals.sent_bytes)),
                received_words: U64::new(words(totals.received_bytes)),
                sent_packets: U64::new(totals.sent_packets),
                received_packets: U64::new(totals.received_packets),
                ..PortCountersExtended::default()
            };
            put(&counters, to)
        }
        _ => Err(UNSUPPORTED_ATTRIBUTE),
    }
}

fn put(attribute: &(impl IntoBytes + Immutable), to: &mut [u8]) -> Result<(), u16> {
    attribute.write_to_prefix(to).map_err(|_| INVALID_FIELD)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_performance))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;

    const COUNTED: Totals = Totals {
        sent_bytes: 0x1_0000_0007,
        received_bytes: 0x8_0000_0000,
        sent_packets: 3,
        received_packets: u64::MAX,
        receive_errors: 0x1_0000,
        send_discards: 5,
    };

    fn ask(method: u8, attribute: u16, port: u8) -> PmaMad {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, CLASS, 1, method]);
        mad[8..16].copy_from_slice(b"transact");
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[ATTRIBUTE + 1] = port;
        mad
    }

    fn answered(request: &PmaMad) -> PmaMad {
        let response = answer(request, 1, || COUNTED).unwrap();
        // What a requester knows its request by comes back.
        assert_eq!(response[3], GET_RESPONSE);
        assert_eq!(response[..3], request[..3]);
        assert_eq!(response[8..ATTRIBUTE], request[8..ATTRIBUTE]);
        response
    }

    fn status(request: &PmaMad) -> u16 {
        let response = answered(request);
        u16::from_be_bytes([response[4], response[5]])
    }

    /// The bytes from `bit` of the attribute on, as ib_core finds a counter.
    fn at<const N: usize>(mad: &PmaMad, bit: usize) -> [u8; N] {
        mad[ATTRIBUTE + bit / 8..][..N].try_into().unwrap()
    }

    #[test]
    fn extended_counters_are_whole_and_in_words() {
        let mad = answered(&ask(GET, PORT_COUNTERS_EXTENDED, 1));
        assert_eq!(u64::from_be_bytes(at(&mad, 64)), 0x4000_0001);
        assert_eq!(u64::from_be_bytes(at(&mad, 128)), 0x2_0000_0000);
        assert_eq!(u64::from_be_bytes(at(&mad, 192)), 3);
        assert_eq!(u64::from_be_bytes(at(&mad, 256)), u64::MAX);
    }

    #[test]
    fn short_counters_stop_at_all_ones() {
        let mad = answered(&ask(GET, PORT_COUNTERS, 0xff));
        assert_eq!(at(&mad, 8), [0xff]);
        assert_eq!(u16::from_be_bytes(at(&mad, 64)), u16::MAX);
        assert_eq!(u16::from_be_bytes(at(&mad, 112)), 5);
        assert_eq!(u32::from_be_bytes(at(&mad, 192)), 0x4000_0001);
        assert_eq!(u32::from_be_bytes(at(&mad, 224)), u32::MAX);
        assert_eq!(u32::from_be_bytes(at(&mad, 256)), 3);
        assert_eq!(u32::from_be_bytes(at(&mad, 288)), u32::MAX);
    }

    #[test]
    fn the_class_says_what_there_is() {
        let mad = answered(&ask(GET, CLASS_PORT_INFO, 0));
        assert_eq!(at(&mad, 0), [1, 1, 0x05, 0, 0, 0, 0, 18]);
    }

    #[test]
    fn what_cannot_be_answered_is_refused() {
        assert_eq!(status(&ask(GET, PORT_COUNTERS, 1)), 0);
        assert_eq!(status(&ask(GET, PORT_COUNTERS, 2)), INVALID_FIELD);
        assert_eq!(status(&ask(GET, PORT_COUNTERS_EXTENDED, 0)), INVALID_FIELD);
        assert_eq!(status(&ask(GET, 0x10, 1)), UNSUPPORTED_ATTRIBUTE);
        assert_eq!(status(&ask(SET, PORT_COUNTERS, 1)), UNSUPPORTED_ATTRIBUTE);
        let mut newer = ask(GET, PORT_COUNTERS, 1);
        newer[2] = 2;
        assert_eq!(status(&newer), UNSUPPORTED_VERSION);
    }

    #[test]
    fn what_asks_nothing_of_this_kind_is_left_to_others() {
        let mut other = ask(GET, PORT_COUNTERS, 1);
        other[1] = 0x03;
        assert!(answer(&other, 1, || COUNTED).is_none());
        // A response to a request of this host.
        assert!(answer(&ask(GET_RESPONSE, PORT_COUNTERS, 1), 1, || COUNTED).is_none());
    }
}

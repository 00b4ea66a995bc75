// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A work request of libibverbs becomes a slot of the module.
//!
//! An error is a positive errno, as `ibv_post_send(3)` and `ibv_post_recv(3)` return it, and leaves
//! no trace: the slot is only published after success.

use crate::ffi::layout::{IbvRecvWr, IbvSendWr};
use crate::refusal::{at_most, refuse, reject};
use ferroce_core::operation::Operation;
use ferroce_core::service::{Protocol, Service};
use ferroce_core::uabi::wqe::{self, Bind, Parts, RecvWqe, SendWqe, Sge};
use libc::{c_int, EINVAL, EOPNOTSUPP};
use zerocopy::IntoBytes;

/// A free slot of a ring, to be filled.
///
/// The caller of the encoders has seen to it that the slot holds what the limits allow.
pub trait Slot {
    /// Writes bytes at an offset.
    fn put(&self, at: usize, bytes: &[u8]);
    /// Writes the bytes that `piece` names in the memory of the application at an offset.
    fn gather(&self, at: usize, piece: &Sge);
    /// The keys of the window and the region that a binding names, each if there is one.
    fn keys(&self, wr: &IbvSendWr) -> [Option<u32>; 2];
}

/// The WQEs of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// The row of the QP type: its operations.
    pub service: Service,
    /// Most scatter/gather entries of a request.
    pub max_sge: u32,
    /// Most inline bytes of a request.
    pub max_inline: u32,
    /// Flags that every request gets: [`wqe::SEND_SIGNALED`] on a queue with `sq_sig_all`.
    pub always: u8,
}

/// The WQEs of a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvLimits {
    /// Most scatter/gather entries of a request.
    pub max_sge: u32,
}

/// The opcodes of `enum ibv_wr_opcode` end here.
const LAST_OPCODE: u32 = 15;

/// Whether a type of queue pair has an operation.
pub fn has_operation(service: &Service, opcode: u8) -> bool {
    Operation::from_wqe(opcode).is_some_and(|operation| service.has(operation))
}

/// The number of an operation, and the parts of the header that it uses.
fn operation(service: &Service, number: u32) -> Result<(u8, Parts), c_int> {
    let served = |opcode: &u8| {
        // Of these there is only the extended interface.
        !matches!(*opcode, wqe::OP_FLUSH | wqe::OP_ATOMIC_WRITE) && has_operation(service, *opcode)
    };
    let opcode = u8::try_from(number).ok().filter(served);
    match opcode.and_then(|opcode| Some((opcode, Parts::of(opcode)?))) {
        Some(operation) => Ok(operation),
        None if number <= LAST_OPCODE => Err(reject(
            EOPNOTSUPP,
            format_args!("this type of queue pair does not have the opcode {number}"),
        )),
        None => Err(refuse(
            EINVAL,
            "opcode",
            number.into(),
            0..=LAST_OPCODE.into(),
        )),
    }
}

/// The flags of a request; EINVAL for one that no request has.
#[inline]
pub fn flags_of(send_flags: u32) -> Result<u8, c_int> {
    let known = send_flags & u32::from(wqe::SEND_ALL);
    if known != send_flags {
        let all = wqe::SEND_ALL.into();
        return Err(refuse(EINVAL, "send_flags", send_flags.into(), 0..=all));
    }
    // Cannot truncate: they are all in the low byte.
    Ok(known as u8)
}

/// Puts a scatter/gather list behind a header, which says so then; EINVAL for one that is longer
/// than the queue takes.
#[inline]
pub fn put_list(
    slot: &impl Slot,
    header: &mut SendWqe,
    sges: &[Sge],
    limits: &SendLimits,
) -> Result<(), c_int> {
    at_most("num_sge", sges.len() as u64, limits.max_sge.into())?;
    // Cannot truncate: `max_sge` is at most `wqe::MAX_SGE`.
    header.count = sges.len() as u16;
    header.flags &= !wqe::SEND_INLINE;
    slot.put(size_of::<SendWqe>(), sges.as_bytes());
    Ok(())
}

/// Puts an inline message, which is in these pieces, behind a header, which says so then; EINVAL
/// for one that is longer than the queue takes.
#[inline]
pub fn put_inline(
    slot: &impl Slot,
    header: &mut SendWqe,
    pieces: impl Iterator<Item = Sge> + Clone,
    limits: &SendLimits,
) -> Result<(), c_int> {
    let len: u64 = pieces.clone().map(|piece| u64::from(piece.length)).sum();
    at_most("inline length", len, limits.max_inline.into())?;
    // Cannot truncate: `max_inline` is at most `wqe::MAX_INLINE`.
    header.count = len as u16;
    header.flags |= wqe::SEND_INLINE;
    let mut at = size_of::<SendWqe>();
    for piece in pieces {
        slot.gather(at, &piece);
        at += piece.length as usize;
    }
    Ok(())
}

/// Whether an operation brings data here, so that it has none to carry.
pub fn answered_with_data(opcode: u8) -> bool {
    matches!(
        opcode,
        wqe::OP_RDMA_READ | wqe::OP_ATOMIC_CMP_AND_SWP | wqe::OP_ATOMIC_FETCH_AND_ADD
    )
}

/// Writes a send request with the scatter/gather list `sges` into `slot`. `ah` tells the number of
/// the address handle that the request of a datagram names.
///
/// # Errors
///
/// EINVAL for a list or inline message longer than the queue takes, a flag that is unknown or does
/// not go with the operation, or an unknown operation; EOPNOTSUPP for an operation of libibverbs
/// that the type of the QP, or ferroce, does not have.
#[inline]
pub fn encode_send(
    slot: &impl Slot,
    wr: &IbvSendWr,
    sges: &[Sge],
    limits: &SendLimits,
    ah: impl FnOnce() -> u32,
) -> Result<(), c_int> {
    let (opcode, parts) = operation(&limits.service, wr.opcode)?;
    let flags = flags_of(wr.send_flags)?;
    at_most("num_sge", sges.len() as u64, limits.max_sge.into())?;
    let mut header = SendWqe::new(wr.wr_id, opcode, flags | limits.always);
    // Only what the operation uses is read: the unions of the request hold whatever the application
    // left there.
    if opcode == wqe::OP_BIND_MW {
        set_bind(&mut header, wr, slot.keys(wr))?;
    } else if limits.service.protocol == Protocol::Datagram {
        let (qpn, qkey) = wr.datagram();
        header.set_destination(ah(), qpn, qkey);
    } else if parts.has(Parts::OPERANDS) {
        let (addr, rkey, mut operands) = wr.atomic();
        if opcode == wqe::OP_ATOMIC_FETCH_AND_ADD {
            operands.swap = 0;
        }
        header.set_remote(addr, rkey);
        header.set_atomic(operands);
    } else if parts.has(Parts::TARGET) {
        let (addr, rkey) = wr.rdma();
        header.set_remote(addr, rkey);
    }
    if opcode != wqe::OP_BIND_MW && parts.has(Parts::EXTRA) {
        // Or the key to be invalidated, in the same place.
        header.set_imm(wr.imm_data);
    }
    if matches!(opcode, wqe::OP_BIND_MW | wqe::OP_LOCAL_INV)
        && (!sges.is_empty() || flags & wqe::SEND_INLINE != 0)
    {
        return Err(reject(EINVAL, "BIND_MW and LOCAL_INV carry no data"));
    }
    if flags & wqe::SEND_INLINE == 0 {
        put_list(slot, &mut header, sges, limits)?;
    } else {
        if answered_with_data(opcode) {
            return Err(reject(EINVAL, "no READ or atomic is IBV_SEND_INLINE"));
        }
        put_inline(slot, &mut header, sges.iter().copied(), limits)?;
    }
    slot.put(0, header.as_bytes());
    Ok(())
}

/// The key behind this one: only the low byte is its owner's.
pub fn next_key(key: u32) -> u32 {
    key & !0xff | u32::from((key as u8).wrapping_add(1))
}

/// Fills in what a binding consists of. Its region may be missing if it is to have no bytes.
#[cold]
fn set_bind(
    header: &mut SendWqe,
    wr: &IbvSendWr,
    [window, region]: [Option<u32>; 2],
) -> Result<(), c_int> {
    let info = &wr.bind_info;
    let old_key = window.ok_or_else(|| reject(EINVAL, "BIND_MW names no window"))?;
    if region.is_none() && info.length != 0 {
        return Err(reject(EINVAL, "BIND_MW of a length names no region"));
    }
    header.set_remote(info.addr, wr.mw_rkey);
    header.set_old_key(old_key);
    header.set_bind(Bind {
        length: info.length,
        lkey: region.unwrap_or(0),
        access: info.mw_access_flags,
    });
    Ok(())
}

/// Writes a receive request with the scatter/gather list `sges` into `slot`.
///
/// # Errors
///
/// EINVAL for a list longer than the queue takes.
#[inline]
pub fn encode_recv(
    slot: &impl Slot,
    wr: &IbvRecvWr,
    sges: &[Sge],
    limits: &RecvLimits,
) -> Result<(), c_int> {
    at_most(
        "num_sge of a receive",
        sges.len() as u64,
        limits.max_sge.into(),
    )?;
    let header = RecvWqe {
        wr_id: wr.wr_id,
        num_sge: sges.len() as u32,
        reserved: 0,
    };
    slot.put(0, header.as_bytes());
    slot.put(size_of::<RecvWqe>(), sges.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::layout::MwBindInfo;
    use core::{cell::RefCell, ptr};
    use ferroce_core::service::QpType;
    use zerocopy::FromBytes;

    /// A slot on a plain buffer; `gather` writes the low byte of the address of the piece.
    struct Plain(RefCell<Vec<u8>>);

    impl Plain {
        fn new() -> Self {
            Plain(RefCell::new(vec![0xee; 576]))
        }

        fn send(&self) -> SendWqe {
            SendWqe::read_from_prefix(&self.0.borrow()).unwrap().0
        }

        fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
            self.0.borrow()[at..at + len].to_vec()
        }

        fn untouched(&self) -> bool {
            self.0.borrow().iter().all(|&b| b == 0xee)
        }
    }

    impl Slot for Plain {
        fn put(&self, at: usize, bytes: &[u8]) {
            self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn gather(&self, at: usize, piece: &Sge) {
            self.put(at, &vec![piece.addr as u8; piece.length as usize]);
        }

        fn keys(&self, wr: &IbvSendWr) -> [Option<u32>; 2] {
            // The pointers stand for the keys.
            [wr.mw as u32, wr.bind_info.mr as u32].map(|key| Some(key).filter(|key| *key != 0))
        }
    }

    /// As the encoder itself, for what is no datagram.
    fn encode_send(
        slot: &Plain,
        wr: &IbvSendWr,
        sges: &[Sge],
        limits: &SendLimits,
    ) -> Result<(), c_int> {
        super::encode_send(slot, wr, sges, limits, || panic!("no datagram"))
    }

    fn limits(qp_type: QpType) -> SendLimits {
        SendLimits {
            service: qp_type.service(),
            max_sge: 3,
            max_inline: 40,
            always: 0,
        }
    }

    /// What stands beside a member of four bytes.
    const HIGH: u64 = 0xffff_ffff_0000_0000;

    fn wr(opcode: u8, send_flags: u8) -> IbvSendWr {
        IbvSendWr {
            wr_id: 0x1122_3344_5566_7788,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
            opcode: opcode.into(),
            send_flags: send_flags.into(),
            imm_data: 0xaabb_ccdd,
            wr: [0xdead_0000_beef, HIGH | 0x77, 5, HIGH | 0x78],
            _xrc: u64::MAX,
            mw: 0x1234_5678 as *mut _,
            mw_rkey: 0x1234_5699,
            bind_info: MwBindInfo {
                mr: 0x42 as *mut _,
                addr: 0xabcd_0000,
                length: 0x1_0000_0001,
                mw_access_flags: 2,
            },
        }
    }

    fn sge(addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: 5,
        }
    }

    #[test]
    fn a_write_with_immediate_carries_everything() {
        let slot = Plain::new();
        let list = [sge(0x1000, 7), sge(0x2000, 0), sge(0x3000, u32::MAX)];
        let wr = wr(
            wqe::OP_RDMA_WRITE_WITH_IMM,
            wqe::SEND_SIGNALED | wqe::SEND_FENCE,
        );
        encode_send(&slot, &wr, &list, &limits(QpType::Rc)).unwrap();
        let got = slot.send();
        assert_eq!(got.wr_id, 0x1122_3344_5566_7788);
        assert_eq!(got.opcode, 1);
        assert_eq!(got.flags, 3);
        assert_eq!(got.count, 3);
        assert_eq!((got.remote_addr(), got.rkey()), (0xdead_0000_beef, 0x77));
        assert_eq!(got.imm(), 0xaabb_ccdd);
        assert!(got.uses_only(Parts::of(1).unwrap()));
        assert_eq!(slot.bytes(48, 48), list.as_bytes());
        assert_eq!(slot.bytes(96, 1), [0xee]);
    }

    #[test]
    fn a_send_does_not_leak_what_stands_in_the_unions() {
        let slot = Plain::new();
        encode_send(&slot, &wr(wqe::OP_SEND, 0), &[], &limits(QpType::Rc)).unwrap();
        let got = slot.send();
        assert!(got.uses_only(Parts::NONE));
        assert_eq!((got.opcode, got.flags, got.count), (2, 0, 0));

        encode_send(
            &slot,
            &wr(wqe::OP_RDMA_READ, 0),
            &[sge(1, 1)],
            &limits(QpType::Rc),
        )
        .unwrap();
        let got = slot.send();
        assert_eq!(
            (got.remote_addr(), got.rkey(), got.imm()),
            (0xdead_0000_beef, 0x77, 0)
        );
    }

    #[test]
    fn an_atomic_operation_has_its_operands() {
        for (opcode, swap) in [
            (wqe::OP_ATOMIC_CMP_AND_SWP, 5),
            (wqe::OP_ATOMIC_FETCH_AND_ADD, 0),
        ] {
            let slot = Plain::new();
            encode_send(
                &slot,
                &wr(opcode, 0),
                &[sge(0x1000, 8)],
                &limits(QpType::Rc),
            )
            .unwrap();
            let got = slot.send();
            assert_eq!((got.remote_addr(), got.rkey()), (0xdead_0000_beef, 0x78));
            assert_eq!(got.atomic().compare_add, HIGH | 0x77);
            assert_eq!(got.atomic().swap, swap);
            assert!(got.uses_only(Parts::of(opcode).unwrap()));
        }
    }

    #[test]
    fn an_inline_message_is_gathered_into_the_slot() {
        let slot = Plain::new();
        let list = [sge(1, 3), sge(2, 0), sge(3, 37)];
        encode_send(
            &slot,
            &wr(wqe::OP_SEND, wqe::SEND_INLINE),
            &list,
            &limits(QpType::Rc),
        )
        .unwrap();
        let got = slot.send();
        assert_eq!(got.count, 40);
        assert_eq!(got.flags, wqe::SEND_INLINE);
        let mut want = vec![1; 3];
        want.extend([3; 37]);
        assert_eq!(slot.bytes(48, 40), want);
        assert_eq!(slot.bytes(88, 1), [0xee]);
    }

    #[test]
    fn an_inline_message_too_long_is_refused_even_if_its_length_overflows() {
        let slot = Plain::new();
        let inline = wr(wqe::OP_SEND, wqe::SEND_INLINE);
        assert_eq!(
            encode_send(&slot, &inline, &[sge(1, 41)], &limits(QpType::Rc)),
            Err(EINVAL)
        );
        // The sum is 16 in 32 bits.
        let list = [sge(1, 1 << 31), sge(1, 1 << 31), sge(1, 16)];
        assert_eq!(
            encode_send(&slot, &inline, &list, &limits(QpType::Rc)),
            Err(EINVAL)
        );
        assert!(slot.untouched());
    }

    #[test]
    fn what_the_queue_does_not_take_is_refused() {
        let slot = Plain::new();
        let check =
            |wr: &IbvSendWr, list: &[Sge]| encode_send(&slot, wr, list, &limits(QpType::Rc));
        assert_eq!(
            check(&wr(wqe::OP_SEND, 0), &[sge(0, 0); 4]),
            Err(EINVAL),
            "list too long"
        );
        assert_eq!(
            check(&wr(wqe::OP_RDMA_READ, wqe::SEND_INLINE), &[]),
            Err(EINVAL),
            "inline read"
        );
        assert_eq!(
            check(&wr(wqe::OP_ATOMIC_FETCH_AND_ADD, wqe::SEND_INLINE), &[]),
            Err(EINVAL),
            "inline atomic"
        );
        assert_eq!(
            check(&wr(wqe::OP_SEND, 1 << 4), &[]),
            Err(EINVAL),
            "IP checksum"
        );
        let mut high = wr(wqe::OP_SEND, 0);
        high.send_flags = 1 << 8;
        assert_eq!(check(&high, &[]), Err(EINVAL), "flag beyond a byte");
        for number in 10..=15 {
            assert_eq!(check(&wr(number, 0), &[]), Err(EOPNOTSUPP), "{number}");
        }
        let mut odd = wr(wqe::OP_SEND, 0);
        for number in [16, 255, 256 + 2, u32::MAX] {
            odd.opcode = number;
            assert_eq!(check(&odd, &[]), Err(EINVAL), "{number}");
        }
        assert!(slot.untouched());
    }

    #[test]
    fn a_datagram_names_its_handle_by_number() {
        let slot = Plain::new();
        let limits = limits(QpType::Ud);
        let mut send = wr(wqe::OP_SEND_WITH_IMM, 0);
        send.wr[1] = zerocopy::transmute!([0x77, 0x88]);
        super::encode_send(&slot, &send, &[sge(1, 1)], &limits, || 0x99).unwrap();
        let got = slot.send();
        assert_eq!((got.ah(), got.destination()), (0x99, [0x77, 0x88]));
        assert_eq!(got.imm(), 0xaabb_ccdd);
        let write = wr(wqe::OP_RDMA_WRITE, 0);
        let refused = super::encode_send(&slot, &write, &[], &limits, || 0);
        assert_eq!(refused, Err(EOPNOTSUPP));
    }

    #[test]
    fn what_the_type_does_not_have_is_refused() {
        let slot = Plain::new();
        let post = |opcode| encode_send(&slot, &wr(opcode, 0), &[], &limits(QpType::Uc));
        assert_eq!(post(wqe::OP_RDMA_READ), Err(EOPNOTSUPP));
        assert!(slot.untouched());
        for opcode in wqe::OP_RDMA_WRITE..wqe::OP_RDMA_READ {
            assert_eq!(post(opcode), Ok(()));
        }
    }

    #[test]
    fn a_binding_has_both_keys_of_the_window() {
        let slot = Plain::new();
        let bind = wr(wqe::OP_BIND_MW, wqe::SEND_FENCE);
        encode_send(&slot, &bind, &[], &limits(QpType::Rc)).unwrap();
        let got = slot.send();
        assert_eq!((got.opcode, got.flags, got.count), (8, wqe::SEND_FENCE, 0));
        assert_eq!((got.old_key(), got.rkey()), (0x1234_5678, 0x1234_5699));
        assert_eq!(got.remote_addr(), 0xabcd_0000);
        let want = Bind {
            length: 0x1_0000_0001,
            lkey: 0x42,
            access: 2,
        };
        assert_eq!(got.bind(), want);
        assert!(got.uses_only(Parts::of(wqe::OP_BIND_MW).unwrap()));
    }

    #[test]
    fn a_binding_of_nothing_needs_no_region() {
        let slot = Plain::new();
        let mut bind = wr(wqe::OP_BIND_MW, 0);
        bind.bind_info.mr = ptr::null_mut();
        assert_eq!(
            encode_send(&slot, &bind, &[], &limits(QpType::Rc)),
            Err(EINVAL)
        );
        bind.bind_info.length = 0;
        encode_send(&slot, &bind, &[], &limits(QpType::Rc)).unwrap();
        assert_eq!(slot.send().bind().lkey, 0);
        bind.mw = ptr::null_mut();
        assert_eq!(
            encode_send(&slot, &bind, &[], &limits(QpType::Rc)),
            Err(EINVAL)
        );
    }

    #[test]
    fn what_asks_no_peer_carries_nothing() {
        let slot = Plain::new();
        for op in [wqe::OP_BIND_MW, wqe::OP_LOCAL_INV] {
            let check =
                |wr: &IbvSendWr, list: &[Sge]| encode_send(&slot, wr, list, &limits(QpType::Rc));
            assert_eq!(check(&wr(op, 0), &[sge(1, 1)]), Err(EINVAL));
            assert_eq!(check(&wr(op, wqe::SEND_INLINE), &[]), Err(EINVAL));
        }
        assert!(slot.untouched());
        encode_send(&slot, &wr(wqe::OP_LOCAL_INV, 0), &[], &limits(QpType::Rc)).unwrap();
        let got = slot.send();
        assert_eq!((got.old_key(), got.rkey()), (0xaabb_ccdd, 0));
        encode_send(
            &slot,
            &wr(wqe::OP_SEND_WITH_INV, 0),
            &[sge(1, 1)],
            &limits(QpType::Rc),
        )
        .unwrap();
        assert_eq!((slot.send().old_key(), slot.send().count), (0xaabb_ccdd, 1));
    }

    #[test]
    fn the_owner_of_a_key_has_its_low_byte() {
        assert_eq!(next_key(0x1234_56fe), 0x1234_56ff);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }

    #[test]
    fn a_queue_that_signals_all_sets_the_flag() {
        let slot = Plain::new();
        let limits = SendLimits {
            always: wqe::SEND_SIGNALED,
            ..limits(QpType::Rc)
        };
        encode_send(&slot, &wr(wqe::OP_SEND, wqe::SEND_SOLICITED), &[], &limits).unwrap();
        assert_eq!(slot.send().flags, wqe::SEND_SIGNALED | wqe::SEND_SOLICITED);
    }

    #[test]
    fn a_receive_is_header_and_list() {
        let slot = Plain::new();
        let wr = IbvRecvWr {
            wr_id: 9,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
        };
        let list = [sge(1, 2), sge(3, 4)];
        let limits = |max_sge| RecvLimits { max_sge };
        assert_eq!(encode_recv(&slot, &wr, &list, &limits(1)), Err(EINVAL));
        assert!(slot.untouched());
        encode_recv(&slot, &wr, &list, &limits(2)).unwrap();
        let (got, _) = RecvWqe::read_from_prefix(&slot.bytes(0, 16)).unwrap();
        assert_eq!((got.wr_id, got.num_sge, got.reserved), (9, 2, 0));
        assert_eq!(slot.bytes(16, 32), list.as_bytes());
    }
}

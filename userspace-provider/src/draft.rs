// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Work requests that are made call by call (`ibv_wr_*`): an operation begins one, setters say what
//! it carries, and the next operation or the end of the list completes it. What goes wrong is
//! remembered, and is the answer in the end.

use crate::refusal::{refuse, reject};
use crate::request::{
    answered_with_data, flags_of, has_operation, put_inline, put_list, SendLimits, Slot,
};
use core::cell::Cell;
use ferroce_core::service::{Protocol, Service};
use ferroce_core::uabi::wqe::{self, Flush, SendWqe, Sge};
use libc::{c_int, EINVAL, EOPNOTSUPP};
use zerocopy::IntoBytes;

/// The bit of an operation in `send_ops_flags` (`enum ibv_qp_create_send_ops_flags`).
const fn bit_of(opcode: u8) -> u64 {
    match opcode {
        wqe::OP_FLUSH => 1 << 11,
        wqe::OP_ATOMIC_WRITE => 1 << 12,
        // So far both enumerations count alike.
        number => 1 << number,
    }
}

/// Whether a type of queue pair has all the operations of `send_ops_flags`.
pub fn has_operations(service: &Service, send_ops_flags: u64) -> bool {
    let all = (0..=wqe::OP_ATOMIC_WRITE)
        .filter(|opcode| has_operation(service, *opcode))
        .fold(0, |all, opcode| all | bit_of(opcode));
    send_ops_flags & !all == 0
}

/// A list of requests that is being made.
#[derive(Clone, Copy, Debug)]
pub struct Drafts {
    /// The index behind those that are complete: the slot of `draft`, if there is one.
    index: u32,
    draft: Option<SendWqe>,
    error: c_int,
}

impl Drafts {
    /// An empty list, whose first request goes to the slot `index`.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            draft: None,
            error: 0,
        }
    }

    /// Something goes wrong: the first of these is the answer in the end.
    pub fn fail(&mut self, error: c_int) {
        if self.error == 0 {
            self.error = error;
        }
    }

    /// Does it if nothing has gone wrong so far; whether that still holds.
    fn attempt(&mut self, what: impl FnOnce(&mut Self) -> Result<(), c_int>) -> bool {
        if self.error == 0 {
            if let Err(error) = what(self) {
                self.error = error;
            }
        }
        self.error == 0
    }

    /// An operation: completes the request before it, and begins another one, whose header `fill`
    /// makes. `slot` is asked for the slots. EOPNOTSUPP if it is not among `operations`, a set as
    /// in `send_ops_flags`. Returns the index of its slot.
    pub fn begin<S: Slot>(
        &mut self,
        operations: u64,
        (opcode, wr_id, wr_flags): (u8, u64, u32),
        limits: &SendLimits,
        slot: impl Fn(u32) -> Result<S, c_int>,
        fill: impl FnOnce(&mut SendWqe),
    ) -> Option<u32> {
        let begun = self.attempt(|list| {
            if operations & bit_of(opcode) == 0 {
                return Err(reject(
                    EOPNOTSUPP,
                    format_args!("the opcode {opcode} is not in the queue pair's send_ops_flags"),
                ));
            }
            // Whether it is inline is said by the setter.
            let flags = flags_of(wr_flags)? & !wqe::SEND_INLINE;
            list.end_draft(&slot)?;
            // There is room for it, and its end needs no more.
            slot(list.index)?;
            let mut header = SendWqe::new(wr_id, opcode, flags | limits.always);
            fill(&mut header);
            list.draft = Some(header);
            Ok(())
        });
        begun.then_some(self.index)
    }

    /// A setter: `put` writes what the request carries into its slot. EINVAL without a request.
    pub fn set<S: Slot>(
        &mut self,
        slot: impl Fn(u32) -> Result<S, c_int>,
        put: impl FnOnce(&S, &mut SendWqe) -> Result<(), c_int>,
    ) {
        self.attempt(|list| {
            let slot = slot(list.index)?;
            put(&slot, list.draft.as_mut().ok_or_else(no_request)?)
        });
    }

    fn end_draft<S: Slot>(&mut self, slot: impl Fn(u32) -> Result<S, c_int>) -> Result<(), c_int> {
        if let Some(header) = self.draft.take() {
            slot(self.index)?.put(0, header.as_bytes());
            self.index = self.index.wrapping_add(1);
        }
        Ok(())
    }

    /// The end of the list: the index behind it, or the first thing that went wrong.
    pub fn finish<S: Slot>(mut self, slot: impl Fn(u32) -> Result<S, c_int>) -> Result<u32, c_int> {
        self.attempt(|list| list.end_draft(slot));
        match self.error {
            0 => Ok(self.index),
            error => Err(error),
        }
    }
}

#[cold]
fn no_request() -> c_int {
    reject(EINVAL, "ibv_wr_set_* before an operation")
}

/// Whether an operation has all that it carries in its header.
fn is_complete(opcode: u8) -> bool {
    matches!(
        opcode,
        wqe::OP_FLUSH | wqe::OP_ATOMIC_WRITE | wqe::OP_BIND_MW | wqe::OP_LOCAL_INV
    )
}

/// The operands of a FLUSH; EINVAL for what none has.
pub fn flush_operands(length: usize, placement: u8, selectivity: u8) -> Result<Flush, c_int> {
    let too_long = |_| {
        refuse(
            EINVAL,
            "length of a FLUSH",
            length as u64,
            0..=u32::MAX.into(),
        )
    };
    let length = u32::try_from(length).map_err(too_long)?;
    if !matches!((placement, selectivity), (1..=3, 0 | 1)) {
        return Err(reject(
            EINVAL,
            format_args!(
                "type {placement} and level {selectivity} of a FLUSH may be 1 to 3 and 0 to 1"
            ),
        ));
    }
    Ok(Flush {
        length,
        placement,
        selectivity,
        ..Flush::default()
    })
}

#[cold]
fn no_data(opcode: u8) -> c_int {
    reject(
        EINVAL,
        format_args!("the opcode {opcode} takes no data of this kind"),
    )
}

/// The setter of scatter/gather lists. EINVAL for an operation that has none.
pub fn set_list(
    slot: &impl Slot,
    header: &mut SendWqe,
    sges: &[Sge],
    limits: &SendLimits,
) -> Result<(), c_int> {
    if is_complete(header.opcode) {
        return Err(no_data(header.opcode));
    }
    put_list(slot, header, sges, limits)
}

/// The setter of inline data. EINVAL for an operation that carries none.
pub fn set_inline(
    slot: &impl Slot,
    header: &mut SendWqe,
    pieces: impl Iterator<Item = Sge> + Clone,
    limits: &SendLimits,
) -> Result<(), c_int> {
    if answered_with_data(header.opcode) || is_complete(header.opcode) {
        return Err(no_data(header.opcode));
    }
    put_inline(slot, header, pieces, limits)
}

/// The setter of a datagram's destination: the number of its address handle, QPN and Q_Key. EINVAL
/// on a connected QP, which has one.
pub fn set_destination(
    header: &mut SendWqe,
    limits: &SendLimits,
    ah: u32,
    qpn: u32,
    qkey: u32,
) -> Result<(), c_int> {
    if limits.service.protocol != Protocol::Datagram {
        return Err(reject(
            EINVAL,
            "ibv_wr_set_ud_addr on a connected queue pair",
        ));
    }
    header.set_destination(ah, qpn, qkey);
    Ok(())
}

/// What a QP keeps of this interface.
pub struct Session {
    /// The operations that it was made for, as in `send_ops_flags`.
    pub operations: u64,
    /// The list that is being made. Callers that touch it hold the lock of the send queue.
    pub list: Cell<Drafts>,
}

impl Session {
    /// Of a QP that was made for these operations.
    pub fn new(operations: u64) -> Self {
        Self {
            operations,
            list: Cell::new(Drafts::new(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::layout::IbvSendWr;
    use core::cell::RefCell;
    use ferroce_core::service::QpType;
    use libc::ENOMEM;
    use zerocopy::FromBytes;

    fn limits() -> SendLimits {
        SendLimits {
            service: QpType::Rc.service(),
            max_sge: 2,
            max_inline: 8,
            always: 0,
        }
    }

    const ALL: u64 = u64::MAX;

    /// Four slots of 96 bytes.
    struct Ring(RefCell<Vec<u8>>);

    struct Place<'a>(&'a Ring, usize);

    impl Ring {
        fn new() -> Self {
            Ring(RefCell::new(vec![0xee; 4 * 96]))
        }

        fn at(&self, index: u32) -> Result<Place<'_>, c_int> {
            match index {
                0..4 => Ok(Place(self, index as usize * 96)),
                _ => Err(ENOMEM),
            }
        }

        fn header(&self, index: usize) -> SendWqe {
            SendWqe::read_from_prefix(&self.0.borrow()[index * 96..])
                .unwrap()
                .0
        }
    }

    impl Slot for Place<'_> {
        fn put(&self, at: usize, bytes: &[u8]) {
            let at = self.1 + at;
            self.0 .0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn gather(&self, at: usize, piece: &Sge) {
            self.put(at, &vec![piece.addr as u8; piece.length as usize]);
        }

        fn keys(&self, _: &IbvSendWr) -> [Option<u32>; 2] {
            unreachable!("of requests that are made at once")
        }
    }

    fn sge(addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: 5,
        }
    }

    fn send(list: &mut Drafts, ring: &Ring, wr_id: u64) {
        let what = (wqe::OP_SEND, wr_id, wqe::SEND_SIGNALED.into());
        list.begin(ALL, what, &limits(), |i| ring.at(i), |_| ());
    }

    fn inline(list: &mut Drafts, ring: &Ring, length: u32) {
        let pieces = [sge(7, length)];
        list.set(
            |i| ring.at(i),
            |slot, header| set_inline(slot, header, pieces.iter().copied(), &limits()),
        );
    }

    #[test]
    fn requests_are_written_one_behind_the_other() {
        let ring = Ring::new();
        let mut list = Drafts::new(1);
        send(&mut list, &ring, 10);
        let sges = [sge(1, 2), sge(3, 4)];
        list.set(
            |i| ring.at(i),
            |slot, header| set_list(slot, header, &sges, &limits()),
        );
        let write = (wqe::OP_RDMA_WRITE, 11, 0);
        list.begin(
            ALL,
            write,
            &limits(),
            |i| ring.at(i),
            |h| h.set_remote(9, 8),
        );
        inline(&mut list, &ring, 8);
        assert_eq!(list.finish(|i| ring.at(i)), Ok(3));
        let first = ring.header(1);
        assert_eq!((first.wr_id, first.opcode, first.count), (10, 2, 2));
        assert_eq!(first.flags, wqe::SEND_SIGNALED);
        assert_eq!(ring.0.borrow()[96 + 48..96 + 80], *sges.as_bytes());
        let second = ring.header(2);
        assert_eq!((second.wr_id, second.count), (11, 8));
        assert_eq!((second.remote_addr(), second.rkey()), (9, 8));
        assert_eq!(second.flags, wqe::SEND_INLINE);
        assert_eq!(ring.0.borrow()[2 * 96 + 48..2 * 96 + 56], [7; 8]);
        // Only these two, and an empty list is none.
        assert_eq!(ring.header(0).wr_id, 0xeeee_eeee_eeee_eeee);
        assert_eq!(ring.header(3).wr_id, 0xeeee_eeee_eeee_eeee);
        assert_eq!(Drafts::new(2).finish(|i| ring.at(i)), Ok(2));
    }

    /// The setter says whether it is inline, whatever the flags say; the last setter counts.
    #[test]
    fn the_setter_decides() {
        let ring = Ring::new();
        let mut list = Drafts::new(0);
        let what = (wqe::OP_SEND, 1, wqe::SEND_INLINE.into());
        list.begin(ALL, what, &limits(), |i| ring.at(i), |_| ());
        inline(&mut list, &ring, 3);
        list.set(
            |i| ring.at(i),
            |slot, header| set_list(slot, header, &[sge(1, 2)], &limits()),
        );
        assert_eq!(list.finish(|i| ring.at(i)), Ok(1));
        assert_eq!((ring.header(0).flags, ring.header(0).count), (0, 1));
    }

    #[test]
    fn the_first_thing_that_goes_wrong_is_the_answer() {
        type Step = fn(&mut Drafts, &Ring);
        let begin = |opcode: u8, flags: u32| {
            move |list: &mut Drafts, ring: &Ring| {
                let most = !bit_of(wqe::OP_SEND_WITH_IMM);
                list.begin(most, (opcode, 1, flags), &limits(), |i| ring.at(i), |_| ());
            }
        };
        type Build<'a> = &'a dyn Fn(&mut Drafts, &Ring);
        let cases: [(Build<'_>, c_int); 6] = [
            (&((|list, ring| inline(list, ring, 1)) as Step), EINVAL),
            (
                &((|list, ring| {
                    send(list, ring, 1);
                    inline(list, ring, 9);
                }) as Step),
                EINVAL,
            ),
            (
                &((|list, ring| (0..5).for_each(|n| send(list, ring, n))) as Step),
                ENOMEM,
            ),
            (&begin(wqe::OP_SEND_WITH_IMM, 0), EOPNOTSUPP),
            (&begin(wqe::OP_SEND, 0x10), EINVAL),
            (&begin(wqe::OP_SEND, 0x100), EINVAL),
        ];
        for (step, error) in cases {
            let ring = Ring::new();
            let mut list = Drafts::new(0);
            step(&mut list, &ring);
            send(&mut list, &ring, 2);
            list.fail(1);
            assert_eq!(list.finish(|i| ring.at(i)), Err(error));
        }
        let ring = Ring::new();
        let mut list = Drafts::new(0);
        begin(wqe::OP_RDMA_READ, 0)(&mut list, &ring);
        inline(&mut list, &ring, 1);
        assert_eq!(list.finish(|i| ring.at(i)), Err(EINVAL));
    }

    #[test]
    fn operands_of_a_flush() {
        let flush = flush_operands(7, 3, 1).unwrap();
        assert_eq!(
            (flush.length, flush.placement, flush.selectivity),
            (7, 3, 1)
        );
        for (length, placement, selectivity) in [(1 << 32, 1, 0), (1, 0, 0), (1, 4, 0), (1, 1, 2)] {
            let refused = flush_operands(length, placement, selectivity);
            assert_eq!(refused.err(), Some(EINVAL));
        }
    }

    #[test]
    fn operations_of_types() {
        let has = |qp_type: QpType, flags| has_operations(&qp_type.service(), flags);
        for bit in 0..64 {
            let of_rc = matches!(bit, 0..=9 | 11 | 12);
            assert_eq!(has(QpType::Rc, 1 << bit), of_rc, "{bit}");
            assert_eq!(has(QpType::Uc, 1 << bit), bit < 4, "{bit}");
        }
        assert!(has(QpType::Rc, 0x7f) && has(QpType::Rc, 0));
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: created, moved through their states, queried, destroyed.

use super::cq::UserCq;
use super::device::{
    Device,
    MAX_QP_WR, //
};
use crate::datapath::connection::Connection;
use crate::datapath::drive;
use crate::datapath::fabric::FABRIC;
use crate::datapath::qp::{
    NewQp,
    Qp, //
};
use crate::datapath::region::DomainId;
use crate::datapath::Turn;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::qp::{
    Access,
    Attributes,
    Capacity,
    Change,
    Created,
    Init,
    Path,
    State, //
};
use crate::sys::ib::udata::Udata;
use crate::sys::ring::Mapping;
use crate::transport::config::{
    Mtu,
    RequesterConfig,
    ResponderConfig,
    MAX_RD_ATOMIC, //
};
use crate::uabi::udata::CreateQpResp;
use crate::uabi::wqe::{
    MAX_INLINE,
    MAX_SGE, //
};
use crate::wire::headers::ack_timeout_ns;
use crate::wire::psn::Psn;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    Mutex, //
};

/// A queue pair of a process.
pub struct UserQp {
    qp: Arc<Qp>,
    /// What the user has set, for queries, and what only later transitions need. The lock orders
    /// the changes of a QP; it is taken before the locks of the data path.
    attributes: Pin<KBox<Mutex<Settings>>>,
    _sq_mapping: Mapping,
    _rq_mapping: Mapping,
}

#[derive(Default)]
struct Settings {
    attributes: Attributes,
}

/// Creates a QP in RESET.
pub fn create(
    device: &Arc<Device>,
    domain: DomainId,
    init: Init<'_, UserCq>,
    udata: &Udata<'_>,
) -> Result<Created<UserQp>> {
    udata.no_request()?;
    let capacity = granted(init.capacity)?;
    let settings = KBox::pin_init(new_mutex!(Settings::default()), GFP_KERNEL)?;
    // The number is published as the last step, when everything else has succeeded.
    let fabric = {
        let rcu = rcu::read_lock();
        FABRIC.get_arc(&rcu).ok_or(ENODEV)?
    };
    let (reserved, number) = fabric.reserve()?;
    let qp = Qp::new(NewQp {
        qp: init.qp,
        number,
        port: device.port.clone(),
        domain,
        send_cq: init.send_cq.cq().clone(),
        recv_cq: init.recv_cq.cq().clone(),
        capacity,
        signal_all: init.signal_all,
    })?;
    let (sq_mapping, sq) = Mapping::new(udata.context(), &qp.sq)?;
    let (rq_mapping, rq) = Mapping::new(udata.context(), &qp.rq)?;
    udata.respond(&CreateQpResp { sq, rq })?;
    reserved.publish(qp.clone());
    Ok(Created {
        qp: UserQp {
            qp,
            attributes: settings,
            _sq_mapping: sq_mapping,
            _rq_mapping: rq_mapping,
        },
        number,
        capacity,
    })
}

/// What a QP gets that asks for `wanted`: at least that, or `EINVAL`.
fn granted(wanted: Capacity) -> Result<Capacity> {
    if wanted.max_send_wr > MAX_QP_WR
        || wanted.max_recv_wr > MAX_QP_WR
        || wanted.max_send_sge > MAX_SGE
        || wanted.max_recv_sge > MAX_SGE
        || wanted.max_inline > MAX_INLINE
    {
        return Err(EINVAL);
    }
    Ok(Capacity {
        max_send_wr: wanted.max_send_wr.max(1).next_power_of_two(),
        max_recv_wr: wanted.max_recv_wr.max(1).next_power_of_two(),
        max_send_sge: wanted.max_send_sge.max(1),
        max_recv_sge: wanted.max_recv_sge.max(1),
        max_inline: wanted.max_inline,
    })
}

impl UserQp {
    /// The QP, as the data path uses it.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Changes state and attributes, all or nothing.
    pub fn modify(&self, change: Change) -> Result {
        let mut settings = self.attributes.lock();
        // The real state decides, not what the user believes it to be; a transition to ERR by an
        // error of the data path may come at any time and wins.
        let from = self.qp.state();
        let to = change.state.unwrap_or(from);
        if !change.allowed(from, to) {
            return Err(EINVAL);
        }
        let next = settings.attributes.changed_by(&change)?;
        match to {
            State::Reset => {
                self.qp.reset();
                *settings = Settings::default();
                return Ok(());
            }
            State::Err => {
                if from == State::Reset {
                    // An error found by the data path leaves a QP in RESET alone, a user does not.
                    self.qp.init(from)?;
                }
                self.fail();
            }
            State::Init => self.qp.init(from)?,
            State::Rtr => {
                let path = change.path.as_ref().ok_or(EINVAL)?;
                self.ready_to_receive(&next, path)?;
            }
            State::Rts if from == State::Rtr => self.ready_to_send(&next)?,
            State::Sqd if from == State::Rts => {
                self.qp.drain(next.notify_drained)?;
                // Whatever was complete already is drained now.
                drive::send_doorbell(&self.qp)?;
            }
            State::Rts | State::Sqd => {
                self.update(from, to, &next, change.path.as_ref())?;
                if from != to {
                    // What was posted while it was drained is sent now.
                    drive::send_doorbell(&self.qp)?;
                }
            }
            State::Sqe => return Err(EOPNOTSUPP()),
        }
        settings.attributes = next;
        Ok(())
    }

    /// Both halves' ways to the peer.
    fn connect(&self, attributes: &Attributes, path: &Path) -> Result<[Connection; 2]> {
        let connect = || {
            Connection::new(
                &self.qp.port.resident,
                self.qp.number,
                attributes.dest_qpn,
                path.clone(),
            )
            .ok_or(EINVAL)
        };
        Ok([connect()?, connect()?])
    }

    fn ready_to_receive(&self, attributes: &Attributes, path: &Path) -> Result {
        let config = ResponderConfig {
            mtu: Mtu::from_bytes(attributes.mtu).ok_or(EINVAL)?,
            rq_psn: Psn::new(attributes.rq_psn),
            max_dest_rd_atomic: attributes.max_dest_rd_atomic,
            min_rnr_timer: attributes.min_rnr_timer,
            allow_read: attributes.access.has(Access::REMOTE_READ),
            allow_write: attributes.access.has(Access::REMOTE_WRITE),
        };
        let [sending, receiving] = self.connect(attributes, path)?;
        self.qp.ready_to_receive(config, sending, receiving)
    }

    fn ready_to_send(&self, attributes: &Attributes) -> Result {
        self.qp.ready_to_send(RequesterConfig {
            mtu: Mtu::from_bytes(attributes.mtu).ok_or(EINVAL)?,
            sq_psn: Psn::new(attributes.sq_psn),
            retry_cnt: attributes.retry_cnt,
            rnr_retry: attributes.rnr_retry,
            ack_timeout_ns: ack_timeout_ns(attributes.timeout),
            max_rd_atomic: attributes.max_rd_atomic,
        })?;
        // What was posted before is sent now.
        drive::send_doorbell(&self.qp)
    }

    /// Changes what may change in RTS and SQD, a new path included.
    fn update(
        &self,
        from: State,
        to: State,
        attributes: &Attributes,
        path: Option<&Path>,
    ) -> Result {
        let connections = match path {
            Some(path) => Some(self.connect(attributes, path)?),
            None => None,
        };
        self.qp.update(from, to, |send, recv| {
            if let Some([sending, receiving]) = connections {
                send.connection = Some(sending);
                recv.connection = Some(receiving);
            }
            send.requester
                .set_retries(attributes.retry_cnt, attributes.rnr_retry);
            send.requester
                .set_ack_timeout(ack_timeout_ns(attributes.timeout));
            send.requester.set_max_rd_atomic(attributes.max_rd_atomic);
            recv.responder.set_min_rnr_timer(attributes.min_rnr_timer);
            recv.responder
                .set_max_dest_rd_atomic(attributes.max_dest_rd_atomic);
            recv.responder.set_access(
                attributes.access.has(Access::REMOTE_READ),
                attributes.access.has(Access::REMOTE_WRITE),
            );
        })
    }

    fn fail(&self) {
        let rcu = rcu::read_lock();
        if let Some(fabric) = FABRIC.get(&rcu) {
            let mut turn = Turn::new(&rcu, fabric);
            self.qp
                .as_arc_borrow()
                .enter_error(&rcu, &mut turn.deferred);
            turn.end();
        }
    }

    /// State, whether it is draining, attributes, capacity, and whether every send is signalled.
    pub fn query(&self) -> (State, bool, Attributes, Capacity, bool) {
        let settings = self.attributes.lock();
        let mut attributes = settings.attributes;
        let draining = self.qp.is_draining();
        let state = self.qp.state();
        if matches!(state, State::Rtr | State::Rts | State::Sqd) {
            self.qp.inspect(|send, recv| {
                attributes.rq_psn = recv.responder.expected_psn().get();
                if state != State::Rtr {
                    attributes.sq_psn = send.requester.next_psn().get();
                }
            });
        }
        (
            state,
            draining,
            attributes,
            self.qp.capacity,
            self.qp.signal_all,
        )
    }

    /// Destroys the QP: the peer hears nothing of it, and nothing completes any more.
    pub fn destroy(self) {
        let fabric = {
            let rcu = rcu::read_lock();
            FABRIC.get_arc(&rcu)
        };
        if let Some(fabric) = fabric {
            fabric.remove(self.qp.number);
        }
        self.qp.shut_down();
    }
}

impl Attributes {
    /// The attributes after `change`, if each value is one that we can serve.
    fn changed_by(&self, change: &Change) -> Result<Attributes> {
        fn set<T: Copy>(to: &mut T, from: Option<T>, valid: impl FnOnce(T) -> bool) -> Result {
            match from {
                Some(value) if !valid(value) => Err(EINVAL),
                Some(value) => {
                    *to = value;
                    Ok(())
                }
                None => Ok(()),
            }
        }
        const ACCESS: u32 = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND
            | Access::OPTIONAL;
        let mut next = *self;
        set(&mut next.access, change.access, |access| {
            access.0 & !ACCESS == 0
        })?;
        set(&mut next.pkey_index, change.pkey_index, |index| index == 0)?;
        set(&mut next.port, change.port, |port| port == 1)?;
        set(&mut next.mtu, change.mtu, |_| true)?;
        set(&mut next.timeout, change.timeout, |timeout| timeout < 32)?;
        set(&mut next.retry_cnt, change.retry_cnt, |count| count < 8)?;
        set(&mut next.rnr_retry, change.rnr_retry, |count| count < 8)?;
        set(&mut next.rq_psn, change.rq_psn, |psn| psn < 1 << 24)?;
        set(&mut next.sq_psn, change.sq_psn, |psn| psn < 1 << 24)?;
        let depth = |depth| depth <= MAX_RD_ATOMIC;
        set(&mut next.max_rd_atomic, change.max_rd_atomic, depth)?;
        set(
            &mut next.max_dest_rd_atomic,
            change.max_dest_rd_atomic,
            depth,
        )?;
        set(&mut next.min_rnr_timer, change.min_rnr_timer, |timer| {
            timer < 32
        })?;
        set(&mut next.dest_qpn, change.dest_qpn, |qpn| qpn < 1 << 24)?;
        set(&mut next.notify_drained, change.notify_drained, |_| true)?;
        if let Some(path) = &change.path {
            next.vector = path.vector;
        }
        Ok(next)
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: created, moved through their states, queried, destroyed; and the counter sets that
//! an administrator binds some of them to (`rdma statistic qp`).
//!
//! [`modify`] has the attributes, and which changes of them are supported; ib_core knows which go
//! with which transition. What a transition does to the queues is in `datapath::qp`.

use crate::core::message::Mtu;
use crate::core::quota::ObjectKind;
use crate::core::service::{
    self,
    Protocol,
    Service, //
};
use crate::core::uabi::udata::{
    CreateQpResp,
    RingMap, //
};
use crate::core::uabi::wqe::{
    inline_room,
    send_stride,
    MAX_INLINE,
    MAX_SGE, //
};
use crate::core::wire::gid::{
    flow_of_connection,
    ipv4, //
};
use crate::datapath::directory::Directory;
use crate::datapath::kernel::PostLocks;
use crate::datapath::path::Path;
use crate::datapath::port::{
    Port,
    MANAGEMENT_QP, //
};
use crate::datapath::post;
use crate::datapath::qp::{
    NewQp,
    Qp,
    ReceiveSource,
    POLL, //
};
use crate::observe::Set;
use crate::sys::ib::event::QpUpcall;
use crate::sys::ib::process::{
    Details,
    Udata, //
};
use crate::sys::ib::qp::{
    AddressVector,
    Attributes,
    Capacity,
    Created,
    Gid,
    IbQpType,
    Owner,
    QpChange,
    QpInit,
    QpState,
    QueuePair,
    Report, //
};
use crate::sys::ib::query::CounterSet;
use crate::sys::ib::wr::{
    RecvWrs,
    SendWrs, //
};
use crate::sys::net::receive::{
    GroupAddress,
    Membership, //
};
use crate::sys::net::Underlay;
use crate::sys::refusal::{
    of_bits,
    refuse,
    within,
    EOPNOTSUPP, //
};
use crate::sys::ring::Mapping;
use crate::sys::table::{
    Published,
    Successor, //
};
use crate::sys::work::{
    Deadline,
    Running, //
};
use crate::verbs::cq::CqObject;
use crate::verbs::device::{
    self,
    AhObject,
    Device,
    Domain,
    ObjectPermit,
    MAX_QP_WR, //
};
use crate::verbs::modify;
use crate::verbs::srq::SrqObject;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    Mutex,
    SetOnce, //
};

/// The row of the table of QP types, if such QPs are served.
fn service_of(kind: IbQpType) -> Option<Service> {
    service::QpType::from_raw(kind.number()).map(service::QpType::service)
}

/// A queue pair. When it is dropped, nothing more is sent to the peer or completed.
pub struct QpObject {
    qp: Published<Qp>,
    /// Its type, which decides how it may be changed.
    kind: IbQpType,
    /// What that type is composed of. The whole row of the table is larger, and with it ib_core
    /// would allocate twice as much.
    protocol: Protocol,
    /// Its netdev.
    underlay: Underlay,
    /// Its timers.
    _timers: (Running<Qp>, Running<Qp, POLL>),
    /// Attributes that the user has set, for queries and later transitions. The lock orders the
    /// changes of a QP; it is taken before the locks of the data path.
    attributes: Pin<KBox<Mutex<Attributes>>>,
    poster: QpPoster,
    _permit: ObjectPermit,
}

/// Who posts to a QP, and by what.
enum QpPoster {
    /// A process, into rings that it maps; the receive ring only if it is the QP's own.
    Process { _sq: Mapping, _rq: Option<Mapping> },
    /// A ULP.
    Kernel(Pin<KBox<PostLocks>>),
}

/// The capacity of a QP for `wanted`: at least that, or `EINVAL`.
fn granted(wanted: Capacity) -> Result<Capacity> {
    for (attribute, value, most) in [
        ("max_send_wr", wanted.max_send_wr, MAX_QP_WR),
        ("max_recv_wr", wanted.max_recv_wr, MAX_QP_WR),
        ("max_send_sge", wanted.max_send_sge, MAX_SGE),
        ("max_recv_sge", wanted.max_recv_sge, MAX_SGE),
        ("max_inline_data", wanted.max_inline, MAX_INLINE),
    ] {
        within(attribute, value, 0..=u64::from(most))?;
    }
    let max_send_sge = wanted.max_send_sge.max(1);
    Ok(Capacity {
        max_send_wr: wanted.max_send_wr.max(1).next_power_of_two(),
        max_recv_wr: wanted.max_recv_wr.max(1).next_power_of_two(),
        max_send_sge,
        max_recv_sge: wanted.max_recv_sge.max(1),
        // What the slots have room for anyway: other devices grant it, and there are programs that
        // rely on that (rdma_xclient).
        max_inline: inline_room(send_stride(max_send_sge, wanted.max_inline)),
    })
}

impl QueuePair for QpObject {
    type Device = Device;
    type Pd = Domain;
    type Cq = CqObject;
    type Srq = SrqObject;
    type Ah = AhObject;

    fn create(
        device: &Device,
        upcall: QpUpcall,
        init: QpInit<'_, Domain, CqObject, SrqObject>,
    ) -> Result<(Self, Created)> {
        let kind = init.kind.number();
        let service =
            service_of(init.kind).ok_or_else(|| refuse(EOPNOTSUPP(), "qp_type", kind, 1..=4))?;
        of_bits(EOPNOTSUPP(), "create_flags", init.flags, 0)?;
        let is_management = init.kind.is_management();
        let (context, service) = match &init.owner {
            Owner::Process(udata) if !is_management => {
                udata.no_request()?;
                (Some(udata.context()?), service)
            }
            Owner::Kernel => (None, service.of_kernel()),
            Owner::Process(_) | Owner::Shared => return Err(EOPNOTSUPP()),
        };
        let mut capacity = granted(init.capacity)?;
        if init.srq.is_some() {
            // Whatever was requested: it has no receive queue.
            capacity.max_recv_wr = 0;
            capacity.max_recv_sge = 0;
        }
        let permit = device.permit(ObjectKind::Qp)?;
        let attributes = KBox::pin_init(new_mutex!(Attributes::default()), GFP_KERNEL_ACCOUNT)?;
        // The number is published last, when everything else has succeeded.
        let directory = Directory::current()?;
        let (reserved, number) = directory.reserve()?;
        let qp = Qp::new(NewQp {
            upcall,
            context,
            number,
            known_as: if is_management { MANAGEMENT_QP } else { number },
            service,
            port: device.port.clone(),
            domain: init.pd.ok_or(EINVAL)?.id,
            send_cq: init.send_cq.ok_or(EINVAL)?.cq.clone(),
            recv_cq: init.recv_cq.ok_or(EINVAL)?.cq.clone(),
            capacity,
            srq: init.srq.map(|srq| srq.srq.clone()),
            signal_all: init.signal_all,
        })?;
        let timers = (Deadline::start(&qp)?, Deadline::start(&qp)?);
        let poster = match &init.owner {
            Owner::Process(udata) => mapped(&qp, udata)?,
            _ => QpPoster::Kernel(KBox::pin_init(PostLocks::new(), GFP_KERNEL)?),
        };
        if is_management {
            device.port.manage_by(number)?;
        }
        let created = Created {
            number: qp.known_as,
            capacity,
        };
        let qp = Self {
            qp: reserved.publish_named(qp),
            kind: init.kind,
            protocol: service.protocol,
            underlay: device.underlay.clone(),
            _timers: timers,
            attributes,
            poster,
            _permit: permit,
        };
        qp.qp.trace_new(kind);
        Ok((qp, created))
    }

    fn modify(&self, change: QpChange) -> Result {
        let mut attributes = self.attributes.lock();
        // The real state decides, not the user's view; a transition to ERR by an error of the data
        // path may come at any time and wins.
        post::settle(&self.qp);
        let from = self.qp.state();
        let to = change.state.unwrap_or(from);
        modify::check(&change, self.kind, from, to)?;
        let next = modify::changed(&attributes, &change)?;
        match to {
            QpState::Reset => {
                self.qp.reset();
                *attributes = Attributes::default();
                return Ok(());
            }
            QpState::Err => {
                if from == QpState::Reset {
                    // A data path error leaves a QP in RESET alone, a user's transition does not.
                    self.qp.init(from)?;
                }
                post::fail(&self.qp);
            }
            QpState::Init => self.qp.init(from)?,
            QpState::Rtr => {
                self.ready_to_receive(&next, change.av.as_ref())?;
            }
            QpState::Rts if from == QpState::Rtr => self.ready_to_send(&next)?,
            QpState::Sqd if from == QpState::Rts => {
                self.qp.drain(next.notify_drained)?;
                // If everything was complete already, it is drained now.
                post::send_doorbell(&self.qp)?;
            }
            QpState::Rts | QpState::Sqd => {
                if from == QpState::Sqe {
                    post::flush_send_error(&self.qp);
                }
                self.update([from, to], &next, change.av.as_ref())?;
                // WQEs posted while it was drained are sent now, and packets in flight use the new
                // timeout.
                post::send_doorbell(&self.qp)?;
            }
            // Only an error leads to SQE: ib_core knows no such transition.
            QpState::Sqe => return Err(EINVAL),
        }
        *attributes = next;
        Ok(())
    }

    fn query(&self) -> Report {
        let settings = self.attributes.lock();
        let mut attributes = *settings;
        post::settle(&self.qp);
        let draining = self.qp.is_draining();
        let state = self.qp.state();
        if matches!(
            state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        ) {
            let (sq_psn, rq_psn) = self.qp.psns();
            attributes.rq_psn = rq_psn;
            if state != QpState::Rtr {
                attributes.sq_psn = sq_psn;
            }
        }
        Report {
            state,
            draining,
            attributes,
            capacity: self.qp.capacity,
            signal_all: self.qp.signal_all,
        }
    }

    fn attach(&self, group: &Gid) -> Result {
        self.qp.port.groups.attach(self.qp.number, group, || {
            Membership::join(
                &self.underlay,
                match ipv4(group) {
                    Some(address) => GroupAddress::V4(address),
                    None => GroupAddress::V6(*group),
                },
            )
        })
    }

    fn detach(&self, group: &Gid) -> Result {
        self.qp.port.groups.detach(self.qp.number, group)
    }

    fn send_doorbell(&self) -> Result {
        post::send_doorbell(&self.qp)
    }

    fn recv_doorbell(&self) -> Result {
        post::receive_doorbell(&self.qp)
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        let (settings, capacity) = (*self.attributes.lock(), self.qp.capacity);
        let now = self.qp.info();
        out.number(c"sq_size", capacity.max_send_wr)?;
        out.number(c"sq_pending", now.pending)?;
        match now.receives {
            Some(left) => {
                out.number(c"rq_size", capacity.max_recv_wr)?;
                out.number(c"rq_left", left)?;
            }
            None => out.word(c"rq", c"shared")?,
        }
        if let Some(is_local) = now.is_local {
            out.word(c"path", if is_local { c"local" } else { c"wire" })?;
        }
        if let Some(port) = now.source_port {
            out.number(c"udp_source_port", port)?;
            out.number(c"path_mtu", settings.mtu)?;
        }
        if self.protocol == Protocol::Reliable {
            out.number(c"timeout", settings.timeout)?;
            out.number(c"retry_cnt", settings.retry_cnt)?;
            out.number(c"rnr_retry", settings.rnr_retry)?;
            out.number(c"max_rd_atomic", settings.max_rd_atomic)?;
            out.word(c"ecn", if now.ecn { c"on" } else { c"off" })?;
        }
        if let Some(window) = now.window {
            out.number(c"congestion_window", window)?;
        }
        Ok(())
    }

    fn post_send(&self, requests: SendWrs<'_, AhObject>) -> Result {
        match &self.poster {
            // The WQEs of a process are in its ring.
            QpPoster::Process { .. } => requests.refuse(EINVAL),
            QpPoster::Kernel(post_locks) => {
                post_locks.post_sends(&self.qp, requests, AhObject::number)
            }
        }
    }

    fn post_recv(&self, requests: RecvWrs) -> Result {
        match &self.poster {
            QpPoster::Process { .. } => requests.refuse(EINVAL),
            QpPoster::Kernel(post_locks) => post_locks.post_receives(&self.qp, requests),
        }
    }
}

/// Offers the rings of a QP to the process, and returns their offsets.
fn mapped(qp: &Qp, udata: &Udata<'_>) -> Result<QpPoster> {
    let context = udata.context()?;
    let (sq_mapping, sq) = Mapping::new(context, &qp.sq)?;
    let (rq_mapping, rq) = match &qp.receives {
        ReceiveSource::Own(rq) => {
            let (mapping, map) = Mapping::new(context, rq)?;
            (Some(mapping), map)
        }
        ReceiveSource::Shared(_) => (None, RingMap::default()),
    };
    udata.respond(&CreateQpResp { sq, rq })?;
    Ok(QpPoster::Process {
        _sq: sq_mapping,
        _rq: rq_mapping,
    })
}

impl QpObject {
    /// The queue pair, as the data path uses it.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The paths to the peer, one for each queue.
    fn paths(&self, attributes: &Attributes, av: &AddressVector) -> Result<[Path; 2]> {
        device::check_connection(&self.underlay, av)?;
        device::check_mtu(&self.underlay, av, attributes.mtu)?;
        let flow = flow_of_connection(self.qp.number, attributes.dest_qpn);
        let resident = &self.qp.port.resident;
        let mut path = Path::new(resident, flow, av).ok_or(EINVAL)?;
        // What has no window cannot slow down.
        if self.protocol == Protocol::Reliable && self.qp.port.ecn.is_on() {
            path.let_mark();
        }
        Ok([path.clone(), path])
    }

    fn ready_to_receive(&self, attributes: &Attributes, av: Option<&AddressVector>) -> Result {
        let paths = match self.protocol {
            Protocol::Datagram => None,
            _ => Some(self.paths(attributes, av.ok_or(EINVAL)?)?),
        };
        self.qp.ready_to_receive(attributes, paths)
    }

    fn ready_to_send(&self, attributes: &Attributes) -> Result {
        // The longest datagram is what the port carries now.
        let longest = Mtu::of_netdev(self.underlay.netdev().mtu());
        self.qp.ready_to_send(attributes, longest)?;
        // WQEs posted before are sent now.
        post::send_doorbell(&self.qp)
    }

    /// Changes what may change in RTS, SQD and SQE, including a new path.
    fn update(
        &self,
        states: [QpState; 2],
        attributes: &Attributes,
        av: Option<&AddressVector>,
    ) -> Result {
        let paths = match av {
            Some(av) => Some(self.paths(attributes, av)?),
            None => None,
        };
        self.qp.update(states, attributes, paths)
    }
}

impl Drop for QpObject {
    fn drop(&mut self) {
        if self.kind.is_management() {
            self.qp.port.without_management();
        }
        if let Ok(directory) = Directory::current() {
            directory.remove(&mut self.qp);
        }
        let is_leaving = self.qp.port.is_leaving() || self.qp.sq.is_taken_away();
        if let (QpPoster::Process { .. }, true) = (&self.poster, is_leaving) {
            // The process has not requested this, and waits.
            post::fail_and_flush(&self.qp);
        }
        // A reader that has found it before finds it in RESET.
        self.qp.end();
    }
}

/// A set of counters. It is created when the first queue pair is bound, so a failure leaves nothing
/// behind.
pub struct CountersObject(SetOnce<SeparateSet>);

struct SeparateSet {
    port: Arc<Port>,
    set: Set,
}

impl CounterSet for CountersObject {
    type Device = Device;
    type Qp = QpObject;

    fn new() -> Self {
        Self(SetOnce::new())
    }

    fn bind(&self, device: &Device, qp: &QpObject) -> Result<u32> {
        if let Some(SeparateSet { set, .. }) = self.0.as_ref() {
            qp.qp().count_in(Successor::new(set.counters().clone())?);
            return Ok(set.number());
        }
        let port = device.port.clone();
        let set = port.all_counters.begin()?;
        let separate = SeparateSet { port, set };
        let counters = Successor::new(separate.set.counters().clone())?;
        let number = separate.set.number();
        // No other bind is in progress.
        self.0.populate(separate);
        qp.qp().count_in(counters);
        Ok(number)
    }

    fn unbind(device: &Device, qp: &QpObject) -> Result {
        let common = device.port.all_counters.common().clone();
        qp.qp().count_in(Successor::new(common)?);
        Ok(())
    }

    fn read(&self, values: &mut [u64]) {
        if let Some(SeparateSet { set, .. }) = self.0.as_ref() {
            set.counters().read(values);
        }
    }
}

impl Drop for SeparateSet {
    fn drop(&mut self) {
        self.port.all_counters.end(&mut self.set);
    }
}

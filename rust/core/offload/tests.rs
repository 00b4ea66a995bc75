// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Tests of the states of a queue, which run in the kernel too.

#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_offload))]
mod offload {
    use super::super::*;

    const NOTHING: OffloadEvent = OffloadEvent::Progress { unsent: false };
    const UNSENT: OffloadEvent = OffloadEvent::Progress { unsent: true };

    fn at(here: u32, in_flight: InFlight) -> SchedPoint<u32> {
        let now = 0;
        SchedPoint {
            here,
            now,
            in_flight,
        }
    }

    fn near(cpu: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Near,
            cpu,
            periods: 0,
        }
    }

    fn far(cpu: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Far,
            cpu,
            periods: 0,
        }
    }

    fn timer(cpu: u32, periods: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Timer,
            cpu,
            periods,
        }
    }

    /// A doorbell of a process without another CPU.
    fn ring(offload: &mut Offload<u32>, here: u32, in_flight: InFlight) -> Decision<u32> {
        offload.doorbell(at(here, in_flight), 0, true, Position::default, |_| None)
    }

    /// Doorbells on CPU 0, for so many WQEs each, until the process streams; CPU 1 may help.
    /// Returns the last decision.
    fn stream(offload: &mut Offload<u32>, in_flight: InFlight, wqes: u32) -> Decision<u32> {
        let mut point = at(0, in_flight);
        for n in 0..16 {
            point.now += 1;
            let taken = n * wqes;
            let decision = offload.doorbell(point, taken, true, Position::default, |_| Some(1));
            if decision != Decision::Send {
                return decision;
            }
            point.now += 1000 * u64::from(wqes);
            if offload.wants_end() {
                offload.served(point.now);
            }
        }
        Decision::Send
    }

    /// An offload state whose worker on CPU 1 is invited: lists need no timer meanwhile.
    fn inviting() -> Offload<u32> {
        let mut offload = Offload::default();
        let decision = stream(&mut offload, InFlight::Nothing, 16);
        assert_eq!(decision, Decision::Invite(far(1)));
        offload
    }

    /// The same after it has taken over.
    fn away() -> Offload<u32> {
        let mut offload = inviting();
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        offload
    }

    /// The same while it waits for packets in flight from CPU 0.
    fn moving() -> Offload<u32> {
        let mut offload = inviting();
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Wait
        );
        offload
    }

    #[test]
    fn events_on_the_cpu_of_a_near_worker_transmit_too() {
        let mut offload = Offload::default();
        assert_eq!(offload.leave(2), near(2));
        let idle = |cpu| at(cpu, InFlight::Awaited);
        assert_eq!(offload.event(idle(2), UNSENT), Decision::Send);
        assert_eq!(offload.event(idle(1), UNSENT), Decision::Nothing);
        // It still runs, and ends the wait.
        assert!(offload.has_worker());
    }

    #[test]
    fn one_cpu_sends_while_packets_are_in_flight() {
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
        // An ACK on another CPU: only if there is something to send.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(offload.event(elsewhere, NOTHING), Decision::Nothing);
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Leave(near(0)));
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Nothing);
        let here = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Near, here, false),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, 1, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        // All is acknowledged.
        assert_eq!(ring(&mut offload, 2, InFlight::Nothing), Decision::Send);
    }

    #[test]
    fn follows_its_process_to_another_cpu() {
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(ring(&mut offload, 2, InFlight::Awaited), Decision::Wait);
        let ack = at(0, InFlight::Nothing);
        assert_eq!(offload.event(ack, NOTHING), Decision::Leave(near(2)));
        // Packets without a guaranteed end: continues on their CPU.
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(
            ring(&mut offload, 2, InFlight::Unbounded),
            Decision::Leave(near(0))
        );
    }

    #[test]
    fn a_cpu_with_other_work_costs_an_invitation() {
        let mut offload = inviting();
        assert!(!offload.has_worker());
        // Everything continues meanwhile.
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(offload.event(ack, NOTHING), Decision::Send);
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, false),
            Decision::Nothing
        );
        assert!(!offload.has_worker());
        assert_eq!(offload.moves().back, 1);
        // It is not invited again soon.
        assert_eq!(
            stream(&mut offload, InFlight::Nothing, 1),
            Decision::Leave(timer(0, 1))
        );
    }

    #[test]
    fn invites_one_cpu_after_the_other() {
        let mut offload = Offload::default();
        let (mut asked, mut point) = ([0; 2], at(0, InFlight::Nothing));
        for number in &mut asked {
            while *number == 0 {
                point.now += 100_000;
                offload.served(point.now);
                let name = |n| {
                    *number = n;
                    None
                };
                let _ = offload.doorbell(point, 0, true, Position::default, name);
                // Polling would last until the next invitation.
                offload.reset();
            }
        }
        assert_eq!(asked, [1, 2]);
    }

    #[test]
    fn moves_when_nothing_is_in_flight() {
        let mut offload = moving();
        assert!(offload.has_worker());
        assert_eq!(offload.moves().away, 1);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Nothing);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(offload.event(ack, UNSENT), Decision::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, ack, true),
            Decision::Nothing
        );
        let last = at(0, InFlight::Nothing);
        assert_eq!(offload.event(last, NOTHING), Decision::Leave(far(1)));
    }

    #[test]
    fn does_not_wait_for_what_need_not_end() {
        let mut offload = inviting();
        let there = at(1, InFlight::Unbounded);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Nothing
        );
        assert!(!offload.has_worker());
        // A move also stops waiting when the end is no longer guaranteed.
        let mut offload = moving();
        let unbounded = at(0, InFlight::Unbounded);
        assert_eq!(offload.event(unbounded, NOTHING), Decision::Leave(near(0)));
    }

    #[test]
    fn a_timer_ends_a_move() {
        let mut offload = moving();
        // A probe is due, on any CPU: it leaves from the CPU of the flight.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            offload.event(elsewhere, OffloadEvent::Deadline),
            Decision::Leave(near(0))
        );
        let there = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Near, there, false),
            Decision::Send
        );
    }

    #[test]
    fn comes_back_when_its_cpu_is_wanted() {
        let mut offload = away();
        let there = at(1, InFlight::Awaited);
        for _ in 0..decision::WANTED_RUNS {
            assert_eq!(
                offload.worker_ran(true, 100, 1, there),
                AfterRun::Again(far(1))
            );
            assert_eq!(
                offload.worker_runs(Worker::Far, there, false),
                Decision::Send
            );
        }
        assert_eq!(
            offload.worker_runs(Worker::Far, there, false),
            Decision::Wait
        );
        assert_eq!(offload.moves().back, 1);
        let last = at(1, InFlight::Nothing);
        assert_eq!(offload.event(last, UNSENT), Decision::Leave(near(0)));
        // A far worker that is still queued is not in charge.
        assert_eq!(
            offload.worker_runs(Worker::Far, last, true),
            Decision::Nothing
        );
        let back = at(0, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Near, back, false),
            Decision::Send
        );
    }

    /// The process needs 1000 ns per WQE.
    #[test]
    fn comes_back_when_requests_wait_longer_than_they_need() {
        let mut offload = away();
        let mut there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_ran(true, 64, 1, there),
            AfterRun::Again(far(1))
        );
        // The process is the slow one, or neither is.
        for (took, time) in [(decision::JUDGED - 1, 1_000_000), (100, 150_000)] {
            there.now += time;
            assert_eq!(
                offload.worker_runs(Worker::Far, there, true),
                Decision::Send
            );
            assert_eq!(
                offload.worker_ran(true, took, 1, there),
                AfterRun::Again(far(1))
            );
        }
        there.now += 150_200;
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(
            offload.worker_ran(true, 100, 1, there),
            AfterRun::MoveBack(Decision::Leave(near(0)))
        );
        assert_eq!(offload.moves().back, 1);
    }

    #[test]
    fn a_far_worker_lingers_and_then_rests() {
        let mut offload = away();
        let there = at(1, InFlight::Nothing);
        for _ in 0..decision::IDLE_RUNS {
            assert_eq!(
                offload.worker_runs(Worker::Far, there, true),
                Decision::Send
            );
            assert_eq!(
                offload.worker_ran(false, 0, 1, there),
                AfterRun::Again(far(1))
            );
        }
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, 1, there), AfterRun::Rest);
        assert_eq!(offload.rest(true), Some(far(1)));
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, 1, there), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
    }

    /// An offload state that polls on CPU 0, without another CPU.
    fn polling() -> Offload<u32> {
        let mut offload = Offload::default();
        let mut point = at(0, InFlight::Nothing);
        for _ in 1..8 {
            point.now += 1;
            let decision = offload.doorbell(point, 0, true, Position::default, |_| None);
            assert_eq!(decision, Decision::Send);
            point.now += 1000;
            if offload.wants_end() {
                offload.served(point.now);
            }
        }
        let decision = offload.doorbell(point, 0, true, Position::default, |_| None);
        assert_eq!(decision, Decision::Leave(timer(0, 1)));
        assert_eq!(offload.moves().polled, 1);
        offload
    }

    #[test]
    fn polls_for_who_streams_and_has_no_other_cpu() {
        let mut offload = polling();
        assert!(offload.has_worker());
        let here = at(0, InFlight::Awaited);
        // An ACK may transmit here; on another CPU it leaves that to the timer.
        assert_eq!(offload.event(here, UNSENT), Decision::Send);
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Nothing);
        assert_eq!(
            offload.event(elsewhere, OffloadEvent::Deadline),
            Decision::Nothing
        );
        let polls = [
            (20, 1),
            (0, 2),
            (0, 4),
            (50, 1),
            (0, 2),
            (0, 4),
            (0, 8),
            (0, 16),
        ];
        for (took, periods) in polls {
            assert_eq!(
                offload.worker_runs(Worker::Timer, here, false),
                Decision::Send
            );
            assert_eq!(
                offload.worker_ran(false, took, 1, here),
                AfterRun::Again(timer(0, periods))
            );
        }
        // The process waits for something.
        assert_eq!(
            offload.worker_runs(Worker::Timer, here, false),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, 1, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        // A timer that is still armed finds nothing to do.
        assert_eq!(
            offload.worker_runs(Worker::Timer, here, false),
            Decision::Nothing
        );
        // It has helped: the next doorbell resumes.
        assert!(offload.polling_backoff.is_over(0));
        assert_eq!(
            ring(&mut offload, 0, InFlight::Awaited),
            Decision::Leave(timer(0, 1))
        );
        assert_eq!(offload.moves().polled, 2);
        // Not so when that was a lone message.
        for took in [1, 0, 0, 0, 0] {
            let after = offload.worker_ran(false, took, 1, here);
            assert!(matches!(after, AfterRun::Again(_)));
        }
        assert_eq!(offload.worker_ran(false, 0, 1, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
    }

    #[test]
    fn tells_what_a_worker_on_another_cpu_has_shown() {
        let mut offload = inviting();
        assert_eq!(offload.take_verdict(), None);
        let there = at(1, InFlight::Nothing);
        let _ = offload.worker_runs(Worker::Far, there, false);
        assert_eq!(offload.take_verdict(), Some((1, HelperVerdict::Declines)));
        assert_eq!(offload.take_verdict(), None);
        // What need not end is no fault of that CPU.
        let mut offload = inviting();
        let _ = offload.worker_runs(Worker::Far, at(1, InFlight::Unbounded), true);
        assert_eq!(offload.take_verdict(), None);
    }

    /// Runs of the far worker, the first of which fetch `took` WQEs each, until it rests.
    fn far_until_rest(offload: &mut Offload<u32>, took: u32) {
        let there = at(1, InFlight::Nothing);
        for run in 0.. {
            let took = if run < 8 { took } else { 0 };
            if offload.worker_ran(false, took, 1, there) == AfterRun::Rest {
                break;
            }
        }
        assert_eq!(offload.rest(false), None);
    }

    #[test]
    fn a_stream_on_another_cpu_resumes_with_an_invitation() {
        let invited = |offload: &mut Offload<u32>| {
            let point = at(0, InFlight::Nothing);
            offload.doorbell(point, 0, true, Position::default, |_| Some(1))
        };
        let mut offload = away();
        far_until_rest(&mut offload, 8);
        assert_eq!(offload.take_verdict(), Some((1, HelperVerdict::Helps)));
        assert_eq!(invited(&mut offload), Decision::Invite(far(1)));
        // Too little to be a stream.
        let mut offload = away();
        far_until_rest(&mut offload, 7);
        assert_eq!(invited(&mut offload), Decision::Send);
    }

    /// An offload state that polls on CPU 0 while a worker on CPU 1 is invited.
    fn polling_and_inviting() -> Offload<u32> {
        let mut offload = Offload::default();
        assert_eq!(
            stream(&mut offload, InFlight::Nothing, 1),
            Decision::LeaveInviting(timer(0, 1), far(1))
        );
        assert!(offload.has_worker());
        offload
    }

    #[test]
    fn polls_until_an_invited_worker_takes_over() {
        // Polling does not end to invite again.
        let mut offload = polling_and_inviting();
        let here = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_ran(false, 9, 1, here),
            AfterRun::Again(timer(0, 1))
        );
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(offload.sender(), SenderKind::Far);
        // The timer is still armed.
        assert_eq!(
            offload.worker_runs(Worker::Timer, here, false),
            Decision::Nothing
        );
        // What the timer has sent must arrive first.
        let mut offload = polling_and_inviting();
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Wait
        );
        let last = at(0, InFlight::Nothing);
        assert_eq!(offload.event(last, UNSENT), Decision::Leave(far(1)));
    }

    #[test]
    fn polls_on_when_an_invited_worker_declines() {
        for (alone, in_flight) in [(false, InFlight::Nothing), (true, InFlight::Unbounded)] {
            let mut offload = polling_and_inviting();
            assert_eq!(
                offload.worker_runs(Worker::Far, at(1, in_flight), alone),
                Decision::Nothing
            );
            assert_eq!(offload.sender(), SenderKind::Polling);
            assert_eq!(offload.take_verdict().is_some(), !alone);
            // It comes once: a queue that is queued still has nothing to say.
            let late = at(1, InFlight::Nothing);
            assert_eq!(
                offload.worker_runs(Worker::Far, late, true),
                Decision::Nothing
            );
            let here = at(0, InFlight::Awaited);
            assert_eq!(
                offload.worker_ran(false, 9, 1, here),
                AfterRun::Again(timer(0, 1))
            );
        }
    }

    #[test]
    fn polls_no_more_where_it_is_of_no_use() {
        // A few WQEs, then the process waits; or one now and then.
        for (took, polls) in [(0, decision::IDLE_POLLS + 1), (1, decision::JUDGED_POLLS)] {
            let mut offload = polling();
            let here = at(0, InFlight::Awaited);
            for _ in 1..polls {
                let after = offload.worker_ran(false, took, 1, here);
                assert!(matches!(after, AfterRun::Again(_)));
            }
            assert_eq!(offload.worker_ran(false, took, 1, here), AfterRun::Rest);
            assert!(!offload.polling_backoff.is_over(0));
        }
    }

    #[test]
    fn what_is_much_or_late_is_left_to_a_worker() {
        let here = at(0, InFlight::Awaited);
        let mut offload = polling();
        for _ in 0..decision::BEHIND_RUNS {
            assert_eq!(
                offload.worker_ran(true, 100, 1, here),
                AfterRun::Again(timer(0, 1))
            );
        }
        assert_eq!(
            offload.worker_ran(true, 0, 1, here),
            AfterRun::Again(near(0))
        );
        assert_eq!(
            offload.worker_runs(Worker::Near, here, false),
            Decision::Send
        );
        let mut offload = polling();
        for _ in 0..decision::IDLE_POLLS {
            let after = offload.worker_ran(false, 0, 1, here);
            assert!(matches!(after, AfterRun::Again(_)));
        }
        assert_eq!(offload.worker_ran(false, 0, 1, here), AfterRun::Rest);
        assert_eq!(offload.rest(true), Some(near(0)));
        // Its CPU has gone offline.
        let mut offload = polling();
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Timer, elsewhere, false),
            Decision::Leave(near(0))
        );
    }

    #[test]
    fn ends_polling_to_invite_again() {
        let mut offload = polling();
        let mut here = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_ran(false, 100, 1, here),
            AfterRun::Again(timer(0, 1))
        );
        here.now += 10_000_000;
        assert_eq!(offload.worker_ran(false, 0, 1, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        offload.stream.forget();
        let decision = stream(&mut offload, InFlight::Nothing, 1);
        assert_eq!(decision, Decision::Leave(timer(0, 1)));
    }

    #[test]
    fn queues_share_the_time_of_a_round() {
        // 100 WQEs of each queue, after three times as long as doorbells for one of them take.
        for (queues, helps) in [(1, false), (2, false), (16, true)] {
            let mut offload = polling();
            let mut here = at(0, InFlight::Awaited);
            let cost = offload.stream.cost();
            here.now += 3 * 100 * cost;
            let _ = offload.worker_ran(false, 100, queues, here);
            for _ in 0..decision::IDLE_POLLS {
                let _ = offload.worker_ran(false, 0, queues, here);
            }
            let _ = offload.worker_ran(false, 0, queues, here);
            assert_eq!(offload.rest(false), None);
            assert_eq!(offload.polling_backoff.is_over(here.now), helps);
        }
    }

    #[test]
    fn nobody_else_sends_for_who_does_not_watch() {
        let mut offload = Offload::default();
        let mut point = at(0, InFlight::Nothing);
        for _ in 0..64 {
            point.now += 1;
            let decision = offload.doorbell(point, 0, false, Position::default, |_| Some(1));
            assert_eq!(decision, Decision::Send);
            assert!(!offload.wants_end());
        }
    }

    #[test]
    fn after_a_reset_nobody_is_in_charge() {
        let mut offload = away();
        offload.reset();
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Nothing
        );
        assert_eq!(ring(&mut offload, 2, InFlight::Awaited), Decision::Send);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Noise against a connection that is in use: everything that a stranger can send who does not know
//! where its PSNs are. Who runs it watches the connection.

use crate::link::Link;
use ferroce_hostile::dice::{Chance, Dice};
use ferroce_hostile::frame::{Hosts, Ib, Outer};
use ferroce_hostile::model::{is_bare, NOTIFICATION};
use ferroce_hostile::Result;

/// Sends `count` frames to the queue pairs `targets`, numbers with commas between; `datagrams` if
/// they are such of UD.
pub fn run(
    link: &Link,
    hosts: &Hosts,
    random: &mut Dice,
    targets: &str,
    datagrams: bool,
    count: u64,
) -> Result<String> {
    let targets: Vec<u32> = targets.split(',').filter_map(|n| n.parse().ok()).collect();
    if targets.is_empty() {
        return Err("no targets".into());
    }
    // Whatever the peer is, this comes from its address or from ours.
    let peer = Outer {
        from: hosts.other,
        ..Outer::new(hosts)
    };
    let mut by_kind = [0u64; 4];
    for n in 0..count {
        let qpn = random.pick(&targets);
        let kind = random.below(4) as usize;
        let opcode = match kind {
            // Those of RC that are not served are requests.
            3 if datagrams => random.below(0x60) as u8,
            3 => match 0x20 + random.below(0xe0) as u8 {
                // These a queue pair of RC takes.
                NOTIFICATION | 0xc0 => 0xff,
                opcode => opcode,
            },
            _ if datagrams => 0x64 + random.below(2) as u8,
            _ => random.below(0x14) as u8,
        };
        let len = if is_bare(opcode) {
            0
        } else {
            random.below(300) as usize
        };
        let mut ib = Ib::new(opcode, qpn, random.psn())
            .with_headers((random.throw(), random.throw() as u32, len as u32))
            .with_payload(len);
        // A stranger does not know the Q_Key.
        ib.deth = ib.deth.map(|_| (random.throw() as u32, qpn));
        let mut outer = peer.clone();
        match kind {
            // From the peer's address, damaged.
            0 => outer.icrc_error = random.throw() as u32 | 1,
            // From an address of our own, perfect but for that.
            1 => outer.from = hosts.us,
            // From the peer's address, cut short or of a wrong form.
            2 => {
                // At least the UDP header stays, or it would not come to the driver.
                let most = (ib.bytes().len() as u64 + 4).min(30);
                outer.udp_len = -(random.below(most) as i32 + 1);
            }
            // From the peer's address, with opcodes that are not served.
            _ => (),
        }
        by_kind[kind] += 1;
        let sent = link.send(&outer.frame(&ib.bytes()));
        sent.map_err(|e| format!("send: {e}"))?;
        if n % 500 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    Ok(format!(
        "flood: {count} packets sent: {} damaged, {} from strangers, {} cut short, {} of opcodes not served",
        by_kind[0], by_kind[1], by_kind[2], by_kind[3]
    ))
}

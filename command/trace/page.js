// SPDX-License-Identifier: GPL-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ROW = 26, TOP = 34;
  const find = (id) => document.getElementById(id);
  const [qp, fold, odd, panel, headers] = ["qp", "fold", "odd", "panel", "headers"].map(find);
  const talks = [...document.querySelectorAll(".talk")];
  const opened = new Set();

  // The state is in the fragment, so that a link shows what its writer saw.
  const state = () => new URLSearchParams(location.hash.slice(1));
  const change = (name, value) => {
    const now = state();
    if (value) now.set(name, value); else now.delete(name);
    history.replaceState(null, "", "#" + now);
    show();
  };

  const isOdd = (row) => row.bad || row.again || row.fate || /NAK/.test(row.label) || row.icrc === "bad";
  const kinds = [...document.querySelectorAll(".kind")];
  const left = (now) => new Set((now.get("without") || "").split("."));

  // Lays the rows of a conversation out: those of a folded run are its first one.
  const layOut = (talk, now) => {
    const rows = data.conversations[talk.dataset.talk].rows;
    const svg = talk.querySelector("svg");
    const without = left(now);
    let y = TOP, last = null;
    for (const g of svg.querySelectorAll(".row")) {
      const row = rows[g.dataset.sel.split("-")[1]];
      const key = talk.dataset.talk + ":" + g.dataset.run;
      const folds = now.get("fold") === "1" && g.dataset.run !== undefined && !opened.has(key);
      const hidden = (folds && last === key) || (now.get("odd") === "1" && !isOdd(row)) || without.has(row.kind);
      g.classList.toggle("hidden", hidden);
      g.style.display = hidden ? "none" : "";
      const label = g.querySelector(".label");
      if (label) label.textContent = folds && g.dataset.folded ? g.dataset.folded : row.label;
      if (hidden) continue;
      last = folds ? key : null;
      g.setAttribute("transform", `translate(0,${y})`);
      g.classList.toggle("chosen", now.get("sel") === g.dataset.sel);
      y += ROW;
    }
    svg.setAttribute("height", y + 10);
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${y + 10}`);
    for (const life of svg.querySelectorAll(".life")) life.setAttribute("y2", y + 10);
  };

  const hex = (value) => typeof value === "number" ? `${value} (0x${value.toString(16)})` : String(value);
  const table = (name, pairs) => {
    const made = document.createElement("table");
    made.createCaption().textContent = name;
    for (const [what, value] of pairs) {
      const line = made.insertRow();
      line.insertCell().textContent = what;
      line.insertCell().textContent = value;
    }
    return made;
  };

  const NUMBERS = new Set(["opcode", "dqpn", "psn", "pkey", "va", "rkey", "qkey", "sqpn", "imm", "syndrome", "qpn", "swap",
    "compare", "original", "invalidated", "service_id", "local_id", "remote_id", "srqn"]);
  const field = ([name, value]) => [name, NUMBERS.has(name) ? hex(value) : String(value)];

  // Everything of an event.
  const tell = (row) => headers.replaceChildren(
    table(row.label, [["at", `${row.time.toFixed(1)} us`], ["remark", row.remark || "none"], ["why", row.why || "nothing failed"]]),
    table(`event ferroce_${row.event} of ${row.task}`, Object.entries(row.fields)));

  // Everything of a packet.
  const describe = (row) => {
    if (row.kind !== "packet") return tell(row);
    const bth = ["opcode", "se", "migreq", "pad", "tver", "pkey", "fecn", "becn", "dqpn", "ackreq", "psn"];
    const seen = Object.entries(row.seen).map(([where, at]) => [where, `${at.toFixed(1)} us`]);
    const parts = [
      table(row.name, [["remark", row.remark || "none"], ["payload", `${row.length} B`], ["ICRC", row.icrc]]),
      table("BTH", bth.map((name) => field([name, row[name]]))),
      ...row.headers.map(([name, fields]) => table(name, Object.entries(fields).map(field))),
    ];
    if (Object.keys(row.told).length) parts.push(table("the module", Object.entries(row.told)));
    if (row.mad) parts.push(table(`MAD ${row.mad.name}`, Object.entries(row.mad).map(field)));
    parts.push(table("network", [["from", row.src], ["to", row.dst], ["UDP source port", row.sport],
      ["VLANs", row.vlans.join(", ") || "none"], ["traffic class", hex(row.traffic_class)], ["hops", row.hops]]));
    parts.push(table("capture", [["frame", row.frame], ["packet of it", `${row.piece + 1} of ${row.pieces}`], ...seen]));
    headers.replaceChildren(...parts);
  };

  const show = () => {
    const now = state();
    qp.value = now.get("qp") || "";
    fold.checked = now.get("fold") === "1";
    odd.checked = now.get("odd") === "1";
    for (const kind of kinds) kind.checked = !left(now).has(kind.value);
    for (const talk of talks) {
      talk.hidden = qp.value !== "" && !talk.dataset.qps.split(" ").includes(qp.value);
      layOut(talk, now);
    }
    const [talk, number] = (now.get("sel") || "").split("-");
    const row = data.conversations[talk] && data.conversations[talk].rows[number];
    panel.hidden = !row;
    document.body.classList.toggle("open", Boolean(row));
    if (row) describe(row);
  };

  const choose = (g) => {
    const talk = g.closest(".talk").dataset.talk;
    if (fold.checked && g.dataset.folded) opened.add(talk + ":" + g.dataset.run);
    change("sel", g.dataset.sel);
  };
  document.addEventListener("click", (event) => {
    const g = event.target.closest(".row");
    if (g) choose(g);
  });
  document.addEventListener("keydown", (event) => {
    const g = event.target.closest && event.target.closest(".row");
    if (event.key === "Escape") change("sel", "");
    else if (g && event.key === "Enter") choose(g);
  });
  qp.addEventListener("change", () => change("qp", qp.value));
  fold.addEventListener("change", () => { opened.clear(); change("fold", fold.checked ? "1" : ""); });
  odd.addEventListener("change", () => change("odd", odd.checked ? "1" : ""));
  for (const kind of kinds) kind.addEventListener("change", () =>
    change("without", kinds.filter((one) => !one.checked).map((one) => one.value).join(".")));
  find("close").addEventListener("click", () => change("sel", ""));
  find("tools").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", show);
  find("tools").hidden = false;
  show();
  const chosen = document.querySelector(".row.chosen");
  if (chosen) chosen.scrollIntoView({block: "center"});
})();

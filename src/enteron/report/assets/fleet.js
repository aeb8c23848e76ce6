// The table of studies: one page of rows at a time, sorted and filtered here.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const size = 50;
  const total = data.study.length;
  const best = data.findings.map((list) => list.reduce((most, item) => Math.max(most, item[1]), -1));
  const text = data.study.map((id, i) => `${id} ${data.device[i] || ""} ${data.month[i] || ""}`.toLowerCase());
  const byId = (id) => document.getElementById(id);
  const [find, state, finding, least] = ["find", "state", "finding", "least"].map(byId);
  for (const [column, label] of Object.entries(data.labels)) finding.add(new Option(label, column));
  let order = [...data.study.keys()];
  let shown = order;
  let page = 0;
  let sorted = { key: "study", down: false };

  const column = (key) => (key === "confidence" ? best : data[key]);
  const natural = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null || a === undefined) return 1; // what is not known comes last
    if (b === null || b === undefined) return -1;
    const result = typeof a === "string" ? natural.compare(a, b) : a - b;
    return sorted.down ? -result : result;
  };
  const sort = () => {
    const values = column(sorted.key);
    order = [...data.study.keys()].sort((a, b) => compare(values[a], values[b]) || a - b);
    for (const button of document.querySelectorAll("[data-sort]")) {
      const mine = button.dataset.sort === sorted.key;
      button.closest("th").setAttribute("aria-sort", mine ? (sorted.down ? "descending" : "ascending") : "none");
    }
    filter();
  };
  const filter = () => {
    const words = find.value.toLowerCase().trim();
    const limit = Number(least.value);
    const label = finding.value === "" ? null : Number(finding.value);
    shown = order.filter((i) => {
      if (words && !text[i].includes(words)) return false;
      if (state.value && data.state[i] !== state.value) return false;
      if (label === null) return limit === 0 || best[i] >= limit;
      return data.findings[i].some((item) => item[0] === label && item[1] >= limit);
    });
    page = 0;
    draw();
  };
  const cell = (row, content, kind) => {
    const td = row.insertCell();
    if (kind) td.className = kind;
    if (content instanceof Node) td.append(content); else td.textContent = content ?? "–";
    return td;
  };
  const chips = (list) => {
    const box = document.createElement("span");
    for (const [label, confidence, events] of [...list].sort((a, b) => b[1] - a[1])) {
      const chip = document.createElement("span");
      chip.className = `fleet-chip l-${label}`;
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      chip.append(swatch, `${data.labels[label]} ${confidence.toFixed(2)} (${events}) `);
      box.append(chip, " ");  // where a line may break
    }
    return box;
  };
  const draw = () => {
    const body = byId("rows");
    body.replaceChildren();
    const first = page * size;
    for (const i of shown.slice(first, first + size)) {
      const row = body.insertRow();
      const finished = data.state[i] === "finished";
      let name = data.study[i];
      if (finished) {
        name = document.createElement("a");
        name.href = `${encodeURIComponent(data.folder[i] ?? data.study[i])}/${data.report}`;
        name.textContent = data.study[i];
      }
      cell(row, name);
      cell(row, data.state[i], finished ? "" : "fleet-stopped");
      cell(row, data.frames[i]?.toLocaleString("en"), "num");
      cell(row, data.device[i]);
      cell(row, data.month[i]);
      cell(row, { 1: "recognised", 0: "not" }[data.complete[i]] ?? "–");
      cell(row, data.gastric[i]?.toFixed(1), "num");
      cell(row, data.bowel[i]?.toFixed(1), "num");
      cell(row, data.findings[i].length ? chips(data.findings[i]) : finished ? "none" : "–");
    }
    const pages = Math.max(1, Math.ceil(shown.length / size));
    byId("shown").textContent = `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} studies`;
    byId("where").textContent = `page ${page + 1} of ${pages}`;
    byId("previous").disabled = page === 0;
    byId("next").disabled = page + 1 >= pages;
  };
  for (const input of [find, state, finding, least]) input.addEventListener("input", filter);
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort;
      sorted = { key, down: sorted.key === key ? !sorted.down : key === "confidence" || key === "frames" };
      sort();
    });
  }
  byId("previous").addEventListener("click", () => { page -= 1; draw(); });
  byId("next").addEventListener("click", () => { page += 1; draw(); });
  sort();
})();

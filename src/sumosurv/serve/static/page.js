"use strict";
// The what-if page: fields made from /schema, predictions from /predict, curves by chart.js. All text from the model is
// set as text, never as markup.

const STEPS = 200, DELAY = 40, MOST_PINNED = 6;
const byId = id => document.getElementById(id);
const state = { schema: null, controls: [], current: null, pinned: [], names: 0, asked: 0, busy: false, timer: 0 };

function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...content);
  return made;
}

// ------------------------------------------------------------------ fields

function stepOf(field) {
  return field.whole ? 1 : Number(((field.high - field.low) / 500).toPrecision(1)) || 1;
}

function numberControl(field, id) {
  const box = element("input", { type: "number", id, step: "any", "aria-describedby": `${id}-remark` });
  const parts = [box];
  let slider = null;
  if (field.low !== null && field.low < field.high) {
    slider = element("input", { type: "range", id: `${id}-slider`, min: field.low, max: field.high,
      step: field.whole ? 1 : "any", "aria-label": `${field.name}, slider` });
    slider.addEventListener("input", () => {
      const value = Number(slider.value);
      box.value = String(field.whole ? value : roundTo(value, stepOf(field), field));
      changed();
    });
    if (!field.whole) slider.addEventListener("keydown", event => {
      const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -20, PageUp: 20 };
      if (!(event.key in moves)) return;
      event.preventDefault();  // a step of any size is no step for the keyboard
      const wanted = Number(slider.value) + moves[event.key] * stepOf(field);
      slider.value = String(Math.min(field.high, Math.max(field.low, wanted)));
      slider.dispatchEvent(new Event("input"));
    });
    parts.unshift(slider);
  }
  box.addEventListener("input", () => { if (slider) slider.value = box.value; changed(); });
  return {
    parts, box,
    range: field.low === null ? "" : `${shortNumber(field.low)} to ${shortNumber(field.high)} in training`,
    set(value) { box.value = String(value); if (slider) slider.value = String(value); },
    usual: field.middle,
    read() {
      const text = box.value.trim();
      return text === "" || !Number.isFinite(Number(text)) ? undefined : Number(text);
    },
    enable(on) { box.disabled = !on; if (slider) slider.disabled = !on; },
  };
}

function roundTo(value, step, field) {
  const near = Number((Math.round(value / step) * step).toPrecision(12));
  return Math.min(field.high, Math.max(field.low, near));
}

function roundDown(value) {  // three digits, never past the data
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return Number((Math.floor(value / unit * (1 + 1e-12)) * unit).toPrecision(12));
}

function choiceControl(field, id) {
  const box = element("select", { id, "aria-describedby": `${id}-remark` });
  field.levels.forEach((level, i) => box.append(element("option", { value: i }, String(level))));
  box.addEventListener("change", changed);
  return {
    parts: [box], box, range: "",
    set(value) { box.selectedIndex = field.levels.indexOf(value); },
    usual: field.levels.length ? field.levels[field.common] : null,
    read() { return box.selectedIndex < 0 ? undefined : field.levels[box.selectedIndex]; },
    enable(on) { box.disabled = !on; },
  };
}

function addField(field, i) {
  const id = `field-${i}`;
  const control = field.kind === "number" ? numberControl(field, id) : choiceControl(field, id);
  const missing = element("input", { type: "checkbox", id: `${id}-missing` });
  missing.addEventListener("change", () => { control.enable(!missing.checked); changed(); });
  const remark = element("p", { class: "remark", id: `${id}-remark` });
  const inputs = element("div", { class: "inputs" }, ...control.parts);
  control.box.setAttribute("aria-label", field.name);
  if (field.missing) inputs.append(element("label", {}, missing, " missing"));
  const fieldset = element("fieldset", {}, element("legend", {}, field.name), inputs);
  if (control.range) fieldset.append(element("p", { class: "range" }, control.range));
  fieldset.append(remark);
  byId("form").append(fieldset);
  Object.assign(control, { field, fieldset, missing, remark });
  state.controls.push(control);
}

function usualValues() {
  for (const control of state.controls) {
    control.missing.checked = control.usual === null;
    control.enable(control.usual !== null);
    if (control.usual !== null) control.set(control.usual);
  }
}

function readForm() {
  const row = {};
  for (const control of state.controls) {
    row[control.field.name] = control.missing.checked ? null : control.read();
    if (row[control.field.name] === undefined) {
      control.remark.textContent = "Enter a number" + (control.field.missing ? ", or mark it as missing." : ".");
      return null;
    }
  }
  return row;
}

// ------------------------------------------------------------------ predictions

function numberOf(id, otherwise) {
  const text = byId(id).value.trim(), value = Number(text);
  return text !== "" && Number.isFinite(value) && value >= 0 ? value : otherwise;
}

function question(rows) {
  const last = state.schema.last_time;
  const end = byId("beyond").checked ? 1.5 * last : last;
  const at = numberOf("at", last), after = numberOf("after", 0);
  const times = Array.from({ length: STEPS + 1 }, (_, k) => end * k / STEPS);
  const all = [...new Set([...times, at, after])].sort((a, b) => a - b);
  const asked = { rows, times: all, after, horizon: numberOf("horizon", last) };
  if (state.schema.band && byId("band").checked) asked.band = 0.95;
  return { asked, end, at };
}

async function predict(asked) {
  const answer = await fetch("/predict", { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify(asked) });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.errors.map(error => `${error.field}: ${error.message}`).join("; "));
  return body;
}

function changed() {
  clearTimeout(state.timer);
  state.timer = setTimeout(update, DELAY);
}

// One question is asked at a time, the newest. Curves alone come first, at once; bands and summaries follow, unless
// something has changed by then.
async function update() {
  state.asked++;
  if (state.busy) return;
  state.busy = true;
  for (let done = 0; done !== state.asked;) {
    done = state.asked;
    const row = readForm();
    if (row === null) continue;
    const pinned = [...state.pinned];
    const { asked, end, at } = question([row, ...pinned.map(one => one.row)]);
    try {
      const curves = await predict({ ...asked, band: null, summaries: false });
      state.current = { row, pinned, answer: curves, end, at };
      showPicture();
      if (done !== state.asked) continue;
      state.current = { row, pinned, answer: await predict(asked), end, at };
      byId("problem").hidden = true;
      showRemarks(state.current.answer.rows[0].remarks);
      show();
      document.body.dataset.answered = String(done);
    } catch (error) {
      byId("problem").textContent = error instanceof TypeError ? "The server does not respond." : error.message;
      byId("problem").hidden = false;
    }
  }
  state.busy = false;
}

function showRemarks(remarks) {
  for (const control of state.controls) {
    const own = remarks.find(remark => remark.field === control.field.name);
    control.remark.textContent = own ? `This value ${own.message}.` : "";
  }
}

// ------------------------------------------------------------------ what is seen

function subjects() {  // those that the answer is about
  const all = [{ name: "current", colour: 0, row: state.current.row }, ...state.current.pinned];
  return all.map((one, i) => ({ ...one, found: state.current.answer.rows[i] }));
}

function viewed() {  // "survival", or the number of a cause
  return byId("view").value || "survival";
}

function valuesOf(found) {
  return viewed() === "survival" ? found.survival : found.incidence[Number(viewed())];
}

function limitsOf(found, end) {
  const own = found[`${viewed() === "survival" ? "survival" : "incidence"}_${end}`];
  return own && viewed() !== "survival" ? own[Number(viewed())] : own;
}

function valueAt(found) {
  return valuesOf(found)[state.current.answer.times.indexOf(state.current.at)];
}

function pictureOf(theme, width) {
  const { answer, end } = state.current, survival = viewed() === "survival";
  const unit = state.schema.unit ? ` (${state.schema.unit})` : "";
  const what = survival ? (state.schema.causes.length ? "probability of no event" : "survival probability")
    : `incidence of ${state.schema.causes[Number(viewed())]}`;
  const series = subjects().map(({ name, colour, found }, i) => ({
    label: name, colour, dash: i ? ["7 4", "2 3", "10 3 2 3"][(i - 1) % 3] : "",
    times: answer.times, values: valuesOf(found),
    low: limitsOf(found, "low"), high: limitsOf(found, "high"),
    mark: survival && found.median ? [found.median, 0.5] : null,
  }));
  const highest = Math.max(...series.map(one => Math.max(...one.values)));
  const top = survival ? 1 : Math.min(1, Math.ceil(11 * highest) / 10 || 0.1);
  const given = answer.after > 0 ? `, given no event until ${shortNumber(answer.after)}` : "";
  return drawChart({ series, end, lastTime: answer.last_time, after: answer.after, xLabel: `time${unit}`,
    yLabel: what, top, theme, width, describe: `Chart of the ${what}${given}.` });
}

function inWords() {
  const { answer, at } = state.current, found = answer.rows[0];
  const unit = state.schema.unit ? ` ${state.schema.unit}` : "", last = answer.last_time;
  const what = viewed() === "survival" ? (state.schema.causes.length ? "no event by" : "survival to")
    : `${state.schema.causes[Number(viewed())]} by`;
  const far = t => t !== null && t > last ? " (extrapolated)" : "";
  const median = found.median === null ? "Median not reached"
    : `Median${state.schema.causes.length ? " time to any event" : ""} ${shortNumber(found.median)}${unit}${far(found.median)}`;
  const given = answer.after > 0 ? `Given no event until ${shortNumber(answer.after)}${unit}. ` : "";
  return `${given}${median}; expected event-free time up to ${shortNumber(answer.horizon)}${unit}: ` +
    `${shortNumber(found.restricted_mean)}${unit}${far(answer.horizon)}; ` +
    `probability of ${what} ${shortNumber(at)}${unit}: ${(100 * valueAt(found)).toFixed(1)}%${far(at)}.`;
}

function theme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function showPicture() {
  byId("picture").replaceChildren(pictureOf(theme(), byId("picture").clientWidth));
}

function show() {
  if (!state.current || state.current.answer.rows[0].median === undefined) return;
  showPicture();
  byId("summary").textContent = inWords();
  showTable();
}

function showTable() {
  const { answer, at } = state.current, what = viewed() === "survival" ? "S" : "incidence";
  const heads = ["subject", "median", `mean up to ${shortNumber(answer.horizon)}`, `${what} at ${shortNumber(at)}`,
    "differs from current in", ""];
  const numeric = i => i >= 1 && i <= 3 ? { class: "number" } : {};
  byId("subjects").tHead.replaceChildren(element("tr", {}, ...heads.map((head, i) =>
    element("th", { scope: "col", ...numeric(i) }, head))));
  const rows = subjects().map((one, i) => {
    const cells = [shortNumber(one.found.median), shortNumber(one.found.restricted_mean),
      `${(100 * valueAt(one.found)).toFixed(1)}%`].map(text => element("td", { class: "number" }, text));
    const differences = Object.keys(one.row).filter(name => one.row[name] !== state.current.row[name])
      .map(name => `${name}: ${one.row[name] === null ? "missing" : one.row[name]}`);
    const last = element("td", {});
    if (i) {
      const remove = element("button", { type: "button", class: "small", "aria-label": `Remove ${one.name}` }, "Remove");
      remove.addEventListener("click", () => unpin(one.name));
      last.append(remove);
    }
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = THEMES[theme()].colours[one.colour];
    return element("tr", {}, element("th", { scope: "row" }, swatch, one.name), ...cells,
      element("td", { class: "differs" }, i ? differences.join(", ") || "nothing" : ""), last);
  });
  byId("subjects").tBodies[0].replaceChildren(...rows);
}

// ------------------------------------------------------------------ pinned subjects, downloads

function pin() {
  const row = readForm();
  if (row === null || state.pinned.length >= MOST_PINNED) return;
  const used = state.pinned.map(one => one.colour);
  const colour = [1, 2, 3, 4, 5, 6].find(number => !used.includes(number));
  state.pinned.push({ name: `subject ${++state.names}`, colour, row });
  byId("pin").disabled = state.pinned.length >= MOST_PINNED;
  update();
}

function unpin(name) {
  state.pinned = state.pinned.filter(one => one.name !== name);
  byId("pin").disabled = false;
  byId("pin").focus();
  update();
}

function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: `${state.schema.name}-${name}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function picture() {
  return new XMLSerializer().serializeToString(pictureOf("light", 760));
}

function savePng() {
  const svg = picture(), image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => save("curves.png", blob));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}

function quoted(value) {
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;  // no formula for a spreadsheet
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function numbers() {
  const { answer } = state.current, causes = state.schema.causes;
  const names = Object.keys(state.current.row);
  const head = ["subject", ...names, "event_free_until", "time", "survival", "survival_low", "survival_high",
    ...causes.map(cause => `incidence_${cause}`), "extrapolated", "median", "horizon", "restricted_mean"];
  const lines = [head];
  for (const { name, row, found } of subjects()) {
    answer.times.forEach((t, k) => lines.push([name, ...names.map(key => row[key] ?? ""), answer.after, t,
      found.survival[k], found.survival_low ? found.survival_low[k] : "",
      found.survival_high ? found.survival_high[k] : "",
      ...causes.map((_, c) => found.incidence[c][k]), t > answer.last_time, found.median ?? "", answer.horizon,
      found.restricted_mean]));
  }
  return lines.map(line => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

// ------------------------------------------------------------------ start

async function start() {
  const schema = await (await fetch("/schema")).json();
  state.schema = schema;
  document.title = `${schema.name}: what if?`;
  byId("title").textContent = `${schema.name}: what if?`;
  const unit = schema.unit ? ` ${schema.unit}` : "";
  byId("about").textContent = `Set covariates and see what the model predicts. Follow-up of its training rows ends at ` +
    `${shortNumber(schema.last_time)}${unit}; later times are extrapolated and shaded.`;
  byId("model").textContent = `${schema.method}, sumosurv ${schema.version}, digest ${schema.digest.slice(0, 16)}…`;
  schema.fields.forEach(addField);
  byId("find-row").hidden = schema.fields.length <= 12;
  if (schema.causes.length) {
    schema.causes.forEach((cause, k) => byId("view").append(element("option", { value: k }, `incidence of ${cause}`)));
    byId("view").append(element("option", { value: "survival" }, "no event of any cause"));
    byId("view-row").hidden = false;
  }
  if (schema.band) {
    byId("band-row").hidden = false;
    byId("band-note").textContent = "The band contains the central 95% of the model's networks and shows how much they disagree. It is " +
      "not a confidence interval, and it is not a range for the event time of one subject.";
  }
  byId("at").value = byId("horizon").value = String(roundDown(schema.last_time));
  usualValues();
  for (const id of ["after", "at", "horizon", "band", "beyond"]) byId(id).addEventListener("input", changed);
  byId("view").addEventListener("change", show);
  byId("find").addEventListener("input", () => {
    const wanted = byId("find").value.toLowerCase();
    for (const control of state.controls) {
      control.fieldset.hidden = !control.field.name.toLowerCase().includes(wanted);
    }
  });
  byId("form").addEventListener("submit", event => event.preventDefault());
  byId("reset").addEventListener("click", () => { usualValues(); update(); });
  byId("pin").addEventListener("click", pin);
  byId("save-svg").addEventListener("click", () => save("curves.svg", new Blob([picture()], { type: "image/svg+xml" })));
  byId("save-png").addEventListener("click", savePng);
  byId("save-csv").addEventListener("click", () => save("numbers.csv", new Blob([numbers()], { type: "text/csv" })));
  addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  await update();
}

start().catch(error => {
  byId("problem").textContent = `The page could not be set up: ${error.message}`;
  byId("problem").hidden = false;
});

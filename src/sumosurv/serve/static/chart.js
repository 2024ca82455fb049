"use strict";
// Draws curves as SVG. Everything is a presentation attribute, so that the picture is whole when it is saved.

const THEMES = {
  light: { paper: "#ffffff", ink: "#1b1f23", soft: "#50585f", grid: "#e3e6e8", shade: "#ececec",
    colours: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07800", "#3A8FC4", "#000000"] },
  dark: { paper: "#14171a", ink: "#eceff1", soft: "#b3bcc4", grid: "#2f373d", shade: "#2a2f33",
    colours: ["#56B4E9", "#F28E4B", "#2FC79B", "#E39BC3", "#E6B93D", "#9AD1F5", "#ffffff"] },
};
const SVG = "http://www.w3.org/2000/svg";

function part(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function shortNumber(value) {
  if (value === null || value === undefined) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  return size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
}

function ticks(end, most) {
  const rough = end / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(k => k * power).find(size => size >= rough);
  const made = [];
  for (let i = 0; i * step <= end * (1 + 1e-9); i++) made.push(Number((i * step).toPrecision(12)));
  return made;
}

/* picture: {series: [{label, colour, dash, times, values, low, high, mark}], end, lastTime, after, yLabel, xLabel, top,
   describe, theme, width} */
function drawChart(picture) {
  const theme = THEMES[picture.theme], width = Math.max(280, picture.width), narrow = width < 480;
  const height = narrow ? 250 : 340, lineHeight = 20;
  const left = 52, right = width - 14, top = 14, bottom = height;
  const full = height + 48 + lineHeight * picture.series.length;
  const svg = document.createElementNS(SVG, "svg");
  const shared = { xmlns: SVG, viewBox: `0 0 ${width} ${full}`, width, height: full, role: "img",
    "aria-label": picture.describe, "font-family": "system-ui, sans-serif", "font-size": 13,
    "data-left": left, "data-right": right, "data-top": top, "data-bottom": bottom, "data-end": picture.end,
    "data-highest": picture.top };
  for (const [key, value] of Object.entries(shared)) svg.setAttribute(key, String(value));
  const x = t => left + (right - left) * t / picture.end;
  const y = p => bottom - (bottom - top) * p / picture.top;
  part(svg, "rect", { x: 0, y: 0, width, height: full, fill: theme.paper });
  if (picture.lastTime < picture.end) {
    const at = x(picture.lastTime), room = right - at;
    part(svg, "rect", { x: at, y: top, width: room, height: bottom - top, fill: theme.shade, "data-part": "beyond" });
    const inside = room > 105;
    part(svg, "text", { x: inside ? at + 5 : at - 5, y: top + 14, fill: theme.soft, "font-size": 12,
      "text-anchor": inside ? "start" : "end" }, inside ? "extrapolated" : "end of follow-up");
  }
  for (const p of ticks(picture.top, 5)) {
    part(svg, "line", { x1: left, x2: right, y1: y(p), y2: y(p), stroke: theme.grid });
    part(svg, "text", { x: left - 7, y: y(p) + 4, fill: theme.ink, "text-anchor": "end" }, shortNumber(p));
  }
  for (const t of ticks(picture.end, narrow ? 4 : 7)) {
    part(svg, "line", { x1: x(t), x2: x(t), y1: bottom, y2: bottom + 5, stroke: theme.ink });
    part(svg, "text", { x: x(t), y: bottom + 19, fill: theme.ink, "text-anchor": "middle" }, shortNumber(t));
  }
  part(svg, "line", { x1: left, x2: right, y1: bottom, y2: bottom, stroke: theme.ink });
  part(svg, "text", { x: (left + right) / 2, y: bottom + 37, fill: theme.ink, "text-anchor": "middle" },
    picture.xLabel);
  part(svg, "text", { x: -(top + bottom) / 2, y: 14, fill: theme.ink, "text-anchor": "middle",
    transform: "rotate(-90)" }, picture.yLabel);
  if (picture.after > 0 && picture.after <= picture.end) {
    part(svg, "line", { x1: x(picture.after), x2: x(picture.after), y1: top, y2: bottom, stroke: theme.soft,
      "stroke-dasharray": "2 4" });
  }
  const spot = (t, p) => `${x(t).toFixed(5)} ${y(p).toFixed(5)}`;
  picture.series.forEach((one, i) => {
    const colour = theme.colours[one.colour % theme.colours.length];
    const shown = one.times.map((t, k) => k).filter(k => one.times[k] <= picture.end);
    if (one.low) {
      const there = shown.map(k => spot(one.times[k], one.high[k]));
      const back = shown.map(k => spot(one.times[k], one.low[k])).reverse();
      part(svg, "path", { d: `M${there.concat(back).join("L")}Z`, fill: colour, "fill-opacity": .18,
        "data-part": "band" });
    }
    part(svg, "path", { d: `M${shown.map(k => spot(one.times[k], one.values[k])).join("L")}`, fill: "none",
      stroke: colour, "stroke-width": 2.4, "stroke-dasharray": one.dash || "none", "data-part": "curve",
      "data-subject": one.label });
    if (one.mark && one.mark[0] <= picture.end) {
      part(svg, "circle", { cx: x(one.mark[0]), cy: y(one.mark[1]), r: 5, fill: colour, stroke: theme.paper,
        "stroke-width": 1.5 });
    }
    const row = bottom + 50 + lineHeight * i;
    part(svg, "line", { x1: left, x2: left + 26, y1: row, y2: row, stroke: colour, "stroke-width": 2.4,
      "stroke-dasharray": one.dash || "none" });
    part(svg, "text", { x: left + 34, y: row + 4, fill: theme.ink }, one.label);
  });
  if (picture.series.some(one => one.mark && one.mark[0] <= picture.end)) {
    part(svg, "text", { x: right, y: bottom + 54, fill: theme.soft, "text-anchor": "end" }, "dot: median");
  }
  return svg;
}

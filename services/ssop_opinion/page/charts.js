// Charts as SVG elements: nothing is ever parsed as markup.
const NS = "http://www.w3.org/2000/svg";
export const LABELS = ["negative", "neutral", "positive"];

export function svg(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

function niceTop(value) {
  const step = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 5, 10].map((factor) => factor * step).find((top) => top >= value) ?? value;
}

export function timeLabel(ms, spanMs) {
  const at = new Date(ms);
  return spanMs > 2 * 86_400_000
    ? at.toLocaleDateString([], { month: "short", day: "numeric" })
    : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

// Stacked counts from the bottom, with the mean score as a line on an axis of its own.
export function seriesChart(summary, width) {
  const height = 260;
  const edge = { left: 44, right: 40, top: 26, bottom: 34 };
  const inner = { width: width - edge.left - edge.right, height: height - edge.top - edge.bottom };
  const { series, since_ms: since, until_ms: until } = summary;
  const top = niceTop(Math.max(1, ...series.map((one) => one.posts)));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "series-name series-said" });
  const worst = series.reduce((a, b) => (b.negative > a.negative ? b : a), series[0]);
  root.append(
    svg("title", { id: "series-name" }, "Posts by sentiment, and their mean score, over time"),
    svg("desc", { id: "series-said" }, `${summary.fresh.posts} posts, ${summary.fresh.negative} of them negative; most negative ones from ${new Date(worst.at_ms).toLocaleString()}: ${worst.negative}.`),
  );
  const y = (count) => edge.top + inner.height * (1 - count / top);
  const yMean = (score) => edge.top + inner.height * (0.5 - score / 10);
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    root.append(
      svg("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: at, y2: at }),
      svg("text", { x: edge.left - 6, y: at + 4, "text-anchor": "end" }, String(top * part)),
      svg("text", { x: width - edge.right + 6, y: at + 4 }, ["−5", "0", "5"][part * 2]),
    );
  }
  const step = inner.width / series.length;
  series.forEach((one, index) => {
    let held = 0;
    const group = svg("g", {});
    group.append(svg("title", {}, `${new Date(one.at_ms).toLocaleString()}: ${LABELS.map((label) => `${one[label]} ${label}`).join(", ")}; mean ${one.mean_score ?? "none"}; ${one.apart} not counted`));
    for (const label of LABELS) {
      if (one[label] === 0) continue;
      const from = y(held + one[label]);
      group.append(svg("rect", { class: label, x: edge.left + index * step + 0.5, y: from, width: Math.max(1, step - 1), height: y(held) - from }));
      held += one[label];
    }
    root.append(group);
  });
  // A gap in the data is a gap in the line.
  let path = "";
  series.forEach((one, index) => {
    if (one.mean_score === null) return;
    const [at, level] = [edge.left + (index + 0.5) * step, yMean(one.mean_score)];
    const follows = index > 0 && series[index - 1].mean_score !== null;
    path += `${follows ? "L" : "M"}${at.toFixed(1)} ${level.toFixed(1)}`;
    root.append(svg("circle", { class: "dot", cx: at, cy: level, r: 1.8 }));
  });
  root.append(svg("path", { class: "mean", d: path }));
  const marks = Math.max(2, Math.min(6, Math.floor(width / 130)));
  for (let index = 0; index <= marks; index += 1) {
    const at = edge.left + (inner.width * index) / marks;
    const anchor = index === 0 ? "start" : index === marks ? "end" : "middle";
    root.append(svg("text", { x: at, y: height - 14, "text-anchor": anchor }, timeLabel(since + ((until - since) * index) / marks, until - since)));
  }
  root.append(svg("text", { x: 4, y: 12 }, "posts"));
  // The legend names the line; the axis is named where there is room.
  if (width > 480) root.append(svg("text", { x: width - 4, y: 12, "text-anchor": "end" }, "mean score"));
  let legend = edge.left + 10;
  for (const label of [...LABELS, "mean"]) {
    root.append(
      label === "mean" ? svg("path", { class: "mean", d: `M${legend} 8h12` }) : svg("rect", { class: label, x: legend, y: 3, width: 10, height: 10 }),
      svg("text", { x: legend + 15, y: 12 }, label),
    );
    legend += 30 + label.length * 6.2;
  }
  return root;
}

// One bar: its length is the number of posts, its parts are the labels.
export function bar(tally, most) {
  const root = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  let at = 0;
  for (const label of LABELS) {
    const width = (100 * tally[label]) / Math.max(1, most);
    if (width) root.append(svg("rect", { class: label, x: at, y: 0, width, height: 10 }));
    at += width;
  }
  return root;
}

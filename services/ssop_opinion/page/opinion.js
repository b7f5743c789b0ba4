// The opinion page. What posts and models write is shown as text and never as markup; the key is in its field alone.
import { bar, LABELS, seriesChart } from "./charts.js";
import { readEvents } from "./events.js";

const $ = (id) => document.getElementById(id);
const REFRESH_MS = 5000;
const LIVE_POSTS = 50;
const PAGE = 25;
const live = new Map();
let isPaused = false;
let timer = 0;
let asked = { query: "", offset: 0 };
let lastSummary = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function list(target, pairs) {
  target.replaceChildren();
  for (const [name, value] of pairs) {
    if (value === undefined || value === null || value === "") continue;
    target.append(element("dt", name), element("dd", String(value)));
  }
}

class PageError extends Error {
  constructor(error) {
    super(`${error.reason}: ${error.message}`);
    this.reason = error.reason;
  }
}

// Of the questions of one kind the newest alone is answered on the page: an older one's answer may come after it.
class Newest {
  #asking = new AbortController();

  begin() {
    this.#asking.abort();
    this.#asking = new AbortController();
    return this.#asking.signal;
  }
}

const watching = new Newest();
const figures = new Newest();
const searching = new Newest();
const opening = new Newest();

async function call(path, options = {}) {
  const headers = { authorization: `Bearer ${$("key").value.trim()}` };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new PageError(told.error ?? { reason: `HTTP ${response.status}`, message: response.statusText });
}

const ask = async (path, signal) => (await call(path, { signal })).json();

function time(ms) {
  return ms ? new Date(ms).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : "";
}

function flagsOf(analysis) {
  const flags = [];
  if (analysis.verdict !== "ok") flags.push([`verdict: ${analysis.verdict}`, "bad"]);
  if (analysis.degraded_level) flags.push([`degraded: level ${analysis.degraded_level}`, "warn"]);
  if (analysis.verdict === "ok" && !analysis.degraded_level) flags.push(["verdict: ok", "good"]);
  return flags;
}

function showFlags(target, flags) {
  target.replaceChildren(...flags.map(([text, kind]) => element(target.tagName === "UL" ? "li" : "span", text, `flag ${kind ?? ""}`)));
}

function value(found) {
  return found === undefined ? "" : typeof found === "string" ? found : JSON.stringify(found);
}

// --- figures

function showTiles(summary) {
  const { fresh, degraded, failed } = summary;
  $("n-posts").textContent = fresh.posts.toLocaleString();
  $("n-negative").textContent = fresh.posts ? `${Math.round((100 * fresh.negative) / fresh.posts)} %` : "–";
  $("n-mean").textContent = fresh.mean_score ?? "–";
  $("n-apart").textContent = (degraded.posts + failed.posts).toLocaleString();
  $("n-apart").className = `figure ${degraded.posts + failed.posts ? "warn" : ""}`;
}

function drawSeries(summary) {
  lastSummary = summary;
  $("series").replaceChildren(seriesChart(summary, Math.max(320, $("series").clientWidth)));
  const rows = summary.series.filter((one) => one.posts || one.apart).map((one) => {
    const row = element("tr");
    row.append(element("td", time(one.at_ms), "time"), ...LABELS.map((label) => element("td", one[label], "number")));
    row.append(element("td", one.mean_score ?? "", "number"), element("td", one.apart, "number"));
    return row;
  });
  $("series-table").tBodies[0].replaceChildren(...rows);
  const counted = summary.posts < summary.total;
  $("coverage").textContent = counted
    ? `Counted are the newest ${summary.posts.toLocaleString()} of ${summary.total.toLocaleString()} records, from ${time(summary.counted_since_ms)} on.`
    : "";
}

function drawBars(target, tallies, field) {
  const most = Math.max(0, ...tallies.map((one) => one.posts));
  target.replaceChildren(...tallies.map((one) => {
    const item = element("li");
    const button = element("button");
    button.type = "button";
    const said = `${one.name || "(none)"}: ${one.posts} posts, ${LABELS.map((label) => `${one[label]} ${label}`).join(", ")}`;
    button.setAttribute("aria-label", `${said}. Search for it.`);
    button.title = said;
    button.append(element("span", one.name || "(none)", "name"), bar(one, most), element("span", one.posts.toLocaleString(), "number"));
    button.addEventListener("click", () => searchFor(`${field}:${one.name}`));
    item.append(button);
    return item;
  }));
}

function showClusters(clusters) {
  $("clusters").tBodies[0].replaceChildren(...clusters.map((one) => {
    const row = element("tr");
    row.append(
      element("td", one.region || "(none)"), element("td", one.product_line || "(none)"), element("td", one.posts, "number"),
      element("td", one.negative, "number"), element("td", one.mean_score ?? "", "number"),
      element("td", [one.entity, one.event_type].filter(Boolean).join(" / ")),
    );
    return row;
  }));
}

// --- alerts

function about(alert) {
  if (alert.kind === "storm") {
    const named = Object.entries(alert.told?.entities ?? {}).map(([name, n]) => `${name || "(none)"} ${n}`).join(", ");
    return `and ${alert.more} more alerts${named ? `: ${named}` : ""}`;
  }
  return [alert.entity || "(no entity)", alert.event_type].filter(Boolean).join(" / ");
}

function alertRow(alert) {
  const row = element("tr");
  row.id = `alert-${alert.id}`;
  if (location.hash === `#alert=${alert.id}`) row.className = "marked";
  const subject = element("td");
  const key = alert.opener || alert.keys.at(-1);
  if (key) {
    const button = element("button", about(alert));
    button.type = "button";
    button.addEventListener("click", () => openRecord(key));
    subject.append(button);
  } else {
    subject.textContent = about(alert);
  }
  const state = element("td");
  const kind = { provisional: "warn", withdrawn: "", expired: "", confirmed: "good", corrected: "warn" }[alert.phase];
  state.append(element("span", alert.phase, `flag ${kind}`));
  if (alert.degraded_posts) state.append(" ", element("span", `degraded: ${alert.degraded_posts}`, "flag warn"));
  if (alert.escalations) state.append(" ", element("span", `escalated ${alert.escalations}×`, "flag bad"));
  const severity = element("td");
  severity.append(element("span", alert.severity, `flag ${{ critical: "bad", warning: "warn" }[alert.severity] ?? ""}`));
  const seen = element("td");
  if (alert.acknowledged_ms) {
    seen.textContent = `${alert.acknowledged_by}, ${time(alert.acknowledged_ms)}`;
  } else if (alert.is_open) {
    const button = element("button", "Acknowledge");
    button.type = "button";
    button.setAttribute("aria-label", `Acknowledge the alert about ${about(alert)}`);
    button.addEventListener("click", () => acknowledge(alert.id, button));
    seen.append(button);
  }
  row.append(element("td", time(alert.opened_ms), "time"), severity, subject, element("td", alert.rule), state, element("td", alert.posts, "number"), seen);
  return row;
}

function showAlerts(alerts) {
  $("alerts").tBodies[0].replaceChildren(...alerts.map(alertRow));
  $("no-alerts").hidden = alerts.length > 0;
  const waiting = alerts.filter((one) => one.is_open && !one.acknowledged_ms).length;
  $("n-alerts").textContent = waiting;
  $("n-alerts").className = `figure ${waiting ? "bad" : ""}`;
}

function showChannels({ channels, is_judged: isJudged }) {
  const flags = channels.map((one) => {
    const parts = [`${one.sent} sent`];
    if (one.pending) parts.push(`${one.pending} waiting`);
    if (one.failed) parts.push(`${one.failed} failed`);
    if (one.dropped) parts.push(`${one.dropped} dropped`);
    if (one.fault) parts.push(one.fault);
    return [`${one.channel}: ${parts.join(", ")}`, one.is_broken || one.dropped || one.failed ? "bad" : one.fault ? "warn" : "good"];
  });
  showFlags($("channels"), flags);
  const broken = channels.filter((one) => one.is_broken).map((one) => `${one.channel} (${one.fault})`);
  const lost = channels.reduce((sum, one) => sum + one.dropped + one.failed, 0);
  const parts = isJudged ? [] : ["No alerts are made: the process that judges posts has a fault."];
  if (broken.length) parts.push(`Nobody is told on ${broken.join(", ")} until it is repaired.`);
  if (lost) parts.push(`${lost} messages about alerts reached nobody.`);
  $("warning").textContent = parts.join(" ");
  $("warning").hidden = !parts.length;
}

async function acknowledge(id, button) {
  button.disabled = true;
  try {
    await call(`/v1/opinion/alerts/${encodeURIComponent(id)}/acknowledge`, { method: "POST" });
    await showEverything();
  } catch (error) {
    $("fault").textContent = error.message;
    button.disabled = false;
  }
}

// --- posts

function postItem(key, text, flags, told) {
  const item = element("li");
  const button = element("button");
  button.type = "button";
  const meta = element("span", undefined, "meta");
  meta.append(...flags.map(([said, kind]) => element("span", said, `flag ${kind ?? ""}`)), element("span", told));
  button.append(element("span", text, "text"), meta);
  button.addEventListener("click", () => openRecord(key));
  item.append(button);
  return item;
}

function recordItem(record) {
  const { fields } = record.analysis;
  const said = [time(record.post.received_ms), fields.main_entity, fields.event_type, fields.sentiment_label, fields.sentiment_score];
  return postItem(record.key, record.post.text, flagsOf(record.analysis), said.filter((one) => one !== undefined && one !== "").join(" · "));
}

function showLive(key, item) {
  const old = live.get(key);
  live.set(key, item);
  if (old?.isConnected) old.replaceWith(item);
  else $("live").prepend(item);
  while ($("live").children.length > LIVE_POSTS) $("live").lastChild.remove();
  for (const known of live.keys()) {
    if (live.size <= LIVE_POSTS) break;
    live.delete(known);
  }
}

const arriving = new Map();

function fieldArrived(event) {
  const fields = arriving.get(event.key) ?? {};
  fields[event.name] = event.value;
  arriving.set(event.key, fields);
  if (arriving.size > 2 * LIVE_POSTS) arriving.delete(arriving.keys().next().value);
  const said = ["main_entity", "event_type", "sentiment_label", "sentiment_score"].map((name) => fields[name]);
  showLive(event.key, postItem(event.key, event.text, [["provisional", "warn"]], said.filter((one) => one !== undefined).join(" · ")));
}

async function watch() {
  const signal = watching.begin();
  while (!signal.aborted) {
    try {
      const response = await call("/v1/opinion/events", { signal });
      $("live-state").textContent = "Watching.";
      for await (const event of readEvents(response)) {
        if (event.type === "lost") $("live-state").textContent = `Watching; ${event.count} events came too fast to show.`;
        if (event.type === "alert") refreshSoon();
        if (isPaused) continue;
        if (event.type === "field") fieldArrived(event);
        if (event.type === "record") {
          arriving.delete(event.record.key);
          showLive(event.record.key, recordItem(event.record));
        }
      }
      $("live-state").textContent = "The stream ended; it is taken up again.";
    } catch (error) {
      if (signal.aborted) return;
      $("live-state").textContent = `Not watching: ${error.message}`;
      if (["KEY_INVALID", "TENANT_UNKNOWN"].includes(error.reason)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

async function openRecord(key) {
  const signal = opening.begin();
  try {
    const { record, frames } = await ask(`/v1/opinion/record?key=${encodeURIComponent(key)}`, signal);
    showRecord(record, frames);
    if (!$("post").open) $("post").showModal();
  } catch (error) {
    if (signal.aborted) return;
    $("fault").textContent = error.message;
  }
}

function showRecord({ post, analysis, key, analysed_ms }, frames) {
  showFlags($("post-flags"), [
    ...flagsOf(analysis),
    ...(analysis.passages ? [[`${analysis.passages} passages`, ""]] : []),
    ...(analysis.cache ? [[`cache: ${analysis.cache}`, ""]] : []),
  ]);
  $("post-text").textContent = post.text;
  list($("post-about"), [
    ["key", key], ["received", time(post.received_ms)], ["posted", time(post.posted_ms)], ["source", post.source],
    ["channel", post.channel], ["region", post.region], ["product line", post.product_line], ["language", post.language],
  ]);
  const began = frames.length ? frames[0].at_ms : 0;
  const arrived = new Map(frames.map((one) => [one.name, one]));
  const names = [...new Set([...frames.map((one) => one.name), ...Object.keys(analysis.fields)])];
  $("post-fields").tBodies[0].replaceChildren(...names.map((name) => {
    const row = element("tr");
    const head = element("th", name);
    head.scope = "row";
    const frame = arrived.get(name);
    const final = value(analysis.fields[name]);
    const first = frame ? value(frame.value) : "";
    row.append(head, element("td", analysis.verdict === "ok" ? final : ""), element("td", first === final && analysis.verdict === "ok" ? "same" : first));
    row.append(element("td", frame ? `+${frame.at_ms - began} ms` : "", "number"));
    return row;
  }));
  $("no-frames").hidden = frames.length > 0;
  const sure = Object.entries(analysis.probabilities ?? {}).map(([name, p]) => `${name} ${p.toFixed(2)}`).join(", ");
  list($("post-decision"), [
    ["request", analysis.request_id], ["tier", analysis.tier], ["model", analysis.model], ["verdict", analysis.verdict],
    ["reason", analysis.reason], ["degraded level", analysis.degraded_level], ["schema", `${analysis.schema_id} ${analysis.schema_hash}`],
    ["first field", analysis.first_field_ms === null ? "" : `${Math.round(analysis.first_field_ms)} ms`],
    ["whole answer", `${Math.round(analysis.total_ms)} ms`], ["analysed", time(analysed_ms)], ["hint", analysis.hint],
    ["event hint", analysis.event_hint], ["probabilities", sure],
    ["tokens", `${analysis.input_tokens} in, ${analysis.output_tokens} out`],
  ]);
}

// --- search

function searchFor(term) {
  $("term").value = term;
  $("text").value = "";
  runSearch();
  $("search").scrollIntoView({ block: "nearest" });
}

async function runSearch(offset = 0) {
  const signal = searching.begin();
  if (offset === 0) {
    const query = new URLSearchParams({ limit: PAGE });
    if ($("text").value.trim()) query.set("text", $("text").value.trim());
    for (const one of $("term").value.split(",").map((part) => part.trim()).filter(Boolean)) query.append("term", one);
    if ($("fresh").checked) query.set("fresh", "1");
    asked = { query: query.toString(), offset: 0 };
  }
  try {
    const { total, records } = await ask(`/v1/opinion/records?${asked.query}&offset=${offset}`, signal);
    asked.offset = offset + records.length;
    const items = records.map(recordItem);
    if (offset === 0) $("results").replaceChildren(...items);
    else $("results").append(...items);
    $("found").textContent = `${total.toLocaleString()} records found.`;
    $("more").hidden = asked.offset >= Math.min(total, 9800) || !records.length;
    $("fault").textContent = "";
  } catch (error) {
    if (signal.aborted) return;
    $("found").textContent = "";
    $("fault").textContent = error.message;
  }
}

// --- all of it

// `isWelcome` is asked when the answers are there: much may have begun since they were asked for.
async function showEverything(isWelcome = () => true) {
  const signal = figures.begin();
  if (!$("key").value.trim()) return;
  const paths = [`/v1/opinion/summary?hours=${$("hours").value}`, "/v1/opinion/alerts", "/v1/opinion/channels"];
  try {
    const [summary, { alerts }, channels] = await Promise.all(paths.map((path) => ask(path, signal)));
    if (!isWelcome()) return;
    showTiles(summary);
    drawSeries(summary);
    drawBars($("entities"), summary.entities, "main_entity");
    drawBars($("events"), summary.events, "event_type");
    showClusters(summary.clusters);
    showAlerts(alerts);
    showChannels(channels);
    $("fault").textContent = "";
    $("state").textContent = `As of ${new Date().toLocaleTimeString()}.`;
  } catch (error) {
    if (signal.aborted) return;
    $("fault").textContent = error.message;
    $("state").textContent = "Not up to date.";
  }
}

let soon = 0;
function refreshSoon() {
  clearTimeout(soon);
  soon = setTimeout(() => showEverything(), 300);
}

// What somebody is about to press must not move away under the finger.
const isIdle = () => !(document.activeElement?.closest("#alerts, .bars") || isPaused || document.hidden);

async function refresh() {
  clearTimeout(timer);
  if (isIdle()) await showEverything(isIdle);
  timer = setTimeout(refresh, REFRESH_MS);
}

async function begin() {
  // What the page asks by itself must not take the place of these questions.
  clearTimeout(timer);
  clearTimeout(soon);
  live.clear();
  arriving.clear();
  $("live").replaceChildren();
  $("results").replaceChildren();
  $("fault").textContent = "";
  const [signal] = [watching, searching, opening].map((one) => one.begin());
  await showEverything();
  if (signal.aborted || !$("key").value.trim() || $("fault").textContent) return;
  watch();
  runSearch();
  clearTimeout(timer);
  timer = setTimeout(refresh, REFRESH_MS);
}

function setTheme(isDark) {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", String(isDark));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches);
dark.addEventListener("change", () => setTheme(dark.matches));
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
$("key").addEventListener("change", begin);
$("hours").addEventListener("change", () => showEverything());
$("search").addEventListener("submit", (event) => { event.preventDefault(); runSearch(); });
$("more").addEventListener("click", () => runSearch(asked.offset));
$("close").addEventListener("click", () => $("post").close());
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
});
window.addEventListener("resize", () => { if (lastSummary) drawSeries(lastSummary); });

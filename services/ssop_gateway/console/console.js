// The console. What the mesh sends is shown as text and never as markup; the key is in the input field and nowhere else.
import { FieldTable, emptyText, pointer, readLines, valueText } from "./frames.js";

const $ = (id) => document.getElementById(id);
const WATCH_MS = 2000;
const EXAMPLES = {
  complaint: {
    type: "object",
    properties: {
      product: { type: "string", maxLength: 40 },
      severity: { type: "integer", minimum: 1, maximum: 5 },
      mood: { enum: ["angry", "disappointed", "neutral"] },
      summary: { type: "string", maxLength: 160 },
    },
    required: ["product", "severity", "mood", "summary"],
    additionalProperties: false,
  },
  opinion: {
    type: "object",
    properties: {
      sentiment: { enum: ["positive", "neutral", "negative"] },
      topics: { type: "array", items: { type: "string", maxLength: 20 }, minItems: 1, maxItems: 3 },
      needs_answer: { type: "boolean" },
    },
    required: ["sentiment", "topics", "needs_answer"],
    additionalProperties: false,
  },
  text: null,
};

let running = null;
let watching = null;
let listing = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function word(value, prefix) {
  return String(value ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ").replace(/^unspecified$/, "");
}

function list(target, pairs) {
  target.replaceChildren();
  for (const [name, value] of pairs) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    target.append(element("dt", name), element("dd", String(value)));
  }
}

function flag(text, kind = "") {
  $("flags").append(element("span", text, `flag ${kind}`));
}

function ms(value) {
  return `${Math.round(Number(value))} ms`;
}

async function call(path, body, signal, accept = "application/json") {
  const headers = { authorization: `Bearer ${$("key").value.trim()}`, accept };
  if (body) headers["content-type"] = "application/x-ssop+json";
  const options = { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body), cache: "no-store" };
  const response = await fetch(path, options);
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new MeshError(told.error ?? { reason: `HTTP ${response.status}`, message: response.statusText });
}

class MeshError extends Error {
  constructor(error) {
    const wait = error.retry_after_ms ? ` (come back in ${ms(error.retry_after_ms)})` : "";
    super(`${error.reason}: ${error.message}${wait}`);
  }
}

function readForm() {
  const body = { prompt: $("prompt").value, model: $("model").value.trim(), max_degraded_level: Number($("level").value) };
  if ($("policy").value !== "auto") body.policy = $("policy").value;
  const names = $("collections").value.split(",").map((name) => name.trim()).filter(Boolean);
  if (names.length) body.collections = names;
  const text = $("schema").value.trim();
  $("schema-fault").textContent = "";
  if (text) {
    try {
      body.output_schema = JSON.parse(text);
    } catch (error) {
      $("schema-fault").textContent = `The schema is no JSON: ${error.message}`;
      $("schema").focus();
      return null;
    }
  }
  return body;
}

function clear() {
  for (const id of ["flags", "decision", "explanation", "passages", "accounting"]) $(id).replaceChildren();
  $("fields").tBodies[0].replaceChildren();
  $("fields").hidden = $("text").hidden = $("no-passages").hidden = true;
  $("fault").textContent = $("text").textContent = "";
}

class AnswerView {
  constructor() {
    this.table = new FieldTable();
    this.began = performance.now();
    this.rows = new Map();
    this.count = 0;
    this.hasEnd = false;
  }

  take(frame) {
    if (frame.error) throw new MeshError(frame.error);
    if (frame.document) return;
    if (frame.header) this.table.add(frame.header);
    else if (frame.decision) showDecision(frame.decision);
    else if (frame.status) showDelivery(frame.status);
    else if (frame.accounting) showAccounting(frame.accounting);
    else if (frame.end) this.end(frame.end);
    else this.value(frame);
  }

  value(frame) {
    const text = valueText(frame) ?? emptyText(frame);
    if (text === undefined) return;
    if (this.table.isText) {
      $("text").hidden = false;
      $("text").textContent += text;
      return;
    }
    const path = pointer(this.table.tokens(frame)) || "/";
    let cells = this.rows.get(path);
    if (cells === undefined) {
      $("fields").hidden = false;
      const row = $("fields").tBodies[0].insertRow();
      row.className = "fresh";
      const head = element("th", path);
      head.scope = "row";
      row.append(head, element("td", "", "value"), element("td", "", "number"));
      cells = row.cells;
      this.rows.set(path, cells);
    }
    cells[1].textContent += text;
    cells[2].textContent = ms(performance.now() - this.began);
    if (frame.kind === "FRAME_KIND_PART") return;
    this.count += 1;
    $("state").textContent = `${this.count} ${this.count === 1 ? "field is" : "fields are"} complete.`;
  }

  end(end) {
    this.hasEnd = true;
    const verdict = word(end.verdict, "VERDICT_");
    flag(`verdict: ${verdict}`, verdict === "ok" ? "good" : "bad");
    if (end.violation) {
      const { rule, pointer: where, expected } = end.violation;
      $("fault").textContent = `The answer breaks the schema: ${rule} at ${where || "the root"}${expected ? `; expected ${expected}` : ""}`;
    } else if (end.incomplete_reason) {
      $("fault").textContent = `The answer was cut: ${word(end.incomplete_reason, "INCOMPLETE_REASON_")}`;
    }
    $("state").textContent = `Done after ${ms(performance.now() - this.began)}: the verdict is ${verdict}.`;
  }
}

function showDecision(decision) {
  const fixed = (value) => (value === undefined ? undefined : Number(value).toFixed(2));
  list($("decision"), [
    ["tier", word(decision.tier, "TIER_")],
    ["because", word(decision.tier_reason, "TIER_REASON_")],
    ["rule", decision.rule],
    ["score", decision.score === undefined ? "" : `${fixed(decision.score)} ± ${fixed(decision.score_spread ?? 0)}, full from ${fixed(decision.threshold)}`],
    ["complexity", fixed(decision.complexity)],
    ["classifier silent", decision.abstention],
    ["weak signals", (decision.weak_signals ?? []).join(", ")],
    ["cascade", word(decision.cascade_reason, "CASCADE_REASON_")],
    ["node", decision.node],
    ["because", word(decision.node_reason, "NODE_REASON_")],
    ["model", decision.model],
    ["one model for both tiers", decision.is_shared_model ? "yes" : ""],
    ["cache", word(decision.cache_reason, "CACHE_REASON_")],
    ["retrieval", word(decision.retrieval_reason, "RETRIEVAL_REASON_")],
    ["policy", decision.policy],
    ["decided in", decision.decision_us === undefined ? "" : `${decision.decision_us} µs`],
    ["request", decision.request_id],
  ]);
}

function showDelivery(status) {
  // A second one comes where another node had to go on, and says everything anew.
  $("flags").replaceChildren();
  $("passages").replaceChildren();
  const level = status.degraded_level ?? 0;
  if (level || status.state === "DELIVERY_STATE_DEGRADED") {
    flag(`degraded: level ${level}, ${word(status.degraded_reason, "DEGRADED_REASON_")}`, "bad");
  } else {
    flag("not degraded", "good");
  }
  if (status.is_cached) flag(`from the cache, ${Math.round(Number(status.age_ms ?? 0) / 1000)} s old`, "warn");
  const mode = word(status.constraint_mode, "CONSTRAINT_MODE_");
  if (mode) flag(`schema held: ${mode}`, mode === "full" ? "good" : "warn");
  for (const name of status.unavailable ?? []) flag(`done without: ${name}`, "warn");
  for (const limit of status.engine_limits ?? []) flag(limit);
  for (const found of status.passages ?? []) {
    const score = Number(found.score ?? 0).toFixed(3);
    $("passages").append(element("li", `${found.collection} / ${found.document_id}, passage ${found.passage ?? 0} (${score})`));
  }
  $("no-passages").hidden = (status.passages ?? []).length > 0;
}

function showAccounting(told) {
  const usage = told.usage ?? {};
  list($("accounting"), [
    ["tokens in", usage.input_tokens],
    ["tokens out", usage.output_tokens],
    ["billed", told.is_billed ? "yes" : "no"],
    ["first field", ms(told.first_field_ms ?? 0)],
    ["whole answer", ms(told.total_ms ?? 0)],
    ["admission", told.admission_ms && ms(told.admission_ms)],
    ["waited for passages", told.retrieval_wait_ms && ms(told.retrieval_wait_ms)],
    ["waited for a slot", told.queue_ms && ms(told.queue_ms)],
    ["prefetches", told.prefetches && `${told.prefetches}, ${told.prefetch_hits ?? 0} used`],
    ["failed attempts", told.failed_attempts],
    ["frames", told.frames_sent],
  ]);
}

// One question at a time: what another one is told would stand among its answer.
async function answer(state, work) {
  const body = readForm();
  if (body === null || running) return;
  clear();
  running = new AbortController();
  $("send").disabled = $("explain").disabled = true;
  $("stop").disabled = false;
  $("state").textContent = state;
  try {
    await work(body, running.signal);
  } catch (error) {
    const isStopped = error.name === "AbortError";
    $("state").textContent = isStopped ? "Stopped." : "It failed.";
    if (!isStopped) $("fault").textContent = error.message;
  } finally {
    running = null;
    $("send").disabled = $("explain").disabled = false;
    $("stop").disabled = true;
  }
}

const ask = () => answer("Asking …", async (body, signal) => {
  const view = new AnswerView();
  const response = await call("/v1/generate", body, signal, "application/x-ndjson");
  for await (const frame of readLines(response)) view.take(frame);
  if (!view.hasEnd) throw new MeshError({ reason: "FRAME_LOSS", message: "the answer was cut" });
});

const explain = () => answer("Explaining …", async (body, signal) => {
  const told = await (await call("/v1/explain", body, signal)).json();
  showDecision(told.decision ?? {});
  for (const line of told.explanation ?? []) $("explanation").append(element("li", line));
  $("state").textContent = "Explained; nothing was generated.";
});

function showNodes(nodes) {
  const body = $("nodes").tBodies[0];
  body.replaceChildren();
  for (const view of nodes) {
    const models = view.status?.models ?? [{}];
    for (const model of models) {
      const row = body.insertRow();
      const gauge = (name) => model[name]?.value ?? 0;
      const state = view.is_ejected ? `ejected: ${view.ejection_reason}` : word(model.state, "MODEL_STATE_") || "unknown";
      const head = element("th", view.status?.node ?? view.address);
      head.scope = "row";
      row.append(head);
      for (const text of [model.model, (model.tiers ?? []).map((tier) => word(tier, "TIER_")).join(", "), state]) {
        row.append(element("td", text ?? ""));
      }
      row.cells[3].className = "flag-text";
      for (const text of [
        `${gauge("slots_busy")}/${model.slots_total ?? 0}`, gauge("queue_length"), Math.round(gauge("output_tokens_per_s")),
        view.in_flight ?? 0, view.status ? ms(view.status_age_ms ?? 0) : "never",
      ]) row.append(element("td", text, "number"));
    }
  }
  $("nodes").hidden = nodes.length === 0;
}

function showMesh(told) {
  showNodes(told.nodes ?? []);
  const limit = told.rate_limit;
  const traffic = told.traffic ?? {};
  const counts = (found) => Object.entries(found ?? {}).map(([name, count]) => `${name} ${count}`).join(", ");
  list($("mesh"), [
    ["runs on this router", told.in_flight ?? 0],
    ["up for", `${Math.round(Number(told.uptime_ms ?? 0) / 1000)} s`],
    ...(told.dependencies ?? []).map((one) => [`service ${one.name}`, one.is_available ? "answers" : "does not answer"]),
    ["rate limit", limit && (limit.rps ? `${limit.rps}/s${limit.is_dynamic ? ", dynamic" : ""}${limit.is_local ? ", a share: the store is gone" : ""}` : "none")],
    ["outcomes", counts(traffic.outcomes)],
    ["cache use", counts(traffic.cache)],
    ["degraded by level", counts(traffic.degraded)],
    ["first field", traffic.first_field_p50_ms && `median ${ms(traffic.first_field_p50_ms)}, 95 % ${ms(traffic.first_field_p95_ms)}`],
    ["frames sent / received / verified", [told.frames_sent, told.frames_received, told.frames_verified].map((n) => n ?? 0).join(" / ")],
  ]);
  $("mesh-state").textContent = `As of ${new Date().toLocaleTimeString()}.`;
}

async function watch(signal) {
  while (!signal.aborted) {
    try {
      showMesh(await (await call("/v1/mesh/status", undefined, signal)).json());
    } catch (error) {
      if (signal.aborted) return;
      $("mesh-state").textContent = error.message;
    }
    await new Promise((resolve) => setTimeout(resolve, WATCH_MS));
  }
}

function toggleWatch() {
  watching?.abort();
  watching = watching ? null : new AbortController();
  $("watch").setAttribute("aria-pressed", String(watching !== null));
  $("watch").textContent = watching ? "Watching" : "Watch";
  if (watching) watch(watching.signal);
}

function setTheme(isDark) {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", String(isDark));
}

async function listModels() {
  listing?.abort();
  const { signal } = listing = new AbortController();
  if (!$("key").value.trim()) return;
  try {
    const told = await (await call("/v1/models", undefined, signal)).json();
    $("models").replaceChildren(...["auto", ...told.data.map((model) => model.id)].map((name) => {
      const option = element("option");
      option.value = name;
      return option;
    }));
    $("fault").textContent = "";
  } catch (error) {
    if (!signal.aborted) $("fault").textContent = error.message;
  }
}

function showExample() {
  const schema = EXAMPLES[$("example").value];
  $("schema").value = schema ? JSON.stringify(schema, null, 2) : "";
}

const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches);
dark.addEventListener("change", () => setTheme(dark.matches));
showExample();
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
$("example").addEventListener("change", showExample);
$("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
$("stop").addEventListener("click", () => running?.abort());
$("explain").addEventListener("click", explain);
$("watch").addEventListener("click", toggleWatch);
$("key").addEventListener("change", listModels);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("ask").requestSubmit(); }
  if (event.key === "Escape") running?.abort();
});

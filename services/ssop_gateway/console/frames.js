// Frames of SSOP as JSON (codec/SPEC.md, section 12): the field table, paths, and the values that go in parts.

export class FieldTable {
  constructor() {
    this.nodes = new Map();
    this.isText = false;
  }

  add(header) {
    this.isText = this.isText || header.is_text === true;
    for (const node of header.nodes ?? []) this.nodes.set(node.node ?? 0, node);
  }

  // The path of a frame as keys and indexes. A reference step goes on in the subtree of the node that it names.
  tokens(frame) {
    const steps = [...(frame.path ?? [])];
    const found = [];
    let from = 0;
    for (;;) {
      const at = steps.findIndex((step) => step.ref_node !== undefined);
      const to = at < 0 ? (frame.node ?? 0) : steps[at].ref_node;
      const own = at < 0 ? steps.splice(0) : steps.splice(0, at);
      for (const node of this.chain(from, to)) found.push(token(node, own));
      if (at < 0) return found.concat(own.map((step) => step.key ?? step.index ?? 0));
      steps.shift();
      from = this.nodes.get(to)?.ref_node ?? 0;
    }
  }

  // Nodes on the way down from one node, itself left out, to another.
  chain(from, to) {
    const nodes = [];
    for (let at = to; at !== from && nodes.length < 1024; ) {
      const node = this.nodes.get(at);
      if (node === undefined || node.step === "FIELD_STEP_ROOT") break;
      nodes.unshift(node);
      at = node.parent ?? 0;
    }
    return nodes;
  }
}

function token(node, steps) {
  if (node.step === "FIELD_STEP_PROPERTY") return node.key ?? "";
  if (node.step === "FIELD_STEP_PREFIX_ITEM") return node.index ?? 0;
  const step = steps.shift() ?? {};
  return step.key ?? step.index ?? 0;
}

export function pointer(tokens) {
  return tokens.map((part) => "/" + String(part).replaceAll("~", "~0").replaceAll("/", "~1")).join("");
}

// The value of a frame as text; undefined where it has none.
export function valueText(frame) {
  if ("string_value" in frame) return frame.string_value;
  if ("int_value" in frame) return String(frame.int_value);
  if ("double_value" in frame) return String(frame.double_value);
  if ("bool_value" in frame) return String(frame.bool_value);
  if ("null_value" in frame) return "null";
  if ("json_value" in frame) return atob(frame.json_value);
  return undefined;
}

// An empty container as text; undefined for one that had members, which were shown themselves.
export function emptyText(frame) {
  if (frame.object_size === "0") return "{}";
  if (frame.array_size === "0") return "[]";
  return undefined;
}

// Lines of a response as they arrive, parsed.
export async function* readLines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
    if (done) return;
  }
}

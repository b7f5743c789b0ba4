// Turns frames into fields. codec/SPEC.md, sections 3 to 9.

/** One step of a path: an array index, a map key, or a reference of the field table that was followed. */
interface PathStep {
  step: "index" | "key" | "refNode";
  index: number;
  key: string;
  refNode: number;
}

interface FieldNode {
  parent: number;
  step: string;
  key: string;
  index: number;
  refNode: number;
}

export interface Frame {
  seq: string;
  kind: string;
  node: number;
  path: PathStep[];
  document: number;
  content: string;
  stringValue: string;
  doubleValue: number;
  intValue: string;
  boolValue: boolean;
  jsonValue: Buffer;
  header: { wireVersion: number; nodes: FieldNode[] };
  end: { verdict: string };
  status: { degradedLevel: number };
}

/** A bigint where the schema says integer: a number would lose digits beyond 2^53. */
export type Value = string | number | bigint | boolean | null | NumberText;

/** The text of a number that neither an int64 nor a double holds. */
export class NumberText {
  constructor(readonly text: string) {}
}

export interface Field {
  /** JSON Pointer (RFC 6901). */
  pointer: string;
  value: Value;
}

/** A document as its frames arrive. */
export class Document {
  verdict = "";
  lastSeq = 0;
  private table: FieldNode[] = [];
  private parts = "";

  /** Reads a frame; the field that it completes, if any. */
  take(frame: Frame): Field | undefined {
    const seq = Number(frame.seq);
    // Mesh frames speak of the delivery and have no sequence number; a frame that comes again counts once.
    if (frame.document !== 0 || seq <= this.lastSeq) return undefined;
    if (seq !== this.lastSeq + 1) throw new Error(`frames ${this.lastSeq + 1} to ${seq - 1} were lost`);
    this.lastSeq = seq;
    switch (frame.kind) {
      case "FRAME_KIND_HEADER":
        if (this.table.length === 0 && frame.header.wireVersion !== 1) {
          throw new Error(`wire version ${frame.header.wireVersion}`);
        }
        this.table.push(...frame.header.nodes);
        return undefined;
      case "FRAME_KIND_PART":
        this.parts += frame.stringValue;
        return undefined;
      case "FRAME_KIND_VALUE":
        return { pointer: this.pointer(frame), value: this.value(frame) };
      case "FRAME_KIND_END":
        this.verdict = frame.end.verdict;
    }
    return undefined;
  }

  private value(frame: Frame): Value {
    switch (frame.content) {
      case "stringValue": {
        const text = this.parts + frame.stringValue;
        this.parts = "";
        return text;
      }
      case "doubleValue":
        return frame.doubleValue;
      case "intValue":
        return BigInt(frame.intValue);
      case "boolValue":
        return frame.boolValue;
      case "jsonValue":
        return new NumberText(frame.jsonValue.toString());
      default:
        return null;
    }
  }

  /** Walks from node 0 to the frame's node, and takes a step of the path where the table says so. */
  private pointer(frame: Frame): string {
    const steps = [...frame.path];
    const tokens: (string | number)[] = [];
    let base = 0;
    for (;;) {
      const reference = steps.find((step) => step.step === "refNode");
      const target = reference ? reference.refNode : frame.node;
      const chain: FieldNode[] = []; // from below base to target
      for (let number = target; number !== base; number = this.node(number).parent) {
        if (this.node(number).parent >= number) throw new Error(`frame ${frame.seq} names a node that is not below its reference`);
        chain.unshift(this.node(number));
      }
      for (const node of chain) {
        if (node.step === "FIELD_STEP_PROPERTY") tokens.push(node.key);
        else if (node.step === "FIELD_STEP_PREFIX_ITEM") tokens.push(node.index);
        else tokens.push(token(steps.shift())); // an item, or the value of a map: which one is in the frame
      }
      if (!reference) break;
      // A walk ends at a reference, and the next one starts where it refers to.
      steps.shift();
      base = this.node(target).refNode;
    }
    tokens.push(...steps.map(token)); // below the table: an untyped value
    return tokens.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
  }

  private node(number: number): FieldNode {
    const node = this.table[number];
    if (!node) throw new Error(`the field table has no node ${number}`);
    return node;
  }
}

function token(step: PathStep | undefined): string | number {
  if (!step) throw new Error("a path is too short");
  return step.step === "key" ? step.key : step.index;
}

// A client of SSOP Mesh on @grpc/grpc-js and protos/ alone. Each scenario prints JSON lines.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import * as grpc from "@grpc/grpc-js";
import * as loader from "@grpc/proto-loader";

import { Document, Frame, NumberText } from "./document";
import { errorOf, readDetails } from "./errors";

const PROTOS = join(__dirname, "../../../../protos");
const definition = loader.loadSync("ssop/v1/router.proto", {
  includeDirs: [PROTOS],
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const ssop: any = (grpc.loadPackageDefinition(definition).ssop as any).v1;

const service: any = definition["ssop.v1.RouterService"];

const SCHEMA = JSON.stringify({
  type: "object",
  properties: { mood: { type: "string" }, score: { type: "integer", maximum: 10 } },
  required: ["mood", "score"],
  additionalProperties: false,
});

const REFUSED = '{"properties": {"mood": {"$ref": "http://x/y"}}}';

type Chunks = AsyncIterable<{ frames: Frame[] }>;

function request(text: string, schema = SCHEMA) {
  return {
    prompt: {
      messages: [{ role: "ROLE_USER", parts: [{ text }] }],
      outputSchema: { jsonSchema: schema },
    },
  };
}

function say(line: Record<string, unknown>): void {
  const plain = (_: string, value: unknown) => {
    if (value instanceof NumberText) return value.text;
    if (typeof value !== "bigint") return value;
    return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString();
  };
  console.log(JSON.stringify(line, plain));
}

/** Prints the fields of a call's chunks as they arrive, and how the answer ended; stops after `limit` fields. */
async function show(document: Document, call: any, limit = Infinity, chunks: Chunks = call): Promise<void> {
  let fields = 0;
  call.on("error", () => {}); // the loop throws it; one that comes after the loop is that of the cancel below
  try {
    for await (const chunk of chunks) {
      for (const frame of chunk.frames) {
        if (frame.kind === "FRAME_KIND_STATUS") say({ degraded_level: frame.status.degradedLevel });
        const field = document.take(frame);
        if (!field) continue;
        say({ path: field.pointer, value: field.value });
        if (++fields === limit) return;
      }
    }
  } finally {
    call.cancel(); // where the answer has not ended, this frees the model; leaving the loop does not
  }
  say({ verdict: document.verdict, frames: document.lastSeq });
}

async function generate(mesh: any, asked: object, metadata: grpc.Metadata, timeout_ms: number, limit?: number) {
  const call = mesh.generate(asked, metadata, { deadline: Date.now() + timeout_ms });
  const trailers = new Promise<grpc.Metadata>((resolve) => call.on("status", (s: grpc.StatusObject) => resolve(s.metadata)));
  const document = new Document();
  await show(document, call, limit);
  if (limit === undefined) say({ status: (await trailers).get("x-ssop-status") });
  return document;
}

async function session(mesh: any, metadata: grpc.Metadata, schema = SCHEMA): Promise<void> {
  const call = mesh.session(metadata);
  const requestId = "typed";
  call.write({ requestId, begin: { request: request("How is ", schema) } });
  call.write({ requestId, piece: "the " });
  call.write({ requestId, piece: "mood?" });
  call.write({ requestId, commit: {} });
  async function* chunks() {
    for await (const response of call) {
      if (response.message === "finished") {
        if (response.finished.status?.code) throw errorOf(response.finished.status);
        return; // the session itself would go on
      }
      yield response.chunk;
      // Without credit for what was read, an answer stops after 64 KiB.
      call.write({ requestId, credit: { bytes: service.Generate.responseSerialize(response.chunk).length } });
    }
  }
  await show(new Document(), call, undefined, chunks());
}

/** Loses its connection after the first field, and goes on from there without running the model again. */
async function resume(mesh: any, metadata: grpc.Metadata): Promise<void> {
  const asked = { ...request("How is the mood?"), requestId: "resumed", resumeWindowMs: 10_000 };
  const document = await generate(mesh, asked, metadata, 20_000, 1);
  const rest = mesh.resume(
    { requestId: asked.requestId, afterSeq: document.lastSeq }, metadata, { deadline: Date.now() + 20_000 },
  );
  await show(document, rest);
}

/** Prints what this client makes of each document in the file that all languages are tested against. */
function vectors(path: string): void {
  for (const vector of JSON.parse(readFileSync(path, "utf8")).vectors) {
    const document = new Document();
    for (const chunk of vector.chunks) {
      for (const frame of service.Generate.responseDeserialize(Buffer.from(chunk, "hex")).frames) {
        const field = document.take(frame);
        if (field) say({ vector: vector.name, path: field.pointer, value: field.value });
      }
    }
    say({ vector: vector.name, verdict: document.verdict, frames: document.lastSeq });
  }
}

async function run(scenario: string, target: string): Promise<void> {
  if (scenario === "vectors") return vectors(target);
  const mesh = new ssop.RouterService(target, grpc.credentials.createInsecure());
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${process.env.SSOP_API_KEY}`);
  const question = "How is the mood?";
  try {
    if (scenario === "generate") await generate(mesh, request(question), metadata, 20_000);
    else if (scenario === "deadline") await generate(mesh, request(question), metadata, 500);
    else if (scenario === "cancel") await generate(mesh, request(question), metadata, 20_000, 1);
    // A model by name: where none of its nodes can serve, another answers and says so.
    else if (scenario === "degraded") await generate(mesh, { ...request(question), model: "grok-3" }, metadata, 20_000);
    else if (scenario === "refused") await generate(mesh, request(question, REFUSED), metadata, 20_000);
    else if (scenario === "session") await session(mesh, metadata);
    else if (scenario === "session-refused") await session(mesh, metadata, REFUSED);
    else if (scenario === "resume") await resume(mesh, metadata);
    else throw new Error(`no scenario ${scenario}`);
  } finally {
    mesh.close();
  }
}

const [scenario, target] = process.argv.slice(2);
run(scenario, target).catch((error: grpc.ServiceError) => {
  const { reason, domain, metadata, fields } = readDetails(error);
  say({ reason, domain, pointer: metadata.pointer });
  for (const field of fields) say({ field });
  say({ code: grpc.status[error.code] ?? String(error) });
  process.exitCode = 1;
});

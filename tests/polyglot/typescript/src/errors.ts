// What an error says beside its text: google.rpc.Status in the trailing metadata (AIP-193).
import { Metadata, ServiceError } from "@grpc/grpc-js";
import * as protobuf from "protobufjs";

// The part of google/rpc/*.proto that is read here.
const rpc = protobuf.parse(`
  syntax = "proto3"; package google.rpc;
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message FieldViolation { string field = 1; string description = 2; }
  message BadRequest { repeated FieldViolation field_violations = 1; }
`).root;

const STATUS = rpc.lookupType("google.rpc.Status");
const KEY = "grpc-status-details-bin";

export interface Details {
  reason: string;
  domain: string;
  /** Dynamic values, such as `pointer` of a schema that was refused. */
  metadata: Record<string, string>;
  fields: string[];
}

/** Reads the details of an error that the mesh raised. */
export function readDetails(error: ServiceError): Details {
  const found: Details = { reason: "", domain: "", metadata: {}, fields: [] };
  const [data] = error.metadata?.get(KEY) ?? [];
  if (!(data instanceof Buffer)) return found;
  const status: any = STATUS.decode(data);
  for (const { typeUrl, value } of status.details) {
    if (typeUrl.endsWith("/google.rpc.ErrorInfo")) {
      const info: any = rpc.lookupType("google.rpc.ErrorInfo").decode(value);
      Object.assign(found, { reason: info.reason, domain: info.domain, metadata: info.metadata });
    } else if (typeUrl.endsWith("/google.rpc.BadRequest")) {
      const bad: any = rpc.lookupType("google.rpc.BadRequest").decode(value);
      found.fields = bad.fieldViolations.map((violation: any) => violation.field);
    }
  }
  return found;
}

interface Outcome {
  code: number;
  message: string;
  details: { type_url: string; value: Buffer }[];
}

/** The error of a request on a session, as a call of its own would raise it. */
export function errorOf(status: Outcome): ServiceError {
  const metadata = new Metadata();
  const details = status.details.map(({ type_url, value }) => ({ typeUrl: type_url, value }));
  metadata.set(KEY, Buffer.from(STATUS.encode({ ...status, details }).finish()));
  return Object.assign(new Error(status.message), { code: status.code, details: status.message, metadata });
}

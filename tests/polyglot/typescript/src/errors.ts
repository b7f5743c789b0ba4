// What an error says beside its text: google.rpc.Status in the trailing metadata (AIP-193).
import { ServiceError } from "@grpc/grpc-js";
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
  const [data] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!(data instanceof Buffer)) return found;
  const status: any = rpc.lookupType("google.rpc.Status").decode(data);
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

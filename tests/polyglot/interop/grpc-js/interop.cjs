// grpc-js in gRPC's interop cases: `node interop.cjs HOST:PORT AUTHORITY CASE...` prints a JSON line for each case, its error
// empty where it went well; `node interop.cjs version` prints the version. The libraries are those of ../../typescript.
'use strict';
const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');

const near = createRequire(path.join(__dirname, '../../typescript/package.json'));
const grpc = near('@grpc/grpc-js');
const loader = near('@grpc/proto-loader');

const REQUEST_BYTES = [27182, 8, 1828, 45904];
const RESPONSE_BYTES = [31415, 9, 2653, 58979];
const SOAK_CALLS = 40;
const SOAK_BYTES = 20000;
// The server drains its connections each 100 ms or so.
const AGING_PAUSE_MS = 20;
const ECHO_INITIAL = 'x-grpc-test-echo-initial';
const ECHO_TRAILING = 'x-grpc-test-echo-trailing-bin';
const MESSAGE = 'test status message';
const SPECIAL_MESSAGE = '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n';

const file = path.join(__dirname, '../protos/grpc/testing/interop.proto');
const { testing } = grpc.loadPackageDefinition(loader.loadSync(file, { keepCase: true })).grpc;
const payload = (size) => ({ body: Buffer.alloc(size) });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const within = () => ({ deadline: Date.now() + 60_000 });

/** What a unary call came to: response, headers, status. */
function unary(stub, method, request, metadata = new grpc.Metadata()) {
  return new Promise((done) => {
    const found = {};
    const call = stub[method](request, metadata, within(), (error, response) => Object.assign(found, { error, response }));
    call.on('metadata', (headers) => (found.headers = headers));
    call.on('status', (status) => done({ ...found, status }));
  });
}

/** Resolves with the status of a stream, and collects its messages. */
function ended(call) {
  const found = { messages: [] };
  call.on('metadata', (headers) => (found.headers = headers));
  call.on('data', (message) => found.messages.push(message.payload ? message.payload.body.length : 0));
  call.on('error', () => {});
  return new Promise((done) => call.on('status', (status) => done({ ...found, status })));
}

async function large(stub, requestBytes, responseBytes) {
  const { response, status } = await unary(stub, 'UnaryCall', { response_size: responseBytes, payload: payload(requestBytes) });
  assert.strictEqual(status.code, grpc.status.OK, status.details);
  assert.strictEqual(response.payload.body.length, responseBytes);
}

const cases = {
  async empty_unary({ stub }) {
    const { status } = await unary(stub, 'EmptyCall', {});
    assert.strictEqual(status.code, grpc.status.OK, status.details);
  },
  large_unary: ({ stub }) => large(stub, 271828, 314159),
  async gzip_large_unary({ connect }) {
    const stub = connect({ 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip });
    await large(stub, 271828, 314159);
    stub.close();
  },
  async client_compressed_unary({ stub, connect }) {
    const packing = connect({ 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip });
    const ask = (from, value) =>
      unary(from, 'UnaryCall', { response_size: 314159, payload: payload(271828), expect_compressed: { value } });
    assert.strictEqual((await ask(stub, true)).status.code, grpc.status.INVALID_ARGUMENT);
    for (const { response, status } of [await ask(packing, true), await ask(stub, false)]) {
      assert.strictEqual(status.code, grpc.status.OK, status.details);
      assert.strictEqual(response.payload.body.length, 314159);
    }
    packing.close();
  },
  async client_streaming({ stub }) {
    const size = await new Promise((done, fail) => {
      const call = stub.StreamingInputCall(within(), (error, response) =>
        error ? fail(error) : done(response.aggregated_payload_size),
      );
      for (const bytes of REQUEST_BYTES) call.write({ payload: payload(bytes) });
      call.end();
    });
    assert.strictEqual(size, 74922);
  },
  async server_streaming({ stub }) {
    const parameters = RESPONSE_BYTES.map((size) => ({ size }));
    const { messages, status } = await ended(stub.StreamingOutputCall({ response_parameters: parameters }, within()));
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.deepStrictEqual(messages, RESPONSE_BYTES);
  },
  async ping_pong({ stub }) {
    const call = stub.FullDuplexCall(within());
    const sizes = [];
    const send = () => {
      const index = sizes.length;
      if (index === REQUEST_BYTES.length) return call.end();
      call.write({ response_parameters: [{ size: RESPONSE_BYTES[index] }], payload: payload(REQUEST_BYTES[index]) });
    };
    const end = ended(call);
    call.on('data', (message) => {
      sizes.push(message.payload.body.length);
      send();
    });
    send();
    const { status } = await end;
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.deepStrictEqual(sizes, RESPONSE_BYTES);
  },
  async empty_stream({ stub }) {
    const call = stub.FullDuplexCall(within());
    const end = ended(call);
    call.end();
    const { messages, status } = await end;
    assert.strictEqual(status.code, grpc.status.OK, status.details);
    assert.deepStrictEqual(messages, []);
  },
  async custom_metadata({ stub }) {
    const sent = new grpc.Metadata();
    sent.set(ECHO_INITIAL, 'test_initial_metadata_value');
    sent.set(ECHO_TRAILING, Buffer.from('ababab', 'hex'));
    const call = stub.FullDuplexCall(sent, within());
    const end = ended(call);
    call.write({ response_parameters: [{ size: 1 }], payload: payload(1) });
    call.end();
    for (const found of [await unary(stub, 'UnaryCall', { response_size: 1, payload: payload(1) }, sent), await end]) {
      assert.strictEqual(found.status.code, grpc.status.OK, found.status.details);
      assert.deepStrictEqual(found.headers.get(ECHO_INITIAL), ['test_initial_metadata_value']);
      assert.deepStrictEqual(found.status.metadata.get(ECHO_TRAILING), [Buffer.from('ababab', 'hex')]);
    }
  },
  async status_code_and_message({ stub }) {
    const asked = { response_status: { code: 2, message: MESSAGE } };
    const call = stub.FullDuplexCall(within());
    const end = ended(call);
    call.write(asked);
    call.end();
    for (const { status } of [await unary(stub, 'UnaryCall', asked), await end])
      assert.deepStrictEqual([status.code, status.details], [2, MESSAGE]);
  },
  async special_status_message({ stub }) {
    const { status } = await unary(stub, 'UnaryCall', { response_status: { code: 2, message: SPECIAL_MESSAGE } });
    assert.deepStrictEqual([status.code, status.details], [2, SPECIAL_MESSAGE]);
  },
  async unimplemented_method({ stub }) {
    const { status } = await unary(stub, 'UnimplementedCall', {});
    assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED);
  },
  async unimplemented_service({ other }) {
    const { status } = await unary(other, 'UnimplementedCall', {});
    assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED);
  },
  async cancel_after_begin({ stub }) {
    const code = await new Promise((done) => {
      const call = stub.StreamingInputCall(within(), (error) => done(error && error.code));
      setImmediate(() => call.cancel());
    });
    assert.strictEqual(code, grpc.status.CANCELLED);
  },
  async cancel_after_first_response({ stub }) {
    const call = stub.FullDuplexCall(within());
    const end = ended(call);
    call.on('data', () => call.cancel());
    call.write({ response_parameters: [{ size: RESPONSE_BYTES[0] }], payload: payload(REQUEST_BYTES[0]) });
    const { status } = await end;
    assert.strictEqual(status.code, grpc.status.CANCELLED);
  },
  async timeout_on_sleeping_server({ stub }) {
    const call = stub.FullDuplexCall({ deadline: Date.now() + 1 });
    const end = ended(call);
    call.write({ payload: payload(27182) });
    const { status } = await end;
    assert.strictEqual(status.code, grpc.status.DEADLINE_EXCEEDED);
  },
  async rpc_soak({ stub }) {
    for (let index = 0; index < SOAK_CALLS; index++) await large(stub, SOAK_BYTES, SOAK_BYTES);
  },
  async aging_soak({ stub }) {
    for (let index = 0; index < SOAK_CALLS; index++) {
      await large(stub, SOAK_BYTES, SOAK_BYTES);
      await pause(AGING_PAUSE_MS);
    }
  },
  async channel_soak({ connect }) {
    for (let index = 0; index < SOAK_CALLS; index++) {
      // Channels to one address share a connection otherwise.
      const stub = connect({ 'grpc.use_local_subchannel_pool': 1 });
      await large(stub, SOAK_BYTES, SOAK_BYTES);
      stub.close();
    }
  },
};

async function main(target, authority, names) {
  const credentials = authority ? grpc.credentials.createSsl(fs.readFileSync(authority)) : grpc.credentials.createInsecure();
  const connect = (options) => new testing.TestService(target, credentials, options);
  const stub = connect();
  const other = new testing.UnimplementedService(target, credentials);
  for (const name of names) {
    let error = '';
    try {
      await cases[name]({ stub, other, connect });
    } catch (raised) {
      error = String(raised) || 'an error without words';
    }
    console.log(JSON.stringify({ case: name, error }));
  }
  stub.close();
  other.close();
}

if (process.argv[2] === 'version') console.log(near('@grpc/grpc-js/package.json').version);
else main(process.argv[2], process.argv[3], process.argv.slice(4));

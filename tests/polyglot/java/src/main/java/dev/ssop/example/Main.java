package dev.ssop.example;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonPrimitive;
import com.google.gson.JsonSerializer;
import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import dev.ssop.v1.Chunk;
import dev.ssop.v1.ContentPart;
import dev.ssop.v1.Frame;
import dev.ssop.v1.FrameKind;
import dev.ssop.v1.GenerateRequest;
import dev.ssop.v1.Message;
import dev.ssop.v1.OutputSchema;
import dev.ssop.v1.Prompt;
import dev.ssop.v1.ResumeRequest;
import dev.ssop.v1.Role;
import dev.ssop.v1.RouterServiceGrpc;
import dev.ssop.v1.RouterServiceGrpc.RouterServiceBlockingV2Stub;
import dev.ssop.v1.SessionBegin;
import dev.ssop.v1.SessionCommit;
import dev.ssop.v1.SessionCredit;
import dev.ssop.v1.SessionRequest;
import dev.ssop.v1.SessionResponse;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.MetadataUtils;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;

/** A client of SSOP Mesh on grpc-java and stubs generated from protos/ alone. Each scenario prints JSON lines. */
public final class Main {
  private static final String SCHEMA =
      """
      {"type": "object",
       "properties": {"mood": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
       "required": ["mood", "score"], "additionalProperties": false}""";
  private static final String REFUSED = "{\"properties\": {\"mood\": {\"$ref\": \"http://x/y\"}}}";
  private static final Metadata.Key<String> AUTHORIZATION = text("authorization");
  private static final Metadata.Key<String> STATUS = text("x-ssop-status");
  private static final Gson GSON =
      new GsonBuilder()
          .serializeNulls()
          .registerTypeAdapter(
              Document.NumberText.class,
              (JsonSerializer<Document.NumberText>) (number, type, context) -> new JsonPrimitive(number.text()))
          .create();

  private final RouterServiceBlockingV2Stub mesh;

  private Main(RouterServiceBlockingV2Stub mesh) {
    this.mesh = mesh;
  }

  private static Metadata.Key<String> text(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  private static GenerateRequest.Builder request(String text, String schema) {
    Message message =
        Message.newBuilder()
            .setRole(Role.ROLE_USER)
            .addParts(ContentPart.newBuilder().setText(text))
            .build();
    return GenerateRequest.newBuilder()
        .setPrompt(
            Prompt.newBuilder()
                .addMessages(message)
                .setOutputSchema(OutputSchema.newBuilder().setJsonSchema(schema)));
  }

  /** Where chunks come from; null when there are no more. */
  private interface Chunks {
    Chunk read() throws StatusException, InterruptedException;
  }

  /** Prints the fields of chunks as they arrive, and how the answer ended. Stops after `limit` fields; 0: never. */
  private static void show(Document document, Chunks chunks, int limit) throws StatusException, InterruptedException {
    int fields = 0;
    for (Chunk chunk = chunks.read(); chunk != null; chunk = chunks.read()) {
      for (Frame frame : chunk.getFramesList()) {
        if (frame.getKind() == FrameKind.FRAME_KIND_STATUS) {
          say("degraded_level", frame.getStatus().getDegradedLevel());
        }
        Document.Field field = document.take(frame);
        if (field == null) continue;
        say("path", field.pointer(), "value", field.value());
        if (++fields == limit) return;
      }
    }
    say("verdict", document.end().getVerdict().name(), "frames", document.lastSeq());
  }

  private Document generate(GenerateRequest request, int limit) throws StatusException, InterruptedException {
    AtomicReference<Metadata> headers = new AtomicReference<>();
    AtomicReference<Metadata> trailers = new AtomicReference<>();
    BlockingClientCall<?, Chunk> call =
        mesh.withInterceptors(MetadataUtils.newCaptureMetadataInterceptor(headers, trailers)).generate(request);
    Document document = new Document();
    show(document, call::read, limit);
    if (limit > 0) {
      call.cancel("enough", null); // and with the call the generation
    } else {
      String status = trailers.get().get(STATUS);
      say("status", status == null ? List.of() : List.of(status));
    }
    return document;
  }

  private void session(String schema) throws StatusException, InterruptedException, TimeoutException {
    BlockingClientCall<SessionRequest, SessionResponse> call = mesh.session();
    SessionBegin begin = SessionBegin.newBuilder().setRequest(request("How is ", schema)).build();
    call.write(about().setBegin(begin).build());
    call.write(about().setPiece("the ").build());
    call.write(about().setPiece("mood?").build());
    call.write(about().setCommit(SessionCommit.getDefaultInstance()).build());
    Chunks chunks =
        () -> {
          SessionResponse response = call.read();
          if (response == null) return null;
          if (response.hasChunk()) {
            // Without credit for what was read, an answer stops after 64 KiB.
            SessionCredit credit = SessionCredit.newBuilder().setBytes(response.getChunk().getSerializedSize()).build();
            call.write(about().setCredit(credit).build());
            return response.getChunk();
          }
          var status = response.getFinished().getStatus();
          if (status.getCode() == 0) return null;
          throw StatusProto.toStatusException(
              Status.newBuilder()
                  .setCode(status.getCode())
                  .setMessage(status.getMessage())
                  .addAllDetails(status.getDetailsList())
                  .build());
        };
    show(new Document(), chunks, 0);
    call.halfClose();
  }

  private static SessionRequest.Builder about() {
    return SessionRequest.newBuilder().setRequestId("typed");
  }

  /** Loses its connection after the first field, and goes on from there without running the model again. */
  private void resume() throws StatusException, InterruptedException {
    GenerateRequest asked =
        request("How is the mood?", SCHEMA).setRequestId("resumed").setResumeWindowMs(10_000).build();
    Document document = generate(asked, 1);
    ResumeRequest rest =
        ResumeRequest.newBuilder().setRequestId(asked.getRequestId()).setAfterSeq(document.lastSeq()).build();
    show(document, mesh.resume(rest)::read, 0);
  }

  /** Prints what an error says beside its text: google.rpc.Status in the trailing metadata. */
  private static void explain(StatusException error) throws InvalidProtocolBufferException {
    for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        ErrorInfo info = detail.unpack(ErrorInfo.class);
        say("reason", info.getReason(), "domain", info.getDomain(), "pointer", info.getMetadataMap().get("pointer"));
      } else if (detail.is(BadRequest.class)) {
        for (var violation : detail.unpack(BadRequest.class).getFieldViolationsList()) {
          say("field", violation.getField());
        }
      }
    }
    say("code", error.getStatus().getCode().name());
  }

  /** Prints a JSON object of names and values. */
  static void say(Object... pairs) {
    Map<String, Object> line = new LinkedHashMap<>();
    for (int i = 0; i < pairs.length; i += 2) line.put((String) pairs[i], pairs[i + 1]);
    System.out.println(GSON.toJson(line));
  }

  private void run(String scenario) throws Exception {
    String question = "How is the mood?";
    switch (scenario) {
      case "generate", "deadline" -> generate(request(question, SCHEMA).build(), 0);
      case "cancel" -> generate(request(question, SCHEMA).build(), 1);
      // A model by name: where none of its nodes can serve, another answers and says so.
      case "degraded" -> generate(request(question, SCHEMA).setModel("grok-3").build(), 0);
      case "refused" -> generate(request(question, REFUSED).build(), 0);
      case "session" -> session(SCHEMA);
      case "session-refused" -> session(REFUSED);
      case "resume" -> resume();
      default -> throw new IllegalArgumentException("no scenario " + scenario);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String scenario = arguments[0];
    String target = arguments[1];
    if (scenario.equals("vectors")) {
      Vectors.show(target);
      return;
    }
    Metadata metadata = new Metadata();
    metadata.put(AUTHORIZATION, "Bearer " + System.getenv("SSOP_API_KEY"));
    ManagedChannel channel = Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
    RouterServiceBlockingV2Stub mesh =
        RouterServiceGrpc.newBlockingV2Stub(channel)
            .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata))
            .withDeadlineAfter(scenario.equals("deadline") ? 500 : 20_000, TimeUnit.MILLISECONDS);
    try {
      new Main(mesh).run(scenario);
    } catch (StatusException error) {
      explain(error);
      System.exit(1);
    } finally {
      channel.shutdownNow().awaitTermination(1, TimeUnit.SECONDS);
    }
  }
}

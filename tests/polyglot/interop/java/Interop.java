import com.google.gson.Gson;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ClientStreamTracer;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerCallHandler;
import io.grpc.InsecureServerCredentials;
import io.grpc.ServerCall;
import io.grpc.ServerInterceptors;
import io.grpc.ServerCredentials;
import io.grpc.ServerInterceptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.TlsServerCredentials;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.grpc.testing.integration.BoolValue;
import io.grpc.testing.integration.EchoStatus;
import io.grpc.testing.integration.Empty;
import io.grpc.testing.integration.Payload;
import io.grpc.testing.integration.ResponseParameters;
import io.grpc.testing.integration.SimpleRequest;
import io.grpc.testing.integration.SimpleResponse;
import io.grpc.testing.integration.StreamingInputCallRequest;
import io.grpc.testing.integration.StreamingInputCallResponse;
import io.grpc.testing.integration.StreamingOutputCallRequest;
import io.grpc.testing.integration.StreamingOutputCallResponse;
import java.io.File;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * grpc-java in gRPC's interop cases.
 *
 * <pre>
 * Interop client HOST:PORT AUTHORITY CASE...   prints a JSON line for each case, its error empty where it went well
 * Interop server [CERTIFICATE KEY]             prints its addresses as a JSON line and serves until its input ends
 * </pre>
 */
public final class Interop {
  private static final int[] REQUEST_BYTES = {27_182, 8, 1_828, 45_904};
  private static final int[] RESPONSE_BYTES = {31_415, 9, 2_653, 58_979};
  private static final int SOAK_CALLS = 40;
  private static final int SOAK_BYTES = 20_000;
  /** The server drains its connections each 100 ms or so. */
  private static final int AGING_PAUSE_MS = 20;
  private static final String MESSAGE = "test status message";
  private static final String SPECIAL_MESSAGE =
      "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
  private static final Metadata.Key<String> INITIAL =
      Metadata.Key.of("x-grpc-test-echo-initial", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<byte[]> TRAILING =
      Metadata.Key.of("x-grpc-test-echo-trailing-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final String SERVICE = "grpc.testing.TestService";

  private static final MethodDescriptor<Empty, Empty> EMPTY =
      method(SERVICE, "EmptyCall", MethodType.UNARY, Empty.getDefaultInstance(), Empty.getDefaultInstance());
  private static final MethodDescriptor<SimpleRequest, SimpleResponse> UNARY =
      method(SERVICE, "UnaryCall", MethodType.UNARY, SimpleRequest.getDefaultInstance(), SimpleResponse.getDefaultInstance());
  private static final MethodDescriptor<StreamingInputCallRequest, StreamingInputCallResponse> INPUT =
      method(SERVICE, "StreamingInputCall", MethodType.CLIENT_STREAMING,
          StreamingInputCallRequest.getDefaultInstance(), StreamingInputCallResponse.getDefaultInstance());
  private static final MethodDescriptor<StreamingOutputCallRequest, StreamingOutputCallResponse> OUTPUT =
      output("StreamingOutputCall", MethodType.SERVER_STREAMING);
  private static final MethodDescriptor<StreamingOutputCallRequest, StreamingOutputCallResponse> DUPLEX =
      output("FullDuplexCall", MethodType.BIDI_STREAMING);
  private static final MethodDescriptor<Empty, Empty> NO_METHOD =
      method(SERVICE, "UnimplementedCall", MethodType.UNARY, Empty.getDefaultInstance(), Empty.getDefaultInstance());
  private static final MethodDescriptor<Empty, Empty> NO_SERVICE =
      method("grpc.testing.UnimplementedService", "UnimplementedCall", MethodType.UNARY,
          Empty.getDefaultInstance(), Empty.getDefaultInstance());

  private static <Q extends Message, R extends Message> MethodDescriptor<Q, R> method(
      String service, String name, MethodType type, Q request, R response) {
    return MethodDescriptor.<Q, R>newBuilder()
        .setType(type)
        .setFullMethodName(MethodDescriptor.generateFullMethodName(service, name))
        .setRequestMarshaller(ProtoUtils.marshaller(request))
        .setResponseMarshaller(ProtoUtils.marshaller(response))
        .build();
  }

  private static MethodDescriptor<StreamingOutputCallRequest, StreamingOutputCallResponse> output(
      String name, MethodType type) {
    return method(SERVICE, name, type,
        StreamingOutputCallRequest.getDefaultInstance(), StreamingOutputCallResponse.getDefaultInstance());
  }

  private static Payload payload(int size) {
    return Payload.newBuilder().setBody(ByteString.copyFrom(new byte[size])).build();
  }

  private static void expect(boolean isSo, String what) {
    if (!isSo) {
      throw new IllegalStateException(what);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
    if (arguments[0].equals("server")) {
      serve(rest);
    } else {
      run(rest[0], rest[1], Arrays.asList(rest).subList(2, rest.length));
    }
  }

  // --- the client

  private static ManagedChannel connect(String target, String authority) throws Exception {
    var credentials = authority.isEmpty()
        ? InsecureChannelCredentials.create()
        : TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    return Grpc.newChannelBuilder(target, credentials).build();
  }

  private static void run(String target, String authority, List<String> names) throws Exception {
    ManagedChannel channel = connect(target, authority);
    for (String name : names) {
      String error = "";
      try {
        run(name, channel, target, authority);
      } catch (Exception raised) {
        error = raised.toString();
      }
      System.out.println(new Gson().toJson(new TreeMap<>(Map.of("case", name, "error", error))));
    }
    channel.shutdownNow();
  }

  private static CallOptions within() {
    return CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS);
  }

  private static void large(Channel channel, int sent, int expected) {
    large(channel, within(), sent, expected);
  }

  private static void large(Channel channel, CallOptions options, int sent, int expected) {
    SimpleRequest request = SimpleRequest.newBuilder().setResponseSize(expected).setPayload(payload(sent)).build();
    SimpleResponse found = ClientCalls.blockingUnaryCall(channel, UNARY, options, request);
    expect(found.getPayload().getBody().size() == expected, "another size");
  }

  private static StreamingOutputCallRequest ask(int sent, int... sizes) {
    var request = StreamingOutputCallRequest.newBuilder().setPayload(payload(sent));
    for (int size : sizes) {
      request.addResponseParameters(ResponseParameters.newBuilder().setSize(size));
    }
    return request.build();
  }

  /** What comes of a dialogue: sizes of messages, and then the status. */
  private static final class Dialogue implements StreamObserver<StreamingOutputCallResponse> {
    final BlockingQueue<Object> events = new LinkedBlockingQueue<>();
    final ClientCall<StreamingOutputCallRequest, StreamingOutputCallResponse> call;
    final StreamObserver<StreamingOutputCallRequest> requests;

    Dialogue(Channel channel, CallOptions options) {
      call = channel.newCall(DUPLEX, options);
      requests = ClientCalls.asyncBidiStreamingCall(call, this);
    }

    Object next() throws InterruptedException {
      Object found = events.poll(60, TimeUnit.SECONDS);
      expect(found != null, "nothing came");
      return found;
    }

    Status end() throws InterruptedException {
      while (true) {
        if (next() instanceof Status status) {
          return status;
        }
      }
    }

    @Override
    public void onNext(StreamingOutputCallResponse response) {
      events.add(response.getPayload().getBody().size());
    }

    @Override
    public void onError(Throwable raised) {
      events.add(Status.fromThrowable(raised));
    }

    @Override
    public void onCompleted() {
      events.add(Status.OK);
    }
  }

  private static Status statusOf(Runnable call) {
    try {
      call.run();
      return Status.OK;
    } catch (StatusRuntimeException raised) {
      return raised.getStatus();
    }
  }

  private static Status unaryStatus(Channel channel, EchoStatus asked) {
    SimpleRequest request = SimpleRequest.newBuilder().setResponseStatus(asked).build();
    return statusOf(() -> ClientCalls.blockingUnaryCall(channel, UNARY, within(), request));
  }

  private static void expectStatus(Status found, Status.Code code, String message) {
    expect(found.getCode() == code && (message == null || message.equals(found.getDescription())), found.toString());
  }

  private static void run(String name, ManagedChannel channel, String target, String authority) throws Exception {
    switch (name) {
      case "empty_unary" -> ClientCalls.blockingUnaryCall(channel, EMPTY, within(), Empty.getDefaultInstance());
      case "large_unary" -> large(channel, 271_828, 314_159);
      case "gzip_large_unary" -> large(channel, within().withCompression("gzip"), 271_828, 314_159);
      case "client_compressed_unary" -> {
        Status probe = statusOf(() -> ClientCalls.blockingUnaryCall(channel, UNARY, within(), expecting(true)));
        expectStatus(probe, Status.Code.INVALID_ARGUMENT, null);
        for (boolean isPacked : new boolean[] {true, false}) {
          CallOptions options = isPacked ? within().withCompression("gzip") : within();
          SimpleResponse found = ClientCalls.blockingUnaryCall(channel, UNARY, options, expecting(isPacked));
          expect(found.getPayload().getBody().size() == 314_159, "another size");
        }
      }
      case "client_compressed_streaming" -> {
        expectStatus(sendCompressed(channel, within(), true).probe, Status.Code.INVALID_ARGUMENT, null);
        expect(sendCompressed(channel, within().withCompression("gzip"), false).size == 73_086, "another sum");
      }
      case "server_compressed_unary" -> {
        for (boolean isPacked : new boolean[] {true, false}) {
          Seen seen = new Seen();
          SimpleRequest request = SimpleRequest.newBuilder()
              .setResponseSize(314_159)
              .setPayload(payload(271_828))
              .setResponseCompressed(flag(isPacked))
              .build();
          CallOptions options = within().withStreamTracerFactory(seen.client());
          SimpleResponse found = ClientCalls.blockingUnaryCall(channel, UNARY, options, request);
          expect(found.getPayload().getBody().size() == 314_159, "another size");
          expect(List.copyOf(seen.isPacked).equals(List.of(isPacked)), "compressed: " + seen.isPacked);
        }
      }
      case "server_compressed_streaming" -> {
        Seen seen = new Seen();
        StreamingOutputCallRequest request = StreamingOutputCallRequest.newBuilder()
            .addResponseParameters(ResponseParameters.newBuilder().setSize(31_415).setCompressed(flag(true)))
            .addResponseParameters(ResponseParameters.newBuilder().setSize(92_653).setCompressed(flag(false)))
            .build();
        CallOptions options = within().withStreamTracerFactory(seen.client());
        Iterator<StreamingOutputCallResponse> found =
            ClientCalls.blockingServerStreamingCall(channel, OUTPUT, options, request);
        expect(found.next().getPayload().getBody().size() == 31_415, "another size");
        expect(found.next().getPayload().getBody().size() == 92_653, "another size");
        expect(!found.hasNext(), "more than was asked for");
        expect(List.copyOf(seen.isPacked).equals(List.of(true, false)), "compressed: " + seen.isPacked);
      }
      case "client_streaming" -> {
        BlockingQueue<Object> found = new LinkedBlockingQueue<>();
        var requests = ClientCalls.asyncClientStreamingCall(channel.newCall(INPUT, within()),
            new StreamObserver<StreamingInputCallResponse>() {
              @Override
              public void onNext(StreamingInputCallResponse response) {
                found.add(response.getAggregatedPayloadSize());
              }

              @Override
              public void onError(Throwable raised) {
                found.add(raised);
              }

              @Override
              public void onCompleted() {
                found.add("end");
              }
            });
        for (int size : REQUEST_BYTES) {
          requests.onNext(StreamingInputCallRequest.newBuilder().setPayload(payload(size)).build());
        }
        requests.onCompleted();
        Object sum = found.poll(60, TimeUnit.SECONDS);
        expect(sum instanceof Integer size && size == 74_922, String.valueOf(sum));
        expect("end".equals(found.poll(60, TimeUnit.SECONDS)), "no end");
      }
      case "server_streaming" -> {
        Iterator<StreamingOutputCallResponse> found =
            ClientCalls.blockingServerStreamingCall(channel, OUTPUT, within(), ask(0, RESPONSE_BYTES));
        for (int size : RESPONSE_BYTES) {
          expect(found.next().getPayload().getBody().size() == size, "another size");
        }
        expect(!found.hasNext(), "more than was asked for");
      }
      case "ping_pong" -> {
        Dialogue dialogue = new Dialogue(channel, within());
        for (int index = 0; index < REQUEST_BYTES.length; index++) {
          dialogue.requests.onNext(ask(REQUEST_BYTES[index], RESPONSE_BYTES[index]));
          expect(dialogue.next().equals(RESPONSE_BYTES[index]), "another size");
        }
        dialogue.requests.onCompleted();
        expectStatus(dialogue.end(), Status.Code.OK, null);
      }
      case "empty_stream" -> {
        Dialogue dialogue = new Dialogue(channel, within());
        dialogue.requests.onCompleted();
        expect(dialogue.next().equals(Status.OK), "something came");
      }
      case "custom_metadata" -> customMetadata(channel);
      case "status_code_and_message" -> {
        EchoStatus asked = EchoStatus.newBuilder().setCode(2).setMessage(MESSAGE).build();
        expectStatus(unaryStatus(channel, asked), Status.Code.UNKNOWN, MESSAGE);
        Dialogue dialogue = new Dialogue(channel, within());
        dialogue.requests.onNext(StreamingOutputCallRequest.newBuilder().setResponseStatus(asked).build());
        expectStatus(dialogue.end(), Status.Code.UNKNOWN, MESSAGE);
      }
      case "special_status_message" -> expectStatus(
          unaryStatus(channel, EchoStatus.newBuilder().setCode(2).setMessage(SPECIAL_MESSAGE).build()),
          Status.Code.UNKNOWN, SPECIAL_MESSAGE);
      case "unimplemented_method" -> expectStatus(
          statusOf(() -> ClientCalls.blockingUnaryCall(channel, NO_METHOD, within(), Empty.getDefaultInstance())),
          Status.Code.UNIMPLEMENTED, null);
      case "unimplemented_service" -> expectStatus(
          statusOf(() -> ClientCalls.blockingUnaryCall(channel, NO_SERVICE, within(), Empty.getDefaultInstance())),
          Status.Code.UNIMPLEMENTED, null);
      case "cancel_after_begin" -> {
        Dialogue dialogue = new Dialogue(channel, within());
        dialogue.call.cancel("the case", null);
        expectStatus(dialogue.end(), Status.Code.CANCELLED, null);
      }
      case "cancel_after_first_response" -> {
        Dialogue dialogue = new Dialogue(channel, within());
        dialogue.requests.onNext(ask(REQUEST_BYTES[0], RESPONSE_BYTES[0]));
        expect(dialogue.next().equals(RESPONSE_BYTES[0]), "another size");
        dialogue.call.cancel("the case", null);
        expectStatus(dialogue.end(), Status.Code.CANCELLED, null);
      }
      case "timeout_on_sleeping_server" -> {
        Dialogue dialogue = new Dialogue(channel, CallOptions.DEFAULT.withDeadlineAfter(1, TimeUnit.MILLISECONDS));
        dialogue.requests.onNext(ask(27_182));
        expectStatus(dialogue.end(), Status.Code.DEADLINE_EXCEEDED, null);
      }
      case "rpc_soak", "aging_soak" -> {
        for (int index = 0; index < SOAK_CALLS; index++) {
          large(channel, SOAK_BYTES, SOAK_BYTES);
          Thread.sleep(name.equals("aging_soak") ? AGING_PAUSE_MS : 0);
        }
      }
      case "channel_soak" -> {
        for (int index = 0; index < SOAK_CALLS; index++) {
          ManagedChannel fresh = connect(target, authority);
          try {
            large(fresh, SOAK_BYTES, SOAK_BYTES);
          } finally {
            fresh.shutdownNow();
          }
        }
      }
      default -> throw new IllegalArgumentException("no such case");
    }
  }

  private static BoolValue flag(boolean value) {
    return BoolValue.newBuilder().setValue(value).build();
  }

  private static SimpleRequest expecting(boolean isPacked) {
    return SimpleRequest.newBuilder()
        .setResponseSize(314_159)
        .setPayload(payload(271_828))
        .setExpectCompressed(flag(isPacked))
        .build();
  }

  /** What came of messages of which the first says that it is compressed, and the second that it is not. */
  private record Sum(int size, Status probe) {}

  private static Sum sendCompressed(Channel channel, CallOptions options, boolean isProbe) throws Exception {
    BlockingQueue<Object> found = new LinkedBlockingQueue<>();
    var requests = (ClientCallStreamObserver<StreamingInputCallRequest>) ClientCalls.asyncClientStreamingCall(
        channel.newCall(INPUT, options),
        new StreamObserver<StreamingInputCallResponse>() {
          @Override
          public void onNext(StreamingInputCallResponse response) {
            found.add(response.getAggregatedPayloadSize());
          }

          @Override
          public void onError(Throwable raised) {
            found.add(Status.fromThrowable(raised));
          }

          @Override
          public void onCompleted() {}
        });
    for (int size : isProbe ? new int[] {27_182} : new int[] {27_182, 45_904}) {
      boolean isPacked = size == 27_182;
      requests.setMessageCompression(isPacked && !isProbe);
      requests.onNext(StreamingInputCallRequest.newBuilder()
          .setPayload(payload(size))
          .setExpectCompressed(flag(isPacked))
          .build());
    }
    requests.onCompleted();
    Object end = found.poll(60, TimeUnit.SECONDS);
    return end instanceof Integer size ? new Sum(size, Status.OK) : new Sum(0, end == null ? Status.UNKNOWN : (Status) end);
  }

  /** Notes of each message that comes whether it was compressed: its size is not known then. */
  private static final class Seen {
    static final Context.Key<Seen> KEY = Context.key("seen");
    final Queue<Boolean> isPacked = new ConcurrentLinkedQueue<>();

    ClientStreamTracer.Factory client() {
      return new ClientStreamTracer.Factory() {
        @Override
        public ClientStreamTracer newClientStreamTracer(ClientStreamTracer.StreamInfo info, Metadata headers) {
          return new ClientStreamTracer() {
            @Override
            public void inboundMessageRead(int number, long wireSize, long size) {
              isPacked.add(wireSize != size);
            }
          };
        }
      };
    }

    static ServerStreamTracer.Factory server() {
      return new ServerStreamTracer.Factory() {
        @Override
        public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
          Seen seen = new Seen();
          return new ServerStreamTracer() {
            @Override
            public Context filterContext(Context context) {
              return context.withValue(KEY, seen);
            }

            @Override
            public void inboundMessageRead(int number, long wireSize, long size) {
              seen.isPacked.add(wireSize != size);
            }
          };
        }
      };
    }

    /** Whether the message whose turn it is has not come as it says. */
    boolean isOther(boolean isSaid, BoolValue said) {
      boolean was = isPacked.remove();
      return isSaid && said.getValue() != was;
    }
  }

  private static void customMetadata(Channel channel) throws Exception {
    byte[] trailing = {(byte) 0xab, (byte) 0xab, (byte) 0xab};
    Metadata sent = new Metadata();
    sent.put(INITIAL, "test_initial_metadata_value");
    sent.put(TRAILING, trailing);
    for (boolean isUnary : new boolean[] {true, false}) {
      var headers = new AtomicReference<Metadata>();
      var trailers = new AtomicReference<Metadata>();
      Channel watched = ClientInterceptors.intercept(channel,
          MetadataUtils.newAttachHeadersInterceptor(sent),
          MetadataUtils.newCaptureMetadataInterceptor(headers, trailers));
      if (isUnary) {
        large(watched, 1, 1);
      } else {
        Dialogue dialogue = new Dialogue(watched, within());
        dialogue.requests.onNext(ask(1, 1));
        dialogue.requests.onCompleted();
        expectStatus(dialogue.end(), Status.Code.OK, null);
      }
      expect("test_initial_metadata_value".equals(headers.get().get(INITIAL)), "no initial metadata");
      expect(Arrays.equals(trailing, trailers.get().get(TRAILING)), "no trailing metadata");
    }
  }

  // --- the server

  private static void serve(String[] files) throws Exception {
    Map<String, String> addresses = new TreeMap<>();
    addresses.put("plain", listen(InsecureServerCredentials.create()));
    if (files.length > 0) {
      addresses.put("tls", listen(TlsServerCredentials.create(new File(files[0]), new File(files[1]))));
    }
    System.out.println(new Gson().toJson(addresses));
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  private static String listen(ServerCredentials credentials) throws Exception {
    Server server = Grpc.newServerBuilderForPort(0, credentials)
        .addStreamTracerFactory(Seen.server())
        .addService(ServerInterceptors.intercept(service(), new Echoing()))
        .build()
        .start();
    return "127.0.0.1:" + server.getPort();
  }

  private static ServerServiceDefinition service() {
    return ServerServiceDefinition.builder(SERVICE)
        .addMethod(EMPTY, ServerCalls.asyncUnaryCall((request, responses) -> {
          responses.onNext(Empty.getDefaultInstance());
          responses.onCompleted();
        }))
        .addMethod(UNARY, ServerCalls.asyncUnaryCall((request, responses) -> {
          if (request.getResponseStatus().getCode() != 0) {
            responses.onError(asException(request.getResponseStatus()));
            return;
          }
          if (Seen.KEY.get().isOther(request.hasExpectCompressed(), request.getExpectCompressed())) {
            responses.onError(OTHER_FORM);
            return;
          }
          pack(responses, request.hasResponseCompressed(), request.getResponseCompressed());
          responses.onNext(SimpleResponse.newBuilder().setPayload(payload(request.getResponseSize())).build());
          responses.onCompleted();
        }))
        .addMethod(OUTPUT, ServerCalls.asyncServerStreamingCall((request, responses) -> {
          write(request, responses);
          responses.onCompleted();
        }))
        .addMethod(INPUT, ServerCalls.asyncClientStreamingCall(Interop::sum))
        .addMethod(DUPLEX, ServerCalls.asyncBidiStreamingCall(Interop::answerEach))
        .build();
  }

  private static final StatusRuntimeException OTHER_FORM = Status.INVALID_ARGUMENT
      .withDescription("the message came in another form than it says").asRuntimeException();

  /** Chooses the form of the next message; before the first the encoding is said. */
  private static void pack(StreamObserver<?> responses, boolean isAsked, BoolValue asked) {
    if (isAsked) {
      var call = (ServerCallStreamObserver<?>) responses;
      try {
        call.setCompression("gzip");
      } catch (IllegalStateException raised) {
        // The encoding is said already.
      }
      call.setMessageCompression(asked.getValue());
    }
  }

  private static StatusRuntimeException asException(EchoStatus asked) {
    return Status.fromCodeValue(asked.getCode()).withDescription(asked.getMessage()).asRuntimeException();
  }

  private static void write(StreamingOutputCallRequest request, StreamObserver<StreamingOutputCallResponse> responses) {
    for (ResponseParameters parameters : request.getResponseParametersList()) {
      pack(responses, parameters.hasCompressed(), parameters.getCompressed());
      responses.onNext(StreamingOutputCallResponse.newBuilder().setPayload(payload(parameters.getSize())).build());
    }
  }

  private static StreamObserver<StreamingInputCallRequest> sum(StreamObserver<StreamingInputCallResponse> responses) {
    return new StreamObserver<>() {
      private final Seen seen = Seen.KEY.get();
      private int size;
      private boolean isOver;

      @Override
      public void onNext(StreamingInputCallRequest request) {
        if (!isOver && seen.isOther(request.hasExpectCompressed(), request.getExpectCompressed())) {
          isOver = true;
          responses.onError(OTHER_FORM);
        }
        size += request.getPayload().getBody().size();
      }

      @Override
      public void onError(Throwable raised) {}

      @Override
      public void onCompleted() {
        if (isOver) {
          return;
        }
        responses.onNext(StreamingInputCallResponse.newBuilder().setAggregatedPayloadSize(size).build());
        responses.onCompleted();
      }
    };
  }

  private static StreamObserver<StreamingOutputCallRequest> answerEach(
      StreamObserver<StreamingOutputCallResponse> responses) {
    return new StreamObserver<>() {
      private boolean isOver;

      @Override
      public void onNext(StreamingOutputCallRequest request) {
        if (request.getResponseStatus().getCode() != 0) {
          isOver = true;
          responses.onError(asException(request.getResponseStatus()));
        } else {
          write(request, responses);
        }
      }

      @Override
      public void onError(Throwable raised) {}

      @Override
      public void onCompleted() {
        if (!isOver) {
          responses.onCompleted();
        }
      }
    };
  }

  /** Sends back the metadata of the case `custom_metadata`. */
  private static final class Echoing implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, R> call, Metadata sent, ServerCallHandler<Q, R> next) {
      return next.startCall(new SimpleForwardingServerCall<Q, R>(call) {
        @Override
        public void sendHeaders(Metadata headers) {
          if (sent.containsKey(INITIAL)) {
            headers.put(INITIAL, sent.get(INITIAL));
          }
          super.sendHeaders(headers);
        }

        @Override
        public void close(Status status, Metadata trailers) {
          if (sent.containsKey(TRAILING)) {
            trailers.put(TRAILING, sent.get(TRAILING));
          }
          super.close(status, trailers);
        }
      }, sent);
    }
  }

  private Interop() {}
}

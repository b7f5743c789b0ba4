// grpc-go in gRPC's interop cases, which its own package of them runs.
//
//	interop client HOST:PORT AUTHORITY CASE...   prints a JSON line for each case, its error empty where it went well
//	interop server [CERTIFICATE KEY]             prints its addresses as a JSON line and serves until its input ends
//	interop version                              prints the version of grpc-go
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const soakCalls = 40
const soakBytes = 20_000

// The server drains its connections each 100 ms or so.
const agingPause = 20 * time.Millisecond

// fatal is a logger whose fatal lines are panics, since the package of cases ends the program with them.
type fatal struct{ grpclog.LoggerV2 }

type failure string

func (fatal) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (fatal) Fatalln(args ...any)               { panic(failure(fmt.Sprintln(args...))) }
func (fatal) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (fatal) InfoDepth(int, ...any)             {}
func (fatal) WarningDepth(int, ...any)          {}
func (fatal) ErrorDepth(int, ...any)            {}
func (fatal) FatalDepth(_ int, args ...any)     { panic(failure(fmt.Sprint(args...))) }

func main() {
	grpclog.SetLoggerV2(fatal{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	switch os.Args[1] {
	case "client":
		client(os.Args[2], os.Args[3], os.Args[4:])
	case "server":
		server(os.Args[2:])
	case "version":
		fmt.Println(grpc.Version)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(target, authority string, names []string) {
	creds := insecure.NewCredentials()
	if authority != "" {
		var err error
		creds, err = credentials.NewClientTLSFromFile(authority, "")
		check(err)
	}
	connect := func(options ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(creds))...)
		check(err)
		return conn
	}
	conn := connect()
	defer conn.Close()
	for _, name := range names {
		said, _ := json.Marshal(map[string]string{"case": name, "error": run(name, target, conn, connect)})
		fmt.Println(string(said))
	}
}

// run gives what went wrong, if anything did.
func run(name, target string, conn *grpc.ClientConn, connect func(...grpc.DialOption) *grpc.ClientConn) (found string) {
	defer func() {
		if raised := recover(); raised != nil {
			found = fmt.Sprint(raised)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stub := testgrpc.NewTestServiceClient(conn)
	switch name {
	case "empty_unary":
		interop.DoEmptyUnaryCall(ctx, stub)
	case "large_unary":
		interop.DoLargeUnaryCall(ctx, stub)
	case "gzip_large_unary":
		interop.DoLargeUnaryCall(ctx, stub, grpc.UseCompressor(gzip.Name))
	case "client_compressed_unary":
		clientCompressedUnary(ctx, stub)
	case "server_compressed_unary", "server_compressed_streaming":
		seen := &watch{}
		watched := connect(grpc.WithStatsHandler(seen))
		defer watched.Close()
		serverCompressed(ctx, testgrpc.NewTestServiceClient(watched), name == "server_compressed_unary", seen)
	case "client_streaming":
		interop.DoClientStreaming(ctx, stub)
	case "server_streaming":
		interop.DoServerStreaming(ctx, stub)
	case "ping_pong":
		interop.DoPingPong(ctx, stub)
	case "empty_stream":
		interop.DoEmptyStream(ctx, stub)
	case "custom_metadata":
		interop.DoCustomMetadata(ctx, stub)
	case "status_code_and_message":
		interop.DoStatusCodeAndMessage(ctx, stub)
	case "special_status_message":
		interop.DoSpecialStatusMessage(ctx, stub)
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, conn)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
	case "cancel_after_begin":
		interop.DoCancelAfterBegin(ctx, stub)
	case "cancel_after_first_response":
		interop.DoCancelAfterFirstResponse(ctx, stub)
	case "timeout_on_sleeping_server":
		interop.DoTimeoutOnSleepingServer(ctx, stub)
	case "rpc_soak":
		soak(ctx, target, 0, func() (*grpc.ClientConn, func()) { return conn, func() {} })
	case "aging_soak":
		soak(ctx, target, agingPause, func() (*grpc.ClientConn, func()) { return conn, func() {} })
	case "channel_soak":
		soak(ctx, target, 0, func() (*grpc.ClientConn, func()) {
			fresh := connect()
			return fresh, func() { fresh.Close() }
		})
	default:
		return "no such case"
	}
	return ""
}

// expect ends the case.
func expect(isSo bool, what ...any) {
	if !isSo {
		panic(failure(fmt.Sprint(what...)))
	}
}

// watch notes of each message that comes whether it was compressed.
type watch struct{ isPacked []bool }

func (*watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*watch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*watch) HandleConn(context.Context, stats.ConnStats)                       {}
func (w *watch) HandleRPC(_ context.Context, said stats.RPCStats) {
	if in, ok := said.(*stats.InPayload); ok {
		w.isPacked = append(w.isPacked, in.CompressedLength != in.Length)
	}
}

func simple() *testgrpc.SimpleRequest {
	return &testgrpc.SimpleRequest{ResponseSize: 314_159, Payload: &testgrpc.Payload{Body: make([]byte, 271_828)}}
}

// The package of cases has none about compression.
func clientCompressedUnary(ctx context.Context, stub testgrpc.TestServiceClient) {
	request := simple()
	request.ExpectCompressed = &testgrpc.BoolValue{Value: true}
	_, err := stub.UnaryCall(ctx, request)
	expect(status.Code(err) == codes.InvalidArgument, "the probe: ", err)
	for _, isPacked := range []bool{true, false} {
		options := []grpc.CallOption{}
		if isPacked {
			options = append(options, grpc.UseCompressor(gzip.Name))
		}
		request.ExpectCompressed.Value = isPacked
		found, err := stub.UnaryCall(ctx, request, options...)
		expect(err == nil, err)
		expect(len(found.Payload.Body) == 314_159, "another size")
	}
}

func serverCompressed(ctx context.Context, stub testgrpc.TestServiceClient, isUnary bool, seen *watch) {
	if isUnary {
		for _, isPacked := range []bool{true, false} {
			request := simple()
			request.ResponseCompressed = &testgrpc.BoolValue{Value: isPacked}
			found, err := stub.UnaryCall(ctx, request)
			expect(err == nil, err)
			expect(len(found.Payload.Body) == 314_159, "another size")
		}
	} else {
		wanted := []*testgrpc.ResponseParameters{
			{Size: 31_415, Compressed: &testgrpc.BoolValue{Value: true}},
			{Size: 92_653, Compressed: &testgrpc.BoolValue{Value: false}},
		}
		stream, err := stub.StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{ResponseParameters: wanted})
		expect(err == nil, err)
		for _, parameters := range wanted {
			found, err := stream.Recv()
			expect(err == nil, err)
			expect(len(found.Payload.Body) == int(parameters.Size), "another size")
		}
		_, err = stream.Recv()
		expect(err == io.EOF, err)
	}
	expect(slices.Equal(seen.isPacked, []bool{true, false}), "compressed: ", seen.isPacked)
}

func soak(ctx context.Context, target string, pause time.Duration, channel func() (*grpc.ClientConn, func())) {
	stderr := os.Stderr
	os.Stderr, _ = os.Open(os.DevNull)
	defer func() { os.Stderr = stderr }()
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize: soakBytes, ResponseSize: soakBytes, PerIterationMaxAcceptableLatency: time.Minute,
		MinTimeBetweenRPCs: pause, OverallTimeout: time.Minute, ServerAddr: target, NumWorkers: 1, Iterations: soakCalls, ChannelForTest: channel,
	})
}

func server(files []string) {
	addresses := map[string]string{}
	listen := func(name string, options ...grpc.ServerOption) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		addresses[name] = listener.Addr().String()
		server := grpc.NewServer(options...)
		testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
		go server.Serve(listener)
	}
	listen("plain")
	if len(files) > 0 {
		creds, err := credentials.NewServerTLSFromFile(files[0], files[1])
		check(err)
		listen("tls", grpc.Creds(creds))
	}
	said, _ := json.Marshal(addresses)
	fmt.Println(string(said))
	io.Copy(io.Discard, os.Stdin)
}

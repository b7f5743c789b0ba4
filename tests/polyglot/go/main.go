// A client of SSOP Mesh on grpc-go and stubs generated from protos/ alone. Each scenario prints JSON lines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ssop "github.com/ssop-mesh/ssop/gen/go/ssop/v1"
)

const schema = `{"type": "object",
 "properties": {"mood": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
 "required": ["mood", "score"], "additionalProperties": false}`

const refused = `{"properties": {"mood": {"$ref": "http://x/y"}}}`

func request(text, schema string) *ssop.GenerateRequest {
	return &ssop.GenerateRequest{
		Prompt: &ssop.Prompt{
			Messages: []*ssop.Message{{
				Role:  ssop.Role_ROLE_USER,
				Parts: []*ssop.ContentPart{{Part: &ssop.ContentPart_Text{Text: text}}},
			}},
			OutputSchema: &ssop.OutputSchema{JsonSchema: schema},
		},
	}
}

// show prints the fields of chunks as they arrive, and how the answer ended. It stops after `limit` fields; 0: never.
func show(document *Document, receive func() (*ssop.Chunk, error), limit int) error {
	fields := 0
	for {
		chunk, err := receive()
		if errors.Is(err, io.EOF) {
			say("verdict", document.End.GetVerdict().String(), "frames", document.LastSeq)
			return nil
		}
		if err != nil {
			return err
		}
		for _, frame := range chunk.Frames {
			if frame.Kind == ssop.FrameKind_FRAME_KIND_STATUS {
				say("degraded_level", frame.GetStatus().DegradedLevel)
			}
			field, ok, err := document.Take(frame)
			if err != nil {
				return err
			}
			if ok {
				say("path", field.Pointer, "value", field.Value)
				if fields++; fields == limit {
					return nil
				}
			}
		}
	}
}

func generate(ctx context.Context, mesh ssop.RouterServiceClient, request *ssop.GenerateRequest, limit int) error {
	stream, err := mesh.Generate(ctx, request)
	if err != nil {
		return err
	}
	if err := show(&Document{}, stream.Recv, limit); err != nil {
		return err
	}
	if limit == 0 {
		say("status", stream.Trailer().Get("x-ssop-status"))
	}
	return nil
}

func session(ctx context.Context, mesh ssop.RouterServiceClient, schema string) error {
	stream, err := mesh.Session(ctx)
	if err != nil {
		return err
	}
	const id = "typed"
	begin := &ssop.SessionBegin{Request: request("How is ", schema)}
	for _, message := range []*ssop.SessionRequest{
		{RequestId: id, Message: &ssop.SessionRequest_Begin{Begin: begin}},
		{RequestId: id, Message: &ssop.SessionRequest_Piece{Piece: "the "}},
		{RequestId: id, Message: &ssop.SessionRequest_Piece{Piece: "mood?"}},
		{RequestId: id, Message: &ssop.SessionRequest_Commit{Commit: &ssop.SessionCommit{}}},
	} {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return show(&Document{}, func() (*ssop.Chunk, error) {
		for {
			response, err := stream.Recv()
			if err != nil {
				return nil, err
			}
			if chunk := response.GetChunk(); chunk != nil {
				// Without credit for what was read, an answer stops after 64 KiB.
				credit := &ssop.SessionCredit{Bytes: uint32(proto.Size(chunk))}
				return chunk, stream.Send(&ssop.SessionRequest{
					RequestId: id, Message: &ssop.SessionRequest_Credit{Credit: credit},
				})
			}
			if finished := response.GetFinished(); finished != nil {
				if finished.Status.GetCode() != 0 {
					found := finished.Status
					return nil, status.ErrorProto(&spb.Status{Code: found.Code, Message: found.Message, Details: found.Details})
				}
				return nil, io.EOF
			}
		}
	}, 0)
}

// resume loses its connection after the first field, and goes on from there without running the model again.
func resume(ctx context.Context, mesh ssop.RouterServiceClient) error {
	asked := request("How is the mood?", schema)
	asked.RequestId, asked.ResumeWindowMs = "resumed", 10_000
	lost, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := mesh.Generate(lost, asked)
	if err != nil {
		return err
	}
	document := &Document{}
	if err := show(document, stream.Recv, 1); err != nil {
		return err
	}
	cancel()
	rest, err := mesh.Resume(ctx, &ssop.ResumeRequest{RequestId: asked.RequestId, AfterSeq: document.LastSeq})
	if err != nil {
		return err
	}
	return show(document, rest.Recv, 0)
}

// explain prints what an error says beside its text.
func explain(err error) {
	found := status.Convert(err)
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			say("reason", detail.Reason, "domain", detail.Domain, "pointer", detail.Metadata["pointer"])
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				say("field", violation.Field)
			}
		}
	}
	say("code", found.Code().String())
}

func say(pairs ...any) {
	line := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		line[pairs[i].(string)] = pairs[i+1]
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func run(scenario, target, key string) error {
	if scenario == "vectors" {
		return vectors(target)
	}
	security := insecure.NewCredentials()
	if authority := os.Getenv("SSOP_TEST_CA"); authority != "" {
		found, err := credentials.NewClientTLSFromFile(authority, "")
		if err != nil {
			return err
		}
		security = found
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(security))
	if err != nil {
		return err
	}
	defer connection.Close()
	mesh := ssop.NewRouterServiceClient(connection)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+key)
	timeout := 20 * time.Second
	if scenario == "deadline" {
		timeout = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch scenario {
	case "generate", "deadline":
		return generate(ctx, mesh, request("How is the mood?", schema), 0)
	case "degraded": // a model by name: where none of its nodes can serve, another answers and says so
		asked := request("How is the mood?", schema)
		asked.Model = "grok-3"
		return generate(ctx, mesh, asked, 0)
	case "cancel": // leaving the function cancels the context, and with it the generation
		return generate(ctx, mesh, request("How is the mood?", schema), 1)
	case "refused":
		return generate(ctx, mesh, request("How is the mood?", refused), 0)
	case "session":
		return session(ctx, mesh, schema)
	case "session-refused":
		return session(ctx, mesh, refused)
	case "resume":
		return resume(ctx, mesh)
	}
	return fmt.Errorf("no scenario %q", scenario)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: client SCENARIO TARGET [KEY]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Getenv("SSOP_API_KEY")); err != nil {
		explain(err)
		os.Exit(1)
	}
}

package main

import (
	"encoding/hex"
	"encoding/json"
	"os"

	"google.golang.org/protobuf/proto"

	ssop "github.com/ssop-mesh/ssop/gen/go/ssop/v1"
)

// vectors prints what this client makes of each document in the file that all languages are tested against.
func vectors(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file struct {
		Vectors []struct {
			Name   string
			Chunks []string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	for _, vector := range file.Vectors {
		document := &Document{}
		for _, text := range vector.Chunks {
			bytes, err := hex.DecodeString(text)
			if err != nil {
				return err
			}
			chunk := &ssop.Chunk{}
			if err := proto.Unmarshal(bytes, chunk); err != nil {
				return err
			}
			for _, frame := range chunk.Frames {
				field, ok, err := document.Take(frame)
				if err != nil {
					return err
				}
				if ok {
					say("vector", vector.Name, "path", field.Pointer, "value", field.Value)
				}
			}
		}
		say("vector", vector.Name, "verdict", document.End.Verdict.String(), "frames", document.LastSeq)
	}
	return nil
}

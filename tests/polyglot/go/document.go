package main

import (
	"fmt"
	"strings"

	ssop "github.com/ssop-mesh/ssop/gen/go/ssop/v1"
)

// Field is a completed value of a document: a string, float64, int64, bool, nil, or Number.
type Field struct {
	Pointer string // JSON Pointer (RFC 6901)
	Value   any
}

// Number is the text of a number that neither int64 nor float64 holds.
type Number string

// Document turns frames into fields. codec/SPEC.md, sections 3 to 9.
type Document struct {
	End     *ssop.End
	LastSeq uint64
	table   []*ssop.FieldNode
	parts   strings.Builder
}

// Take reads a frame; ok says that it completes a field.
func (d *Document) Take(frame *ssop.Frame) (field Field, ok bool, err error) {
	if frame.Kind >= ssop.FrameKind_FRAME_KIND_DECISION || frame.Document != 0 {
		return Field{}, false, nil // about the delivery, or a tool call
	}
	if frame.Seq <= d.LastSeq {
		return Field{}, false, nil // a frame that comes again counts once
	}
	if frame.Seq != d.LastSeq+1 {
		return Field{}, false, fmt.Errorf("frames %d to %d were lost", d.LastSeq+1, frame.Seq-1)
	}
	d.LastSeq = frame.Seq
	switch frame.Kind {
	case ssop.FrameKind_FRAME_KIND_HEADER:
		header := frame.GetHeader()
		if len(d.table) == 0 && header.WireVersion != 1 {
			return Field{}, false, fmt.Errorf("wire version %d", header.WireVersion)
		}
		d.table = append(d.table, header.Nodes...)
	case ssop.FrameKind_FRAME_KIND_PART:
		d.parts.WriteString(frame.GetStringValue())
	case ssop.FrameKind_FRAME_KIND_VALUE:
		pointer, err := d.pointer(frame)
		return Field{pointer, d.value(frame)}, err == nil, err
	case ssop.FrameKind_FRAME_KIND_END:
		d.End = frame.GetEnd()
	}
	return Field{}, false, nil
}

func (d *Document) value(frame *ssop.Frame) any {
	switch content := frame.Content.(type) {
	case *ssop.Frame_StringValue:
		text := d.parts.String() + content.StringValue
		d.parts.Reset()
		return text
	case *ssop.Frame_DoubleValue:
		return content.DoubleValue
	case *ssop.Frame_IntValue:
		return content.IntValue
	case *ssop.Frame_BoolValue:
		return content.BoolValue
	case *ssop.Frame_JsonValue:
		return Number(content.JsonValue)
	}
	return nil
}

// pointer walks from node 0 to the frame's node, and takes a step of the path where the table says so.
func (d *Document) pointer(frame *ssop.Frame) (string, error) {
	var out strings.Builder
	base, steps := uint32(0), frame.Path
	for {
		target, isReference := frame.Node, false
		for _, step := range steps {
			if reference, ok := step.Step.(*ssop.PathStep_RefNode); ok {
				target, isReference = reference.RefNode, true
				break
			}
		}
		var chain []*ssop.FieldNode // from below base to target
		for number := target; number != base; number = d.table[number].Parent {
			if int(number) >= len(d.table) || d.table[number].Parent >= number { // the root is below nothing
				return "", fmt.Errorf("frame %d names a node that its table does not have", frame.Seq)
			}
			chain = append(chain, d.table[number])
		}
		for i := len(chain) - 1; i >= 0; i-- {
			switch node := chain[i]; node.Step {
			case ssop.FieldStep_FIELD_STEP_PROPERTY:
				writeKey(&out, node.Key)
			case ssop.FieldStep_FIELD_STEP_PREFIX_ITEM:
				fmt.Fprintf(&out, "/%d", node.Index)
			default: // an item, or the value of a map: which one is in the frame
				if len(steps) == 0 {
					return "", fmt.Errorf("the path of frame %d is too short", frame.Seq)
				}
				writeStep(&out, steps[0])
				steps = steps[1:]
			}
		}
		if !isReference {
			break
		}
		// A walk ends at a reference, and the next one starts where it refers to.
		base, steps = d.table[target].GetRefNode(), steps[1:]
	}
	for _, step := range steps { // below the table: an untyped value
		writeStep(&out, step)
	}
	return out.String(), nil
}

func writeStep(out *strings.Builder, step *ssop.PathStep) {
	if key, ok := step.Step.(*ssop.PathStep_Key); ok {
		writeKey(out, key.Key)
		return
	}
	fmt.Fprintf(out, "/%d", step.GetIndex())
}

func writeKey(out *strings.Builder, key string) {
	out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
}

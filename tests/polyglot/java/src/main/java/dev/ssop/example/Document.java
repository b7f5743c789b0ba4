package dev.ssop.example;

import dev.ssop.v1.End;
import dev.ssop.v1.FieldNode;
import dev.ssop.v1.Frame;
import dev.ssop.v1.PathStep;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Turns frames into fields. codec/SPEC.md, sections 3 to 9. */
final class Document {
  /**
   * A completed value.
   *
   * @param pointer JSON Pointer (RFC 6901)
   * @param value a String, Double, Long, Boolean, NumberText or null
   */
  record Field(String pointer, Object value) {}

  /** The text of a number that neither a long nor a double holds. */
  record NumberText(String text) {}

  private final List<FieldNode> table = new ArrayList<>();
  private final StringBuilder parts = new StringBuilder();
  private End end = End.getDefaultInstance();
  private long lastSeq;

  /** The END frame; its verdict is unspecified until it has come. */
  End end() {
    return end;
  }

  /** The last frame that was read; where to resume. */
  long lastSeq() {
    return lastSeq;
  }

  /** Reads a frame; returns the field that it completes, or null. */
  Field take(Frame frame) {
    // Mesh frames speak of the delivery and have no sequence number; a frame that comes again counts once.
    if (frame.getDocument() != 0 || frame.getSeq() <= lastSeq) return null;
    if (frame.getSeq() != lastSeq + 1) {
      throw new IllegalStateException("frames %d to %d were lost".formatted(lastSeq + 1, frame.getSeq() - 1));
    }
    lastSeq = frame.getSeq();
    switch (frame.getKind()) {
      case FRAME_KIND_HEADER -> {
        if (table.isEmpty() && frame.getHeader().getWireVersion() != 1) {
          throw new IllegalStateException("wire version " + frame.getHeader().getWireVersion());
        }
        table.addAll(frame.getHeader().getNodesList());
      }
      case FRAME_KIND_PART -> parts.append(frame.getStringValue());
      case FRAME_KIND_VALUE -> {
        return new Field(pointer(frame), value(frame));
      }
      case FRAME_KIND_END -> end = frame.getEnd();
      default -> {} // CLOSE, and kinds that are not known yet
    }
    return null;
  }

  private Object value(Frame frame) {
    switch (frame.getContentCase()) {
      case STRING_VALUE:
        String text = parts + frame.getStringValue();
        parts.setLength(0);
        return text;
      case DOUBLE_VALUE:
        return frame.getDoubleValue();
      case INT_VALUE:
        return frame.getIntValue();
      case BOOL_VALUE:
        return frame.getBoolValue();
      case JSON_VALUE:
        return new NumberText(frame.getJsonValue().toStringUtf8());
      default:
        return null;
    }
  }

  /** Walks from node 0 to the frame's node, and takes a step of the path where the table says so. */
  private String pointer(Frame frame) {
    StringBuilder out = new StringBuilder();
    Deque<PathStep> steps = new ArrayDeque<>(frame.getPathList());
    int base = 0;
    while (true) {
      PathStep reference = steps.stream().filter(PathStep::hasRefNode).findFirst().orElse(null);
      int target = reference == null ? frame.getNode() : reference.getRefNode();
      Deque<FieldNode> chain = new ArrayDeque<>(); // from below base to target
      for (int number = target; number != base; number = table.get(number).getParent()) {
        if (table.get(number).getParent() >= number) throw new IllegalStateException("a node that is not below its reference");
        chain.push(table.get(number));
      }
      for (FieldNode node : chain) {
        switch (node.getStep()) {
          case FIELD_STEP_PROPERTY -> key(out, node.getKey());
          case FIELD_STEP_PREFIX_ITEM -> out.append('/').append(node.getIndex());
          default -> step(out, steps.remove()); // an item, or the value of a map: which one is in the frame
        }
      }
      if (reference == null) break;
      // A walk ends at a reference, and the next one starts where it refers to.
      steps.remove();
      base = table.get(target).getRefNode();
    }
    steps.forEach(step -> step(out, step)); // below the table: an untyped value
    return out.toString();
  }

  private static void step(StringBuilder out, PathStep step) {
    if (step.hasKey()) key(out, step.getKey());
    else out.append('/').append(step.getIndex());
  }

  private static void key(StringBuilder out, String key) {
    out.append('/').append(key.replace("~", "~0").replace("/", "~1"));
  }
}

package dev.ssop.example;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.ssop.v1.Chunk;
import dev.ssop.v1.Frame;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

/** What this client makes of the documents in the file that all languages are tested against. */
final class Vectors {
  private Vectors() {}

  static void show(String path) throws IOException {
    JsonObject file = JsonParser.parseString(Files.readString(Path.of(path))).getAsJsonObject();
    for (JsonElement vector : file.getAsJsonArray("vectors")) {
      String name = vector.getAsJsonObject().get("name").getAsString();
      Document document = new Document();
      for (JsonElement chunk : vector.getAsJsonObject().getAsJsonArray("chunks")) {
        for (Frame frame : Chunk.parseFrom(HexFormat.of().parseHex(chunk.getAsString())).getFramesList()) {
          Document.Field field = document.take(frame);
          if (field != null) Main.say("vector", name, "path", field.pointer(), "value", field.value());
        }
      }
      Main.say("vector", name, "verdict", document.end().getVerdict().name(), "frames", document.lastSeq());
    }
  }
}

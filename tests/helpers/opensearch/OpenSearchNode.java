import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** One OpenSearch node, {@code OpenSearchNode FOLDER PORT}: it listens on 127.0.0.1 and writes its port to FOLDER/port. */
public final class OpenSearchNode extends Node {
  private OpenSearchNode(Settings settings, Path folder) {
    super(new Environment(settings, folder), List.<Class<? extends Plugin>>of(Netty4Plugin.class), false);
  }

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]).toAbsolutePath();
    Settings settings =
        Settings.builder()
            .put("cluster.name", "ssop-tests")
            .put("node.name", "one")
            .put("path.home", folder.toString())
            .put("network.host", "127.0.0.1")
            .put("http.port", arguments[1])
            .put("transport.port", "0")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    OpenSearchNode node = new OpenSearchNode(settings, folder);
    node.start();
    int port =
        node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort();
    Path ready = folder.resolve("port.new");
    Files.writeString(ready, Integer.toString(port));
    Files.move(ready, folder.resolve("port"));
    new CountDownLatch(1).await();
  }
}

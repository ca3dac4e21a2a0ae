// A web server with the JVM metrics of Prometheus' Java client: java -cp CLASSES CountedServer PORT
// /work?ms=N takes N milliseconds of processor time.

import com.sun.net.httpserver.HttpServer;
import io.prometheus.metrics.exporter.httpserver.MetricsHandler;
import io.prometheus.metrics.instrumentation.jvm.JvmMetrics;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public final class CountedServer {
  private static volatile Object last;

  public static void main(String[] arguments) throws Exception {
    JvmMetrics.builder().register();
    HttpServer server =
        HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
    server.createContext("/metrics", new MetricsHandler());
    server.createContext(
        "/work",
        exchange -> {
          work(Long.parseLong(exchange.getRequestURI().getQuery().replace("ms=", "")));
          exchange.sendResponseHeaders(200, -1);
          exchange.close();
        });
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
  }

  private static void work(long milliseconds) {
    var threads = ManagementFactory.getThreadMXBean();
    long end = threads.getCurrentThreadCpuTime() + milliseconds * 1_000_000;
    long sum = 0;
    while (threads.getCurrentThreadCpuTime() < end) {
      for (int number = 0; number < 1000; number++) sum += number;
    }
    last = sum;
  }
}

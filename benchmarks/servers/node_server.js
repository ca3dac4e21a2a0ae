// A web server with prom-client's default metrics: node node_server.js PORT MODULES
// /work?ms=N takes N milliseconds of processor time, /litter?kb=N makes so much garbage.
const http = require("http");
const [port, modules] = process.argv.slice(2);
const client = require(require.resolve("prom-client", { paths: [modules] }));

client.collectDefaultMetrics();

function work(milliseconds) {
  const start = process.cpuUsage();
  let sum = 0;
  for (;;) {
    for (let number = 0; number < 10000; number++) sum += number;
    const used = process.cpuUsage(start);
    if (used.user + used.system >= milliseconds * 1000) return sum;
  }
}

function litter(kilobytes) {
  let last = null;
  for (let number = 0; number < kilobytes; number++) last = { content: "x".repeat(1000) + number, last: null };
  return last;
}

http
  .createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    if (url.pathname === "/metrics") {
      response.setHeader("Content-Type", client.register.contentType);
      response.end(await client.register.metrics());
      return;
    }
    litter(Number(url.searchParams.get("kb") || 0));
    work(Number(url.searchParams.get("ms") || 0));
    response.end("done\n");
  })
  .listen(Number(port), "127.0.0.1");

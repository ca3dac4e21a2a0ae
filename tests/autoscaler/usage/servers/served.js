// What the servers of Node share.
// /work?ms=N takes N milliseconds of processor time.
const http = require("http");

function work(milliseconds) {
  const start = process.cpuUsage();
  let sum = 0;
  for (;;) {
    for (let number = 0; number < 10000; number++) sum += number;
    const used = process.cpuUsage(start);
    if (used.user + used.system >= milliseconds * 1000) return sum;
  }
}

module.exports = function serve(metrics) {
  http
    .createServer(async (request, response) => {
      const url = new URL(request.url, "http://localhost");
      if (url.pathname === "/metrics") {
        await metrics(response);
        return;
      }
      work(Number(url.searchParams.get("ms") || 0));
      response.end("done\n");
    })
    .listen(Number(process.argv[2]), "127.0.0.1");
};

// A web server with prom-client's default metrics: node node_server.js PORT
const client = require("prom-client");
const serve = require("./served.js");

client.collectDefaultMetrics();
serve(async (response) => {
  response.setHeader("Content-Type", client.register.contentType);
  response.end(await client.register.metrics());
});

-- wrk asks for the paths of a file (its one argument), one after the other, and prints its summary as JSON.

local requests = {}
local last = 0

function init(arguments)
  for line in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("GET", line)
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"microseconds":%d,"p50":%d,"p99":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end

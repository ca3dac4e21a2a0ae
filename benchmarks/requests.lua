-- wrk asks for the paths of a file (its first argument), one after the other, and prints its summary as JSON. With a second argument
-- every tenth request has a selector that was never asked before: the path's own and one term more, which begins with that argument.

local paths = {}
local requests = {}
local last = 0
local count = 0
local fresh = ""

function init(arguments)
  for line in io.lines(arguments[1]) do
    paths[#paths + 1] = line
    requests[#requests + 1] = wrk.format("GET", line)
  end
  fresh = arguments[2] or ""
end

function request()
  last = last % #requests + 1
  count = count + 1
  if fresh ~= "" and count % 10 == 1 then
    return wrk.format("GET", paths[last] .. "%2Cprobe%21%3D" .. fresh .. "-" .. count)
  end
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

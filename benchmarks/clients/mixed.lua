-- wrk: one of many sessions for each request. SESSIONS names a file with a Cookie header's value a line.
local requests = {}

function init(_)
    for cookie in io.lines(os.getenv("SESSIONS")) do
        local headers = { ["Cookie"] = cookie, ["Content-Type"] = "application/json" }
        requests[#requests + 1] = wrk.format("POST", "/increment", headers, '{"count": 1}')
    end
    math.randomseed(tonumber(os.getenv("SEED")))
end

function request()
    return requests[math.random(#requests)]
end

function done(summary, latency, _)
    local errors = summary.errors
    io.write(string.format(
        'JSON {"requests": %d, "seconds": %f, "p50": %f, "p90": %f, "http_errors": %d, "socket_errors": %d}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(90) / 1e6,
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end

wrk.method = "POST"
wrk.body = '{"model":"mock","messages":[{"role":"user","content":"hello hello hello"}],"max_tokens":32,"stream":false}'
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer sk-x"
done = function(s, l, r)
  local e = s.errors
  io.write(string.format('{"rps":%.0f,"p50":%.0f,"p99":%.0f,"p999":%.0f,"n":%d,"bad":%d}\n', s.requests / (s.duration / 1e6),
    l:percentile(50), l:percentile(99), l:percentile(99.9), s.requests, e.connect + e.read + e.write + e.status + e.timeout))
end

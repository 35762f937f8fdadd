-- The body of one durable add, 200 B of payload, for wrk.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"delay":"8000h","payload":{"d":"' .. string.rep("x", 192) ..
  '"},"callback":{"url":"http://127.0.0.1:7780/"}}'

-- The bodies that `carillon loadtest add` posts, for wrk: each timer with an id, a time and a payload of its own, of 200 B exactly.
-- Unlike add.lua it makes each request anew.
local run = string.format("%08x", os.time())
local pad = string.rep("0123456789abcdefghijklmnopqrstuvwxyz", 6)
local headers = { ["Content-Type"] = "application/json", ["User-Agent"] = "wrk" }
local from = (os.time() + 3600) * 1000
local n = 0

request = function()
  n = n + 1
  local due = from + n
  local payload = '{"timer":"' .. run .. "." .. n .. ".1." .. due .. '","pad":"'
  return wrk.format("POST", nil, headers, '{"id":"lt-' .. run .. "-" .. n .. '","at_ms":' .. due .. ',"payload":' .. payload ..
    string.sub(pad, 1, 200 - #payload - 2) .. '"},"callback":{"url":"http://127.0.0.1:45493/"}}')
end

-- The add of add.lua, for wrk, in TOPICS=n topics one after the other.
local body = '{"delay":"8000h","payload":{"d":"' .. string.rep("x", 192) .. '"},"callback":{"url":"http://127.0.0.1:7780/"}}'
local headers = { ["Content-Type"] = "application/json" }
local topics = tonumber(os.getenv("TOPICS"))
local n = 0

request = function()
  n = n % topics + 1
  return wrk.format("POST", "/v1/topics/many-" .. n .. "/timers", headers, body)
end
